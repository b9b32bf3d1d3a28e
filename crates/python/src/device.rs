//! Devices: listing them, opening them, and their properties.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use runtime::{DeviceRegistry, StreamOptions, Traffic};

use crate::array::{self, Asked, DeviceArray, Order};
use crate::current::here;
use crate::error::{self, Result};
use crate::fork;
use crate::module::{self, Module};
use crate::pinned::PinnedArray;
use crate::protocol::import;
use crate::stream::{Event, Stream};
use crate::wait;

fn registry() -> &'static DeviceRegistry {
    static REGISTRY: OnceLock<DeviceRegistry> = OnceLock::new();
    REGISTRY.get_or_init(runtime::registry)
}

/// Returns every device that can be opened now. ``backends`` gives the reason why a backend has no device.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Result<Vec<DeviceInfo>> {
    fork::enter("devices")?;
    let listings = py.detach(|| registry().list());
    let found = listings.into_iter().filter_map(|listing| listing.devices.ok());
    Ok(found.flatten().map(DeviceInfo).collect())
}

/// Returns the backends of this package: each name, and None or the error that explains why the backend has no device
/// here.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> Result<BTreeMap<String, Option<Py<PyAny>>>> {
    fork::enter("backends")?;
    let listings = py.detach(|| registry().list());
    let why = |listing: runtime::Listing| {
        let why =
            listing.devices.err().map(|error| error::raise(py, &error).into_value(py).into_any());
        (listing.backend, why)
    };
    Ok(listings.into_iter().map(why).collect())
}

/// The identity and limits of a device.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct DeviceInfo(runtime::DeviceInfo);

#[pymethods]
impl DeviceInfo {
    /// The backend and index, such as ``cuda:0``.
    #[getter]
    fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// The kind of device: host, cpu, gpu, accelerator, embedded or simulated.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The product name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The vendor.
    #[getter]
    fn vendor(&self) -> &str {
        &self.0.vendor
    }

    /// The instruction set that kernels are compiled for, such as ``sm_90`` or ``gfx90a``.
    #[getter]
    fn architecture(&self) -> &str {
        &self.0.architecture
    }

    /// The version of the driver in use.
    #[getter]
    fn driver_version(&self) -> &str {
        &self.0.driver_version
    }

    /// The device's unique identifier as a ``uuid.UUID``, or None.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(uuid) = self.0.uuid else { return Ok(None) };
        let arguments = PyDict::new(py);
        arguments.set_item("bytes", &uuid[..])?;
        py.import("uuid")?.getattr("UUID")?.call((), Some(&arguments)).map(Some)
    }

    /// The domain, bus and device number on the PCI bus, or None.
    #[getter]
    fn pci(&self) -> Option<(u32, u32, u32)> {
        self.0.pci.map(|pci| (pci.domain, pci.bus, pci.device))
    }

    /// The memory size in bytes, or None if it is not known.
    #[getter]
    fn memory_bytes(&self) -> Option<u64> {
        self.0.memory_bytes
    }

    /// The number of cores, multiprocessors or compute units.
    #[getter]
    fn compute_units(&self) -> u32 {
        self.0.compute_units
    }

    /// The number of work-items that execute together; 1 if there is no such unit.
    #[getter]
    fn subgroup_size(&self) -> u32 {
        self.0.subgroup_size
    }

    /// The supported module formats, best first, by the names that ``Device.module`` uses.
    #[getter]
    fn formats(&self) -> Vec<&'static str> {
        self.0.formats.iter().filter_map(|format| module::format_name(*format)).collect()
    }

    /// Formats that would be supported if everything they need were installed, each with the problem.
    #[getter]
    fn absent_formats(&self) -> BTreeMap<&'static str, &str> {
        let named = |(format, why)| Some((module::format_name(format)?, why));
        self.0.absent_formats.iter().map(|(f, why)| (*f, why.as_str())).filter_map(named).collect()
    }

    /// The limits of launches and allocations, by name.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let limits = &self.0.limits;
        let dict = PyDict::new(py);
        dict.set_item("max_allocation_bytes", limits.max_allocation_bytes)?;
        dict.set_item("allocation_alignment", limits.allocation_alignment.get())?;
        dict.set_item("argument_alignment", limits.argument_alignment.get())?;
        dict.set_item("max_grid", limits.max_grid)?;
        dict.set_item("max_block", limits.max_block)?;
        dict.set_item("max_block_threads", limits.max_block_threads)?;
        dict.set_item("max_shared_bytes", limits.max_shared_bytes)?;
        dict.set_item("max_arguments", limits.max_arguments)?;
        dict.set_item("max_argument_bytes", limits.max_argument_bytes)?;
        dict.set_item("priorities", limits.priorities)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<DeviceInfo {}: {}>", self.0.id, self.0.name)
    }
}

