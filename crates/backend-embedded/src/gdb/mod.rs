//! Boards behind a debug server, through the GDB remote protocol.

mod client;
mod device;
mod packet;

pub use device::GdbDevice;
