//! Exports arrays of this package to other libraries.
#![expect(unsafe_code, reason = "exports memory that blocks keep, and adopts streams of consumers")]

use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use runtime::interchange::dlpack::{
    DlpackCopy, DlpackFence, DlpackOptions, DlpackRequest, DlpackTensor,
};
use runtime::interchange::{Access, ArrayExchange, Pending};
use runtime::{Error, NativeHandle, Stream};

use super::capsule::{self, Pair};
use super::dictionary;
use crate::array::{Asked, BlockMemory, Chosen, Order, Part, Turn, copy};
use crate::device::no_attribute;
use crate::dtype;
use crate::error::{Failure, Result};

/// A capsule of a part, with the work that it waits for.
fn exchange(py: Python<'_>, part: &Part, held: &BlockMemory<'_>) -> Result<ArrayExchange<Pending>> {
    let (unfinished, access) = py.detach(|| part.unfinished())?;
    exchange_after(part, held, Pending::events(unfinished), access)
}

/// A capsule of a part for queries only; it records no events.
fn asked(part: &Part) -> Result<ArrayExchange<Pending>> {
    exchange_after(part, &part.hold()?, Pending::events([]), Access::ReadOnly)
}

fn exchange_after(
    part: &Part,
    held: &BlockMemory<'_>,
    after: Pending,
    access: Access,
) -> Result<ArrayExchange<Pending>> {
    let view = part.view(held)?;
    let owner = (Arc::clone(&part.block), held.lent());
    // SAFETY: the owner keeps the memory alive, and the access to it if it is lent. Work of this package is ordered
    // before the consumer's here. A caller that enqueues more orders it after the consumer's, as the documentation
    // says.
    Ok(unsafe { ArrayExchange::from_view_after(view, access, after, owner) }
        .map_err(Error::from)?)
}

/// The `BufferError` that DLPack requires, with the cause.
fn buffer_error(py: Python<'_>, failure: Failure) -> PyErr {
    failure.replaced(py, |cause| {
        if cause.is_instance_of::<PyBufferError>(py) {
            return cause;
        }
        let error = PyBufferError::new_err(cause.value(py).to_string());
        error.set_cause(py, Some(cause));
        error
    })
}

/// `__dlpack_device__`.
pub(crate) fn dlpack_device(py: Python<'_>, part: &Part) -> PyResult<(i32, i32)> {
    let numbers = || Ok(asked(part)?.dlpack_device(None)?);
    numbers().map_err(|failure| buffer_error(py, failure))
}

/// The arguments of `__dlpack__`.
pub(crate) struct DlpackArguments<'a, 'py> {
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_version: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dl_device: Option<&'a Bound<'py, PyAny>>,
    pub(crate) copy: Option<&'a Bound<'py, PyAny>>,
}

impl DlpackArguments<'_, '_> {
    fn request(&self) -> PyResult<DlpackRequest> {
        fn read<'py, T>(given: Option<&Bound<'py, PyAny>>, what: &str) -> PyResult<Option<T>>
        where
            T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
        {
            let wrong = |given: &Bound<'_, PyAny>| {
                // A `TypeError` would mean that these arguments are unsupported here.
                PyBufferError::new_err(format!("__dlpack__: {what} {given:?}"))
            };
            given.map(|given| given.extract().map_err(|_| wrong(given))).transpose()
        }
        Ok(DlpackRequest {
            stream: read(self.stream, "stream")?,
            max_version: read(self.max_version, "max_version")?,
            dl_device: read(self.dl_device, "dl_device")?,
            copy: read(self.copy, "copy")?,
        })
    }
}

/// `__dlpack__`. If it fails, nothing has changed.
pub(crate) fn dlpack<'py>(
    py: Python<'py>,
    part: &Part,
    arguments: &DlpackArguments<'_, 'py>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let request = arguments.request()?;
    tensor(py, part, &request).map_err(|failure| buffer_error(py, failure))
}

