//! Events of the library, as events of the contract.
#![expect(
    unsafe_code,
    reason = "calls the library and implements the contract's unsafe event trait"
)]

use std::sync::Arc;
use std::time::Duration;

use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::api::Api;
use crate::handle;
use crate::open_device::OpenDevice;
use crate::vendor::Vendor;

/// An event of the library.
#[derive(Debug)]
pub(crate) struct Event<V: Vendor> {
    raw: handle::Event,
    /// Whether another library owns it.
    borrowed: bool,
    shared: Arc<OpenDevice<V>>,
}

impl<V: Vendor> Event<V> {
    pub(crate) fn new(shared: &Arc<OpenDevice<V>>, timing: bool) -> Result<Self> {
        const OPERATION: &str = "event_create";
        shared.check(OPERATION)?;
        let raw = shared
            .context
            .new_event(timing)
            .map_err(|code| shared.error(OPERATION, code, "no event"))?;
        Ok(Self { raw, borrowed: false, shared: Arc::clone(shared) })
    }

    /// An event that another library owns.
    pub(crate) fn borrowed(shared: &Arc<OpenDevice<V>>, raw: handle::Event) -> Self {
        Self { raw, borrowed: true, shared: Arc::clone(shared) }
    }

    pub(crate) fn raw(&self) -> handle::Event {
        self.raw
    }

    pub(crate) fn shared(&self) -> &OpenDevice<V> {
        &self.shared
    }

    /// Whether the work before the event is done, according to `call`.
    fn ask(
        &self,
        operation: &'static str,
        call: impl FnOnce(&V::Api) -> Result<(), u32>,
    ) -> Result<bool> {
        self.shared.check(operation)?;
        match self.shared.context.outside_captures(call) {
            Ok(()) => Ok(true),
            Err(code) if code == V::NOT_READY => Ok(false),
            Err(code) => Err(self.shared.error(operation, code, "the state of an event")),
        }
    }
}

// SAFETY: the library ends a wait, or reports an event as done, only when the work before it is done and its writes are
// visible.
unsafe impl<V: Vendor> DeviceEvent for Event<V> {
    fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive.
        self.ask("wait", |api| unsafe { api.event_synchronize(self.raw) }).map(drop)
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        self.ask("query", |api| unsafe { api.event_query(self.raw) })
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        const OPERATION: &str = "elapsed_since";
        let earlier = own::<Self>(earlier, OPERATION)?;
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let asked = shared.context.bind().and_then(|()| {
            // SAFETY: both events are alive.
            unsafe { shared.context.api.event_elapsed(earlier.raw, self.raw) }
        });
        let milliseconds =
            asked.map_err(|code| shared.error(OPERATION, code, "the time between two events"))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    fn native(&self) -> NativeHandle {
        NativeHandle { api: V::WORDS.backend, kind: NativeKind::Event, raw: self.raw.0 }
    }
}

impl<V: Vendor> Drop for Event<V> {
    fn drop(&mut self) {
        if !self.borrowed {
            self.shared.keep("event_drop", self.shared.context.destroy_event(self.raw));
        }
    }
}
