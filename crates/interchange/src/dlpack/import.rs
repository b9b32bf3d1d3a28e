//! Imports tensors of other libraries.
#![expect(unsafe_code, reason = "reads extents and strides behind pointers of C")]

use std::ptr;

use runtime_core::{Error, ErrorKind, Layout, MAX_RANK, NativeKind, Result};

use super::abi::{DLManagedTensorVersioned, DLPackVersion, DLTensor, VERSION, flag};
use super::{DlpackTensor, PROTOCOL, dtype};
use crate::description::{Description, narrowed};
use crate::state::State;
use crate::strides::layout;
use crate::{Access, ArrayExchange, ContextBinding, ConversionError, MemoryKind, dl_device};

/// From this version on, strides are always given.
const STRIDES_GIVEN: DLPackVersion = DLPackVersion { major: 1, minor: 2 };

impl<S: State> ArrayExchange<S> {
    /// Imports a tensor. The deleter is called when the capsule, or the object made from it, is dropped.
    ///
    /// A tensor of the old structure cannot say whether it may be written. It is imported as read-only;
    /// [`assume_writable`](Self::assume_writable) makes it writable.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another major version; only its deleter is used. `InvalidArgument` for unknown flags and
    /// element types, several lanes, a rank below 0 or above six, missing extents or strides, negative extents, and a
    /// null pointer to elements. `UnknownDevice` for unknown devices. `OutOfBounds` if addresses wrap around.
    ///
    /// # Safety
    ///
    /// `state` matches the request to the producer: [`Ready`](crate::Ready) if its work has finished,
    /// [`Ordered`](crate::Ordered) on the stream that was passed to the producer, [`Pending`](crate::Pending)
    /// otherwise.
    pub unsafe fn from_dlpack(
        tensor: DlpackTensor,
        state: S,
    ) -> Result<Self, ConversionError<DlpackTensor>> {
        Self::imported(described(&tensor).map(|array| (array, state)), tensor)
    }
}

#[inline]
fn described(managed: &DlpackTensor) -> Result<Description> {
    let version = managed.version();
    if let Some(DLPackVersion { major, minor }) = version.filter(|v| v.major != VERSION.major) {
        return Err(invalid(format!("version {major}.{minor}; {}.x is taken", VERSION.major)));
    }
    let flags = managed.0.flags();
    let known = flag::READ_ONLY | flag::IS_COPIED | flag::IS_SUBBYTE_TYPE_PADDED;
    if flags & !known != 0 {
        return Err(invalid(format!("flags {flags:#x}, of which {known:#x} are known")));
    }
    // SAFETY: the version was checked.
    let tensor = unsafe { managed.0.tensor() };
    let (api, kind, device) = dl_device::parse(tensor.device, PROTOCOL)?;
    let layout = layout_of(&tensor, version)?;
    let access = match managed.version() {
        None => Access::ReadOnly,
        Some(_) if flags & flag::READ_ONLY != 0 => Access::ReadOnly,
        Some(_) if flags & flag::IS_COPIED != 0 => Access::Copied,
        Some(_) => Access::ReadWrite,
    };
    let offset = usize::try_from(tensor.byte_offset)
        .map_err(|_| invalid(format!("a byte offset of {}", tensor.byte_offset)))?;
    let data = tensor.data.expose_provenance();
    if kind == MemoryKind::Object {
        return object(data, api, offset, layout, device, access);
    }
    let first = match (data, offset) {
        // A null pointer plus an offset is not a valid address.
        (0, _) => 0,
        _ => data.checked_add(offset).ok_or_else(|| {
            let message = format!("byte {offset} from {data:#x} on");
            Error::new(ErrorKind::OutOfBounds, PROTOCOL, message)
        })?,
    };
    Description::at(first, api, layout, kind, device, access)
}

/// An array in a memory object, starting at byte `offset` of the object.
fn object(
    data: usize,
    api: &'static str,
    offset: usize,
    layout: Layout,
    device: crate::DeviceToken,
    access: Access,
) -> Result<Description> {
    if data == 0 && !layout.is_empty() {
        return Err(invalid(format!("no memory object for {} elements", layout.len())));
    }
    let span = layout.span_bytes();
    let (low, high) = (offset.checked_add_signed(span.start), offset.checked_add_signed(span.end));
    let (Some(_), Some(extent)) = (low, high) else {
        let message = format!("bytes {span:?} around byte {offset} of a memory object");
        return Err(Error::new(ErrorKind::OutOfBounds, PROTOCOL, message));
    };
    let memory = runtime_core::NativeHandle { api, kind: NativeKind::Object, raw: data };
    Ok(Description {
        memory: (data != 0).then_some(memory),
        extent,
        offset,
        layout,
        kind: MemoryKind::Object,
        device,
        context: ContextBinding::PlatformDefault,
        access: narrowed(access, &layout),
    })
}

fn layout_of(tensor: &DLTensor, version: Option<DLPackVersion>) -> Result<Layout> {
    let dtype = dtype(tensor.dtype)?;
    let rank = usize::try_from(tensor.ndim)
        .ok()
        .filter(|rank| *rank <= MAX_RANK)
        .ok_or_else(|| invalid(format!("{} dimensions; 0 to {MAX_RANK} are taken", tensor.ndim)))?;
    if rank == 0 {
        return Layout::contiguous(dtype, &[]);
    }
    if tensor.shape.is_null() {
        return Err(invalid(format!("no extents for {rank} dimensions")));
    }
    let (mut shape, mut strides) = ([0_i64; MAX_RANK], [0_i64; MAX_RANK]);
    // SAFETY: not null, so it has that many numbers, as the maker of the `DlpackTensor` promised.
    unsafe { ptr::copy_nonoverlapping(tensor.shape, shape.as_mut_ptr(), rank) };
    if tensor.strides.is_null() {
        if version.is_some_and(|version| version >= STRIDES_GIVEN) {
            return Err(invalid(format!(
                "no strides for {rank} dimensions, which version 1.2 requires"
            )));
        }
        return layout(dtype, &shape[..rank], None);
    }
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(tensor.strides, strides.as_mut_ptr(), rank) };
    layout(dtype, &shape[..rank], Some(&strides[..rank]))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}

// For another major version, only the fields before this one are read.
const _: () = assert!(std::mem::offset_of!(DLManagedTensorVersioned, flags) < 32);
