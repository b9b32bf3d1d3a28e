//! The state that the streams and modules of an accelerator share with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use backend_support::lock;
use runtime_core::contract::MemoryArea;
use runtime_core::{Embedded, Error, ErrorKind, Result};

use super::heap::{Heap, Range};
use crate::Architecture;

/// The state that streams and modules share with the device.
#[derive(Debug)]
pub(crate) struct OpenDevice {
    pub(crate) device: Embedded,
    pub(crate) architecture: Architecture,
    pub(crate) area: MemoryArea,
    pub(crate) heap: Arc<Heap>,
    pub(crate) timeout: Duration,
    lost: AtomicBool,
    /// Locked while the processor works for one stream, including the reset after a launch that hangs.
    turn: Mutex<()>,
}

/// The devices that are accelerators now.
static OPEN: Mutex<Vec<Weak<OpenDevice>>> = Mutex::new(Vec::new());

impl OpenDevice {
    /// The state of a new accelerator, to whose allocations all of `area` is free.
    ///
    /// # Errors
    ///
    /// `Conflict` if the device is an accelerator already.
    pub(super) fn open(
        device: Embedded,
        architecture: Architecture,
        area: MemoryArea,
        timeout: Duration,
    ) -> Result<Arc<Self>> {
        // Dropped after the lock is released, as the last of them may run the destructor of a device.
        let known: Vec<Arc<Self>>;
        let mut open = lock(&OPEN);
        open.retain(|known| known.strong_count() > 0);
        known = open.iter().filter_map(Weak::upgrade).collect();
        if known.iter().any(|known| known.device.is_same(&device)) {
            let message = "the device is an accelerator already, or objects of an earlier one live";
            let error = Error::new(ErrorKind::Conflict, "open", message).on(device.id());
            drop(open);
            return Err(error);
        }
        let shared = Arc::new(Self::new(device, architecture, area, timeout));
        open.push(Arc::downgrade(&shared));
        drop(open);
        Ok(shared)
    }

    fn new(
        device: Embedded,
        architecture: Architecture,
        area: MemoryArea,
        timeout: Duration,
    ) -> Self {
        Self {
            device,
            architecture,
            heap: Heap::new(area.address, area.bytes),
            area,
            timeout,
            lost: AtomicBool::new(false),
            turn: Mutex::default(),
        }
    }

    /// Refuses calls on a lost device.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            let message = "the accelerator was lost in an earlier operation; open it again";
            let lost = Error::new(ErrorKind::DeviceLost, operation, message);
            return Err(lost.with_driver("EMBEDDED_LOST", 0).on(self.device.id()));
        }
        Ok(())
    }

    /// Calls `act` with the device, and records if the device is lost.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Embedded) -> Result<T>) -> Result<T> {
        self.check("enqueue")?;
        let done = act(&self.device);
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceLost) {
            self.lost.store(true, Ordering::Release);
        }
        done
    }

    /// As [`with`](Self::with), for an operation that does not need the processor and can be done twice. If a launch
    /// that hangs is in its way, it is done again after the reset.
    pub(crate) fn access(&self, mut act: impl FnMut(&Embedded) -> Result<()>) -> Result<()> {
        match self.with(&mut act) {
            Err(error) if error.kind() == ErrorKind::Conflict => self.exclusively(act),
            done => done,
        }
    }

    /// As [`with`](Self::with), with exclusive use of the processor.
    pub(crate) fn exclusively<T>(&self, act: impl FnOnce(&Embedded) -> Result<T>) -> Result<T> {
        let _turn = lock(&self.turn);
        self.with(act)
    }

    /// Takes a part of the device's memory.
    pub(crate) fn take(
        &self,
        operation: &'static str,
        bytes: u64,
        alignment: u64,
    ) -> Result<Range> {
        self.heap.take(bytes, alignment).ok_or_else(|| {
            let message = format!(
                "{bytes} bytes; {} are free, perhaps not in one piece",
                self.heap.free_bytes()
            );
            Error::new(ErrorKind::OutOfMemory, operation, message)
                .with_driver("EMBEDDED_OUT_OF_MEMORY", 0)
        })
    }
}
