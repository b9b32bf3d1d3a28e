//! Arrays that are coherent on every device.

mod erased;
mod scope;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use runtime::array::ndarray::IxDyn;
use runtime::array::{self as buffers, PartStatus};
use runtime::{Error, ErrorKind, Layout};

use self::erased::{Buffer, How, Shown, over};
pub(crate) use self::scope::{Offload, TransferBudget, current_stream};
use crate::array::{self, Block, DeviceArray, HostArray, Loan, Order, Part, Shape};
use crate::current::here;
use crate::device::Device;
use crate::dtype;
use crate::error::{Failure, Result};
use crate::fork;
use crate::stream::{Stream, seconds};

/// The place of an access: a stream; a device, which means its current or default stream; or the host.
enum Place {
    Stream(runtime::Stream),
    Host,
}

impl Place {
    /// The given place; without one, the current stream.
    fn new(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let Some(given) = given else {
            return Ok(here(py)?.map_or(Self::Host, Self::Stream));
        };
        if let Ok(stream) = given.cast::<Stream>() {
            return Ok(Self::Stream(stream.get().0.clone()));
        }
        if let Ok(device) = given.cast::<Device>() {
            return Ok(Self::Stream(Stream::choose(None, here(py)?, &device.get().0)));
        }
        if given.extract::<&str>().is_ok_and(|text| text == "host") {
            return Ok(Self::Host);
        }
        let message = format!("{given:?}; there are streams, devices and 'host'");
        Err(Failure::invalid("place", message))
    }

    fn stream(&self) -> Option<&runtime::Stream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Host => None,
        }
    }
}

/// An n-dimensional array with replicas on any number of devices and the host. Each access copies exactly the values
/// that are out of date in its place.
///
/// ``ArrayBuffer(source)`` uses the memory of a host array without a copy if it is writable, aligned, in row-major
/// order without gaps, and not empty. Otherwise it copies the array. ``copy=True`` forces a copy, and ``copy=False``
/// forbids one. A source that is not copied is the host's replica. It shows values written on a device after the next
/// access on the host. It must be written only through accesses.
///
/// ``read``, ``read_write`` and ``write`` are accesses, for ``with`` blocks. ``on`` gives the place: a stream, a
/// device, or ``"host"``. Without it, the place is the current stream, see ``offload``. On a device, the block
/// gets a DeviceArray; on the host, it gets a NumPy array. A write access commits when its block ends. If the block
/// raises, the values are poisoned until they are overwritten.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct ArrayBuffer(Arc<dyn Buffer>);

/// The time that calls without a timeout argument wait for a writer.
const BRIEFLY: Duration = Duration::from_secs(60);

impl ArrayBuffer {
    fn access(
        &self,
        py: Python<'_>,
        how: How,
        on: Option<&Bound<'_, PyAny>>,
        timeout: f64,
    ) -> Result<ArrayAccess> {
        let (place, timeout) = (Place::new(py, on)?, seconds("access", timeout)?);
        Ok(ArrayAccess {
            buffer: Arc::clone(&self.0),
            how,
            place,
            timeout,
            entered: Mutex::default(),
        })
    }

    fn describe(&self, py: Python<'_>) -> Result<erased::Description> {
        Ok(py.detach(|| self.0.describe(BRIEFLY))?)
    }
}

/// Uses the memory of a host array, or copies it.
fn of_host(host: HostArray<'_>, copy: Option<bool>) -> Result<Arc<dyn Buffer>> {
    let layout = *host.layout();
    let obstacle = if !host.is_writable() {
        Some("it is only to be read")
    } else if !layout.is_contiguous() || layout.is_empty() {
        Some("it is not in row-major order without gaps, or has no element")
    } else if !host.is_aligned()? {
        Some("it is not aligned for its elements")
    } else {
        None
    };
    match (copy, obstacle) {
        (Some(false), Some(why)) => {
            return Err(Failure::invalid(
                "ArrayBuffer",
                format!("the array must be copied: {why}"),
            ));
        }
        (None | Some(false), None) => return Ok(erased::taken_up(host)?),
        _ => {}
    }
    let host = host.ordered(Order::C)?;
    let shape = IxDyn(layout.shape());
    dtype::with_storage!(layout.dtype(), T => {
        let array = buffers::ArrayBuffer::from_vec(host.to_vec::<T>()?, shape)?;
        Ok(erased::shared(array, layout.dtype()))
    })
}

