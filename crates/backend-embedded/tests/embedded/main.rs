//! Embedded devices apart from accelerators: programs that are flashed and called, their faults, and boards behind a
//! debug server.
#![cfg(all(feature = "embedded", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

mod accelerator;
mod gdb;
mod input;
mod own;
mod process;
mod program;
mod server;

use std::time::Duration;

use backend_embedded::{QemuConfig, QemuDevice};
use runtime_core::contract::CallValue;
use runtime_core::{Embedded, ErrorKind};

/// Longer than any call that does not hang.
const LONG: Duration = Duration::from_secs(20);

/// A machine, and the program `firmware/programs/calls.c` for it.
struct Machine {
    name: &'static str,
    calls: &'static [u8],
    /// An address without memory or devices.
    nowhere: u64,
    /// The name of the fault of a write through a null pointer.
    null: &'static str,
    /// `return 1` and `return 2` as instructions.
    code: [&'static [u8]; 2],
    /// A jump to the processor's start address.
    restart: &'static [u8],
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "qemu-riscv64",
        calls: include_bytes!("../../firmware/built/calls-riscv64.elf"),
        nowhere: 0x9000_0000,
        null: "STORE_ACCESS_FAULT",
        code: [&[0x05, 0x45, 0x82, 0x80], &[0x09, 0x45, 0x82, 0x80]],
        restart: &[0x9B, 0x02, 0x10, 0x00, 0xFE, 0x02, 0x82, 0x82],
    },
    Machine {
        name: "qemu-cortex-m7",
        calls: include_bytes!("../../firmware/built/calls-cortex-m7.elf"),
        nowhere: 0x9000_0000,
        null: "DATA_ACCESS_VIOLATION",
        code: [&[0x01, 0x20, 0x70, 0x47], &[0x02, 0x20, 0x70, 0x47]],
        restart: &[0x04, 0x20, 0x00, 0x68, 0x00, 0x47],
    },
];

impl Machine {
    /// Starts a machine with the program flashed. Returns `None` if its emulator is not installed.
    fn open(&self) -> Option<Embedded> {
        self.open_with(QemuConfig::new()).map(|device| {
            let device = Embedded::new(device);
            device.flash(self.calls).unwrap();
            device
        })
    }

    fn open_with(&self, config: QemuConfig) -> Option<QemuDevice> {
        match QemuDevice::open(self.name, config) {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                println!("skipped: {error}");
                None
            }
            device => Some(device.unwrap()),
        }
    }
}

/// Every machine whose emulator is installed, with the program flashed.
fn machines() -> impl Iterator<Item = (&'static Machine, Embedded)> {
    MACHINES.iter().filter_map(|machine| Some((machine, machine.open()?)))
}

/// A call of `add` with valid arguments must return the right result, whatever happened before.
#[track_caller]
fn must_work(device: &Embedded) {
    let sum = device.call("add", &[CallValue::I32(2), CallValue::I32(-44)], LONG).unwrap();
    assert_eq!(sum.i32(), -42);
}
