//! Events of simulated devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe event trait")]

use std::sync::Arc;
use std::time::Duration;

use backend_support::Event;
use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::open_device::OpenDevice;

/// An event, and the device whose loss it reports.
#[derive(Debug)]
pub(crate) struct SimEvent {
    pub(crate) event: Arc<Event>,
    device: Arc<OpenDevice>,
}

impl SimEvent {
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Self {
        let event = Arc::new(Event::new());
        device.events.note(Arc::as_ptr(&event).addr(), &event);
        Self::of(event, device)
    }

    /// Another wrapper of an existing event.
    pub(crate) fn of(event: Arc<Event>, device: &Arc<OpenDevice>) -> Self {
        Self { event, device: Arc::clone(device) }
    }
}

// SAFETY: the thread that did the work before a mark reaches the mark, under a lock that every waiting thread takes.
unsafe impl DeviceEvent for SimEvent {
    fn wait(&self) -> Result<()> {
        self.device.tally.add(|counts| counts.synchronizations += 1);
        self.event.wait()?;
        self.device.check("wait")
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        self.device.check("query")?;
        Ok(self.event.is_done())
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        self.device.check("elapsed_since")?;
        Ok(self.event.elapsed_since(&own::<Self>(earlier, "elapsed_since")?.event))
    }

    fn native(&self) -> NativeHandle {
        let raw = Arc::as_ptr(&self.event).addr();
        NativeHandle { api: "sim", kind: NativeKind::Event, raw }
    }
}
