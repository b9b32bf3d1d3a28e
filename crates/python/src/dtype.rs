//! Element types, represented in Python by NumPy's dtypes.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use runtime::{Bool, Complex, DType, Error, ErrorKind, Layout, bf16, bytemuck, f16};

use crate::error::{Failure, Result};

/// NumPy's name of an element type. NumPy knows that of `BF16` only if the package `ml_dtypes` is installed.
pub(crate) const fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        DType::Record(record) => record.name(),
    }
}

/// The NumPy module.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// The dtype of an element type. For `BF16` it needs the package `ml_dtypes`; without it, the result is the name.
pub(crate) fn to_python(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    if dtype != DType::BF16 {
        return numpy(py)?.call_method1("dtype", (name(dtype),));
    }
    match py.import("ml_dtypes") {
        Ok(more) => numpy(py)?.call_method1("dtype", (more.getattr("bfloat16")?,)),
        Err(_) => Ok(name(dtype).into_pyobject(py)?.into_any()),
    }
}

/// Converts anything that NumPy accepts as a dtype, or `bfloat16`, to an element type.
///
/// # Errors
///
/// `InvalidArgument` for types that devices do not support; the message names the type.
pub(crate) fn from_python(given: &Bound<'_, PyAny>) -> Result<DType> {
    let py = given.py();
    let known = |text: &str| DType::ALL.into_iter().find(|dtype| name(*dtype) == text);
    if let Some(dtype) = given.extract::<&str>().ok().and_then(known) {
        return Ok(dtype);
    }
    let dtype = numpy(py)?.call_method1("dtype", (given,))?;
    let found = known(dtype.getattr("name")?.extract()?);
    let native: bool = dtype.getattr("isnative")?.extract()?;
    found.filter(|_| native).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.into_iter().map(name).collect();
        let message = format!("{dtype:?}; there are {} in native byte order", names.join(", "));
        Failure::invalid("dtype", message)
    })
}

/// The number of bytes from one element to the next along each dimension; 0 for a number that does not fit, which
/// leads to no element.
pub(crate) fn byte_strides<'py>(py: Python<'py>, layout: &Layout) -> PyResult<Bound<'py, PyTuple>> {
    let size = layout.dtype().size().cast_signed();
    PyTuple::new(py, layout.strides().iter().map(|stride| stride.checked_mul(size).unwrap_or(0)))
}

/// NumPy's array interface for elements at a host address. It does not support `BF16`, which is presented as `U16`.
pub(crate) fn array_interface<'py>(
    py: Python<'py>,
    layout: &Layout,
    address: usize,
    read_only: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let shown = if layout.dtype() == DType::BF16 { DType::U16 } else { layout.dtype() };
    let dict = PyDict::new(py);
    dict.set_item("shape", PyTuple::new(py, layout.shape())?)?;
    dict.set_item("typestr", to_python(py, shown)?.getattr("str")?)?;
    dict.set_item("data", (address, read_only))?;
    dict.set_item("strides", byte_strides(py, layout)?)?;
    dict.set_item("version", 3)?;
    Ok(dict)
}

/// A NumPy array over an object that presents elements of `dtype` by [`array_interface`].
pub(crate) fn to_numpy<'py>(
    shown: &Bound<'py, PyAny>,
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let array = numpy(shown.py())?.call_method1("asarray", (shown,))?;
    match dtype {
        DType::BF16 => as_bfloat16(&array),
        _ => Ok(array),
    }
}

/// Converts an array of 16-bit integers to `BF16` if `ml_dtypes` is installed; else returns it unchanged.
pub(crate) fn as_bfloat16<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match to_python(array.py(), DType::BF16)? {
        name if name.is_instance_of::<PyString>() => Ok(array.clone()),
        dtype => array.call_method1("view", (dtype,)),
    }
}

/// Calls a generic function with the element type of a [`DType`].
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use runtime::{Bool, Complex, DType, bf16, f16};
        macro_rules! arm {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            DType::Bool => arm!(Bool),
            DType::I8 => arm!(i8),
            DType::I16 => arm!(i16),
            DType::I32 => arm!(i32),
            DType::I64 => arm!(i64),
            DType::U8 => arm!(u8),
            DType::U16 => arm!(u16),
            DType::U32 => arm!(u32),
            DType::U64 => arm!(u64),
            DType::F16 => arm!(f16),
            DType::BF16 => arm!(bf16),
            DType::F32 => arm!(f32),
            DType::F64 => arm!(f64),
            DType::C64 => arm!(Complex<f32>),
            DType::C128 => arm!(Complex<f64>),
            DType::Record(_) => unreachable!("Python has no records"),
        }
    }};
}
pub(crate) use with_element;

/// Calls a generic function with the type that stores elements which are only copied: one type for each size and
/// alignment, because generic code is compiled for each type.
macro_rules! with_storage {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use runtime::{Complex, DType};
        macro_rules! arm {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            DType::Bool | DType::I8 | DType::U8 => arm!(u8),
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => arm!(u16),
            DType::I32 | DType::U32 | DType::F32 => arm!(u32),
            DType::I64 | DType::U64 | DType::F64 => arm!(u64),
            DType::C64 => arm!(Complex<f32>),
            DType::C128 => arm!(Complex<f64>),
            DType::Record(_) => unreachable!("Python has no records"),
        }
    }};
}
pub(crate) use with_storage;

