//! Arrays in device memory.

mod block;
pub(crate) mod copy;
mod discarded;
mod host;
mod index;
mod work;

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyInt, PyIterator, PyList, PyString, PyTuple};
use runtime::{AnyView, AnyViewMut, DType, Layout, MemoryView, MemoryViewMut, NativeKind};

pub(crate) use self::block::{Block, BlockMemory, Loan};
pub(crate) use self::host::HostArray;
pub(crate) use self::index::{Order, Shape, integers, integers_of, permuted};
pub(crate) use self::work::{Asked, Chosen, Hold, Turn, Use, Work};
use crate::device::{Device, no_attribute};
use crate::dtype::{self, Value};
use crate::error::{Failure, Result};
use crate::fork;
use crate::pinned::PinnedArray;
use crate::protocol::capsule::Pair;
use crate::protocol::export::{self, DlpackArguments};
use crate::stream::Stream;

/// Elements of a memory block.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) block: Arc<Block>,
    /// The byte offset of element `[0, …, 0]`.
    pub(crate) origin: usize,
    pub(crate) layout: Layout,
    pub(crate) read_only: bool,
}

impl Part {
    pub(crate) fn allocate(
        device: &runtime::Device,
        shape: &[usize],
        dtype: DType,
        order: Order,
    ) -> Result<Self> {
        fork::check("empty")?;
        let layout = order.layout(dtype, shape)?;
        let memory = discarded::allocate(device, layout.len() * dtype.size())?;
        Ok(Self { block: Arc::new(Block::new(memory)), origin: 0, layout, read_only: false })
    }

    /// Holds the memory, to make views of it.
    pub(crate) fn hold(&self) -> Result<BlockMemory<'_>> {
        Ok(self.block.hold()?)
    }

    /// A view of the elements, to read.
    pub(crate) fn view<'a>(&self, held: &'a BlockMemory<'_>) -> Result<AnyView<'a>> {
        Ok(held.view(self.origin, &self.layout)?)
    }

    /// A view of the elements, to write.
    pub(crate) fn view_mut<'a>(&self, held: &'a BlockMemory<'_>) -> Result<AnyViewMut<'a>> {
        self.check_writable()?;
        Ok(held.view_mut(self.origin, &self.layout)?)
    }

    /// A view of the bytes from the first to past the last, to read.
    fn bytes<'a>(&self, held: &'a BlockMemory<'_>) -> Result<MemoryView<'a, u8>> {
        Ok(held.view(self.first_byte(), &Layout::row(DType::U8, self.span())?)?.typed()?)
    }

    /// A view of the bytes from the first to past the last, to write.
    fn bytes_mut<'a>(&self, held: &'a BlockMemory<'_>) -> Result<MemoryViewMut<'a, u8>> {
        self.check_writable()?;
        Ok(held.view_mut(self.first_byte(), &Layout::row(DType::U8, self.span())?)?.typed()?)
    }

    fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Failure::invalid("write", "an array that is only to be read"));
        }
        Ok(())
    }

    pub(crate) fn first_byte(&self) -> usize {
        self.origin.wrapping_add_signed(self.layout.span_bytes().start)
    }

    /// Whether the memory has an address there: bytes of the elements among these addresses.
    fn meets(&self, addresses: &Range<usize>) -> Result<bool> {
        let held = self.hold()?;
        let view = self.view(&held)?;
        let (native, bytes) = (view.native(), view.byte_range());
        Ok(native.is_some_and(|native| {
            native.kind == NativeKind::Pointer
                && native.raw + bytes.start < addresses.end
                && addresses.start < native.raw + bytes.end
        }))
    }

    fn span(&self) -> usize {
        let span = self.layout.span_bytes();
        span.end.abs_diff(span.start)
    }
}

