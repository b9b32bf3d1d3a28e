//! The CUDA array interface, version 3: CUDA addresses, strides in bytes, one stream of the producer, no owner.
#![expect(unsafe_code, reason = "memory is named by address, for which a caller vouches")]

use std::any::Any;
use std::borrow::Cow;

use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result, Stream};

use crate::description::Description;
use crate::owner::{Exported, Keeper};
use crate::state::{Ordered, Pending, Ready, State};
use crate::strides::{byte_strides_of, layout, shape_of};
use crate::typestr::{parse, typestr};
use crate::{Access, ArrayExchange, ByteStrides, ConversionError, DeviceToken, MemoryKind, Shape};

const PROTOCOL: &str = "cuda array interface";

/// The number of CUDA's legacy default stream, which waits for the other streams.
const LEGACY_DEFAULT: usize = 1;

/// The content of `__cuda_array_interface__`, with a field for each key except `descr`: only `typestr` is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaArrayInterface {
    /// The number of elements along each dimension.
    pub shape: Shape,
    /// The element type, such as `<f8`.
    pub typestr: Cow<'static, str>,
    /// The address of element `[0, …, 0]` (0 if there are no elements), and whether the array is read-only.
    pub data: (usize, bool),
    /// Strides in bytes; `None` for row-major order without gaps.
    pub strides: Option<ByteStrides>,
    /// Whether there is a mask.
    pub masked: bool,
    /// The stream on which all pending work of the producer is ordered: 1 or 2 for the default streams, or a handle.
    /// `None` if no synchronisation is needed.
    pub stream: Option<usize>,
    /// The version of the protocol.
    pub version: i64,
}

impl ArrayExchange<Ready> {
    /// Exports the array by the CUDA array interface, without a stream. Strides are always given.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the memory is not addressed by CUDA or HIP, and for `bf16`.
    pub fn into_cuda_array_interface(
        self,
    ) -> Result<Exported<CudaArrayInterface>, ConversionError<Self>> {
        self.cuda_array_interface(None)
    }

    /// Returns the description that [`into_cuda_array_interface`](Self::into_cuda_array_interface) would give, without
    /// exporting the array. This is for objects that keep the memory and a [`Keeper`], and are themselves kept by their
    /// consumers.
    ///
    /// # Errors
    ///
    /// As [`into_cuda_array_interface`](Self::into_cuda_array_interface).
    pub fn to_cuda_array_interface(&self) -> Result<CudaArrayInterface> {
        written(&self.array, None)
    }
}

impl ArrayExchange<Ordered> {
    /// Exports the array by the CUDA array interface, with the stream on which it is ordered. The stream lives as long
    /// as the keeper.
    ///
    /// # Errors
    ///
    /// As for a ready array. `InvalidArgument` if the stream is not a CUDA stream: for consumers of HIP, export a ready
    /// array.
    pub fn into_cuda_array_interface(
        self,
    ) -> Result<Exported<CudaArrayInterface>, ConversionError<Self>> {
        let stream = self.stream().clone();
        self.cuda_array_interface(Some(stream))
    }

    /// Returns the description that [`into_cuda_array_interface`](Self::into_cuda_array_interface) would give, without
    /// exporting the array. This is for objects that keep the memory, the stream and a [`Keeper`], and are themselves
    /// kept by their consumers.
    ///
    /// # Errors
    ///
    /// As [`into_cuda_array_interface`](Self::into_cuda_array_interface).
    pub fn to_cuda_array_interface(&self) -> Result<CudaArrayInterface> {
        written(&self.array, Some(self.stream()))
    }
}