/// Converts a NumPy number, or a NumPy array without dimensions, to a Python number. Returns other objects unchanged.
///
/// # Errors
///
/// `TypeError` for a date or a time span, some of which NumPy would convert to integers.
pub(crate) fn number<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    let has_one = match given.getattr_opt(intern!(py, "shape"))? {
        Some(shape) => shape.eq(PyTuple::empty(py))?,
        None => false,
    };
    let item = match given.getattr_opt(intern!(py, "item"))? {
        Some(item) if has_one => item,
        _ => return Ok(given.clone()),
    };
    let dtype = given.getattr_opt(intern!(py, "dtype"))?;
    let kind = dtype.map(|dtype| dtype.getattr_opt(intern!(py, "kind"))).transpose()?.flatten();
    if kind.is_some_and(|kind| matches!(kind.extract(), Ok("M" | "m"))) {
        return Err(not_a_number(given));
    }
    item.call0()
}

#[cold]
fn not_a_number(given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{given:?} is no number"))
}

/// Rounds to the nearest `f32` whose last bit is set, unless the value is an `f32`. Rounding the result once more, to a
/// shorter type, gives the same as rounding the value itself to that type. (S. Boldo and G. Melquiond, *Emulation of
/// FMA and correctly rounded sums: proved algorithms using rounding to odd*, IEEE Transactions on Computers 57, 2008.)
fn rounded_to_odd(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded below")]
    let nearest = value as f32;
    let (back, bits) = (f64::from(nearest), nearest.to_bits());
    if value.is_nan() || back == value {
        return nearest;
    }
    let toward_zero = if back.abs() > value.abs() { bits - 1 } else { bits };
    f32::from_bits(toward_zero | 1)
}

/// One element as bytes; only the first [`DType::size`] bytes are used.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Value {
    bytes: [u8; 16],
    pub(crate) dtype: DType,
}

impl Value {
    /// Converts a Python or NumPy number to an element: exactly for integers, rounded for floating-point elements.
    ///
    /// # Errors
    ///
    /// `TypeError` and `OverflowError`, as for Python's conversions.
    pub(crate) fn new(given: &Bound<'_, PyAny>, dtype: DType) -> Result<Self> {
        fn bytes(value: impl bytemuck::NoUninit) -> [u8; 16] {
            let mut bytes = [0; 16];
            let value = bytemuck::bytes_of(&value);
            bytes[..value.len()].copy_from_slice(value);
            bytes
        }
        let given = &number(given)?;
        let complex = || -> PyResult<Complex<f64>> {
            // Python would parse it.
            if given.is_instance_of::<PyString>() {
                return Err(not_a_number(given));
            }
            let number = given.py().get_type::<pyo3::types::PyComplex>().call1((given,))?;
            Ok(Complex::new(number.getattr("real")?.extract()?, number.getattr("imag")?.extract()?))
        };
        #[expect(clippy::cast_possible_truncation, reason = "rounded, as NumPy does")]
        let bytes = match dtype {
            DType::Bool => {
                // Every object has a truth value.
                if !given.is_instance_of::<PyInt>() {
                    complex()?;
                }
                bytes(Bool::from(given.is_truthy()?))
            }
            DType::I8 => bytes(given.extract::<i8>()?),
            DType::I16 => bytes(given.extract::<i16>()?),
            DType::I32 => bytes(given.extract::<i32>()?),
            DType::I64 => bytes(given.extract::<i64>()?),
            DType::U8 => bytes(given.extract::<u8>()?),
            DType::U16 => bytes(given.extract::<u16>()?),
            DType::U32 => bytes(given.extract::<u32>()?),
            DType::U64 => bytes(given.extract::<u64>()?),
            DType::F16 => bytes(f16::from_f32(rounded_to_odd(given.extract()?))),
            DType::BF16 => bytes(bf16::from_f32(rounded_to_odd(given.extract()?))),
            DType::F32 => bytes(given.extract::<f64>()? as f32),
            DType::F64 => bytes(given.extract::<f64>()?),
            DType::C64 => {
                let value = complex()?;
                bytes(Complex::new(value.re as f32, value.im as f32))
            }
            DType::C128 => bytes(complex()?),
            DType::Record(_) => return Err(not_a_number(given).into()),
        };
        Ok(Self { bytes, dtype })
    }

    /// Returns the element.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `T` is not the type of the value.
    pub(crate) fn element<T: runtime::Element>(&self) -> runtime::Result<T> {
        if T::DTYPE != self.dtype {
            let message = format!("a value of {} for elements of {}", self.dtype, T::DTYPE);
            return Err(Error::new(ErrorKind::InvalidArgument, "value", message));
        }
        Ok(bytemuck::pod_read_unaligned(&self.bytes[..size_of::<T>()]))
    }
}
