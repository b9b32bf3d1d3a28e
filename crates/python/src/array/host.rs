//! Arrays in host memory.
#![expect(unsafe_code, reason = "reads memory that a capsule keeps")]

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple};
use runtime::interchange::ArrayExchange;
use runtime::{DType, Element, Error, ErrorKind, Layout};

use super::DeviceArray;
use super::index::Order;
use crate::dtype;
use crate::error::{Failure, Result};
use crate::protocol::{export, import};

/// An array in host memory.
pub(crate) struct HostArray<'py> {
    taken: ArrayExchange,
    layout: Layout,
    /// The object that the array comes from.
    pub(crate) object: Bound<'py, PyAny>,
}

impl<'py> HostArray<'py> {
    fn new(taken: ArrayExchange, object: &Bound<'py, PyAny>) -> Self {
        Self { layout: *taken.layout(), taken, object: object.clone() }
    }

    /// Reinterprets elements of 16 bits as `BF16`.
    fn of_bfloat16(bits: &Bound<'py, PyAny>) -> Result<Option<Self>> {
        let Some(taken) = import::from_host(bits)? else { return Ok(None) };
        let (shape, strides) = (taken.layout().shape(), taken.layout().strides());
        let layout = Layout::new(DType::BF16, shape, strides)?;
        Ok(Some(Self { layout, taken, object: dtype::as_bfloat16(bits)? }))
    }

    /// A new NumPy array with unspecified values.
    pub(crate) fn empty(py: Python<'py>, shape: &[usize], of: DType, order: Order) -> Result<Self> {
        let stored = if of == DType::BF16 { DType::U16 } else { of };
        let arguments = (PyTuple::new(py, shape)?, dtype::to_python(py, stored)?, order.name());
        let array = dtype::numpy(py)?.call_method1("empty", arguments)?;
        let made = match of {
            DType::BF16 => Self::of_bfloat16(&array)?,
            _ => import::from_host(&array)?.map(|taken| Self::new(taken, &array)),
        };
        made.ok_or_else(|| Self::none(&array))
    }

    /// An array that supports a protocol of host memory. For another object, the array that NumPy makes from it, with
    /// elements of type `of` if given.
    pub(crate) fn of(object: &Bound<'py, PyAny>, of: Option<DType>) -> Result<Self> {
        if let Some(array) = Self::by_protocol(object)? {
            return Ok(array);
        }
        let py = object.py();
        let of = of.map(|of| dtype::to_python(py, of)).transpose()?;
        Self::by_numpy(object, dtype::numpy(py)?.call_method1("asarray", (object, of))?)
    }

    /// An array to write: an object that supports a protocol of host memory, or Python's buffer protocol. From another
    /// object NumPy would make a temporary array, and the written values would be lost.
    pub(crate) fn to_write(object: &Bound<'py, PyAny>) -> Result<Self> {
        let numpy = dtype::numpy(object.py())?;
        let is_scalar = object.is_instance(&numpy.getattr(intern!(object.py(), "generic"))?)?;
        let array = match Self::by_protocol(object)? {
            Some(array) if !is_scalar => array,
            None if !is_scalar && let Ok(buffer) = PyMemoryView::from(object) => {
                Self::by_numpy(object, numpy.call_method1("asarray", (buffer,))?)?
            }
            _ => {
                let message = format!("{} is no array that can be written", object.get_type());
                return Err(PyTypeError::new_err(message).into());
            }
        };
        if !array.is_writable() {
            return Err(Failure::invalid("get", "an array that is only to be read"));
        }
        Ok(array)
    }

    /// An array that supports a protocol of host memory.
    fn by_protocol(object: &Bound<'py, PyAny>) -> Result<Option<Self>> {
        if let Ok(array) = object.cast::<DeviceArray>()
            && let part = &array.get().part
            && !export::is_host_readable(part)?
        {
            let message = "values are on the device: get() copies them to the host";
            let error = Error::new(ErrorKind::WrongDevice, "array", message);
            return Err(error.on(part.block.device().id()).into());
        }
        match import::from_host(object) {
            Ok(taken) => Ok(taken.map(|taken| Self::new(taken, object))),
            Err(failure) => {
                let bits = import::bits_of_bfloat16(object)?;
                bits.map_or(Err(failure), |bits| Self::of_bfloat16(&bits))
            }
        }
    }

