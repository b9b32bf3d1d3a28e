//! The trait that all devices have in common.

use std::any::Any;

use crate::DeviceInfo;

/// A device of any kind. [`AcceleratorDevice`](super::AcceleratorDevice) and
/// [`EmbeddedDevice`](super::EmbeddedDevice) extend it.
pub trait CommonRuntime: Any + Send + Sync {
    /// Identity, limits and formats. *Must* stay the same for as long as the device is open.
    fn info(&self) -> &DeviceInfo;
}