/// An opened device, by its selector: ``Device("cuda:0")``, ``Device("opencl:pocl:0")``, ``Device("host")``.
///
/// Opening a device twice gives two devices, and each refuses objects of the other. So open it once and pass it on.
/// Without a selector, the environment variable ``RUNTIME_DEVICE`` names the device; the default is ``host``.
#[pyclass(frozen, weakref, module = "device_runtime")]
#[derive(Clone)]
pub(crate) struct Device(pub(crate) runtime::Device);

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (selector = None))]
    fn new(py: Python<'_>, selector: Option<&str>) -> Result<Self> {
        fork::enter("open")?;
        let opened = py.detach(|| match selector {
            Some(selector) => registry().open(selector),
            None => registry().open_default("host"),
        });
        Ok(Self(opened?))
    }

    /// The backend and index, such as ``cuda:0``.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// The identity and limits.
    #[getter]
    fn info(&self) -> DeviceInfo {
        DeviceInfo(self.0.info().clone())
    }

    /// How each optional capability is provided: native, emulated or absent.
    #[getter]
    fn capabilities(&self) -> BTreeMap<&'static str, String> {
        self.0.capabilities().iter().map(|(name, support)| (name, support.to_string())).collect()
    }

    /// The vendor's handle of the device or its context as an int; valid while this object lives.
    #[getter]
    fn handle(&self) -> usize {
        self.0.native().raw
    }

    /// The free and used memory in bytes as ``memory_free`` and ``memory_used``, and the recent utilisation of
    /// processor and memory as ``processor_busy`` and ``memory_busy``. An entry is None if the device does not report
    /// it.
    fn load<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        fork::check("load")?;
        let load = self.0.monitor().map(|monitor| monitor.load()).transpose()?.unwrap_or_default();
        let dict = PyDict::new(py);
        dict.set_item("memory_free", load.memory_free)?;
        dict.set_item("memory_used", load.memory_used)?;
        dict.set_item("processor_busy", load.processor_busy)?;
        dict.set_item("memory_busy", load.memory_busy)?;
        Ok(dict)
    }

    /// The reserved and the used bytes of the memory pool, or None without a pool.
    #[getter]
    fn pool_bytes(&self) -> Option<(usize, usize)> {
        self.0.memory_pool().map(|pool| (pool.reserved_bytes(), pool.used_bytes()))
    }

    /// Frees unused memory of the pool until at most ``keep_bytes`` are reserved beyond the used bytes.
    #[pyo3(signature = (keep_bytes = 0))]
    fn trim_pool(&self, py: Python<'_>, keep_bytes: usize) -> Result<()> {
        fork::check("trim_pool")?;
        py.detach(|| self.0.memory_pool().map_or(Ok(()), |pool| pool.trim(keep_bytes)))?;
        Ok(())
    }

    /// The transfers and launches since the device was opened. For each direction, the number of copies and their
    /// bytes.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = self.0.statistics();
        let pair = |traffic: Traffic| (traffic.count, traffic.bytes);
        let dict = PyDict::new(py);
        dict.set_item("to_device", pair(statistics.to_device))?;
        dict.set_item("from_device", pair(statistics.from_device))?;
        dict.set_item("on_device", pair(statistics.on_device))?;
        dict.set_item("from_peers", pair(statistics.from_peers))?;
        dict.set_item("realigned", pair(statistics.realigned))?;
        dict.set_item("launches", statistics.launches)?;
        dict.set_item("allocations", statistics.allocations)?;
        Ok(dict)
    }

    /// Blocks until all work on the device has finished.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        fork::check("synchronize")?;
        Ok(py.detach(|| wait::device(&self.0))?)
    }

    /// Whether this device can copy from ``other``, and wait for its events, without the host.
    fn reaches(&self, other: &Self) -> bool {
        self.0.reaches(&other.0)
    }

    /// The default stream.
    #[getter]
    fn default_stream(&self) -> Stream {
        Stream(self.0.default_stream())
    }

    /// Creates a stream. A larger priority is more urgent; the default is 0.
    #[pyo3(signature = (priority = 0))]
    fn stream(&self, priority: i32) -> Result<Stream> {
        fork::check("stream")?;
        Ok(Stream(self.0.stream_create(&StreamOptions::default().with_priority(priority))?))
    }

    /// Creates an event. Only events with timing can measure elapsed time.
    #[pyo3(signature = (timing = true))]
    fn event(&self, timing: bool) -> Result<Event> {
        fork::check("event")?;
        Ok(Event(self.0.event_create(timing)?))
    }

    /// Creates an array. Its values are unspecified until they are written.
    #[pyo3(signature = (shape, dtype = None, order = Order::C),
        text_signature = "($self, shape, dtype=None, order='C')")]
    fn empty(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
    ) -> Result<DeviceArray> {
        DeviceArray::allocate(py, &self.0, &shape.0, array::dtype_or_f64(dtype)?, order)
    }

    /// Creates an array of zeros, filled in stream order.
    #[pyo3(signature = (shape, dtype = None, order = Order::C, stream = None),
        text_signature = "($self, shape, dtype=None, order='C', stream=None)")]
    fn zeros(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
        stream: Option<&Stream>,
    ) -> Result<DeviceArray> {
        let made = self.empty(py, shape, dtype, order)?;
        made.fill(py, 0_u8.into_pyobject(py).map_err(PyErr::from)?.as_any(), stream, false)?;
        Ok(made)
    }

    /// Creates an array with every element set to ``value``, converted as by ``DeviceArray.fill``, in stream order.
    #[pyo3(signature = (shape, value, dtype = None, order = Order::C, stream = None),
        text_signature = "($self, shape, value, dtype=None, order='C', stream=None)")]
    fn full(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        value: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
        stream: Option<&Stream>,
    ) -> Result<DeviceArray> {
        let made = self.empty(py, shape, dtype, order)?;
        made.fill(py, value, stream, false)?;
        Ok(made)
    }

    /// Creates an array with the values of ``source``: an array that supports a protocol, or anything that NumPy
    /// converts to an array. The source may be changed after the call returns, unless it is a PinnedArray. Lists and
    /// numbers are converted to ``dtype`` as by ``numpy.asarray``, which cuts off fractions for an integer type.
    #[pyo3(signature = (source, dtype = None, order = None, stream = None))]
    fn array(
        &self,
        source: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Option<Order>,
        stream: Option<&Stream>,
    ) -> Result<DeviceArray> {
        array::copy::array_of(
            &self.0,
            source,
            dtype,
            order,
            Asked::new(source.py(), stream, false)?,
        )
    }

    /// Imports an array of another library as an array of this device, without a copy. The source must support DLPack,
    /// the CUDA array interface, the SYCL USM array interface, NumPy's array interface or Arrow's device interface, and
    /// be in memory that this device can use. Work on ``stream`` comes after the work that writes the source. The array
    /// keeps the source alive. An array of this device shares its memory, and operations on both are ordered as those
    /// on one array.
    #[pyo3(signature = (source, stream = None))]
    fn adopt(&self, source: &Bound<'_, PyAny>, stream: Option<&Stream>) -> Result<DeviceArray> {
        import::adopt(&self.0, source, &Stream::choose(stream, here(source.py())?, &self.0))
    }

    /// Makes an array over memory of this device from the address of its first element. ``strides`` are in bytes.
    /// ``owner`` is kept alive while the memory is in use.
    ///
    /// The address is not checked: elements that do not exist cause a fault of the device or of this process.
    #[pyo3(name = "from_pointer", signature = (pointer, shape, dtype = None, *, strides = None, owner = None))]
    fn array_at(
        &self,
        py: Python<'_>,
        pointer: usize,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        strides: Option<Vec<isize>>,
        owner: Option<Py<PyAny>>,
    ) -> Result<DeviceArray> {
        let dtype = array::dtype_or_f64(dtype)?;
        import::array_at(
            &self.0,
            pointer,
            array::byte_layout(dtype, &shape.0, strides.as_deref())?,
            owner.unwrap_or_else(|| py.None()),
        )
    }

    /// Creates an array of zeros in pinned host memory, the host side of asynchronous copies. Write-combined memory is
    /// for arrays that the host writes but does not read.
    #[pyo3(signature = (shape, dtype = None, order = Order::C, write_combined = false),
        text_signature = "($self, shape, dtype=None, order='C', write_combined=False)")]
    fn pinned(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
        write_combined: bool,
    ) -> Result<PinnedArray> {
        let dtype = array::dtype_or_f64(dtype)?;
        PinnedArray::allocate(py, &self.0, &shape.0, dtype, order, write_combined)
    }

    /// Loads code: source as str, or bytes. ``format`` is one of ``DeviceInfo.formats``; the default is the first that
    /// accepts the code. ``options`` are passed to the compiler.
    #[pyo3(signature = (code, format = None, options = Vec::new()),
        text_signature = "($self, code, format=None, options=())")]
    fn module(
        &self,
        py: Python<'_>,
        code: module::Code,
        format: Option<&str>,
        options: Vec<String>,
    ) -> Result<Module> {
        Module::load(py, &self.0, &code, format, options)
    }

    /// Loads the best of several images for this device. ``images`` is a dict of code by format. ``options`` apply to
    /// every image that supports options.
    #[pyo3(signature = (images, options = Vec::new()),
        text_signature = "($self, images, options=())")]
    fn module_bundle(
        &self,
        py: Python<'_>,
        images: BTreeMap<String, module::Code>,
        options: Vec<String>,
    ) -> Result<Module> {
        Module::load_bundle(py, &self.0, &images, &options)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    fn __hash__(&self) -> u64 {
        // The hash of the default stream's number, which is unique to the opened device.
        self.0.default_stream().id()
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.0)
    }
}

/// The error of an attribute that an object does not have.
#[cold]
pub(crate) fn no_attribute(message: impl Into<String>) -> PyErr {
    PyAttributeError::new_err(message.into())
}