/// The layout with these strides in bytes, or in row-major order if there are none.
pub(crate) fn byte_layout(
    dtype: DType,
    shape: &[usize],
    strides: Option<&[isize]>,
) -> Result<Layout> {
    let Some(strides) = strides else { return Ok(Layout::contiguous(dtype, shape)?) };
    let size = dtype.size().cast_signed();
    if let Some(stride) = strides.iter().find(|stride| *stride % size != 0) {
        let message = format!("a stride of {stride} bytes is no multiple of {size}");
        return Err(Failure::invalid("strides", message));
    }
    let strides: Vec<isize> = strides.iter().map(|stride| stride / size).collect();
    Ok(Layout::new(dtype, shape, &strides)?)
}

/// The element type of an argument; ``float64`` if it is missing.
pub(crate) fn dtype_or_f64(given: Option<&Bound<'_, PyAny>>) -> Result<DType> {
    given.map_or(Ok(DType::F64), dtype::from_python)
}

/// An n-dimensional array in device memory, made by ``Device.array``, ``Device.empty``, ``Device.zeros``,
/// ``Device.full`` or ``Device.adopt``.
///
/// Indexing with integers, slices of any step, ``...`` and ``None`` returns arrays that share its memory.
///
/// An operation comes after unfinished work on the arrays that it uses, on any stream: after work that writes them, and
/// if it writes them itself, after all work. Its stream waits, not the host. ``relaxed=True`` leaves out this order;
/// then
/// only the stream orders the operation. If the operation names no ``stream``, it is enqueued on this thread's current
/// stream if that belongs to the array's device, else on the device's default stream. For an array lent by an
/// ArrayBuffer
/// it is enqueued on the stream of the access. Work that was enqueued by other libraries, by kernels that got an
/// address
/// as a number, or by other arrays over adopted memory, is not tracked.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct DeviceArray {
    pub(crate) part: Part,
}

impl DeviceArray {
    pub(crate) fn allocate(
        py: Python<'_>,
        device: &runtime::Device,
        shape: &[usize],
        dtype: DType,
        order: Order,
    ) -> Result<Self> {
        Ok(Self { part: py.detach(|| Part::allocate(device, shape, dtype, order))? })
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self { part: Part { layout, ..self.part.clone() } }
    }
}

