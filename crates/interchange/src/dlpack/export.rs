//! Our arrays as tensors.
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
use crate::{Access, ArrayExchange, MemoryKind, Refused, dl_device};

/// How a tensor is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DlpackOptions {
    /// The highest version that the consumer reads; `None`, or below 1.0, is the old structure.
    pub max_version: Option<(u32, u32)>,
    /// What the SYCL runtime counts the device as, for memory of its default context.
    pub sycl_index: Option<i32>,
}

impl DlpackOptions {
    /// For a consumer that reads the present structure.
    pub fn versioned() -> Self {
        Self { max_version: Some((VERSION.major, VERSION.minor)), sycl_index: None }
    }

    /// For a consumer that reads the old structure alone.
    pub fn legacy() -> Self {
        Self::default()
    }
}

impl ArrayExchange<Ready> {
    /// Hands the array over as a tensor.
    ///
    /// Strides are always given, and the byte offset is 0 but for memory objects.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an array that is only to be read in the old structure, and for memory that the protocol has no
    /// number for.
    pub fn into_dlpack(self, options: DlpackOptions) -> Result<DlpackTensor, Refused<Self>> {
        self.tensor(options)
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of what is ready, for a consumer that uses the array on
    /// [`stream`](Self::stream). For host memory, whose consumers have no streams, it blocks until that stream is done with
    /// what is enqueued.
    ///
    /// # Errors
    ///
    /// As there, and what that stream reports.
    pub fn into_dlpack(self, options: DlpackOptions) -> Result<DlpackTensor, Refused<Self>> {
        if self.array.kind == MemoryKind::Host
            && let Err(error) = self.stream().synchronize()
        {
            return Err(Refused::new(self, error));
        }
        self.tensor(options)
    }
}

impl ArrayExchange<Pending> {
    /// As [`into_dlpack`](ArrayExchange::into_dlpack) of what is ready, for a consumer that asked the producer not to
    /// synchronise (stream −1), and sees to that itself. Memory that the host reads is refused.
    ///
    /// # Errors
    ///
    /// As there; `InvalidArgument` for memory that the host reads, since no stream would order its reads.
    pub fn into_dlpack_unsynchronised(
        self,
        options: DlpackOptions,
    ) -> Result<DlpackTensor, Refused<Self>> {
        if self.array.kind.is_host_readable() {
            let message = "memory that the host reads is handed over when it is ready";
            let error = Error::new(ErrorKind::InvalidArgument, PROTOCOL, message);
            return Err(Refused::new(self, error));
        }
        self.tensor(options)
    }
}

impl<S: State> ArrayExchange<S> {
    fn tensor(self, options: DlpackOptions) -> Result<DlpackTensor, Refused<Self>> {
        let version = options.max_version.filter(|(major, _)| *major >= 1);
        let written = written(&self.array, options, version.is_none());
        let tensor = match written {
            Ok(tensor) => tensor,
            Err(error) => return Err(Refused::new(self, error)),
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

/// The tensor but for its extents and strides.
fn written(array: &Description, options: DlpackOptions, legacy: bool) -> Result<DLTensor> {
    if legacy && !array.access.is_writable() {
        let message = "an array that is only to be read, which the old structure cannot say";
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
        dtype: data_type(array.layout.dtype()),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset,
    })
}

/// A tensor with all that it points to, in one piece that its deleter frees.
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
            // It fits: a layout's extents are those of memory, or 0 and their like.
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        for (to, from) in strides.iter_mut().zip(array.layout.strides()) {
            *to = i64::try_from(*from).unwrap_or(i64::MAX);
        }
        // Written in place, since the tensor points into the piece.
        let place = Box::into_raw(Box::<Self>::new_uninit()).cast::<Self>();
        // SAFETY: inside the piece.
        let shape_at = unsafe { (&raw mut (*place).shape).cast() };
        // SAFETY: as above.
        let strides_at = unsafe { (&raw mut (*place).strides).cast() };
        let tensor = DLTensor { shape: shape_at, strides: strides_at, ..tensor };
        let export = Self { managed: managed(tensor), shape, strides, keeper };
        // SAFETY: room for exactly this.
        unsafe { place.write(export) };
        // SAFETY: of a box, so not null; the tensor is what the piece begins with.
        unsafe { NonNull::new_unchecked(place.cast()) }
    }
}

/// What the consumer calls once, when it is done.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the pointer that `make` gave, of this very type, and the consumer is done with it.
    drop_for_c(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
}
