//! Arrays and fields in `.npy` files, the format of NumPy.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ndarray::{ArrayD, ArrayRef, Dimension};
use ndarray_npy::npy::header::Header;
use ndarray_npy::{ReadNpyError, ReadNpyExt, WritableElement, WriteNpyExt};
use runtime_core::{Error, ErrorKind, Result};

use crate::erased::Number;
use crate::field::Field;

/// An element type that arrays can be read as.
pub trait Readable: Number + WritableElement {
    /// The names of the types that are read, such as `i2`: this type, and those whose values all fit in it.
    #[doc(hidden)]
    const NAMES: &'static [&'static str];

    /// Reads an array of the type with this name. `None` for other types.
    #[doc(hidden)]
    fn read_as(name: &str, source: &mut dyn Read) -> Option<Result<ArrayD<Self>, ReadNpyError>>;
}

macro_rules! readable {
    ($($ty:ty: $($name:literal $from:ty),*;)*) => {$(
        impl Readable for $ty {
            const NAMES: &'static [&'static str] = &[$($name),*];

            fn read_as(name: &str, source: &mut dyn Read) -> Option<Result<ArrayD<Self>, ReadNpyError>> {
                match name {
                    $($name => Some(ArrayD::<$from>::read_npy(source).map(|values| values.mapv(Self::from))),)*
                    _ => None,
                }
            }
        }
    )*};
}

readable! {
    f64: "f8" f64, "f4" f32, "i4" i32, "u4" u32, "i2" i16, "u2" u16, "i1" i8, "u1" u8;
    f32: "f4" f32, "i2" i16, "u2" u16, "i1" i8, "u1" u8;
    i64: "i8" i64, "i4" i32, "u4" u32, "i2" i16, "u2" u16, "i1" i8, "u1" u8;
    i32: "i4" i32, "i2" i16, "u2" u16, "i1" i8, "u1" u8;
    u32: "u4" u32, "u2" u16, "u1" u8;
}

/// Reads an array, from the beginning of `source`. Types whose values all fit in `T` are converted.
///
/// ```
/// use std::io::Cursor;
///
/// use ndarray::Array2;
/// use stencil::npy;
///
/// let mut file = Cursor::new(Vec::new());
/// npy::write(&mut file, &Array2::from_elem((3, 4), 7_i32))?;
/// assert_eq!(npy::read::<f64>(file)?, Array2::from_elem((3, 4), 7.0).into_dyn());
/// # Ok::<(), stencil::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidArgument` if it is no `.npy` file, if values of its type do not fit in `T`, or if it has more or fewer bytes
/// than its shape takes. This is checked before memory is allocated. `Driver` if reading fails.
pub fn read<T: Readable>(source: impl Read + Seek) -> Result<ArrayD<T>> {
    let mut source = BufReader::new(source);
    source.rewind().map_err(failed)?;
    check_header(&mut source)?;
    source.rewind().map_err(failed)?;
    let header = Header::from_reader(&mut source).map_err(|error| wrong(error.into()))?;
    let data = source.stream_position().map_err(failed)?;
    let end = source.seek(SeekFrom::End(0)).map_err(failed)?;
    let Some(bytes) = end.checked_sub(data) else {
        return Err(refuse(format!(
            "a file of {end} bytes, with a header that ends at byte {data}"
        )));
    };
    let text = header.type_descriptor.to_string();
    let name = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let name = name.unwrap_or(&text);
    let short = name.trim_start_matches(['<', '>', '=', '|']);
    if !T::NAMES.contains(&short) {
        let names = T::NAMES.join(", ");
        return Err(refuse(format!(
            "elements of type {name:?}; {names} can be read as {}",
            T::DTYPE
        )));
    }
    let size = short[1..].parse().unwrap_or(0_u128);
    let needed = header.shape.iter().try_fold(size, |size, n| size.checked_mul(*n as u128));
    if needed != Some(bytes.into()) {
        let needed = needed.map_or("more than 2^128".to_owned(), |needed| needed.to_string());
        let shape = &header.shape;
        return Err(refuse(format!("{bytes} bytes of data; shape {shape:?} takes {needed}")));
    }
    // Arrays without elements have shapes, too, of which `ndarray` takes no larger ones.
    let extent = header.shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n.max(&1)));
    if extent.is_none_or(|extent| isize::try_from(extent).is_err()) {
        let shape = &header.shape;
        return Err(refuse(format!(
            "shape {shape:?}; lengths other than 0 multiply to at most {}",
            isize::MAX
        )));
    }
    source.rewind().map_err(failed)?;
    match T::read_as(short, &mut source) {
        Some(values) => values.map_err(wrong),
        None => Err(refuse(format!("elements of type {name}"))),
    }
}