#[pymethods]
impl DeviceArray {
    /// The device of the array.
    #[getter]
    fn device(&self) -> Device {
        Device(self.part.block.device().clone())
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.part.layout.shape())
    }

    /// The number of bytes from one element to the next along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        dtype::byte_strides(py, &self.part.layout)
    }

    /// The element type, a ``numpy.dtype``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::to_python(py, self.part.layout.dtype())
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.part.layout.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.part.layout.len()
    }

    /// The number of bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.part.layout.dtype().size()
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.part.layout.len() * self.part.layout.dtype().size()
    }

    /// Whether the array is read-only.
    #[getter]
    fn read_only(&self) -> bool {
        self.part.read_only
    }

    /// Whether the elements are in row-major order without gaps.
    #[getter]
    fn is_c_contiguous(&self) -> bool {
        self.part.layout.is_contiguous()
    }

    /// Whether the elements are in column-major order without gaps.
    #[getter]
    fn is_f_contiguous(&self) -> Result<bool> {
        Ok(self.reversed()?.is_contiguous())
    }

    /// The address of the first element, as kernels see it; 0 for an array without elements. Arrays in memory objects,
    /// such as OpenCL buffers, have no address: see ``handle`` and ``offset``.
    #[getter]
    fn ptr(&self) -> Result<usize> {
        let held = self.part.hold()?;
        match self.part.view(&held)?.native() {
            None => Ok(0),
            Some(native) if native.kind == NativeKind::Pointer => {
                Ok(native.raw.wrapping_add(self.part.origin))
            }
            Some(native) => {
                let message = format!("{native:?} is not an address; see handle and offset");
                Err(no_attribute(message).into())
            }
        }
    }

    /// The vendor's handle of the whole memory: an address or a ``cl_mem``. 0 for memory of no bytes.
    #[getter]
    fn handle(&self) -> Result<usize> {
        let held = self.part.hold()?;
        Ok(self.part.view(&held)?.native().map_or(0, |native| native.raw))
    }

    /// The number of bytes from the start of the memory to the first element.
    #[getter]
    fn offset(&self) -> usize {
        self.part.origin
    }

    /// The same elements with the dimensions in reverse order.
    #[getter(T)]
    fn reversed_dims(&self) -> Result<Self> {
        Ok(self.with_layout(self.reversed()?))
    }

    /// The same elements with the dimensions in this order, given one by one or as a tuple. Without arguments, the
    /// order is reversed.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> Result<Self> {
        let rank = self.part.layout.rank();
        if axes.is_empty() || axes.len() == 1 && axes.get_item(0)?.is_none() {
            return self.reversed_dims();
        }
        let axes = integers_of(axes)?;
        // Negative axes count from the end.
        let last = rank.cast_signed();
        let dims =
            axes.iter().map(|axis| if *axis < 0 { axis.saturating_add(last) } else { *axis });
        let dims: Vec<usize> = dims.filter_map(|dim| usize::try_from(dim).ok()).collect();
        let mut sorted = dims.clone();
        sorted.sort_unstable();
        if axes.len() != rank || !sorted.iter().copied().eq(0..rank) {
            let message = format!("axes {axes:?} of an array with {rank} dimensions");
            return Err(Failure::invalid("transpose", message));
        }
        Ok(self.with_layout(permuted(&self.part.layout, &dims)?))
    }

    /// The same elements in another shape, in row-major order. The extents are given one by one or as a tuple. One of
    /// them may be -1; it is computed from the others. The array must be C-contiguous; otherwise copy it first.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<Self> {
        let (own, asked) = (&self.part.layout, integers_of(shape)?);
        let shape = index::completed(&asked, own.len());
        let layout = shape.map(|shape| Layout::contiguous(own.dtype(), &shape)).transpose()?;
        match layout {
            Some(layout) if layout.len() == own.len() && own.is_contiguous() => {
                Ok(self.with_layout(layout))
            }
            _ => {
                let size = own.dtype().size().cast_signed();
                let strides: Vec<isize> =
                    own.strides().iter().map(|stride| stride.saturating_mul(size)).collect();
                let message = format!(
                    "{asked:?} of shape {:?} with strides of {strides:?} bytes",
                    own.shape()
                );
                Err(Failure::invalid("reshape", message))
            }
        }
    }

    /// Returns the values as a NumPy array, or copies them to ``out``. Blocks until they are there, unless ``out`` is a
    /// PinnedArray. ``relaxed`` leaves out the order with other streams.
    #[pyo3(signature = (out = None, stream = None, order = None, *, relaxed = false))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
        stream: Option<&Stream>,
        order: Option<Order>,
        relaxed: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let asked = Asked::new(py, stream, relaxed)?;
        match out {
            None => copy::to_new_host(py, asked, &self.part, order),
            Some(out) => copy::get_into(py, asked, &self.part, &out).map(|()| out),
        }
    }

    /// Sets the values to those of ``source``, an array of the same shape and type. The source may be changed after the
    /// call returns, unless it is a PinnedArray or on a device. ``relaxed`` leaves out the order with other streams.
    #[pyo3(signature = (source, stream = None, *, relaxed = false))]
    fn set(&self, source: &Bound<'_, PyAny>, stream: Option<&Stream>, relaxed: bool) -> Result<()> {
        copy::set_from(&self.part, source, Asked::new(source.py(), stream, relaxed)?)
    }

    /// Enqueues a fill that sets every element to ``value``. For integers it is an integer in range, as for Python's
    /// ``array.array``. For floating-point numbers it is rounded as by NumPy: 1e300 is infinity in a float32.
    /// ``relaxed`` leaves out the order with other streams.
    #[pyo3(signature = (value, stream = None, *, relaxed = false))]
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
        relaxed: bool,
    ) -> Result<()> {
        self.part.check_writable()?;
        let value = Value::new(value, self.part.layout.dtype())?;
        let asked = Asked::new(py, stream, relaxed)?;
        py.detach(|| copy::fill(asked, &self.part, &value))
    }

    /// Returns a new array on the same device with the same values, without gaps. ``relaxed`` leaves out the order with
    /// other streams.
    #[pyo3(signature = (order = Order::C, stream = None, *, relaxed = false),
        text_signature = "($self, order='C', stream=None, *, relaxed=False)")]
    fn copy(
        &self,
        py: Python<'_>,
        order: Order,
        stream: Option<&Stream>,
        relaxed: bool,
    ) -> Result<Self> {
        let asked = Asked::new(py, stream, relaxed)?;
        let part = py.detach(|| copy::anew(asked, &self.part, order))?;
        Ok(Self { part })
    }

    /// Returns the array on another device; the array itself if it is already there. ``stream`` is a stream of that
    /// device. The copy comes after the array's unfinished work.
    #[pyo3(signature = (device, *, stream = None))]
    fn to_device(
        slf: &Bound<'_, Self>,
        device: &Device,
        stream: Option<&Stream>,
    ) -> Result<Py<Self>> {
        let (py, own) = (slf.py(), slf.get());
        if own.part.block.device().is_same(&device.0) {
            return Ok(slf.clone().unbind());
        }
        let Part { layout, .. } = &own.part;
        let made = Self::allocate(py, &device.0, layout.shape(), layout.dtype(), Order::C)?;
        let asked = Asked::new(py, stream, false)?;
        py.detach(|| copy::between(asked, &made.part, &own.part))?;
        Ok(Py::new(py, made)?)
    }

    /// DLPack: the array for any library that reads DLPack, without a copy if it is requested where it is.
    ///
    /// ``stream`` is a CUDA or HIP stream of the consumer; it waits for the work on this array. -1 requests no waiting.
    /// Without a stream, the call waits for memory that the host can read, and orders other memory on the default
    /// stream of its interface.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let arguments = DlpackArguments { stream, max_version, dl_device, copy };
        export::dlpack(py, &self.part, &arguments)
    }

    /// DLPack's numbers for the device type and the device.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        export::dlpack_device(py, &self.part)
    }

    /// NumPy's array interface, for arrays that the host can address and that no ArrayBuffer lends. Blocks until the
    /// work enqueued so far has finished. After enqueuing more work, wait for it before you use the values again.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        export::array_interface(py, &self.part)
    }

    /// The CUDA array interface, for CUDA and HIP arrays that no ArrayBuffer lends.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        export::cuda_array_interface(py, &self.part)
    }

    /// The Arrow C device interface, for one-dimensional arrays without gaps. The array must not be written while it is
    /// in use.
    #[pyo3(signature = (requested_schema = None, **keywords))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Pair<'py>> {
        // A producer may leave a requested conversion to the consumer.
        let _asked = requested_schema;
        export::check_arrow_keywords(keywords)?;
        export::arrow_device_array(py, &self.part)
    }

    /// The Arrow C data interface, for one-dimensional arrays without gaps that the host can address. Blocks until the
    /// work enqueued so far has finished. The array must not be written while it is in use.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Pair<'py>> {
        let _asked = requested_schema;
        export::arrow_array(py, &self.part)
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> Result<Self> {
        let (layout, origin) = index::indexed(&self.part.layout, self.part.origin, key)?;
        Ok(Self { part: Part { layout, origin, ..self.part.clone() } })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<()> {
        let (part, value) = (self.__getitem__(key)?, dtype::number(value)?);
        // A text has a length too, but NumPy would parse it.
        let is_text = value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>();
        let is_one = is_text || !value.hasattr("__len__")? && !value.hasattr("shape")?;
        match is_one {
            true => part.fill(value.py(), &value, None, false),
            false => part.set(&part.broadcast(value)?, None, false),
        }
    }

    fn __copy__(&self, py: Python<'_>) -> Result<Self> {
        self.copy(py, Order::C, None, false)
    }

    fn __deepcopy__(&self, py: Python<'_>, memo: &Bound<'_, PyAny>) -> Result<Self> {
        let _there_are_no_parts = memo;
        self.copy(py, Order::C, None, false)
    }

    /// Iterates over the first dimension.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let parts = (0..self.__len__()?).map(|index| self.__getitem__(&PyInt::new(py, index)));
        PyList::new(py, parts.collect::<Result<Vec<_>>>()?)?.try_iter()
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.part.layout.shape().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array without dimensions has no length"))
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyValueError::new_err("values are on the device: compare those that get() gives"))
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<bool> {
        let _what_is_asked = (other, op);
        Err(not_compared())
    }

    fn __contains__(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let _what_is_asked = value;
        Err(not_compared())
    }

    /// Hashes the object's identity, independent of its values.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr()
    }

    /// Called by NumPy if it cannot use the array interface: for an array that an ArrayBuffer lends on the host.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if !export::is_host_readable(&slf.get().part)? {
            let message = "values are on the device: get() copies them to the host";
            return Err(PyTypeError::new_err(message).into());
        }
        let (py, numpy) = (slf.py(), dtype::numpy(slf.py())?);
        let part = &slf.get().part;
        let own = dtype::to_python(py, part.layout.dtype())?;
        let converts = dtype.as_ref().map_or(Ok(false), |asked| own.ne(asked))?;
        // A copy holds no access, and writes nothing.
        let (values, copy) = if copy.unwrap_or(converts) {
            (copy::to_new_host(py, Asked::nothing(py)?, part, None)?, None)
        } else {
            (numpy.call_method1("from_dlpack", (slf,))?, copy)
        };
        let keywords = PyDict::new(py);
        keywords.set_item("copy", copy)?;
        Ok(numpy.call_method("array", (values, dtype), Some(&keywords))?)
    }

    fn __repr__(&self) -> String {
        let (name, shape) = (dtype::name(self.part.layout.dtype()), self.part.layout.shape());
        format!("<DeviceArray {name} {shape:?} on {}>", self.part.block.device().id())
    }
}

