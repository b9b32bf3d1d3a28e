//! Imports arrays of other libraries.
#![expect(unsafe_code, reason = "trusts the description that a protocol gives")]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyType};
use runtime::interchange::dlpack::DlpackTensor;
use runtime::interchange::dlpack::abi::{VERSION, device as dl};
use runtime::interchange::{AdoptedBytes, ArrayExchange, DeviceToken, Ordered, Ready, State};
use runtime::{DType, Device, Error, ErrorKind, Layout, NativeHandle, NativeKind, Stream};

use super::{capsule, dictionary};
use crate::array::{Block, DeviceArray, Part};
use crate::dtype;
use crate::error::{Failure, Result};
use crate::fork;

/// Imports an array in host memory whose values are ready. `None` if the object supports no protocol of host memory.
pub(crate) fn from_host(object: &Bound<'_, PyAny>) -> Result<Option<ArrayExchange>> {
    if object.is_instance_of::<PyCapsule>() {
        return readable(ready_tensor(capsule::into_tensor(object)?)?).map(Some);
    }
    on_host(object, dlpack_device(object)?)
}

/// As `from_host`, for an object that is not a capsule. `kind` is the device type of its tensor.
fn on_host(object: &Bound<'_, PyAny>, kind: Option<i32>) -> Result<Option<ArrayExchange>> {
    check_unmasked(object)?;
    if let Some(dl::CPU | dl::CUDA_HOST | dl::ROCM_HOST | dl::CUDA_MANAGED) = kind {
        match ask_tensor(object, None) {
            // The array interface can describe some arrays that a tensor cannot.
            Err(Failure::Python(error)) if error.is_instance_of::<PyBufferError>(object.py()) => {}
            asked => return readable(ready_tensor(asked?)?).map(Some),
        }
    }
    if let Some(said) = attribute(object, "__array_interface__")? {
        let interface = dictionary::array_interface(&said)?;
        // NumPy's scalars keep their memory alive only through the interface's value.
        let owner = (object.clone().unbind(), said.unbind());
        // SAFETY: by the protocol, the object keeps the described memory alive, and the values are ready.
        let taken = unsafe { ArrayExchange::from_array_interface(&interface, owner) };
        return Ok(Some(taken.map_err(Error::from)?));
    }
    for method in ["__arrow_c_device_array__", "__arrow_c_array__"] {
        if !object.hasattr(method)? {
            continue;
        }
        let arrow = capsule::into_arrow(&object.call_method0(method)?)?;
        let pending = ArrayExchange::from_arrow(arrow).map_err(Error::from)?;
        if pending.kind().is_host_readable() {
            return Ok(Some(object.py().detach(|| pending.host_wait()).map_err(Error::from)?));
        }
    }
    Ok(None)
}

/// The elements of an array of `bfloat16` as 16-bit integers: NumPy's protocols do not describe this type. `None` for
/// an
/// array of another type.
pub(crate) fn bits_of_bfloat16<'py>(
    object: &Bound<'py, PyAny>,
) -> Result<Option<Bound<'py, PyAny>>> {
    let Some(dtype) = object.getattr_opt("dtype")? else { return Ok(None) };
    let name = dtype.getattr_opt("name")?;
    if !name.is_some_and(|name| name.eq(dtype::name(DType::BF16)).unwrap_or(false)) {
        return Ok(None);
    }
    Ok(Some(object.call_method1("view", ("uint16",))?))
}

/// Refuses device memory, whose address the host must not dereference, and memory without an address.
fn readable(taken: ArrayExchange) -> Result<ArrayExchange> {
    if taken.kind().is_host_readable() {
        return Ok(taken);
    }
    let message = format!("memory of {}, which the host does not address", taken.device());
    Err(Error::new(ErrorKind::WrongDevice, "array", message).into())
}

/// Refuses an array of `numpy.ma` with a mask, because the protocols do not report the mask.
fn check_unmasked(object: &Bound<'_, PyAny>) -> Result<()> {
    static MASKED_ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static NO_MASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    if !object.is_instance(MASKED_ARRAY.import(py, "numpy.ma", "MaskedArray")?)?
        || object.getattr("mask")?.is(NO_MASK.import(py, "numpy.ma", "nomask")?)
    {
        return Ok(());
    }
    let message = "an array with a mask: filled() gives one without";
    Err(Failure::invalid("array", message))
}

