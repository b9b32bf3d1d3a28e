//! Embedded devices as accelerators.

mod device;
mod event;
mod heap;
mod memory;
mod module;
mod shared;
mod stream;

pub use device::{AcceleratorConfig, EmbeddedAccelerator};
