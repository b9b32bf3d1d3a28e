//! Marks in streams.
#![expect(
    unsafe_code,
    reason = "calls the driver and implements the contract's unsafe event trait"
)]

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUevent;
use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::codes;
use crate::context::ok;
use crate::library::Functions;
use crate::shared::Shared;

/// An event of the driver.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    raw: CUevent,
    /// Whether others own it.
    lent: bool,
    shared: Arc<Shared>,
}

// SAFETY: events may be used from any thread, and by several at once.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    pub(crate) fn new(shared: &Arc<Shared>, timing: bool) -> Result<Self> {
        const OPERATION: &str = "event_create";
        shared.check(OPERATION)?;
        let raw = shared
            .context
            .new_event(timing)
            .map_err(|code| shared.error(OPERATION, code, "no event"))?;
        Ok(Self { raw, lent: false, shared: Arc::clone(shared) })
    }

    /// An event that others own.
    pub(crate) fn lent(shared: &Arc<Shared>, raw: CUevent) -> Self {
        Self { raw, lent: true, shared: Arc::clone(shared) }
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Calls a function of the driver for the event.
    fn call(&self, operation: &'static str, call: impl FnOnce(&Functions) -> u32) -> Result<u32> {
        self.shared.check(operation)?;
        let code = self.shared.context.apart(call);
        match code {
            0 | codes::NOT_READY => Ok(code),
            _ => Err(self.shared.error(operation, code, "the state of an event")),
        }
    }
}

// SAFETY: the driver ends a wait, and tells that an event is over, when the work before it is and its writes are visible.
unsafe impl DeviceEvent for CudaEvent {
    fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive.
        self.call("wait", |driver| unsafe { (driver.cuEventSynchronize)(self.raw) }).map(drop)
    }

    fn query(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        let code = self.call("query", |driver| unsafe { (driver.cuEventQuery)(self.raw) })?;
        Ok(code != codes::NOT_READY)
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        const OPERATION: &str = "elapsed_since";
        let earlier = own::<Self>(earlier, OPERATION)?;
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let mut milliseconds = 0.0_f32;
        let asked = shared.context.bind().and_then(|()| {
            let elapsed = shared.context.driver.cuEventElapsedTime;
            // SAFETY: both events are alive; the number is written to where it may be.
            ok(unsafe { elapsed(&mut milliseconds, earlier.raw, self.raw) })
        });
        asked.map_err(|code| shared.error(OPERATION, code, "the time between two events"))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    fn native(&self) -> NativeHandle {
        let raw = self.raw.expose_provenance();
        NativeHandle { api: "cuda", kind: NativeKind::Event, raw }
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if !self.lent {
            self.shared.keep("event_drop", self.shared.context.destroy_event(self.raw));
        }
    }
}