/// Refuses a header whose text is too long for an array. The parser of the text needs stack in proportion.
fn check_header(source: &mut impl Read) -> Result<()> {
    let mut start = [0; 12];
    source.read_exact(&mut start).map_err(|error| wrong(error.into()))?;
    if !start.starts_with(b"\x93NUMPY") {
        return Err(refuse("no .npy array: another magic string".to_owned()));
    }
    // Then come the version and the length, which has two bytes in version 1 and four later.
    let length = match start[6] {
        1 => u32::from(u16::from_le_bytes([start[8], start[9]])),
        _ => u32::from_le_bytes([start[8], start[9], start[10], start[11]]),
    };
    if length > MAX_HEADER {
        return Err(refuse(format!("a header of {length} bytes; at most {MAX_HEADER}")));
    }
    Ok(())
}

/// The longest header. That of an array of 32 dimensions is shorter.
const MAX_HEADER: u32 = 1024;

/// Writes an array.
///
/// # Errors
///
/// `Driver` if writing fails.
pub fn write<T: Readable, D: Dimension>(target: impl Write, values: &ArrayRef<T, D>) -> Result<()> {
    let mut target = BufWriter::new(target);
    let written = values.view().write_npy(&mut target);
    written
        .map_err(|error| Error::new(ErrorKind::Driver, "npy", "cannot write").with_source(error))?;
    target.flush().map_err(failed)
}

impl<T: Readable, const N: usize> Field<T, N> {
    /// Writes the values of all ranks to a file, on rank 0. Collective, as [`gather`](Self::gather).
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather), and of writing on rank 0: `InvalidArgument` for a file that cannot be made.
    /// `InvalidArgument` on the other ranks if rank 0 failed.
    #[track_caller]
    pub fn write_npy(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (path, what) = (path.as_ref(), format!("write {self:?}"));
        let written = match self.gather(0)? {
            Some(values) => {
                File::create(path).map_err(closed).and_then(|file| write(file, &values))
            }
            None => Ok(()),
        };
        self.core().grid.agree(&what, written.map_err(|error| error.about(path.display())))
    }

    /// Sets the points of all ranks to the values in a file, which rank 0 reads. Collective, as
    /// [`scatter`](Self::scatter).
    ///
    /// # Errors
    ///
    /// Those of [`read`] on rank 0, and `InvalidArgument` for a file that cannot be opened. `InvalidArgument` on the
    /// other ranks if rank 0 failed. Those of [`scatter`](Self::scatter).
    #[track_caller]
    pub fn read_npy(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.scatter(0, || {
            let values = File::open(path).map_err(closed).and_then(read);
            values.map_err(|error| error.about(path.display()))
        })
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "npy", message)
}

/// The error for a file that cannot be opened.
fn closed(error: std::io::Error) -> Error {
    refuse(error.to_string()).with_source(error)
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Driver, "npy", error.to_string()).with_source(error)
}

fn wrong(error: ReadNpyError) -> Error {
    match error {
        ReadNpyError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            failed(error)
        }
        error => refuse(format!("no .npy array: {error}")),
    }
}