#[pymethods]
impl ArrayBuffer {
    #[new]
    #[pyo3(signature = (source, dtype = None, *, copy = None))]
    fn new(
        source: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Self> {
        let of = dtype.map(dtype::from_python).transpose()?;
        let host = HostArray::of(source, of)?;
        array::copy::check_dtype(of, host.layout().dtype())?;
        of_host(host, copy).map(Self)
    }

    /// Creates an array without values; it must be written before it is read.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype = None))]
    fn empty(shape: Shape, dtype: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let (shape, of) = (IxDyn(&shape.0), array::dtype_or_f64(dtype)?);
        dtype::with_storage!(of, T => {
            let array = buffers::ArrayBuffer::<T, IxDyn>::uninit(shape)?;
            Ok(Self(erased::shared(array, of)))
        })
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The element type, a ``numpy.dtype``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::to_python(py, self.0.dtype())
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.0.shape().iter().product()
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.size() * self.0.dtype().size()
    }

    /// The version number. It increases with every committed write, and only then. Accesses commit when their block
    /// ends.
    #[getter]
    fn version(&self, py: Python<'_>) -> Result<u64> {
        Ok(self.describe(py)?.version)
    }

    /// The status of the values: uninitialized, valid, poisoned or in use.
    #[getter]
    fn status(&self, py: Python<'_>) -> Result<&'static str> {
        Ok(match self.describe(py)?.status {
            PartStatus::Uninitialized => "uninitialized",
            PartStatus::Valid => "valid",
            PartStatus::Stale => "stale",
            PartStatus::Pending(_) => "pending",
            PartStatus::Poisoned => "poisoned",
            PartStatus::InUse => "in use",
        })
    }

    /// The transfers so far, and their causes.
    #[getter]
    fn transfers(&self, py: Python<'_>) -> Result<TransferReport> {
        Ok(TransferReport(self.describe(py)?.transfers))
    }

    /// Whether the values are valid on the device, or on the ``"host"``. If so, reading there copies nothing.
    fn is_valid_on(&self, py: Python<'_>, place: &Bound<'_, PyAny>) -> Result<bool> {
        let place = Place::new(py, Some(place))?;
        let device = place.stream().map(runtime::Stream::device);
        Ok(py.detach(|| self.0.is_valid_on(device, BRIEFLY))?)
    }

    /// Accesses the values to read them. Waits at most ``timeout`` seconds for a writer.
    #[pyo3(signature = (on = None, *, timeout = 60.0))]
    fn read(
        &self,
        py: Python<'_>,
        on: Option<&Bound<'_, PyAny>>,
        timeout: f64,
    ) -> Result<ArrayAccess> {
        self.access(py, How::Read, on, timeout)
    }

    /// Accesses the values to read and write them. Waits at most ``timeout`` seconds for other holders.
    #[pyo3(signature = (on = None, *, timeout = 60.0))]
    fn read_write(
        &self,
        py: Python<'_>,
        on: Option<&Bound<'_, PyAny>>,
        timeout: f64,
    ) -> Result<ArrayAccess> {
        self.access(py, How::ReadWrite, on, timeout)
    }

    /// Accesses the array to overwrite it. Nothing is copied, and every element must be written. Waits at most
    /// ``timeout`` seconds for other holders.
    #[pyo3(signature = (on = None, *, timeout = 60.0))]
    fn write(
        &self,
        py: Python<'_>,
        on: Option<&Bound<'_, PyAny>>,
        timeout: f64,
    ) -> Result<ArrayAccess> {
        self.access(py, How::Write, on, timeout)
    }

    /// Returns the values as a new NumPy array. Blocks until they are there.
    fn get<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let place = Place::Host;
        let (buffer, entered) = (Arc::clone(&self.0), Mutex::default());
        let access = ArrayAccess { buffer, how: How::Read, place, timeout: BRIEFLY, entered };
        let shown = access.enter(py)?;
        let copied = shown.bind(py).call_method0("copy");
        access.leave(py, false)?;
        Ok(copied?)
    }

    /// Copies the values to a place before they are needed there. On the host it blocks until they are there. Copies to
    /// a device are enqueued; they block for the bytes beyond 4 MiB, or if earlier copies have not finished. If the
    /// host's memory is page-locked for the device (``page_lock``), copies in both directions are enqueued, and the
    /// call returns at once.
    #[pyo3(signature = (on = None))]
    fn prefetch(&self, py: Python<'_>, on: Option<&Bound<'_, PyAny>>) -> Result<()> {
        let place = Place::new(py, on)?;
        fork::check("prefetch")?;
        Ok(py.detach(|| self.0.prefetch(place.stream(), BRIEFLY))?)
    }

    /// Keeps the host's values in memory that is page-locked for the device, from now on. Copies between that memory
    /// and the device are then enqueued and do not block. The next access on the host waits for them.
    ///
    /// Values that the host has are locked in place if the device can do that, and copied otherwise. Memory that
    /// belongs to the source of the buffer is never copied: raises an InvalidArgumentError unless it begins at a memory
    /// page, and an UnsupportedError if the device cannot lock it. Raises a ConflictError if another device works in
    /// the host's memory, if it is page-locked already, or if NumPy arrays of earlier accesses still use it; delete
    /// these arrays first. Does nothing for a device that works in host memory.
    fn page_lock(&self, py: Python<'_>, device: &Device) -> Result<()> {
        fork::check("page_lock")?;
        Ok(py.detach(|| self.0.page_lock(&device.0, BRIEFLY))?)
    }

    /// Frees the memory on a device. Values that exist nowhere else are copied to the host first.
    fn evict(&self, py: Python<'_>, device: &Device) -> Result<()> {
        fork::check("evict")?;
        Ok(py.detach(|| self.0.evict(&device.0, BRIEFLY))?)
    }

    /// Copies the array into a new, independent array. The copy is made where the values are.
    fn duplicate(&self, py: Python<'_>) -> Result<Self> {
        fork::check("duplicate")?;
        Ok(Self(py.detach(|| self.0.duplicate(BRIEFLY))?))
    }

    /// Called by NumPy, which would otherwise wrap the buffer in an array of objects.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __array__(
        &self,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let _what_numpy_asks = (arguments, keywords);
        let message = "an ArrayBuffer is read in an access: with buffer.read('host') as values, or by buffer.get()";
        Err(PyTypeError::new_err(message))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (name, shape) = (dtype::name(self.0.dtype()), self.0.shape());
        match py.detach(|| self.0.describe(Duration::ZERO)) {
            Ok(known) => format!("<ArrayBuffer {name} {shape:?}, version {}>", known.version),
            Err(_) => format!("<ArrayBuffer {name} {shape:?}, in use>"),
        }
    }
}

