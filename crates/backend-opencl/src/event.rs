//! Events in streams.
#![expect(unsafe_code, reason = "implements the contract's unsafe event trait")]

use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backend_support::lock;
use cl3::info_type::InfoType;
use opencl3::command_queue::flush;
use opencl3::event::{
    CL_COMPLETE, CL_EVENT_COMMAND_QUEUE, CL_PROFILING_COMMAND_END, get_event_info,
};
use opencl3::types::cl_int;
use runtime_core::contract::{DeviceEvent, own};
use runtime_core::{NativeHandle, NativeKind, Result};

use crate::handle::{Event, Handle};
use crate::open_device::OpenDevice;
use crate::queue::{Queue, stamp, status, wait_until_over};

/// An event: the command that was the last in its queue when the event was recorded.
#[derive(Debug)]
pub(crate) struct OpenClEvent {
    shared: Arc<OpenDevice>,
    timing: bool,
    mark: Mutex<Option<Arc<Mark>>>,
}

/// A command, and its queue unless other code enqueued the command.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) event: Handle<Event>,
    pub(crate) queue: Option<Arc<Queue>>,
}

impl Mark {
    /// Whether the command is over, successful or not.
    pub(crate) fn is_over(&self) -> Result<bool, cl_int> {
        Ok(status(self.event.raw())? <= CL_COMPLETE)
    }

    /// Whether the command is in this queue.
    pub(crate) fn is_in(&self, queue: &Arc<Queue>) -> bool {
        self.queue.as_ref().is_some_and(|own| Arc::ptr_eq(own, queue))
    }

    /// Makes the driver start the command.
    pub(crate) fn flush(&self) -> Result<(), cl_int> {
        if let Some(queue) = &self.queue {
            return queue.flush();
        }
        match get_event_info(self.event.raw(), CL_EVENT_COMMAND_QUEUE)? {
            // A user event is in no queue; its owner completes it.
            InfoType::Ptr(queue) if queue != 0 => {
                flush(ptr::with_exposed_provenance_mut(queue.cast_unsigned()))
            }
            _ => Ok(()),
        }
    }

    /// Blocks until the command is over, whether it succeeded or failed.
    pub(crate) fn wait(&self) -> Result<(), cl_int> {
        match &self.queue {
            Some(queue) => queue.wait(&self.event),
            None => wait_until_over(&self.event),
        }
    }
}

impl OpenClEvent {
    pub(crate) fn new(shared: &Arc<OpenDevice>, timing: bool) -> Self {
        Self { shared: Arc::clone(shared), timing, mark: Mutex::default() }
    }

    pub(crate) fn has_timing(&self) -> bool {
        self.timing
    }

    /// The latest recorded command.
    pub(crate) fn mark(&self) -> Option<Arc<Mark>> {
        lock(&self.mark).clone()
    }

    /// Replaces the latest recorded command. `None` means that there was nothing to wait for.
    pub(crate) fn set(&self, mark: Option<Mark>) {
        let mark = mark.map(Arc::new);
        let before = std::mem::replace(&mut *lock(&self.mark), mark);
        drop(before);
    }
}

// SAFETY: a command of an in-order queue is over when a later command is over, and its writes are visible then.
unsafe impl DeviceEvent for OpenClEvent {
    fn wait(&self) -> Result<()> {
        self.shared.check("wait")?;
        let Some(mark) = self.mark() else { return Ok(()) };
        let waited = mark.flush().and_then(|()| mark.wait());
        self.shared.reap();
        if let Some(queue) = &mark.queue {
            queue.emit();
        }
        waited.map_err(|code| self.shared.error("wait", code, "waiting for an event"))
    }

    fn assist(&self) {}

    fn query(&self) -> Result<bool> {
        self.shared.check("query")?;
        let Some(mark) = self.mark() else { return Ok(true) };
        let over = match mark.is_over() {
            // A command that was never flushed would never be over.
            Ok(false) => mark.flush().map(|()| false),
            // Only a wait makes the command's writes visible; it does not block here.
            Ok(true) => mark.wait().map(|()| true),
            Err(code) => Err(code),
        };
        over.map_err(|code| self.shared.error("query", code, "asking for an event"))
    }

    fn elapsed_since(&self, earlier: &dyn DeviceEvent) -> Result<Duration> {
        let earlier = own::<Self>(earlier, "elapsed_since")?;
        let end = |event: &Self| match event.mark() {
            Some(mark) => stamp(mark.event.raw(), CL_PROFILING_COMMAND_END),
            None => Ok(0),
        };
        let (begin, end) = (end(earlier), end(self));
        match (begin, end) {
            (Ok(begin), Ok(end)) => Ok(Duration::from_nanos(end.saturating_sub(begin))),
            (Err(code), _) | (_, Err(code)) => {
                Err(self.shared.error("elapsed_since", code, "the time of an event"))
            }
        }
    }

    fn native(&self) -> NativeHandle {
        let raw = self.mark().map_or(0, |mark| mark.event.raw().expose_provenance());
        NativeHandle { api: "opencl", kind: NativeKind::Event, raw }
    }
}
