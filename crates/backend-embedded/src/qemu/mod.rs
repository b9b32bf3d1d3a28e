//! Machines of QEMU: a process, RAM in a shared file, and a monitor that is told by a serial line to look into it.

mod config;
mod counters;
mod device;
mod failure;
mod machine;
mod process;

pub use config::QemuConfig;
pub use device::QemuDevice;
pub(crate) use machine::{MACHINES, info};