#[cold]
fn not_compared() -> PyErr {
    PyTypeError::new_err(
        "values are on the device: compare those that get() gives, or arrays by 'is'",
    )
}

impl DeviceArray {
    /// Repeats the values of an array along new dimensions, and along those of extent 1, as far as this array has more.
    ///
    /// # Errors
    ///
    /// `ValueError` if the shapes do not fit.
    fn broadcast<'py>(&self, source: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let (py, own) = (source.py(), self.part.layout.shape());
        if let Ok(array) = source.cast::<Self>() {
            let from = &array.get().part.layout;
            if from.shape() == own {
                return Ok(source);
            }
            let new = own.len().checked_sub(from.rank());
            let strides = new.and_then(|new| {
                let dims = from.shape().iter().zip(from.strides()).zip(&own[new..]);
                let known = dims.map(|((extent, stride), wanted)| match extent {
                    extent if extent == wanted => Some(*stride),
                    1 => Some(0),
                    _ => None,
                });
                std::iter::repeat_n(Some(0), new).chain(known).collect::<Option<Vec<_>>>()
            });
            let Some(strides) = strides else {
                let message = format!("an array of shape {:?} for shape {own:?}", from.shape());
                return Err(Failure::invalid("set", message));
            };
            let layout = Layout::new(from.dtype(), own, &strides)?;
            return Ok(Bound::new(py, array.get().with_layout(layout))?.into_any());
        }
        if source.is_instance_of::<PinnedArray>() {
            return Ok(source);
        }
        let numpy = dtype::numpy(py)?;
        let shape = PyTuple::new(py, own)?;
        let values = match source.hasattr("shape")? {
            true => source,
            false => {
                let of = dtype::to_python(py, self.part.layout.dtype())?;
                numpy.call_method1("asarray", (source, of))?
            }
        };
        if values.getattr("shape")?.eq(&shape)? {
            return Ok(values);
        }
        Ok(numpy.call_method1("broadcast_to", (values, shape))?)
    }

    fn reversed(&self) -> Result<Layout> {
        let dims: Vec<usize> = (0..self.part.layout.rank()).rev().collect();
        Ok(permuted(&self.part.layout, &dims)?)
    }
}
