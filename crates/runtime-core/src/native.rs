//! A vendor's own handles.

use std::fmt;

/// What a native handle is a handle of.
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

/// A vendor's own handle, named by the interface it belongs to.
///
/// A handle owns nothing: it is valid for as long as the object that gave it, and adopting one is `unsafe`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NativeHandle {
    /// The interface: `cuda`, `hip`, `opencl`, `host`, or a third party's own word.
    pub api: &'static str,
    /// What it is a handle of.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The allocation's first address, or the memory object that it is.
    pub base: usize,
    /// Where in it the handle begins, in bytes.
    pub offset: usize,
    /// The allocation's length in bytes, from `base` on.
    pub bytes: usize,
    /// The number of the device that it is on, as in [`DeviceId::index`](crate::DeviceId::index); `None` where it is on
    /// no single one.
    pub device: Option<usize>,
    /// What kind of memory it is.
    pub kind: OriginKind,
}

/// What kind of memory an [`Origin`] is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OriginKind {
    /// Page-locked host memory.
    Pinned,
    /// A device's own memory, or a memory object of a context.
    Device,
    /// Memory that host and device both address, and that moves between them.
    Managed,
}
