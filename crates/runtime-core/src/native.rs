//! Native handles of vendors' interfaces.

use std::fmt;

/// The kind of object that a native handle refers to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NativeKind {
    /// A device or its context: `CUcontext`, `hipDevice_t`, `cl_context`.
    Context,
    /// A device within a context of several: `cl_device_id`.
    Device,
    /// An address that kernels can use: `CUdeviceptr`, a pointer.
    Pointer,
    /// A memory object that is not an address: `cl_mem`.
    Object,
    /// A stream or queue: `CUstream`, `cl_command_queue`.
    Stream,
    /// An event: `CUevent`, `cl_event`.
    Event,
    /// Captured work: `CUgraphExec`.
    Graph,
}

/// A vendor's own handle, with the interface it belongs to.
///
/// A handle owns nothing. It is valid for as long as the object that returned it. Adopting a handle is `unsafe`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NativeHandle {
    /// The interface: `cuda`, `hip`, `opencl`, `host`, or a name chosen by a third party.
    pub api: &'static str,
    /// The kind of object it refers to.
    pub kind: NativeKind,
    /// The handle or address itself.
    pub raw: usize,
}

impl fmt::Debug for NativeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:#x}", self.api, self.kind, self.raw)
    }
}

/// The allocation that an address or a memory object belongs to: see [`Interop::origin`](crate::Interop::origin).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The allocation's first address, or the memory object.
    pub base: usize,
    /// Byte offset of the handle in the allocation.
    pub offset: usize,
    /// The allocation's length in bytes, from `base` on.
    pub bytes: usize,
    /// The number of the allocation's device, as in [`DeviceId::index`](crate::DeviceId::index). `None` if it is not on
    /// exactly one device.
    pub device: Option<usize>,
    /// The kind of memory.
    pub kind: OriginKind,
}

impl Origin {
    /// The byte `offset` of an allocation of `bytes` bytes from `base` on, on no known device.
    pub const fn new(kind: OriginKind, base: usize, offset: usize, bytes: usize) -> Self {
        Self { base, offset, bytes, device: None, kind }
    }

    /// Sets the number of the allocation's device.
    #[must_use]
    pub fn with_device(mut self, device: impl Into<Option<usize>>) -> Self {
        self.device = device.into();
        self
    }
}

/// The kind of memory of an [`Origin`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OriginKind {
    /// Page-locked host memory.
    Pinned,
    /// A device's own memory, or a memory object of a context.
    Device,
    /// Memory that both host and device can address, and that migrates between them.
    Managed,
}
