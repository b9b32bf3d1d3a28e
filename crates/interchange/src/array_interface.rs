//! NumPy's array interface, version 3: host memory, strides in bytes, no synchronisation, no owner.
#![expect(unsafe_code, reason = "memory is named by address, for which a caller vouches")]

use std::any::Any;
use std::borrow::Cow;

use runtime_core::{Error, ErrorKind, Result};

use crate::description::{Description, host};
use crate::owner::{Exported, Keeper};
use crate::strides::{byte_strides_of, layout, shape_of};
use crate::typestr::{parse, typestr};
use crate::{Access, ArrayExchange, ByteStrides, ConversionError, MemoryKind, Ready, Shape};

const PROTOCOL: &str = "array interface";

/// The content of `__array_interface__`, with a field for each key except `descr`: only `typestr` is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayInterface {
    /// The number of elements along each dimension.
    pub shape: Shape,
    /// The element type, such as `<f8`.
    pub typestr: Cow<'static, str>,
    /// The address of element `[0, …, 0]`, and whether the array is read-only. `None` means that the buffer protocol
    /// gives the address.
    pub data: Option<(usize, bool)>,
    /// Strides in bytes; `None` for row-major order without gaps.
    pub strides: Option<ByteStrides>,
    /// Whether there is a mask.
    pub masked: bool,
    /// The number of bytes to skip; it has a meaning only without `data`.
    pub offset: Option<i64>,
    /// The version of the protocol.
    pub version: i64,
}

impl ArrayExchange {
    /// Exports the array by NumPy's array interface. Strides are always given. The address of an empty array is not
    /// null, but otherwise arbitrary.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the host cannot dereference a pointer to the memory, and for `bf16`.
    pub fn into_array_interface(self) -> Result<Exported<ArrayInterface>, ConversionError<Self>> {
        match self.to_array_interface() {
            Ok(interface) => {
                let keeper = Keeper::lend(self.owner, None);
                Ok(Exported { interface, keeper })
            }
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }

    /// Returns the description that [`into_array_interface`](Self::into_array_interface) would give, without exporting
    /// the array. This is for objects that keep the memory and are themselves kept by their consumers.
    ///
    /// # Errors
    ///
    /// As [`into_array_interface`](Self::into_array_interface).
    pub fn to_array_interface(&self) -> Result<ArrayInterface> {
        let array = &self.array;
        if !array.kind.is_host_readable() {
            let message = format!("memory of {}, which the host does not address", array.device);
            return Err(Error::new(ErrorKind::InvalidArgument, PROTOCOL, message));
        }
        let dtype = array.layout.dtype();
        // An empty array can have any address; an aligned one works with every consumer.
        let address = array.address(PROTOCOL, dtype.align())?;
        Ok(ArrayInterface {
            shape: shape_of(&array.layout),
            typestr: typestr(dtype, PROTOCOL)?,
            data: Some((address, !array.access.is_writable())),
            strides: Some(byte_strides_of(&array.layout)),
            masked: false,
            offset: None,
            version: 3,
        })
    }

    /// Imports an array that is described by NumPy's array interface. `owner` keeps it alive.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a version other than 3, a mask, a missing or null address, an unsupported element type, a
    /// foreign byte order, negative extents, strides that are not a multiple of the element size, and more than six
    /// dimensions. `OutOfBounds` if addresses wrap around.
    ///
    /// # Safety
    ///
    /// The interface is truthful. Until `owner` is dropped, every index is an initialised element in memory that the
    /// host can read. The host can also write it, unless the interface says that it is read-only. All other uses of the
    /// elements are ordered with the uses through the capsule. The values are ready.
    pub unsafe fn from_array_interface<O: Any + Send + Sync>(
        interface: &ArrayInterface,
        owner: O,
    ) -> Result<Self, ConversionError<O>> {
        Self::imported(described(interface).map(|array| (array, Ready)), owner)
    }
}

fn described(interface: &ArrayInterface) -> Result<Description> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, PROTOCOL, message));
    if interface.version != 3 {
        return refuse(format!("version {}; 3 is taken", interface.version));
    }
    if interface.masked {
        return refuse("a mask, which no array here has".into());
    }
    let Some((address, read_only)) = interface.data else {
        return refuse("no data pointer".into());
    };
    let dtype = parse(&interface.typestr, false, PROTOCOL)?;
    let strides = interface.strides.as_ref().map(|bytes| bytes.to_elements(dtype)).transpose()?;
    let layout = layout(dtype, &interface.shape, strides.as_deref())?;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    Description::at(address, "host", layout, MemoryKind::Host, host(), access)
}
