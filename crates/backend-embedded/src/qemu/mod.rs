//! QEMU machines: a process, RAM in a shared file, and a monitor. A byte on the serial line makes the monitor read its
//! mailbox.

mod config;
mod counters;
mod device;
mod failure;
mod layout;
mod machine;
mod process;

pub use config::QemuConfig;
pub use device::QemuDevice;
pub(crate) use machine::{MACHINES, info};
