//! Devices: what there is, opening one, and what it says of itself.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use runtime::{DeviceRegistry, StreamOptions, Traffic};

use crate::array::{self, DeviceArray, Order};
use crate::error::{self, Result};
use crate::module::{self, Module};
use crate::pinned::PinnedArray;
use crate::protocol::import;
use crate::stream::{Event, Stream};

fn registry() -> &'static DeviceRegistry {
    static REGISTRY: OnceLock<DeviceRegistry> = OnceLock::new();
    REGISTRY.get_or_init(runtime::registry)
}

/// Every device that can be opened now. Of backends that have none, ``backends`` says why.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<DeviceInfo> {
    let listings = py.detach(|| registry().list());
    let found = listings.into_iter().filter_map(|listing| listing.devices.ok());
    found.flatten().map(DeviceInfo).collect()
}

/// The backends of this package: for each its name, and None or the error that says why it has no device here.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> BTreeMap<String, Option<Py<PyAny>>> {
    let listings = py.detach(|| registry().list());
    let why = |listing: runtime::Listing| {
        let why =
            listing.devices.err().map(|error| error::raise(py, &error).into_value(py).into_any());
        (listing.driver, why)
    };
    listings.into_iter().map(why).collect()
}

/// Identity and limits of a device.
#[pyclass(frozen, module = "device_runtime")]
pub(crate) struct DeviceInfo(runtime::DeviceInfo);

#[pymethods]
impl DeviceInfo {
    /// Backend and index, such as ``cuda:0``.
    #[getter]
    fn id(&self) -> String {
        self.0.id.to_string()
    }

    /// What kind of machine it is: host, cpu, gpu, accelerator, embedded or simulated.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The product's name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Who made it.
    #[getter]
    fn vendor(&self) -> &str {
        &self.0.vendor
    }

    /// The instruction set that kernels are compiled for, such as ``sm_90`` or ``gfx90a``.
    #[getter]
    fn architecture(&self) -> &str {
        &self.0.architecture
    }

    /// Version of the driver that is used.
    #[getter]
    fn driver_version(&self) -> &str {
        &self.0.driver_version
    }

    /// The device's own unique identifier as a ``uuid.UUID``, or None.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(uuid) = self.0.uuid else { return Ok(None) };
        let arguments = PyDict::new(py);
        arguments.set_item("bytes", &uuid[..])?;
        py.import("uuid")?.getattr("UUID")?.call((), Some(&arguments)).map(Some)
    }

    /// Domain, bus and device number on the PCI bus, or None.
    #[getter]
    fn pci(&self) -> Option<(u32, u32, u32)> {
        self.0.pci.map(|pci| (pci.domain, pci.bus, pci.device))
    }

    /// Memory in bytes, or None where it is not known.
    #[getter]
    fn memory_bytes(&self) -> Option<u64> {
        self.0.memory_bytes
    }

    /// Cores, multiprocessors or compute units.
    #[getter]
    fn compute_units(&self) -> u32 {
        self.0.compute_units
    }

    /// Work-items that execute together; 1 where there is no such width.
    #[getter]
    fn lockstep_width(&self) -> u32 {
        self.0.lockstep_width
    }

    /// Module formats it takes, best first, by the names that ``Device.module`` takes.
    #[getter]
    fn formats(&self) -> Vec<&'static str> {
        self.0.formats.iter().filter_map(|format| module::format_name(*format)).collect()
    }

    /// Formats that it would take if all they need were installed, with what is wrong.
    #[getter]
    fn absent_formats(&self) -> BTreeMap<&'static str, &str> {
        let named = |(format, why)| Some((module::format_name(format)?, why));
        self.0.absent_formats.iter().map(|(f, why)| (*f, why.as_str())).filter_map(named).collect()
    }

    /// What launches and allocations may not exceed, by name.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let limits = &self.0.limits;
        let dict = PyDict::new(py);
        dict.set_item("allocation_bytes", limits.allocation_bytes)?;
        dict.set_item("allocation_alignment", limits.allocation_alignment.get())?;
        dict.set_item("argument_alignment", limits.argument_alignment.get())?;
        dict.set_item("grid", limits.grid)?;
        dict.set_item("block", limits.block)?;
        dict.set_item("block_size", limits.block_size)?;
        dict.set_item("shared_bytes", limits.shared_bytes)?;
        dict.set_item("arguments", limits.arguments)?;
        dict.set_item("argument_bytes", limits.argument_bytes)?;
        dict.set_item("priorities", limits.priorities)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<DeviceInfo {}: {}>", self.0.id, self.0.name)
    }
}