/// An access to an ArrayBuffer, for a ``with`` block, which gets the values.
///
/// Do not use the values after the block, nor anything made from them by slicing or by another library. Device arrays
/// then raise an error. An array that another library has imported holds the access until it is deleted. On the host,
/// the block's own array may show old values and cannot be written. Views of it stay writable, because NumPy does not
/// report them. Writes through them after the block may be lost, and race with copies.
///
/// An access that was entered without a ``with`` block and is never left lasts until its array and all views of it are
/// deleted.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct ArrayAccess {
    buffer: Arc<dyn Buffer>,
    how: How,
    place: Place,
    timeout: Duration,
    entered: Mutex<Option<Entered>>,
}

enum Entered {
    Device(Arc<Block>),
    Host(Py<HostLoan>, Py<PyAny>),
}

/// The values of an access on the host. It is the base of the access's NumPy array, so every view of that array keeps
/// it. The access lasts until the program leaves it, or until this is dropped. Then no array can write the values.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct HostLoan {
    access: Mutex<Option<Arc<dyn Loan>>>,
    // Keep the memory, and its address, after the access has ended.
    _buffer: Arc<dyn Buffer>,
    _shown: Shown,
    address: usize,
    layout: Layout,
    read_only: bool,
}

impl HostLoan {
    /// Takes the access, to end it.
    fn take(&self) -> Option<Arc<dyn Loan>> {
        crate::lock(&self.access).take()
    }
}

impl Drop for HostLoan {
    fn drop(&mut self) {
        if let Some(access) = self.take() {
            crate::detached(|| drop(access));
        }
    }
}

#[pymethods]
impl HostLoan {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        if crate::lock(&self.access).is_none() {
            return Err(over().into());
        }
        Ok(dtype::array_interface(py, &self.layout, self.address, self.read_only)?)
    }
}

