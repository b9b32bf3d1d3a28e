//! Events of host devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe event trait")]

use std::time::Duration;

use backend_support::Event;
use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

/// An event that streams of any host device record and wait for.
#[derive(Debug, Default)]
pub(crate) struct HostEvent(pub(crate) Event);

// SAFETY: the thread that did the work before a recorded point also sets the point, under a lock that every waiting
// thread takes.
unsafe impl DeviceEvent for HostEvent {
    fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    fn assist(&self) {
        self.0.assist();
    }

    fn query(&self) -> Result<bool> {
        Ok(self.0.is_done())
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        Ok(self.0.elapsed_since(&own::<Self>(earlier, "elapsed_since")?.0))
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: "host", kind: NativeKind::Event, raw: std::ptr::from_ref(self).addr() }
    }
}