/// Imports an array as memory of `device`, without a copy. Work on `stream` comes after the work that writes its
/// values.
pub(crate) fn adopt(
    device: &Device,
    object: &Bound<'_, PyAny>,
    stream: &Stream,
) -> Result<DeviceArray> {
    fork::check("adopt")?;
    if object.is_instance_of::<PyCapsule>() {
        return made(ready_tensor(capsule::into_tensor(object)?)?, device, None);
    }
    if let Ok(array) = object.cast::<DeviceArray>()
        && let part = &array.get().part
        && part.block.device().is_same(device)
        && !part.block.is_lent()
    {
        return object.py().detach(|| shared(part, stream));
    }
    let api = device.native().api;
    let ours = match api {
        "cuda" => Some(dl::CUDA),
        "hip" => Some(dl::ROCM),
        _ => None,
    };
    let kind = dlpack_device(object)?;
    if ours.is_some() && kind == ours {
        let tensor = ask_tensor(object, Some(stream.native().raw))?;
        let state = Ordered::on(stream);
        // SAFETY: the producer was requested to order this stream.
        let taken = unsafe { ArrayExchange::from_dlpack(tensor, state) }.map_err(Error::from)?;
        return made(taken, device, Some(stream));
    }
    if ours.is_some()
        && let Some(said) = attribute(object, "__cuda_array_interface__")?
    {
        return from_cuda(device, object, &said, stream);
    }
    // Looking up a missing attribute costs as much as a tensor.
    let usm = match kind {
        Some(dl::CPU) => None,
        _ => attribute(object, "__sycl_usm_array_interface__")?,
    };
    if let Some(said) = &usm
        && let Some(interface) = dictionary::sycl_usm(said)?
    {
        let owner = object.clone().unbind();
        // SAFETY: by the protocol, the object keeps the described memory alive, and the values are ready.
        let taken = unsafe { ArrayExchange::from_sycl_usm(&interface, owner) };
        return from_sycl(device, taken.map_err(Error::from)?);
    }
    match kind {
        Some(dl::OPENCL) => {
            return made(ready_tensor(ask_tensor(object, None)?)?, device, None);
        }
        Some(dl::ONE_API) => {
            return from_sycl(device, ready_tensor(ask_tensor(object, None)?)?);
        }
        _ => {}
    }
    match on_host(object, kind) {
        Ok(Some(taken)) => return made(taken, device, None),
        Ok(None) => {}
        Err(failure) => {
            let Some(bits) = bits_of_bfloat16(object)? else { return Err(failure) };
            let Some(taken) = from_host(&bits)? else { return Err(failure) };
            let mut array = made(taken, device, None)?;
            let bits = array.part.layout;
            array.part.layout = Layout::new(DType::BF16, bits.shape(), bits.strides())?;
            return Ok(array);
        }
    }
    let (kind, id) = (object.get_type(), device.id());
    let message = match usm {
        Some(said) => format!(
            "the context of {kind} is {}: a filter selector such as 'opencl:gpu:0' is understood, or DLPack",
            said.get_item("syclobj")?.get_type()
        ),
        None => format!("{kind} speaks no protocol of memory that {id} uses"),
    };
    Err(PyTypeError::new_err(message).into())
}

/// An array of this package, over the same memory. Work on `stream` comes after the work that writes its values.
fn shared(part: &Part, stream: &Stream) -> Result<DeviceArray> {
    let (unfinished, access) = part.unfinished()?;
    unfinished.iter().try_for_each(|event| stream.wait(event))?;
    Ok(DeviceArray { part: Part { read_only: !access.is_writable(), ..part.clone() } })
}

/// Uses memory by its address; the caller guarantees that it is valid.
pub(crate) fn array_at(
    device: &Device,
    pointer: usize,
    layout: Layout,
    owner: Py<PyAny>,
) -> Result<DeviceArray> {
    fork::check("from_pointer")?;
    if pointer == 0 && !layout.is_empty() {
        let message = format!("a null pointer for {} elements", layout.len());
        let error = Error::new(ErrorKind::InvalidArgument, "from_pointer", message);
        return Err(error.on(device.id()).into());
    }
    let span = layout.span_bytes();
    let native = device.native();
    let raw = pointer.wrapping_add_signed(span.start);
    let handle = NativeHandle { api: native.api, kind: NativeKind::Pointer, raw };
    // SAFETY: the caller's duty, as the documentation says; Python cannot mark such calls as unsafe.
    let memory =
        unsafe { device.memory_adopt::<u8>(handle, span.end.abs_diff(span.start), owner) }?;
    let block = std::sync::Arc::new(Block::new(memory));
    Ok(DeviceArray {
        part: Part { block, origin: span.start.unsigned_abs(), layout, read_only: false },
    })
}

