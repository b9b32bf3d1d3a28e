//! What differs between the ABIs of MPI: the handles, the constants and the status of a message.
//!
//! Sources: `mpi_abi.h` of MPI 5.0, and the headers `mpi.h` of MPICH and Open MPI. Tests compare the values with them.

use std::ffi::c_int;
use std::fmt;

use backend_support::libloading::Library;
use runtime_core::{Error, ErrorKind, Result};

use super::find::OPERATION;

/// A handle of any ABI: a number in MPICH, a pointer in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw(pub(crate) usize);

/// A handle of one ABI, as functions take it.
pub(crate) trait Handle: Copy {
    fn down(raw: Raw) -> Self;
    fn up(self) -> Raw;
}

impl Handle for c_int {
    #[expect(clippy::cast_possible_truncation, reason = "it was extended")]
    fn down(raw: Raw) -> Self {
        raw.0.cast_signed() as Self
    }

    fn up(self) -> Raw {
        Raw((self as isize).cast_unsigned())
    }
}

/// A pointer, which is never followed here.
impl Handle for usize {
    fn down(raw: Raw) -> Self {
        raw.0
    }

    fn up(self) -> Raw {
        Raw(self)
    }
}

/// The kind of an ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// That of MPI 5.0.
    Standard,
    /// That of MPICH, from version 3.4 on, and of the libraries that follow it.
    Mpich,
    /// That of Open MPI 4 and 5.
    OpenMpi,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standard => "MPI's standard ABI",
            Self::Mpich => "the ABI of MPICH",
            Self::OpenMpi => "the ABI of Open MPI",
        })
    }
}

/// The constants of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constants {
    pub(crate) comm_world: Raw,
    pub(crate) comm_null: Raw,
    pub(crate) byte: Raw,
    pub(crate) request_null: Raw,
    pub(crate) errors_return: Raw,
    /// An address.
    pub(crate) status_ignore: usize,
    pub(crate) any_tag: c_int,
    pub(crate) tag_ub: c_int,
    pub(crate) keyval_invalid: c_int,
    pub(crate) thread_serialized: c_int,
    pub(crate) thread_multiple: c_int,
    /// The place of the tag in a status, which is a row of `c_int`.
    pub(crate) tag_in_status: usize,
}

/// A status of any ABI: at most this many bytes, aligned for the `size_t` of Open MPI.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Status(pub(crate) [c_int; 8]);

impl Status {
    pub(crate) const EMPTY: Self = Self([0; 8]);
}

pub(crate) const STANDARD: Constants = Constants {
    comm_world: Raw(0x101),
    comm_null: Raw(0x100),
    byte: Raw(0x247),
    request_null: Raw(0x180),
    errors_return: Raw(0x143),
    status_ignore: 0,
    any_tag: -2,
    tag_ub: 501,
    keyval_invalid: 0,
    thread_serialized: 2048,
    thread_multiple: 4096,
    tag_in_status: 1,
};

pub(crate) const MPICH: Constants = Constants {
    comm_world: Raw(0x4400_0000),
    comm_null: Raw(0x0400_0000),
    byte: Raw(0x4c00_010d),
    request_null: Raw(0x2c00_0000),
    errors_return: Raw(0x5400_0001),
    status_ignore: 1,
    any_tag: -1,
    tag_ub: 0x6440_0001,
    keyval_invalid: 0x2400_0000,
    thread_serialized: 2,
    thread_multiple: 3,
    tag_in_status: 3,
};

/// The names of the objects whose addresses are Open MPI's handles.
pub(crate) const OPEN_MPI_OBJECTS: [&str; 5] = [
    "ompi_mpi_comm_world",
    "ompi_mpi_comm_null",
    "ompi_mpi_byte",
    "ompi_request_null",
    "ompi_mpi_errors_return",
];

/// Those of Open MPI, with the addresses of [`OPEN_MPI_OBJECTS`].
pub(crate) const fn open_mpi(objects: [Raw; 5]) -> Constants {
    let [comm_world, comm_null, byte, request_null, errors_return] = objects;
    Constants {
        comm_world,
        comm_null,
        byte,
        request_null,
        errors_return,
        status_ignore: 0,
        any_tag: -1,
        tag_ub: 0,
        keyval_invalid: -1,
        thread_serialized: 2,
        thread_multiple: 3,
        tag_in_status: 1,
    }
}

impl Constants {
    /// Those of a library with this ABI.
    ///
    /// # Errors
    ///
    /// `Unavailable` with the name of an object that the library lacks.
    #[expect(unsafe_code, reason = "looks up objects")]
    pub(crate) fn of(kind: Kind, library: &Library) -> Result<Self> {
        if kind != Kind::OpenMpi {
            return Ok(if kind == Kind::Mpich { MPICH } else { STANDARD });
        }
        let mut objects = [Raw(0); 5];
        for (object, name) in objects.iter_mut().zip(OPEN_MPI_OBJECTS) {
            // SAFETY: only the address is used.
            let found = unsafe { library.get::<*const u8>(name) }.map_err(|_| {
                let message = format!("it lacks the object {name}");
                Error::new(ErrorKind::Unavailable, OPERATION, message)
            })?;
            // SAFETY: the symbol outlives this call; its address is the handle.
            *object = Raw(unsafe { found.into_raw() }.as_raw_ptr().expose_provenance());
        }
        Ok(open_mpi(objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_pointers_survive_the_way_up_and_down() {
        for number in [0, 1, 0x4400_0000, -1, i32::MIN, i32::MAX] {
            assert_eq!(c_int::down(c_int::up(number)), number);
        }
        assert_eq!(usize::down(usize::up(usize::MAX)), usize::MAX);
    }
}
