//! Structures and numbers of memory pools, which CUDA and HIP have in common.

use std::ffi::{c_int, c_uint};

use crate::abi::Buffer;
use crate::code::{Code, Result};
use crate::pool::Pool;

const THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;
const RESERVED_HIGH: c_uint = 6;
const USED: c_uint = 7;
const USED_HIGH: c_uint = 8;

/// The head of `CUmemPoolProps` and `hipMemPoolProps`: the kind of allocation, the kinds of handles, the place.
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
    /// Where the memory is to be.
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
    /// The device that it is, as the caller numbers it.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for anything else than a device.
    pub fn device(self) -> Result<c_int> {
        if self.kind == 1 { Ok(self.id) } else { Err(Code::INVALID_VALUE) }
    }
}

impl Access {
    /// Where kernels run, and whether they are let in.
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
    /// [`Code::INVALID_VALUE`] for one that there is not.
    pub fn attribute(&self, attribute: c_uint, value: Buffer) -> Result<()> {
        let state = self.state();
        match attribute {
            // No memory is used again, which all of these allow.
            1..=3 => value.of::<c_int>().put(1),
            THRESHOLD => value.of::<usize>().put(state.threshold),
            RESERVED => value.of::<usize>().put(state.reserved),
            RESERVED_HIGH => value.of::<usize>().put(state.reserved_high),
            USED => value.of::<usize>().put(state.used),
            USED_HIGH => value.of::<usize>().put(state.used_high),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for one that cannot be set, or a high-water mark that is set to anything but 0.
    pub fn set_attribute(&self, attribute: c_uint, value: Buffer) -> Result<()> {
        match attribute {
            1..=3 => {
                value.holding::<c_int>().get()?;
            }
            THRESHOLD => self.set_threshold(value.holding::<usize>().get()?),
            RESERVED_HIGH | USED_HIGH if value.holding::<u64>().get()? == 0 => {
                self.reset_high(attribute == USED_HIGH);
            }
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}