/// An opened device, by its selector: ``Device("cuda:0")``, ``Device("opencl:pocl:0")``, ``Device("host")``.
///
/// One that is opened twice is two devices, and objects of one are refused by the other: open it once and pass it on. Without
/// a selector, the environment variable ``RUNTIME_DEVICE`` names it, or it is ``host``.
#[pyclass(frozen, module = "device_runtime")]
#[derive(Clone)]
pub(crate) struct Device(pub(crate) runtime::Device);

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (selector = None))]
    fn new(py: Python<'_>, selector: Option<&str>) -> Result<Self> {
        let opened = py.detach(|| match selector {
            Some(selector) => registry().open(selector),
            None => registry().open_default("host"),
        });
        Ok(Self(opened?))
    }

    /// Backend and index, such as ``cuda:0``.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Identity and limits.
    #[getter]
    fn info(&self) -> DeviceInfo {
        DeviceInfo(self.0.info().clone())
    }

    /// For each optional ability how it is served: native, emulated or absent.
    #[getter]
    fn capabilities(&self) -> BTreeMap<&'static str, String> {
        self.0.capabilities().iter().map(|(name, support)| (name, support.to_string())).collect()
    }

    /// The vendor's handle of the device or its context as an int; valid for as long as this object.
    #[getter]
    fn handle(&self) -> usize {
        self.0.native().raw
    }

    /// Free and used memory in bytes, as ``memory_free`` and ``memory_used``, and the shares of time that processor and memory
    /// were busy lately, as ``processor_busy`` and ``memory_busy``: each None where the device cannot tell.
    fn load<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let load = self.0.monitor().map(|monitor| monitor.load()).transpose()?.unwrap_or_default();
        let dict = PyDict::new(py);
        dict.set_item("memory_free", load.memory_free)?;
        dict.set_item("memory_used", load.memory_used)?;
        dict.set_item("processor_busy", load.processor_busy)?;
        dict.set_item("memory_busy", load.memory_busy)?;
        Ok(dict)
    }

    /// Bytes that the memory pool has reserved and those in use, or None without a pool.
    #[getter]
    fn pool_bytes(&self) -> Option<(usize, usize)> {
        self.0.memory_pool().map(|pool| (pool.reserved_bytes(), pool.used_bytes()))
    }

    /// Gives unused memory of the pool back until at most ``keep_bytes`` are reserved beyond what is used.
    #[pyo3(signature = (keep_bytes = 0))]
    fn trim_pool(&self, py: Python<'_>, keep_bytes: usize) -> Result<()> {
        py.detach(|| self.0.memory_pool().map_or(Ok(()), |pool| pool.trim(keep_bytes)))?;
        Ok(())
    }

    /// What was moved and launched since it was opened: for each direction the number of copies and their bytes.
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

    /// Blocks until all work on the device is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.0.synchronize())?)
    }

    /// Whether it copies from ``other``, and waits for its events, without the host.
    fn reaches(&self, other: &Self) -> bool {
        self.0.reaches(&other.0)
    }

    /// The stream that exists from the start.
    #[getter]
    fn default_stream(&self) -> Stream {
        Stream(self.0.default_stream())
    }

    /// A new stream. A larger priority is more urgent; 0 is the default.
    #[pyo3(signature = (priority = 0))]
    fn stream(&self, priority: i32) -> Result<Stream> {
        Ok(Stream(self.0.stream_create(&StreamOptions { priority })?))
    }

    /// A new event. Only those with timing can be compared for elapsed time.
    #[pyo3(signature = (timing = true))]
    fn event(&self, timing: bool) -> Result<Event> {
        Ok(Event(self.0.event_create(timing)?))
    }

    /// A new array whose values are unspecified until they are written.
    #[pyo3(signature = (shape, dtype = None, order = Order::C))]
    fn empty(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
    ) -> Result<DeviceArray> {
        DeviceArray::allocate(py, &self.0, &shape.0, array::dtype_or_f64(dtype)?, order)
    }

    /// A new array of zeros, filled in stream order.
    #[pyo3(signature = (shape, dtype = None, order = Order::C, stream = None))]
    fn zeros(
        &self,
        py: Python<'_>,
        shape: array::Shape,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Order,
        stream: Option<&Stream>,
    ) -> Result<DeviceArray> {
        let made = self.empty(py, shape, dtype, order)?;
        made.fill(py, 0_u8.into_pyobject(py).map_err(PyErr::from)?.as_any(), stream)?;
        Ok(made)
    }

    /// A new array with every element set to ``value``, in stream order.
    #[pyo3(signature = (shape, value, dtype = None, order = Order::C, stream = None))]
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
        made.fill(py, value, stream)?;
        Ok(made)
    }

    /// A new array with the values of ``source``: any array that speaks a protocol, or what NumPy makes an array of. Done with
    /// the source on return, unless it is a PinnedArray.
    #[pyo3(signature = (source, dtype = None, order = None, stream = None))]
    fn array(
        &self,
        source: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        order: Option<Order>,
        stream: Option<&Stream>,
    ) -> Result<DeviceArray> {
        array::copy::array_of(&self.0, source, dtype, order, stream)
    }

    /// Takes an array of another library up as one of this device, without a copy: one that speaks DLPack, the CUDA array interface,
    /// the SYCL USM array interface, NumPy's array interface or Arrow's device interface, in memory that this device uses. It comes
    /// after what writes it, on ``stream``; the array keeps its owner.
    #[pyo3(signature = (source, stream = None))]
    fn adopt(&self, source: &Bound<'_, PyAny>, stream: Option<&Stream>) -> Result<DeviceArray> {
        import::adopt(&self.0, source, &Stream::choose(stream, &self.0))
    }

    /// Takes up memory of this device by the address of its first element; ``strides`` are in bytes. ``owner`` is kept as long as
    /// the memory is in use.
    ///
    /// The address is taken at its word: elements that are not there are a fault of the device, or of this process.
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

    /// A new array in page-locked host memory, of zeros: the host side of asynchronous copies. Write-combined memory is for
    /// arrays that the host writes and does not read.
    #[pyo3(signature = (shape, dtype = None, order = Order::C, write_combined = false))]
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

    /// Loads code: source as str, or bytes, in ``format``: one of ``DeviceInfo.formats``, by default the first that takes it.
    /// ``options`` are the compiler's own.
    #[pyo3(signature = (code, format = None, options = Vec::new()))]
    fn module(
        &self,
        py: Python<'_>,
        code: module::Code,
        format: Option<&str>,
        options: Vec<String>,
    ) -> Result<Module> {
        Module::load(py, &self.0, &code, format, options)
    }

    /// Loads the best of several images for this device: a dict of code by format, with options for all that take them.
    #[pyo3(signature = (images, options = Vec::new()))]
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
        // That of the default stream, which no other opened device has.
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
