//! Exports arrays as tensors.
#![expect(unsafe_code, reason = "makes the structure that C reads, and the function that it calls")]

use std::ptr::{self, NonNull};

use runtime_core::{Error, ErrorKind, MAX_RANK, NativeKind, Result};

use super::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, VERSION, flag,
};
use super::tensor::Raw;
use super::{DlpackTensor, PROTOCOL, data_type};
use crate::description::Description;
use crate::owner::{Keeper, drop_for_c};
use crate::state::{Ordered, Pending, Ready, State};
use crate::{Access, ArrayExchange, ConversionError, MemoryKind, dl_device};

/// Options for writing a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DlpackOptions {
    /// The highest version that the consumer reads. `None`, or a version below 1.0, means the old structure.
    pub max_version: Option<(u32, u32)>,
    /// The SYCL runtime's number of the device, for memory of its default context.
    pub sycl_index: Option<i32>,
}

impl DlpackOptions {
    /// Options for a consumer that reads the current structure.
    pub fn versioned() -> Self {
        Self { max_version: Some((VERSION.major, VERSION.minor)), sycl_index: None }
    }

    /// Options for a consumer that reads only the old structure.
    pub fn legacy() -> Self {
        Self::default()
    }
}

impl ArrayExchange<Ready> {
    /// Exports the array as a tensor.
    ///
    /// Strides are always given. The byte offset is 0, except for memory objects.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a read-only array in the old structure, and for memory that the protocol has no number
    /// for.
    pub fn into_dlpack(
        self,
        options: DlpackOptions,
    ) -> Result<DlpackTensor, ConversionError<Self>> {
        self.tensor(options)
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of a ready array, for a consumer that uses the array on
    /// [`stream`](Self::stream). Consumers of host memory have no streams: for host memory this call blocks until the
    /// work enqueued on that stream is done.
    ///
    /// # Errors
    ///
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of a ready array, and errors of the stream.
    pub fn into_dlpack(
        mut self,
        options: DlpackOptions,
    ) -> Result<DlpackTensor, ConversionError<Self>> {
        if self.array.kind == MemoryKind::Host
            && let Err(error) = self.state.synchronize()
        {
            return Err(ConversionError::new(self, error));
        }
        self.tensor(options)
    }
}

impl ArrayExchange<Pending> {
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of a ready array, for a consumer that requested no
    /// synchronisation (stream −1) and synchronises itself.
    ///
    /// # Errors
    ///
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of a ready array. `InvalidArgument` for memory that the host can
    /// read, because no stream would order the host's reads.
    pub fn into_dlpack_unsynchronised(
        self,
        options: DlpackOptions,
    ) -> Result<DlpackTensor, ConversionError<Self>> {
        if self.array.kind.is_host_readable() {
            let message = "memory that the host reads is handed over when it is ready";
            let error = Error::new(ErrorKind::InvalidArgument, PROTOCOL, message);
            return Err(ConversionError::new(self, error));
        }
        self.tensor(options)
    }
}

impl<S: State> ArrayExchange<S> {
    fn tensor(self, options: DlpackOptions) -> Result<DlpackTensor, ConversionError<Self>> {
        let version = options.max_version.filter(|(major, _)| *major >= 1);
        let written = written(&self.array, options, version.is_none());
        let tensor = match written {
            Ok(tensor) => tensor,
            Err(error) => return Err(ConversionError::new(self, error)),
        };
        let Self { array, owner, .. } = self;
        let keeper = Keeper::lend(owner, None);
        let raw = match version {
            None => {
                Raw::Legacy(Export::make(&array, tensor, keeper, |dl_tensor| DLManagedTensor {
                    dl_tensor,
                    manager_ctx: ptr::null_mut(),
                    deleter: Some(delete::<DLManagedTensor>),
                }))
            }
            Some((major, minor)) => {
                let version = VERSION.min(DLPackVersion { major, minor });
                let flags = match array.access {
                    Access::ReadOnly => flag::READ_ONLY,
                    Access::ReadWrite => 0,
                    Access::Copied => flag::IS_COPIED,
                };
                Raw::Versioned(Export::make(&array, tensor, keeper, |dl_tensor| {
                    DLManagedTensorVersioned {
                        version,
                        manager_ctx: ptr::null_mut(),
                        deleter: Some(delete::<DLManagedTensorVersioned>),
                        flags,
                        dl_tensor,
                    }
                }))
            }
        };
        Ok(DlpackTensor(raw))
    }
}

/// The tensor without its extents and strides.
fn written(array: &Description, options: DlpackOptions, legacy: bool) -> Result<DLTensor> {
    if legacy && !array.access.is_writable() {
        let message = "a read-only array, which the unversioned structure cannot express";
        return Err(Error::new(ErrorKind::InvalidArgument, PROTOCOL, message));
    }
    let device = dl_device::numbers(array, options.sycl_index, PROTOCOL)?;
    let (data, byte_offset) = match array.memory {
        None => (0, 0),
        Some(_) if array.layout.is_empty() => (0, 0),
        Some(memory) if memory.kind == NativeKind::Object => (memory.raw, array.offset as u64),
        Some(_) => (array.pointer().unwrap_or(0), 0),
    };
    Ok(DLTensor {
        data: ptr::with_exposed_provenance_mut(data),
        device,
        ndim: i32::try_from(array.layout.rank()).unwrap_or(i32::MAX),
        dtype: data_type(array.layout.dtype())?,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset,
    })
}

/// A tensor with all the data that it points to, in one allocation that its deleter frees.
#[repr(C)]
struct Export<M> {
    managed: M,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    keeper: Keeper,
}

impl<M> Export<M> {
    fn make(
        array: &Description,
        tensor: DLTensor,
        keeper: Keeper,
        managed: impl FnOnce(DLTensor) -> M,
    ) -> NonNull<M> {
        let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        for (to, from) in shape.iter_mut().zip(array.layout.shape()) {
            // It fits: the extents of a layout are sizes in memory, or 0.
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        for (to, from) in strides.iter_mut().zip(array.layout.strides()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        // Written in place, because the tensor points into the allocation.
        let place = Box::into_raw(Box::<Self>::new_uninit()).cast::<Self>();
        // SAFETY: inside the allocation.
        let shape_at = unsafe { (&raw mut (*place).shape).cast() };
        // SAFETY: as above.
        let strides_at = unsafe { (&raw mut (*place).strides).cast() };
        let tensor = DLTensor { shape: shape_at, strides: strides_at, ..tensor };
        let export = Self { managed: managed(tensor), shape, strides, keeper };
        // SAFETY: the allocation has exactly this size and type.
        unsafe { place.write(export) };
        // SAFETY: it comes from a box, so it is not null; the tensor is the first field of the allocation.
        unsafe { NonNull::new_unchecked(place.cast()) }
    }
}

/// The deleter, which the consumer calls once when it has finished.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the pointer that `make` returned, of this type, and the consumer has finished with it.
    drop_for_c(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
}