/// `__dlpack__` of an array in host memory whose values are ready. NumPy makes a copy if one is requested.
pub(crate) fn dlpack_ready<'py>(
    array: &Bound<'py, PyAny>,
    arguments: &DlpackArguments<'_, 'py>,
    exchange: impl FnOnce() -> Result<ArrayExchange>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (py, request) = (array.py(), arguments.request()?);
    let tensor = || -> Result<_> {
        let ready = exchange()?;
        let copies = request.required_copy(&ready, None)?.is_some();
        // There is nothing to wait for on any stream.
        request.fence(&ready)?;
        if !copies {
            let tensor = ready.into_dlpack(request.options()).map_err(Error::from)?;
            return capsule::of_tensor(py, tensor);
        }
        let keywords = PyDict::new(py);
        keywords.set_item("max_version", request.max_version)?;
        keywords.set_item("copy", true)?;
        let shown = dtype::numpy(py)?.call_method1("asarray", (array,))?;
        Ok(shown
            .call_method("__dlpack__", (), Some(&keywords))?
            .cast_into()
            .map_err(PyErr::from)?)
    };
    tensor().map_err(|failure| buffer_error(py, failure))
}

fn tensor<'py>(
    py: Python<'py>,
    part: &Part,
    request: &DlpackRequest,
) -> Result<Bound<'py, PyCapsule>> {
    let held = part.hold()?;
    let pending = exchange(py, part, &held)?;
    let (copy, fence) = (request.required_copy(&pending, None)?, request.fence(&pending)?);
    let is_writable = pending.access().is_writable();
    let options = request.options();
    let tensor = match copy {
        None => {
            let tensor = fenced(py, part, pending, fence, options)?;
            let capsule = capsule::of_tensor(py, tensor)?;
            // Only now: a query, or a refused request, writes nothing.
            if is_writable {
                held.lend_to_consumers();
            }
            return Ok(capsule);
        }
        Some(DlpackCopy::Here) => {
            let asked = Asked::nothing(py)?;
            let copied = py.detach(|| copy::anew(asked, part, Order::C))?;
            let pending = exchange(py, &copied, &copied.hold()?)?;
            // SAFETY: the memory was just made.
            let pending = unsafe { pending.assume_copied() };
            let fence = match fence {
                // The consumer orders the array's work, but it cannot order the work of the copy.
                DlpackFence::Nothing => DlpackFence::HostWait,
                known => known,
            };
            fenced(py, &copied, pending, fence, options)?
        }
        Some(DlpackCopy::Host) => {
            let asked = Asked::nothing(py)?;
            let copied = py.detach(|| host_copy(asked, part))?;
            // SAFETY: the vector was just made.
            let copied = unsafe { copied.assume_copied() };
            copied.into_dlpack(options).map_err(Error::from)?
        }
    };
    capsule::of_tensor(py, tensor)
}

/// The tensor of a part, ordered as the consumer requested.
fn fenced(
    py: Python<'_>,
    part: &Part,
    pending: ArrayExchange<Pending>,
    fence: DlpackFence,
    options: DlpackOptions,
) -> Result<DlpackTensor> {
    Ok(match fence {
        DlpackFence::HostWait => {
            py.detach(|| ready(part, pending))?.into_dlpack(options).map_err(Error::from)?
        }
        DlpackFence::Order(handle) => {
            let consumer = consumer_stream(part, handle)?;
            let ordered = pending.order_after(&consumer).map_err(Error::from)?;
            ordered.into_dlpack(options).map_err(Error::from)?
        }
        DlpackFence::Nothing => pending.into_dlpack_unsynchronised(options).map_err(Error::from)?,
    })
}

/// Copies the values into a vector. Blocks until they are there.
fn host_copy(asked: Asked<'_>, part: &Part) -> Result<ArrayExchange> {
    let on = Chosen::of(asked, part);
    part.wait_ahead(&on)?;
    let _turn = Turn::take([on.reads(part)])?;
    let values = copy::packed(&on.stream, part, Order::C)?;
    let held = values.hold()?;
    let row = runtime::Layout::row(part.layout.dtype(), part.layout.len())?;
    let view = held.view(values.first_byte(), &row)?;
    Ok(dtype::with_element!(part.layout.dtype(), T => {
        let values = view.typed::<T>()?.to_vec(&on.stream)?;
        ArrayExchange::from_vec(values, part.layout.shape()).map_err(Error::from)?
    }))
}

fn ready(part: &Part, pending: ArrayExchange<Pending>) -> Result<ArrayExchange> {
    part.block.work.wait_ahead(true)?;
    Ok(pending.host_wait().map_err(Error::from)?)
}

