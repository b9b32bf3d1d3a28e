//! The type that names the vendor.

/// CUDA, as the vendor of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuda;
