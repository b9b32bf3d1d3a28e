//! Gates of host devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe trait of gates")]

use backend_support::Gate;
use runtime_core::Result;
use runtime_core::contract::{DeviceGate, DeviceStream, Gates, own};

use crate::HostDevice;
use crate::stream::HostStream;

#[derive(Debug)]
struct HostGate(Gate);

// SAFETY: the task that waits for the gate is in the queue before the work, and returns under a lock that the host
// takes to open the gate.
unsafe impl Gates for HostDevice {
    fn create(&self) -> Result<Box<dyn DeviceGate>> {
        Ok(Box::new(HostGate(Gate::new())))
    }
}

impl DeviceGate for HostGate {
    fn hold_up(&self, stream: &dyn DeviceStream) -> Result<()> {
        self.0.hold_up(own::<HostStream>(stream, "hold_until")?.queue())
    }

    fn open(&self) {
        self.0.open();
    }

    fn fail(&self) {
        self.0.fail();
    }
}
