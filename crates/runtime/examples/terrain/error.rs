//! Errors of the demo, with the offending value.

use std::collections::TryReserveError;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use ndarray_npy::ReadNpyError;
use runtime::{ErrorKind, Traffic};

/// The reason why the demo ended without a result. Displays as one line. Causes are in `source`.
#[derive(thiserror::Error)]
pub(crate) enum DemoError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },

    #[error("{} is no .npy array", path.display())]
    NotNpy { path: PathBuf, source: ReadNpyError },

    #[error("{} has elements of type {found}; int16, int32, float32 or float64 can be read", path.display())]
    ElementType { path: PathBuf, found: String },

    #[error("{} has shape {shape:?}; terrain has 2 dimensions of at least 3 cells each", path.display())]
    Shape { path: PathBuf, shape: Vec<usize> },

    #[error("{} has {found} bytes of data; shape {shape:?} takes {needed}", path.display())]
    Length { path: PathBuf, shape: Vec<usize>, needed: u128, found: usize },

    #[error("{} has {value} in row {row}, column {column}; elevations must be finite", path.display())]
    NotFinite { path: PathBuf, value: f64, row: usize, column: usize },

    #[error("scale {scale} makes {rows} x {columns} cells into more than this machine can address")]
    Unaddressable { scale: u32, rows: usize, columns: usize },

    #[error("scale {scale} needs {needed} bytes of memory; {device} has {available}")]
    DeviceTooSmall { scale: u32, needed: u64, device: String, available: u64 },

    #[error("scale {scale} needs {bytes} bytes of host memory at once")]
    HostTooSmall { scale: u32, bytes: usize, source: TryReserveError },

    #[error("{ranks} ranks: no grid of so many blocks can be cut out of {rows} x {columns} cells")]
    Ranks { ranks: usize, rows: usize, columns: usize },

    #[cfg(feature = "mpi")]
    #[error("--ranks {asked}: the MPI job has {found}")]
    RanksOfJob { asked: usize, found: usize },

    #[cfg(not(feature = "mpi"))]
    #[error(
        "{variable} is set, so that this is a process of an MPI job, but the program was built without the feature mpi"
    )]
    NoMpi { variable: &'static str },

    #[error(transparent)]
    Device(#[from] runtime::Error),

    #[error("the result is wrong: {what} is {value:e}, and may be {bound:e}")]
    Wrong { what: &'static str, value: f64, bound: f64 },

    #[error("the result is wrong: heights were {before:?} and are {after:?}")]
    NewExtreme { before: RangeInclusive<f64>, after: RangeInclusive<f64> },

    #[error("{} bytes in {} transfers were moved {direction}; {} bytes in {} would do", found.bytes, found.count, least.bytes, least.count)]
    Moved { direction: &'static str, found: Traffic, least: Traffic },

    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl DemoError {
    /// The kind of the error, if it is an error of a device or of communication.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Device(error) => Some(error.kind()),
            _ => None,
        }
    }
}

/// One line: the error with its causes. A cause is left out if an outer message already ends with it.
impl fmt::Debug for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !line.ends_with(&text) {
                line += &format!(": {text}");
            }
            cause = inner.source();
        }
        f.write_str(&line.replace('\n', " "))
    }
}
