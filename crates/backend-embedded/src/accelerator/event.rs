//! Events of embedded accelerators.
#![expect(unsafe_code, reason = "implements the contract's unsafe event trait")]

use std::sync::Arc;
use std::time::Duration;

use backend_support::Event;
use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use super::shared::OpenDevice;

/// A recorded point in a queue, and the device. The event reports the loss of the device.
#[derive(Debug)]
pub(crate) struct EmbeddedEvent {
    pub(crate) event: Event,
    pub(crate) shared: Arc<OpenDevice>,
}

// SAFETY: the thread that did the earlier work marks the event as reached, under a lock that waiting threads take.
unsafe impl DeviceEvent for EmbeddedEvent {
    fn wait(&self) -> Result<()> {
        self.event.wait()?;
        self.shared.check("wait")
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        self.shared.check("query")?;
        Ok(self.event.is_done())
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        Ok(self.event.elapsed_since(&own::<Self>(earlier, "elapsed_since")?.event))
    }

    fn native(&self) -> NativeHandle {
        let raw = std::ptr::from_ref(self).addr();
        NativeHandle { api: "embedded", kind: NativeKind::Event, raw }
    }
}
