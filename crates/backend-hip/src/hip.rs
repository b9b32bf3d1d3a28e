//! The type that names the vendor.

/// HIP, as the vendor of devices. HIP has no contexts, but a current device in each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hip;
