//! Boards behind a debugger's server, by the GDB remote protocol.

mod client;
mod device;
mod packet;

pub use device::GdbDevice;
