//! The SYCL USM array interface, version 1: addresses in a SYCL context, strides in elements, no synchronisation, no
//! owner.
#![expect(unsafe_code, reason = "memory is named by address, for which a caller vouches")]

use std::any::Any;
use std::borrow::Cow;

use runtime_core::{Error, ErrorKind, NativeHandle, Result};

use crate::description::Description;
use crate::owner::{Exported, Keeper};
use crate::strides::{layout, shape_of, strides_of};
use crate::typestr::{parse, typestr};
use crate::{
    Access, ArrayExchange, ContextBinding, ConversionError, DeviceToken, ElemStrides, MemoryKind,
    Ready, Shape,
};

const PROTOCOL: &str = "sycl usm array interface";

/// The content of `__sycl_usm_array_interface__`, with a field for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyclUsmArrayInterface {
    /// The number of elements along each dimension.
    pub shape: Shape,
    /// The element type, such as `<f8`.
    pub typestr: Cow<'static, str>,
    /// An address, which is never null, and whether it is read-only.
    ///
    /// The documents of this interface disagree on the meaning of the second value. It is read here as other array
    /// interfaces define it.
    pub data: (usize, bool),
    /// Strides in elements, not in bytes; `None` for row-major order without gaps.
    pub strides: Option<ElemStrides>,
    /// The number of elements from the address to element `[0, …, 0]`.
    pub offset: i64,
    /// The context of the address.
    pub syclobj: SyclObject,
    /// The version of the protocol.
    pub version: i64,
}

/// The name of an address's context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyclObject {
    /// A filter selector, `backend:kind:index`. It means the default context of that device's platform.
    Filter(String),
    /// A context or queue of the SYCL runtime, by its handle.
    Handle(NativeHandle),
}

impl ArrayExchange {
    /// Exports the array by the SYCL USM array interface. Strides are always given, and the offset is 0.
    ///
    /// The context is the one [declared for the memory](Self::assume_bound), a context of the SYCL runtime. A context
    /// that this runtime made is not valid here.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the memory is not addressed by an interface below SYCL, has no address (an empty array
    /// needs one too), or belongs to another context. `InvalidArgument` for negative strides, which consumers refuse,
    /// and for `bf16`.
    pub fn into_sycl_usm(self) -> Result<Exported<SyclUsmArrayInterface>, ConversionError<Self>> {
        match written(&self.array) {
            Ok(interface) => Ok(Exported { interface, keeper: Keeper::lend(self.owner, None) }),
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// Imports an array that is described by the SYCL USM array interface. `owner` keeps it alive.
    ///
    /// Its address is one of the SYCL runtime. To use it on a device of this runtime, check that the address belongs to
    /// the device's context, and [declare it](Self::assume_of).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a version other than 1, a null address, an unsupported element type, a foreign byte order,
    /// negative extents, and more than six dimensions. `UnknownDevice` for an invalid selector. `OutOfBounds` if
    /// addresses wrap around.
    ///
    /// # Safety
    ///
    /// The interface is truthful. Until `owner` is dropped, every index is an initialised element in memory of the
    /// context. The elements are writable, unless the interface says that they are read-only. All other uses of them
    /// are ordered with the uses through the capsule. The values are ready.
    pub unsafe fn from_sycl_usm<O: Any + Send + Sync>(
        interface: &SyclUsmArrayInterface,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        Self::imported(described(interface).map(|array| (array, Ready)), owner)
    }
}

fn written(array: &Description) -> Result<SyclUsmArrayInterface> {
    let api = array.memory.map_or(array.device.backend(), |memory| memory.api);
    if array.kind == MemoryKind::Host || !matches!(api, "opencl" | "level_zero" | "sycl") {
        return Err(invalid(format!("{:?} memory of {}", array.kind, array.device)));
    }
    let address = array.address(PROTOCOL, 0)?;
    if address == 0 {
        return Err(invalid("no address, which an empty array needs too".into()));
    }
    let strides = strides_of(&array.layout);
    if strides.iter().any(|stride| *stride < 0) {
        return Err(invalid(format!("strides {:?}, which consumers refuse", &*strides)));
    }
    let syclobj = match &array.context {
        ContextBinding::PlatformDefault if array.device.kind().is_some() => {
            SyclObject::Filter(array.device.to_string())
        }
        ContextBinding::PlatformDefault => {
            let message = format!("{}, of which kind is not known", array.device);
            return Err(invalid(message));
        }
        ContextBinding::Explicit(handle) if handle.api == "sycl" => SyclObject::Handle(*handle),
        ContextBinding::Explicit(handle) => {
            return Err(invalid(format!(
                "memory of {handle:?}, which is unknown to the SYCL runtime"
            )));
        }
    };
    Ok(SyclUsmArrayInterface {
        shape: shape_of(&array.layout),
        typestr: typestr(array.layout.dtype(), PROTOCOL)?,
        data: (address, !array.access.is_writable()),
        strides: Some(strides),
        offset: 0,
        syclobj,
        version: 1,
    })
}

fn described(interface: &SyclUsmArrayInterface) -> Result<Description> {
    if interface.version != 1 {
        return Err(invalid(format!("version {}; 1 is taken", interface.version)));
    }
    let dtype = parse(&interface.typestr, true, PROTOCOL)?;
    let layout = layout(dtype, &interface.shape, interface.strides.as_deref())?;
    let (address, read_only) = interface.data;
    if address == 0 {
        return Err(invalid("a null pointer".into()));
    }
    let size = isize::try_from(dtype.size()).unwrap_or(isize::MAX);
    let skipped = isize::try_from(interface.offset).ok().and_then(|skip| skip.checked_mul(size));
    let first = skipped.and_then(|skipped| address.checked_add_signed(skipped));
    let Some(first) = first.filter(|first| *first != 0) else {
        let message = format!("element {} from {address:#x} on", interface.offset);
        return Err(Error::new(ErrorKind::OutOfBounds, PROTOCOL, message));
    };
    let (device, context) = match &interface.syclobj {
        SyclObject::Filter(filter) => (filter.parse()?, ContextBinding::PlatformDefault),
        SyclObject::Handle(handle) => {
            (DeviceToken::new("sycl", None, 0), ContextBinding::Explicit(*handle))
        }
    };
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let array = Description::at(first, "sycl", layout, MemoryKind::Device, device, access)?;
    Ok(Description { context, ..array })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}
