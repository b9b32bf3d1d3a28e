//! Gates of simulated devices.
#![expect(unsafe_code, reason = "implements the contract's unsafe trait of gates")]

use std::sync::Arc;

use backend_support::Gate;
use runtime_core::Result;
use runtime_core::contract::{DeviceGate, DeviceStream, Gates, own};

use crate::SimDevice;
use crate::open_device::OpenDevice;
use crate::stream::SimStream;

/// A gate, and the device whose loss it reports.
#[derive(Debug)]
struct SimGate {
    gate: Gate,
    device: Arc<OpenDevice>,
}

// SAFETY: the task that waits for the gate is in the queue before the work, and returns under a lock that the host
// takes to open the gate.
unsafe impl Gates for SimDevice {
    fn create(&self) -> Result<Box<dyn DeviceGate>> {
        let device = Arc::clone(self.shared());
        device.check("gate")?;
        Ok(Box::new(SimGate { gate: Gate::new(), device }))
    }
}

impl DeviceGate for SimGate {
    fn hold_up(&self, stream: &dyn DeviceStream) -> Result<()> {
        self.device.check("hold_until")?;
        self.gate.hold_up(own::<SimStream>(stream, "hold_until")?.queue())
    }

    fn open(&self) {
        self.gate.open();
    }

    fn fail(&self) {
        self.gate.fail();
    }
}
