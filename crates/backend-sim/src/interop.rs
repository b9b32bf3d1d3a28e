//! Streams, events and memory by their native handles, as another library on the same device would use them.
#![expect(unsafe_code, reason = "implements an unsafe ability")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use backend_support::{Block, lock};
use runtime_core::contract::{DeviceEvent, DeviceStream, NativeInterop};
use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Origin, OriginKind, Result};

use crate::device::SimDevice;
use crate::event::SimEvent;
use crate::stream::SimStream;

/// Live objects, by address.
pub(crate) struct Alive<T>(Mutex<BTreeMap<usize, Weak<T>>>);

impl<T> Alive<T> {
    /// Registers an object at an address.
    pub(crate) fn note(&self, address: usize, object: &Arc<T>) {
        let mut alive = self.lock();
        if alive.len().is_power_of_two() {
            alive.retain(|_, object| object.strong_count() > 0);
        }
        alive.insert(address, Arc::downgrade(object));
    }

    /// The object that begins at an address.
    fn at(&self, address: usize) -> Option<Arc<T>> {
        self.lock().get(&address)?.upgrade()
    }

    /// The last object that begins at or before an address.
    fn before(&self, address: usize) -> Option<(usize, Arc<T>)> {
        let alive = self.lock();
        let before = alive.range(..=address).rev();
        before.map(|(base, object)| (*base, object.upgrade())).find_map(|(b, o)| Some((b, o?)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<T>>> {
        lock(&self.0)
    }
}

impl<T> Default for Alive<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Alive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.lock().len())
    }
}

fn none<T>(operation: &'static str, handle: NativeHandle) -> Result<T> {
    let message = format!("{handle:?} is nothing that this device has");
    Err(Error::new(ErrorKind::InvalidArgument, operation, message))
}

// SAFETY: a stream made from a handle has the queue of the stream that the handle refers to, and both keep it alive.
unsafe impl NativeInterop for SimDevice {
    unsafe fn stream(&self, handle: NativeHandle) -> Result<Box<dyn DeviceStream>> {
        const OPERATION: &str = "stream_from_native";
        self.shared().check(OPERATION)?;
        match self.shared().lanes.at(handle.raw) {
            Some(lane) => Ok(Box::new(SimStream::on(lane, self.shared()))),
            None => none(OPERATION, handle),
        }
    }

    unsafe fn stream_end(&self, _stream: &dyn DeviceStream) {
        // The queue is reference-counted, and its work holds all it needs.
    }

    unsafe fn event(&self, handle: NativeHandle) -> Result<Box<dyn DeviceEvent>> {
        const OPERATION: &str = "event_from_native";
        self.shared().check(OPERATION)?;
        match self.shared().events.at(handle.raw) {
            Some(event) => Ok(Box::new(SimEvent::of(event, self.shared()))),
            None => none(OPERATION, handle),
        }
    }

    unsafe fn origin(&self, handle: NativeHandle) -> Result<Option<Origin>> {
        let shared = self.shared();
        shared.check("origin")?;
        if handle.kind != NativeKind::Pointer {
            return Ok(None);
        }
        let within = |blocks: &Alive<Block>, kind| {
            let (base, block) = blocks.before(handle.raw)?;
            let (offset, bytes) = (handle.raw - base, block.len());
            let device = Some(shared.index());
            (offset < bytes).then_some(Origin::new(kind, base, offset, bytes).with_device(device))
        };
        let device = within(&shared.blocks, OriginKind::Device);
        Ok(device.or_else(|| within(&shared.pinned, OriginKind::Pinned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_not_found() {
        let alive = Alive::default();
        let objects: Vec<Arc<usize>> = (0..100).map(Arc::new).collect();
        for object in &objects {
            alive.note(**object * 10, object);
        }
        assert_eq!(alive.at(70).as_deref(), Some(&7));
        assert_eq!(alive.at(71), None);
        assert_eq!(alive.before(79), Some((70, Arc::new(7))));
        let large = Arc::new(1);
        alive.note(5, &large);
        drop(objects);
        assert_eq!(alive.before(79), Some((5, large)), "what is gone hides nothing");
        assert_eq!(alive.at(70), None);
        (0..200).for_each(|address| alive.note(address, &Arc::new(0)));
        assert!(alive.lock().len() < 130, "{alive:?} are kept");
    }
}
