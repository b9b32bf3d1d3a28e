//! Structures and numbers of memory pools, which are the same in CUDA and HIP.

use std::ffi::{c_int, c_uint};

use crate::abi::Buffer;
use crate::code::{Code, Result};
use crate::pool::Pool;

const THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;
const USED: c_uint = 7;

/// The first members of `CUmemPoolProps` and `hipMemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    kind: c_uint,
    handles: c_uint,
    place: Location,
}

/// `CUmemLocation`, `hipMemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Location {
    kind: c_uint,
    id: c_int,
}

/// `CUmemAccessDesc`, `hipMemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Access {
    place: Location,
    flags: c_uint,
}

impl Properties {
    /// The location of the memory.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_SUPPORTED`] for memory of another kind or with handles.
    pub fn place(self) -> Result<Location> {
        match self {
            Self { kind: 1, handles: 0, place } => Ok(place),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

impl Location {
    /// The number of the device.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a location that is not a device.
    pub fn device(self) -> Result<c_int> {
        if self.kind == 1 { Ok(self.id) } else { Err(Code::INVALID_VALUE) }
    }
}

impl Access {
    /// The device whose kernels access the memory, and whether they may.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for flags that are neither none nor all.
    pub fn read(self) -> Result<(Location, bool)> {
        match self.flags {
            0 | 3 => Ok((self.place, self.flags == 3)),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

impl Pool {
    /// Writes an attribute.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for an unknown attribute.
    pub fn attribute(&self, attribute: c_uint, value: Buffer) -> Result<()> {
        let state = self.state();
        match attribute {
            RESERVED => value.of::<usize>().put(state.reserved),
            USED => value.of::<usize>().put(state.used),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for an unknown attribute.
    pub fn set_attribute(&self, attribute: c_uint, value: Buffer) -> Result<()> {
        match attribute {
            // Memory is never reused, so these permissions have no effect.
            1..=3 => {
                value.holding::<c_int>().get()?;
            }
            THRESHOLD => self.set_threshold(value.holding::<usize>().get()?),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}