/// Makes an array read-only, and the arrays that it is a view of.
fn make_read_only(array: &Bound<'_, PyAny>) -> Result<()> {
    let numpy = dtype::numpy(array.py())?.getattr("ndarray")?;
    let mut array = array.clone();
    while array.is_instance(&numpy)? {
        array.call_method1("setflags", (false,))?;
        array = array.getattr("base")?;
    }
    Ok(())
}

impl ArrayAccess {
    fn enter(&self, py: Python<'_>) -> Result<Py<PyAny>> {
        fork::check("access")?;
        let (how, place) = (self.how, self.place.stream());
        let lent = py.detach(|| {
            if place.is_none() {
                self.buffer.wait_ahead()?;
            }
            self.buffer.take(how, place, self.timeout)
        })?;
        let read_only = how == How::Read;
        let layout = Layout::contiguous(self.buffer.dtype(), lent.shape())?;
        let (entered, values) = if let Some(stream) = place {
            let block = Arc::new(Block::lent(lent, stream));
            let part = Part { block: Arc::clone(&block), origin: 0, layout, read_only };
            (Entered::Device(block), Py::new(py, DeviceArray { part })?.into_any())
        } else {
            let address = lent.host_address()?;
            if !read_only {
                lent.lend_to_consumers();
            }
            let (access, buffer) = (Mutex::new(Some(lent)), Arc::clone(&self.buffer));
            let shown = buffer.show();
            let loan =
                HostLoan { access, _buffer: buffer, _shown: shown, address, layout, read_only };
            let loan = Bound::new(py, loan)?;
            let array = dtype::to_numpy(loan.as_any(), layout.dtype())?;
            (Entered::Host(loan.unbind(), array.clone().unbind()), array.unbind())
        };
        // The lock is taken only here: another thread that waits for it may hold the interpreter.
        let mut place = crate::lock(&self.entered);
        if place.is_some() {
            let message = "its block was entered already";
            return Err(Error::new(ErrorKind::Conflict, "access", message).into());
        }
        *place = Some(entered);
        Ok(values)
    }

    fn leave(&self, py: Python<'_>, failed: bool) -> Result<()> {
        let Some(entered) = crate::lock(&self.entered).take() else {
            let message = "its block was not entered, or was left already";
            return Err(Error::new(ErrorKind::Conflict, "access", message).into());
        };
        let lent = match entered {
            Entered::Device(block) => {
                self.place.stream().into_iter().for_each(|stream| self.buffer.accessed_on(stream));
                block.end()
            }
            Entered::Host(loan, array) => {
                make_read_only(array.bind(py))?;
                loan.get().take()
            }
        };
        match lent {
            Some(lent) => Ok(py.detach(|| lent.finish(failed))?),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl ArrayAccess {
    fn __enter__(&self, py: Python<'_>) -> Result<Py<PyAny>> {
        self.enter(py)
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Result<()> {
        self.leave(py, !kind.is_none())
    }
}

/// The transfers of an array: source, destination, count, bytes, and the access that needed them.
#[pyclass(frozen, weakref, module = "device_runtime")]
pub(crate) struct TransferReport(buffers::TransferReport);

#[pymethods]
impl TransferReport {
    /// The number of all transfers.
    #[getter]
    fn count(&self) -> u64 {
        self.0.total().count
    }

    /// The number of bytes of all transfers.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.total().bytes
    }

    /// The count and bytes of transfers between two places: device ids, or ``host``.
    fn between(&self, origin: &str, to: &str) -> (u64, u64) {
        let traffic = self.0.between(origin, to);
        (traffic.count, traffic.bytes)
    }

    fn __str__(&self) -> String {
        let lines = self.0.transfers().iter().map(|transfer| {
            let buffers::Transfer { from, to, traffic, wanted_by, invalidated_by } = transfer;
            let written = invalidated_by.as_ref().map_or("its maker".to_owned(), |cause| {
                format!("{} on {}", cause.access, cause.place)
            });
            format!(
                "{from} -> {to}: {} transfers of {} bytes, for {} on {} after {written}\n",
                traffic.count, traffic.bytes, wanted_by.access, wanted_by.place
            )
        });
        let total = self.0.total();
        format!(
            "{}total: {} transfers of {} bytes",
            lines.collect::<String>(),
            total.count,
            total.bytes
        )
    }

    fn __repr__(&self) -> String {
        format!("<TransferReport: {} transfers of {} bytes>", self.count(), self.bytes())
    }
}
