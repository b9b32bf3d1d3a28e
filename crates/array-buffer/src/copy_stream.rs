//! The streams on which arrays copy.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use runtime_core::{Device, Result, Stream, StreamOptions};

/// The stream of a device on which all arrays copy what no stream of an access copies. So these copies wait for no work
/// of the program, and the failure of one does not stop the program's streams.
pub(crate) struct CopyStream(Stream);

impl CopyStream {
    /// The one of a device.
    pub(crate) fn of(device: &Device) -> Result<Arc<Self>> {
        static ALL: Mutex<Vec<Weak<CopyStream>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock();
        all.retain(|known| known.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|known| known.0.device().is_same(device)) {
            return Ok(known);
        }
        let new = Arc::new(Self(device.stream_create(&StreamOptions::default())?));
        all.push(Arc::downgrade(&new));
        Ok(new)
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.0
    }
}
