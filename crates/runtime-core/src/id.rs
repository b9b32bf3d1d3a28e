//! Names of devices.

use std::borrow::Cow;
use std::fmt;

/// The backend and index of a device: `cuda:0`.
///
/// An id is a name, not an identity. The same device opened twice is two [`Device`](crate::Device)s with one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    backend: Cow<'static, str>,
    index: usize,
}

impl DeviceId {
    /// The device `index` of `backend`.
    pub fn new(backend: impl Into<Cow<'static, str>>, index: usize) -> Self {
        Self { backend: backend.into(), index }
    }

    /// The backend's name, as in a selector.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The index among the backend's devices.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)
    }
}
