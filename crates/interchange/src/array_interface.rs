//! NumPy's array interface, version 3: host memory, strides in bytes, no synchronisation, no owner.
#![expect(unsafe_code, reason = "memory is named by address, for which a caller vouches")]

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use runtime_core::{Error, ErrorKind, Result};

use crate::description::{Description, host};
use crate::owner::{Exported, Keeper, Plain};
use crate::strides::{layout, shape_of, strides_of};
use crate::typestr::{parse, typestr};
use crate::{Access, ArrayExchange, ByteStrides, MemoryKind, Ready, Refused, Shape};

const PROTOCOL: &str = "array interface";

/// What `__array_interface__` says, a field for each key. `descr` is left out: `typestr` alone decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayInterface {
    /// Elements along each dimension.
    pub shape: Shape,
    /// The element type, such as `<f8`.
    pub typestr: Cow<'static, str>,
    /// Address of element `[0, …, 0]`, and whether it is only to be read. `None` leaves the place to the buffer protocol.
    pub data: Option<(usize, bool)>,
    /// Strides in bytes; `None` in row-major order without gaps.
    pub strides: Option<ByteStrides>,
    /// Whether there is a mask.
    pub masked: bool,
    /// Bytes to skip, which has a meaning without `data` alone.
    pub offset: Option<i64>,
    /// The protocol's version.
    pub version: i64,
}

impl ArrayExchange {
    /// Hands the array over by NumPy's array interface. The strides are always given. An empty array has some address that
    /// is not null.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the host cannot follow a pointer to the memory, and for `bf16`.
    pub fn into_array_interface(self) -> Result<Exported<ArrayInterface>, Refused<Self>> {
        match self.to_array_interface() {
            Ok(interface) => {
                let keeper = Keeper::lend(self.owner, None);
                Ok(Exported { interface, keeper })
            }
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// What [`into_array_interface`](Self::into_array_interface) says, without handing the array over: for objects that their
    /// consumers keep, and that keep the memory.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn to_array_interface(&self) -> Result<ArrayInterface> {
        let array = &self.array;
        if !array.kind.is_host_readable() {
            let message = format!("memory of {}, which the host does not address", array.device);
            return Err(Error::new(ErrorKind::InvalidArgument, PROTOCOL, message));
        }
        let dtype = array.layout.dtype();
        // Any place serves for no element; an aligned one pleases everybody.
        let address = array.address(PROTOCOL, dtype.align())?;
        Ok(ArrayInterface {
            shape: shape_of(&array.layout),
            typestr: typestr(dtype, PROTOCOL)?,
            data: Some((address, !array.access.is_writable())),
            strides: Some(strides_of(&array.layout).to_bytes(dtype)?),
            masked: false,
            offset: None,
            version: 3,
        })
    }

    /// Takes up an array that somebody describes by NumPy's array interface. `owner` is whatever keeps it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another version than 3, a mask, a missing or null address, an element type or byte order that
    /// is none of this machine's, negative extents, strides that are no multiple of the element's size, and more than six
    /// dimensions; `OutOfBounds` if addresses wrap around.
    ///
    /// # Safety
    ///
    /// The interface is truthful: until `owner` is dropped, every index is an initialised element in memory that the host
    /// can read, and write unless it says otherwise, and nobody uses it without being ordered with who does. Its values
    /// are there.
    pub unsafe fn from_array_interface<O: Any + Send + Sync>(
        interface: &ArrayInterface,
        owner: O,
    ) -> Result<Self, Refused<O>> {
        match described(interface) {
            Ok(array) => Ok(Self {
                array: Box::new(array),
                state: Ready,
                owner: Arc::new(Plain::new(owner)),
            }),
            Err(error) => Err(Refused::new(owner, error)),
        }
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