impl<S: State> ArrayExchange<S> {
    fn cuda_array_interface(
        self,
        stream: Option<Stream>,
    ) -> Result<Exported<CudaArrayInterface>, ConversionError<Self>> {
        match written(&self.array, stream.as_ref()) {
            Ok(interface) => {
                let with = stream.map(|stream| Box::new(stream) as Box<dyn Any + Send + Sync>);
                Ok(Exported { interface, keeper: Keeper::lend(self.owner, with) })
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }
}

impl ArrayExchange<Pending> {
    /// Imports an array that is described by the CUDA array interface. `device` is the CUDA or HIP device of the
    /// address, which the protocol does not give. `owner` keeps the array alive.
    ///
    /// The values wait for the stream that the interface names. Version 2 names no stream; the values then wait for
    /// CUDA's default stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for versions other than 2 and 3, a mask, stream 0 (and 1 and 2 for HIP), a null address, an
    /// unsupported element type, a foreign byte order, negative extents, strides that are not a multiple of the element
    /// size, more than six dimensions, and a device that is neither CUDA nor HIP. `OutOfBounds` if addresses wrap
    /// around.
    ///
    /// # Safety
    ///
    /// The interface is truthful. Until `owner` is dropped, every index is an initialised element in memory that the
    /// device can read. The device can also write it, unless the interface says that it is read-only. All other uses of
    /// the elements are ordered with the uses through the capsule. The stream exists until the capsule is ready.
    pub unsafe fn from_cuda_array_interface<O: Any + Send + Sync>(
        interface: &CudaArrayInterface,
        device: DeviceToken,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        Self::imported(described(interface, device), owner)
    }
}

fn written(array: &Description, stream: Option<&Stream>) -> Result<CudaArrayInterface> {
    let api = array.memory.map_or(array.device.backend(), |memory| memory.api);
    if array.kind == MemoryKind::Host || !matches!(api, "cuda" | "hip") {
        let message = format!("{:?} memory of {}", array.kind, array.device);
        return Err(invalid(message));
    }
    let stream = match stream.map(Stream::native) {
        None => None,
        Some(NativeHandle { api: "cuda", raw, .. }) if raw != 0 && api == "cuda" => Some(raw),
        Some(handle) => return Err(invalid(format!("{handle:?} is no stream that it can name"))),
    };
    let dtype = array.layout.dtype();
    let address = if array.layout.is_empty() { 0 } else { array.address(PROTOCOL, 0)? };
    Ok(CudaArrayInterface {
        shape: shape_of(&array.layout),
        typestr: typestr(dtype, PROTOCOL)?,
        data: (address, !array.access.is_writable()),
        strides: Some(byte_strides_of(&array.layout)),
        masked: false,
        stream,
        version: 3,
    })
}

fn described(
    interface: &CudaArrayInterface,
    device: DeviceToken,
) -> Result<(Description, Pending)> {
    let api = match device.backend() {
        "cuda" => "cuda",
        "hip" => "hip",
        _ => return Err(invalid(format!("an address of {device}"))),
    };
    if !matches!(interface.version, 2 | 3) {
        return Err(invalid(format!("version {}; 2 and 3 are taken", interface.version)));
    }
    if interface.masked {
        return Err(invalid("a mask, which no array here has".into()));
    }
    let dtype = parse(&interface.typestr, false, PROTOCOL)?;
    let strides = interface.strides.as_ref().map(|bytes| bytes.to_elements(dtype)).transpose()?;
    let layout = layout(dtype, &interface.shape, strides.as_deref())?;
    let stream = match (interface.stream, interface.version, api) {
        (Some(0), ..) => return Err(invalid("stream 0, which could be two".into())),
        (Some(raw @ (1 | 2)), _, "hip") => {
            return Err(invalid(format!("stream {raw}, which HIP does not have")));
        }
        (None, 2, "cuda") => Some(LEGACY_DEFAULT),
        (None, 2, _) => Some(0),
        (stream, ..) => stream,
    };
    let state = match stream {
        Some(raw) => Pending::foreign(NativeHandle { api, kind: NativeKind::Stream, raw }),
        None => Pending::events([]),
    };
    let (address, read_only) = interface.data;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let array = Description::at(address, api, layout, MemoryKind::Device, device, access)?;
    Ok((array, state))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}