    /// The array that NumPy made from an object.
    fn by_numpy(object: &Bound<'py, PyAny>, array: Bound<'py, PyAny>) -> Result<Self> {
        match import::from_host(&array)? {
            Some(taken) => Ok(Self::new(taken, &array)),
            None => Err(Self::none(object)),
        }
    }

    #[cold]
    fn none(object: &Bound<'_, PyAny>) -> Failure {
        Failure::invalid("array", format!("{object:?} is no array of the host"))
    }

    /// The address of element `[0, …, 0]`; null if there are no elements.
    ///
    /// # Errors
    ///
    /// `WrongDevice` for memory without an address.
    pub(crate) fn data(&self) -> runtime::Result<*mut u8> {
        match self.taken.pointer() {
            Some(first) => Ok(std::ptr::with_exposed_provenance_mut(first)),
            None if self.layout.is_empty() => Ok(std::ptr::null_mut()),
            None => {
                let message = format!("memory of {} without an address", self.taken.device());
                Err(Error::new(ErrorKind::WrongDevice, "array", message))
            }
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.taken.access().is_writable()
    }

    /// Whether elements are aligned.
    pub(crate) fn is_aligned(&self) -> Result<bool> {
        let align = dtype::with_element!(self.layout.dtype(), T => align_of::<T>());
        Ok(self.data()?.addr().is_multiple_of(align))
    }

    /// The array itself; `BF16` elements appear as `U16` in it.
    pub(crate) fn into_exchange(self) -> ArrayExchange {
        self.taken
    }

    /// Copies the elements of an array that is in row-major order without gaps.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the host does not have enough memory.
    pub(crate) fn to_vec<T: Element>(&self) -> runtime::Result<Vec<T>> {
        let (len, first) = (self.layout.len(), self.data()?);
        let mut elements: Vec<T> = Vec::new();
        elements.try_reserve_exact(len).map_err(|_| {
            let message = format!("{} bytes on the host", len.saturating_mul(size_of::<T>()));
            Error::new(ErrorKind::OutOfMemory, "array", message)
        })?;
        if len > 0 {
            let bytes = elements.as_mut_ptr().cast::<u8>();
            // SAFETY: the array has that many bytes without gaps, kept alive by its capsule, and the new vector has
            // room for them.
            unsafe { std::ptr::copy_nonoverlapping(first, bytes, len * size_of::<T>()) };
            // SAFETY: that many elements were just written, and any bytes are a valid element.
            unsafe { elements.set_len(len) };
        }
        Ok(elements)
    }

    /// The values without gaps in this order: the array itself, or a copy.
    pub(crate) fn ordered(self, order: Order) -> Result<Self> {
        let layout = self.layout;
        if layout.is_empty() || layout == order.layout(layout.dtype(), layout.shape())? {
            return Ok(self);
        }
        let copy = Self::empty(self.object.py(), layout.shape(), layout.dtype(), order)?;
        self.copy_to(&copy)?;
        Ok(copy)
    }

    /// Copies the elements to a writable array of the same shape and type. NumPy copies from the held memory to the
    /// held memory; the objects are not queried again.
    pub(crate) fn copy_to(&self, to: &Self) -> Result<()> {
        let (to, from) = (to.shown(false)?, self.shown(true)?);
        dtype::numpy(self.object.py())?.call_method1("copyto", (to, from))?;
        Ok(())
    }

    /// A NumPy array over the memory, in which `BF16` appears as `U16`. It must not be used after `self` is dropped.
    fn shown(&self, read_only: bool) -> Result<Bound<'py, PyAny>> {
        let (py, address) = (self.object.py(), self.data()?.addr());
        let values = HostValues { address, layout: self.layout, read_only };
        Ok(dtype::numpy(py)?.call_method1("asarray", (Bound::new(py, values)?,))?)
    }
}

/// Values on the host that NumPy accesses.
#[pyclass(frozen, weakref, module = "device_runtime")]
struct HostValues {
    address: usize,
    layout: Layout,
    read_only: bool,
}

#[pymethods]
impl HostValues {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dtype::array_interface(py, &self.layout, self.address, self.read_only)
    }
}