fn from_cuda(
    device: &Device,
    object: &Bound<'_, PyAny>,
    said: &Bound<'_, PyAny>,
    stream: &Stream,
) -> Result<DeviceArray> {
    let mut interface = dictionary::cuda_array_interface(said)?;
    let api = device.native().api;
    if let (Some(raw), Some(interop)) =
        (interface.stream.take_if(|raw| *raw != 0), device.interop())
    {
        let handle = NativeHandle { api, kind: NativeKind::Stream, raw };
        // SAFETY: by the protocol, the object keeps its stream alive, and the caller keeps the object alive.
        let theirs = unsafe { interop.stream_from_native(handle) }?;
        stream.wait(&theirs.record_event()?)?;
    }
    let (token, owner) = (DeviceToken::of(device), object.clone().unbind());
    // SAFETY: by the protocol, the object keeps the described memory alive.
    let taken = unsafe { ArrayExchange::from_cuda_array_interface(&interface, token, owner) };
    let pending = taken.map_err(Error::from)?;
    // If it is not ready, the interface is version 2, and the work is on the default stream.
    let ordered = if pending.is_ready() {
        pending.order_after(stream).map_err(Error::from)?
    } else {
        let ready = object.py().detach(|| pending.host_wait_on(device)).map_err(Error::from)?;
        return made(ready, device, None);
    };
    made(ordered, device, Some(stream))
}

/// Imports memory of the SYCL runtime, if the address belongs to this device's context.
fn from_sycl(device: &Device, taken: ArrayExchange) -> Result<DeviceArray> {
    let raw = taken.pointer().unwrap_or(0);
    let handle = NativeHandle { api: device.native().api, kind: NativeKind::Pointer, raw };
    // SAFETY: any number is allowed as an address.
    let origin = device.interop().map(|interop| unsafe { interop.origin(handle) }).transpose()?;
    if origin.flatten().is_none() {
        let message =
            format!("memory of {}, whose context {} does not share", taken.device(), device.id());
        return Err(Error::new(ErrorKind::WrongDevice, "adopt", message).on(device.id()).into());
    }
    // SAFETY: the device's driver knows the address.
    made(unsafe { taken.assume_of(device) }, device, None)
}

fn made<S: State>(
    taken: ArrayExchange<S>,
    device: &Device,
    stream: Option<&Stream>,
) -> Result<DeviceArray> {
    // SAFETY: arrays access only the elements of their layouts, and write them only if that is permitted.
    let bytes = unsafe { taken.into_bytes(device) }.map_err(Error::from)?;
    let AdoptedBytes { memory, offset, layout, access } = bytes;
    let block = Block::new(memory);
    if let Some(stream) = stream {
        block.work.written_on(stream);
    }
    let part = Part {
        block: std::sync::Arc::new(block),
        origin: offset,
        layout,
        read_only: !access.is_writable(),
    };
    Ok(DeviceArray { part })
}

fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> Result<Option<Bound<'py, PyAny>>> {
    Ok(object.getattr_opt(name)?)
}

/// The device type of an object's tensor, if it has one.
fn dlpack_device(object: &Bound<'_, PyAny>) -> Result<Option<i32>> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "__dlpack_device__"))? else {
        return Ok(None);
    };
    // The number of the device may be None; the tensor states it, too.
    let (kind, _): (i32, Bound<'_, PyAny>) = method.call0()?.extract()?;
    Ok(Some(kind))
}

/// Gets the tensor of an object, ordered on a stream if one is given. Uses the old structure if the object supports no
/// other.
fn ask_tensor(object: &Bound<'_, PyAny>, stream: Option<usize>) -> Result<DlpackTensor> {
    let py = object.py();
    let ask = |max_version: Option<(u32, u32)>| {
        let arguments = PyDict::new(py);
        if let Some(stream) = stream {
            arguments.set_item(intern!(py, "stream"), stream)?;
        }
        if let Some(version) = max_version {
            arguments.set_item(intern!(py, "max_version"), version)?;
        }
        object.call_method(intern!(py, "__dlpack__"), (), Some(&arguments))
    };
    let capsule = match ask(Some((VERSION.major, VERSION.minor))) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => ask(None)?,
        outcome => outcome?,
    };
    capsule::into_tensor(&capsule)
}

fn ready_tensor(tensor: DlpackTensor) -> Result<ArrayExchange> {
    // SAFETY: a producer exports host memory only when its values are ready. The same holds for memory objects, which
    // have no stream to request.
    let taken = unsafe { ArrayExchange::from_dlpack(tensor, Ready) };
    taken.map_err(|refused| Failure::from(Error::from(refused)))
}
