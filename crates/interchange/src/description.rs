//! The memory and layout of an array.

use runtime_core::{DeviceKind, Error, ErrorKind, Layout, NativeHandle, NativeKind, Result};

use crate::{ContextBinding, DeviceToken};

/// The kind of memory that holds an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Host memory, also that of devices that work in host memory.
    Host,
    /// Host memory that a vendor's runtime has pinned for a device.
    Pinned,
    /// A device's own memory.
    Device,
    /// Memory that host and device can both address: managed or shared.
    Shared,
    /// A memory object without an address: `cl_mem`.
    Object,
}

impl MemoryKind {
    /// Whether the host can dereference a pointer to the memory.
    pub fn is_host_readable(self) -> bool {
        matches!(self, Self::Host | Self::Pinned | Self::Shared)
    }
}

/// The permitted access to an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The elements may be read.
    ReadOnly,
    /// The elements may be read and written.
    ReadWrite,
    /// The elements are a copy that no other code uses.
    Copied,
}

impl Access {
    /// Whether elements may be written.
    pub fn is_writable(self) -> bool {
        self != Self::ReadOnly
    }
}

/// The memory and layout of an array: the data that all protocols share.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    /// The allocation, as far as it is known: its lowest byte or the memory object. `None` if it has no bytes.
    pub(crate) memory: Option<NativeHandle>,
    /// The number of bytes of the allocation.
    pub(crate) extent: usize,
    /// The number of bytes from the start of the allocation to element `[0, …, 0]`.
    pub(crate) offset: usize,
    pub(crate) layout: Layout,
    pub(crate) kind: MemoryKind,
    pub(crate) device: DeviceToken,
    pub(crate) context: ContextBinding,
    pub(crate) access: Access,
}

impl Description {
    /// An array at an address. Nothing more is known than that its elements are there.
    #[inline]
    pub(crate) fn at(
        address: usize,
        api: &'static str,
        layout: Layout,
        kind: MemoryKind,
        device: DeviceToken,
        access: Access,
    ) -> Result<Self> {
        let span = layout.span_bytes();
        if address == 0 && !layout.is_empty() {
            let message = format!("a null pointer for {} elements", layout.len());
            return Err(invalid(message));
        }
        let low = address.checked_add_signed(span.start);
        let high = address.checked_add_signed(span.end);
        let (Some(low), Some(_)) = (low, high) else {
            let message = format!("bytes {span:?} around {address:#x} wrap around");
            return Err(Error::new(ErrorKind::OutOfBounds, "exchange", message));
        };
        let memory = NativeHandle { api, kind: NativeKind::Pointer, raw: low };
        Ok(Self {
            memory: (address != 0).then_some(memory),
            extent: span.end.abs_diff(span.start),
            offset: span.start.unsigned_abs(),
            layout,
            kind,
            device,
            context: ContextBinding::PlatformDefault,
            access: narrowed(access, &layout),
        })
    }

    /// Refuses an array that does not lie inside its allocation.
    pub(crate) fn check(self) -> Result<Self> {
        let bytes = self.layout.span_bytes();
        let low = self.offset.checked_add_signed(bytes.start);
        let high = self.offset.checked_add_signed(bytes.end).filter(|high| *high <= self.extent);
        if low.is_some() && high.is_some() && (self.memory.is_some() || self.layout.is_empty()) {
            return Ok(self);
        }
        let message = format!(
            "bytes {bytes:?} around byte {} of an allocation of {} bytes",
            self.offset, self.extent
        );
        Err(Error::new(ErrorKind::OutOfBounds, "exchange", message))
    }

    /// The address of element `[0, …, 0]`; `None` for memory objects, and if there are no bytes.
    pub(crate) fn pointer(&self) -> Option<usize> {
        let memory = self.memory.filter(|memory| memory.kind == NativeKind::Pointer)?;
        // Inside the allocation: `check` or `at` has ensured it.
        Some(memory.raw.wrapping_add(self.offset))
    }

    /// As [`pointer`](Self::pointer), for protocols that use addresses. Returns `empty` if there are no bytes.
    pub(crate) fn address(&self, protocol: &'static str, empty: usize) -> Result<usize> {
        match self.pointer() {
            Some(address) if self.kind != MemoryKind::Object => Ok(address),
            None if self.kind != MemoryKind::Object && self.layout.is_empty() => Ok(empty),
            _ => {
                let message = "a memory object, where the protocol has an address";
                Err(Error::new(ErrorKind::InvalidArgument, protocol, message))
            }
        }
    }
}

/// The access narrowed to what the layout allows: an array whose indices share elements is read-only.
pub(crate) fn narrowed(access: Access, layout: &Layout) -> Access {
    if layout.is_nested() { access } else { Access::ReadOnly }
}

/// The token of the host, the same everywhere.
pub(crate) fn host() -> DeviceToken {
    DeviceToken::new("host", Some(DeviceKind::Host), 0)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "exchange", message)
}