/// The consumer's stream, which must wait.
fn consumer_stream(part: &Part, handle: NativeHandle) -> Result<Stream> {
    let device = part.block.device();
    let Some(interop) = device.interop() else {
        let message = format!("{handle:?}: {} does not adopt streams", device.id());
        return Err(Failure::invalid("dlpack", message));
    };
    // SAFETY: by the protocol, a stream of the consumer on this device, alive during the call. The handle is not kept
    // after it.
    Ok(unsafe { interop.stream_from_native(handle) }?)
}

/// Holds the memory of a part, for a protocol that gives its address and has no field for an owner.
///
/// # Errors
///
/// `AttributeError` if it is lent: the address would outlive the access.
fn hold_own(part: &Part) -> Result<BlockMemory<'_>> {
    let held = part.hold()?;
    match held {
        BlockMemory::Own(_) => Ok(held),
        BlockMemory::Loan(_) => {
            let message = "memory lent by an array buffer, which __dlpack__ alone holds";
            Err(no_attribute(message).into())
        }
    }
}

/// Whether the host can address the memory.
pub(crate) fn is_host_readable(part: &Part) -> Result<bool> {
    Ok(asked(part)?.kind().is_host_readable())
}

/// `__array_interface__`, for memory that the host can address.
pub(crate) fn array_interface<'py>(py: Python<'py>, part: &Part) -> Result<Bound<'py, PyDict>> {
    let pending = exchange(py, part, &hold_own(part)?)?;
    if !pending.kind().is_host_readable() {
        let message = format!("memory of {}, which the host does not address", pending.device());
        return Err(no_attribute(message).into());
    }
    let ready = py.detach(|| ready(part, pending))?;
    dictionary::of_array_interface(py, &ready.to_array_interface()?)
}

/// `__cuda_array_interface__`, for memory that CUDA or HIP can address.
pub(crate) fn cuda_array_interface<'py>(
    py: Python<'py>,
    part: &Part,
) -> Result<Bound<'py, PyDict>> {
    let device = part.block.device();
    let api = device.native().api;
    if !matches!(api, "cuda" | "hip") {
        let message = format!("memory of {}, which CUDA does not address", device.id());
        return Err(no_attribute(message).into());
    }
    let pending = exchange(py, part, &hold_own(part)?)?;
    let said = match api {
        // The default stream lives as long as the device, which the memory keeps alive.
        "cuda" if !pending.is_ready() => {
            let ordered = pending.order_after(&device.default_stream()).map_err(Error::from)?;
            ordered.to_cuda_array_interface()?
        }
        _ => py.detach(|| ready(part, pending))?.to_cuda_array_interface()?,
    };
    part.block.lend_to_consumers()?;
    dictionary::of_cuda_array_interface(py, &said)
}

/// Refuses keyword arguments of later versions of Arrow's interface, as it requires.
pub(crate) fn check_arrow_keywords(keywords: Option<&Bound<'_, PyDict>>) -> Result<()> {
    let unknown = keywords.into_iter().flatten().find(|(_, value)| !value.is_none());
    match unknown {
        Some((name, _)) => {
            Err(PyNotImplementedError::new_err(format!("the keyword argument {name}")).into())
        }
        None => Ok(()),
    }
}

/// `__arrow_c_array__`: the schema and the array, in memory that the host can read.
pub(crate) fn arrow_array<'py>(py: Python<'py>, part: &Part) -> Result<Pair<'py>> {
    let pending = exchange(py, part, &part.hold()?)?.read_only();
    if !pending.kind().is_host_readable() {
        let message = "values are on the device: see __arrow_c_device_array__, or get() for a copy";
        return Err(PyBufferError::new_err(message).into());
    }
    let ready = py.detach(|| ready(part, pending))?;
    capsule::of_host_arrow(py, ready.into_arrow().map_err(Error::from)?)
}

/// `__arrow_c_device_array__`: the schema and the array.
pub(crate) fn arrow_device_array<'py>(py: Python<'py>, part: &Part) -> Result<Pair<'py>> {
    let pending = exchange(py, part, &part.hold()?)?.read_only();
    let device = part.block.device();
    let arrow = if !pending.kind().is_host_readable() && !pending.is_ready() {
        let ordered = pending.order_after(&device.default_stream()).map_err(Error::from)?;
        ordered.into_arrow().map_err(Error::from)?
    } else {
        py.detach(|| ready(part, pending))?.into_arrow().map_err(Error::from)?
    };
    capsule::of_arrow(py, arrow)
}
