//! Arrays in pinned host memory.
#![expect(unsafe_code, reason = "hands over memory that an array keeps")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyTuple};
use runtime::interchange::ArrayExchange;
use runtime::{DType, Error, Layout, MemoryView, MemoryViewMut, Pinned, PinnedOptions, Stream};

use crate::array::{Order, Work};
use crate::device::Device;
use crate::dtype;
use crate::error::Result;
use crate::fork;
use crate::protocol::export::{self, DlpackArguments};

/// An n-dimensional array in pinned host memory, made by ``Device.pinned``. It is the host side of asynchronous copies.
///
/// ``array.set(pinned, stream)`` and ``array.get(pinned, stream)`` are enqueued and do not block. NumPy accesses the
/// memory without a copy: ``numpy.asarray(pinned)``, and indexing as in NumPy. Both wait for the copies enqueued so
/// far. After enqueuing more copies, wait for them before you use the array again.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct PinnedArray {
    memory: Arc<Mutex<Pinned<u8>>>,
    address: usize,
    device: runtime::Device,
    pub(crate) layout: Layout,
    pub(crate) work: Work,
}

impl PinnedArray {
    pub(crate) fn allocate(
        py: Python<'_>,
        device: &runtime::Device,
        shape: &[usize],
        dtype: DType,
        order: Order,
        write_combined: bool,
    ) -> Result<Self> {
        fork::check("pinned")?;
        let layout = order.layout(dtype, shape)?;
        let (bytes, options) = (
            layout.len() * dtype.size(),
            PinnedOptions::default().with_write_combined(write_combined),
        );
        let mut memory: Pinned<u8> = py.detach(|| device.pinned_allocate_with(bytes, &options))?;
        let address = memory.as_mut_slice()?.as_mut_ptr().expose_provenance();
        let (memory, device) = (Arc::new(Mutex::new(memory)), device.clone());
        Ok(Self { memory, address, device, layout, work: Work::default() })
    }

    /// Enqueues a copy of all bytes from a device, in the caller's turn.
    pub(crate) fn copy_in(
        &self,
        stream: &Stream,
        from: &MemoryView<'_, u8>,
    ) -> runtime::Result<()> {
        from.copy_to_pinned(stream, &mut *crate::lock(&self.memory))
    }

    /// Enqueues a copy of all bytes to a device, in the caller's turn.
    pub(crate) fn copy_out(
        &self,
        stream: &Stream,
        to: &mut MemoryViewMut<'_, u8>,
    ) -> runtime::Result<()> {
        to.copy_from_pinned(stream, &*crate::lock(&self.memory))
    }

    /// The address, once the copies enqueued so far have finished.
    fn address(&self, py: Python<'_>) -> Result<usize> {
        py.detach(|| {
            self.work.wait_ahead(true)?;
            Ok(crate::lock(&self.memory).as_mut_slice().map(|_| self.address)?)
        })
    }

    /// The addresses of all bytes. Copies may be using them.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.address..self.address + self.nbytes()
    }
}

impl PinnedArray {
    /// A NumPy array over the memory.
    fn shown<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        dtype::to_numpy(slf.as_any(), slf.get().layout.dtype())
    }

    fn exchange(&self, py: Python<'_>) -> Result<ArrayExchange> {
        let (address, owner) = (self.address(py)?, Arc::clone(&self.memory));
        // SAFETY: the owner keeps the memory alive, and work enqueued so far has finished. A caller that enqueues more
        // work orders it after the consumer's use, as the documentation says.
        let taken =
            unsafe { ArrayExchange::from_pinned_at(&self.device, address, &self.layout, owner) };
        Ok(taken.map_err(Error::from)?)
    }
}

#[pymethods]
impl PinnedArray {
    /// The device whose copies can use the memory.
    #[getter]
    fn device(&self) -> Device {
        Device(self.device.clone())
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.layout.shape())
    }

    /// The element type, a ``numpy.dtype``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::to_python(py, self.layout.dtype())
    }

    /// The number of bytes from one element to the next along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        dtype::byte_strides(py, &self.layout)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.layout.rank()
    }

    /// The number of bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.layout.dtype().size()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.layout.len()
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.layout.len() * self.layout.dtype().size()
    }

    /// The address. Blocks until the copies enqueued so far have finished.
    #[getter]
    fn ptr(&self, py: Python<'_>) -> Result<usize> {
        self.address(py)
    }

    /// Indexes as NumPy does: returns a number, or a NumPy array over the same memory. Blocks until the copies enqueued
    /// so far have finished.
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::shown(slf)?.get_item(key)
    }

    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::shown(slf)?.set_item(key, value)
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.layout.shape().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array without dimensions has no length"))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        Self::shown(slf)?.try_iter()
    }

    /// NumPy's array interface. Blocks until the copies enqueued so far have finished.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        Ok(dtype::array_interface(py, &self.layout, self.address(py)?, false)?)
    }

    /// DLPack: the array for any library that reads DLPack, without a copy. Blocks until the copies enqueued so far
    /// have finished.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let arguments = DlpackArguments { stream, max_version, dl_device, copy };
        export::dlpack_ready(slf.as_any(), &arguments, || slf.get().exchange(slf.py()))
    }

    /// DLPack's numbers for the device type and the device.
    fn __dlpack_device__(&self, py: Python<'_>) -> Result<(i32, i32)> {
        Ok(self.exchange(py)?.dlpack_device(None)?)
    }

    fn __repr__(&self) -> String {
        let (name, shape) = (dtype::name(self.layout.dtype()), self.layout.shape());
        format!("<PinnedArray {name} {shape:?} for {}>", self.device.id())
    }
}
