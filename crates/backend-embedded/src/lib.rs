//! Embedded devices: bare-metal programs that are flashed, called, timed, faulted and reset, and whose memory is read
//! back. The same calls work on QEMU and on a board through the GDB remote protocol.
//!
//! With the feature `embedded` off, or on a system other than Linux, this crate is empty. With the feature on, it still
//! builds on any machine: it looks for QEMU when a device is opened, and returns an
//! [`Unavailable`](runtime_core::ErrorKind::Unavailable) error that names the package if QEMU is missing.
#![cfg_attr(
    all(feature = "embedded", target_os = "linux"),
    doc = r#"
```
use std::time::Duration;
use runtime_core::{ErrorKind, contract::CallValue};

let device = match backend_embedded::open("embedded:qemu-riscv64") {
    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
    device => device?,
};
// int32_t add(int32_t a, int32_t b) { return a + b; }
device.flash(include_bytes!("../firmware/built/calls-riscv64.elf"))?;
let sum = device.call("add", &[CallValue::I32(2), CallValue::I32(40)], Duration::from_secs(1))?;
assert_eq!(sum.i32(), 42);
# Ok::<(), runtime_core::Error>(())
```

An [`EmbeddedAccelerator`] makes an accelerator of any such device: [`EmbeddedBackend`] opens them by selector.
`docs/embedded.md` says what a program and a board must provide.
"#
)]
#![deny(unsafe_code)]
#![cfg(all(feature = "embedded", target_os = "linux"))]

mod accelerator;
mod architecture;
mod backend;
mod board;
mod common;
mod console;
mod gdb;
mod mailbox;
mod processor;
mod program;
mod qemu;
mod signature;

/// The text of `kernel.h`, the header for declaring kernels. Build scripts write it where the compiler finds it.
pub const KERNEL_HEADER: &str = include_str!("../firmware/include/kernel.h");

pub use accelerator::{AcceleratorConfig, EmbeddedAccelerator};
pub use architecture::Architecture;
pub use backend::{EmbeddedBackend, open};
pub use board::{Board, Registers};
pub use gdb::GdbDevice;
pub use processor::Processor;
pub use qemu::{QemuConfig, QemuDevice};
