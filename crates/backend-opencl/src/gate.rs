//! Gates: events that the host sets.
#![expect(
    unsafe_code,
    reason = "makes streams wait through the driver, and implements the contract's unsafe trait of gates"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "enqueueing a command and submitting its event are one step"
)]

use std::sync::Arc;

use backend_support::GateState;
use opencl3::command_queue::enqueue_barrier_with_wait_list;
use opencl3::event::{CL_COMPLETE, create_user_event, set_user_event_status};
use runtime_core::Result;
use runtime_core::contract::{DeviceGate, DeviceStream, Gates, own};

use crate::OpenClDevice;
use crate::handle::{Event, Handle};
use crate::open_device::OpenDevice;
use crate::stream::OpenClStream;

/// A user event.
#[derive(Debug)]
struct OpenClGate {
    event: Handle<Event>,
    state: GateState,
    shared: Arc<OpenDevice>,
}

// SAFETY: the driver starts commands that wait for a user event only when the host has set the event.
unsafe impl Gates for OpenClDevice {
    fn create(&self) -> Result<Box<dyn DeviceGate>> {
        let shared = &self.shared;
        shared.check("gate")?;
        let raw = create_user_event(shared.context.raw())
            .map_err(|code| shared.error("gate", code, "no user event"))?;
        // SAFETY: the event was just created.
        let event = unsafe { Handle::own(raw, &shared.failures) };
        Ok(Box::new(OpenClGate { event, state: GateState::new(), shared: Arc::clone(shared) }))
    }
}

impl DeviceGate for OpenClGate {
    fn hold_up(&self, stream: &dyn DeviceStream) -> Result<()> {
        const OPERATION: &str = "hold_until";
        let stream = own::<OpenClStream>(stream, OPERATION)?;
        let list = [self.event.raw()];
        self.state.hold_up(stream.queue().failures(), || {
            // SAFETY: the event is alive and of this context; the list is only read during the call.
            unsafe {
                stream.submit(OPERATION, |queue| {
                    enqueue_barrier_with_wait_list(queue, 1, list.as_ptr())
                })
            }
        })
    }

    fn open(&self) {
        self.state.open(|| self.set());
    }

    fn fail(&self) {
        // A negative status should fail the commands that wait. In PoCL 3.1 such commands never end.
        self.state.fail(|| self.set());
    }
}

impl OpenClGate {
    fn set(&self) {
        if let Err(code) = set_user_event_status(self.event.raw(), CL_COMPLETE) {
            self.shared.failures.keep(self.shared.error("open", code, "a gate cannot be opened"));
        }
    }
}
