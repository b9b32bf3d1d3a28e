//! The Arrow C device data interface: read-only one-dimensional arrays of numbers, ordered after one event of the
//! producer, with an owner.
#![expect(unsafe_code, reason = "makes and reads the structures of C, and calls their functions")]

pub mod abi;

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use runtime_core::{
    DType, Error, ErrorKind, Event, Layout, NativeHandle, NativeKind, Result, Stream,
};

use crate::description::Description;
use crate::dlpack::abi::{DLDevice, device};
use crate::owner::{self, Keeper, Plain, drop_for_c};
use crate::state::{Ordered, Pending, Ready, State};
use crate::{Access, ArrayExchange, ConversionError, dl_device};

const PROTOCOL: &str = "arrow";

/// Formats of the element types that Arrow represents in the same way. Arrow stores truth values as bits, so they are
/// not included.
const FORMATS: [(DType, &CStr); 11] = [
    (DType::I8, c"c"),
    (DType::I16, c"s"),
    (DType::I32, c"i"),
    (DType::I64, c"l"),
    (DType::U8, c"C"),
    (DType::U16, c"S"),
    (DType::U32, c"I"),
    (DType::U64, c"L"),
    (DType::F16, c"e"),
    (DType::F32, c"f"),
    (DType::F64, c"g"),
];

/// A device array and its schema. Dropping it releases both, unless they were released already.
///
/// In Python, they go into two capsules, named `arrow_schema` and `arrow_device_array`.
pub struct ArrowDevice {
    schema: ArrowSchema,
    array: ArrowDeviceArray,
}

// SAFETY: the maker promised that both may be released on any thread.
unsafe impl Send for ArrowDevice {}
// SAFETY: as above; nothing writes through it.
unsafe impl Sync for ArrowDevice {}

impl ArrowDevice {
    /// Takes ownership of both structures. The places that they were moved from count as released.
    ///
    /// # Safety
    ///
    /// The caller owns both, and their content is true: `format` is a string, there are `n_buffers` buffers, and every
    /// element is initialised in memory of the device until the array's `release` is called. `release` may be called on
    /// any thread. `sync_event` is null, or points to an event that lives as long as the elements.
    pub unsafe fn from_raw(schema: ArrowSchema, array: ArrowDeviceArray) -> Self {
        Self { schema, array }
    }

    /// Returns both structures. The caller must call their `release`.
    pub fn into_raw(mut self) -> (ArrowSchema, ArrowDeviceArray) {
        let schema = std::mem::replace(&mut self.schema, ArrowSchema::released());
        let array = std::mem::replace(&mut self.array, ArrowDeviceArray::released());
        (schema, array)
    }
}

impl Drop for ArrowDevice {
    fn drop(&mut self) {
        let Self { schema, array: on } = self;
        if let Some(release) = on.array.release {
            // SAFETY: owned, not released, and not used again.
            owner::release(|| unsafe { release(&raw mut on.array) });
        }
        if let Some(release) = schema.release {
            // SAFETY: as above.
            owner::release(|| unsafe { release(schema) });
        }
    }
}

impl ArrayExchange<Ready> {
    /// Exports the array as an Arrow array without nulls. It is not written until it is returned.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the array is not one-dimensional or has gaps. `InvalidArgument` for types that Arrow does
    /// not represent in the same way (bool, bf16, complex numbers), for memory objects, and for memory that the
    /// protocol has no number for.
    pub fn into_arrow(self) -> Result<ArrowDevice, ConversionError<Self>> {
        self.arrow(None)
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_arrow`](ArrayExchange::into_arrow) of a ready array, with an event that marks the work already
    /// enqueued on the stream.
    ///
    /// # Errors
    ///
    /// As [`into_arrow`](ArrayExchange::into_arrow) of a ready array. Errors of recording the event. `InvalidArgument`
    /// if the event does not belong to the memory's interface.
    pub fn into_arrow(self) -> Result<ArrowDevice, ConversionError<Self>> {
        match marked(&self.array, self.stream()) {
            Ok(event) => self.arrow(Some(event)),
            Err(error) => Err(ConversionError::new(self, error)),
        }
    }
}

impl<S: State> ArrayExchange<S> {
    fn arrow(self, event: Option<Event>) -> Result<ArrowDevice, ConversionError<Self>> {
        let (format, device, address) = match written(&self.array) {
            Ok(written) => written,
            Err(error) => return Err(ConversionError::new(self, error)),
        };
        let length = i64::try_from(self.array.layout.len()).unwrap_or(i64::MAX);
        let handle = event.as_ref().map_or(0, |event| event.native().raw);
        let with = event.map(|event| Box::new(event) as _);
        let private = Box::into_raw(Box::new(Private {
            buffers: [ptr::null(), ptr::with_exposed_provenance(address)],
            event: ptr::with_exposed_provenance_mut(handle),
            keeper: Keeper::lend(self.owner, with),
        }));
        // SAFETY: just made, and not shared yet.
        let buffers = unsafe { (&raw mut (*private).buffers).cast() };
        let sync_event = match handle {
            0 => ptr::null_mut(),
            // SAFETY: as above.
            _ => unsafe { (&raw mut (*private).event).cast() },
        };
        let array = ArrowArray {
            length,
            n_buffers: 2,
            buffers,
            release: Some(release_array),
            private_data: private.cast(),
            ..ArrowArray::released()
        };
        let DLDevice { device_type, device_id } = device;
        let device_id = if device_type == device::CPU { -1 } else { i64::from(device_id) };
        let schema = ArrowSchema {
            format: format.as_ptr(),
            name: c"".as_ptr(),
            release: Some(release_schema),
            ..ArrowSchema::released()
        };
        let array =
            ArrowDeviceArray { array, device_id, device_type, sync_event, reserved: [0; 3] };
        Ok(ArrowDevice { schema, array })
    }
}

/// The data that an exported array points to.
struct Private {
    buffers: [*const c_void; 2],
    event: *mut c_void,
    #[expect(dead_code, reason = "it is held only to be dropped")]
    keeper: Keeper,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the consumer passes the structure that it got, even if it has moved it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: the allocation that `arrow` made, which is no longer used.
    drop_for_c(unsafe { Box::from_raw(array.private_data.cast::<Private>()) });
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as above. It points only to constants.
    unsafe { (*schema).release = None };
}

fn written(array: &Description) -> Result<(&'static CStr, DLDevice, usize)> {
    let layout = &array.layout;
    let format = FORMATS.iter().find(|(dtype, _)| *dtype == layout.dtype());
    let Some((_, format)) = format else {
        return Err(invalid(format!(
            "{}, which it has in another form or not at all",
            layout.dtype()
        )));
    };
    if layout.rank() != 1 || !layout.is_contiguous() {
        let (shape, strides) = (layout.shape(), layout.strides());
        return Err(invalid(format!("shape {shape:?} with strides {strides:?}; a row is taken")));
    }
    let device = dl_device::numbers(array, None, PROTOCOL)?;
    Ok((format, device, array.address(PROTOCOL, 0)?))
}

/// Records an event of the memory's interface after the work on the stream.
fn marked(array: &Description, stream: &Stream) -> Result<Event> {
    let api = array.memory.map_or(array.device.backend(), |memory| memory.api);
    let event = stream.record_event()?;
    let native = event.native();
    if native.api == api && native.raw != 0 && matches!(api, "cuda" | "hip" | "opencl") {
        return Ok(event);
    }
    Err(invalid(format!("{native:?} for memory of {}; it is taken when it is ready", array.device)))
}

impl ArrayExchange<Pending> {
    /// Imports an Arrow array of numbers without nulls, as a read-only one-dimensional array. Its values wait for the
    /// event of the array, if it has one.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for released structures, types other than numbers, nulls, children and dictionaries, a number
    /// of buffers other than two, a negative length or offset, a null address, and an event on the host.
    /// `UnknownDevice` for an unknown device. `OutOfBounds` if addresses wrap around.
    pub fn from_arrow(arrow: ArrowDevice) -> Result<Self, ConversionError<ArrowDevice>> {
        match described(&arrow) {
            Ok((array, state)) => {
                Ok(Self { array: Box::new(array), state, owner: Arc::new(Plain::new(arrow)) })
            }
            Err(error) => Err(ConversionError::new(arrow, error)),
        }
    }
}

fn described(arrow: &ArrowDevice) -> Result<(Description, Pending)> {
    let ArrowDevice { schema, array: on } = arrow;
    let array = &on.array;
    // No other field of a released structure may be read.
    if array.release.is_none() || schema.release.is_none() || schema.format.is_null() {
        return Err(invalid("an array or a schema that was given back".into()));
    }
    // SAFETY: a string, as the maker of the `ArrowDevice` promised.
    let format = unsafe { CStr::from_ptr(schema.format) };
    let Some((dtype, _)) = FORMATS.iter().find(|(_, known)| *known == format) else {
        return Err(invalid(format!("format {format:?}, which is not a number format")));
    };
    let ArrowArray { length, null_count, offset, n_buffers, n_children, .. } = *array;
    if n_children != 0 || schema.n_children != 0 {
        return Err(invalid(format!("{n_children} children; none are taken")));
    }
    if !array.dictionary.is_null() || !schema.dictionary.is_null() {
        return Err(invalid("a dictionary".into()));
    }
    if n_buffers != 2 || array.buffers.is_null() {
        return Err(invalid(format!("{n_buffers} buffers; numbers have two")));
    }
    // SAFETY: not null, so there are `n_buffers` of them.
    let [validity, data] = unsafe { array.buffers.cast::<[*const c_void; 2]>().read() };
    if !validity.is_null() && null_count != 0 {
        return Err(invalid(format!("{null_count} nulls")));
    }
    let (Ok(length), Ok(offset)) = (usize::try_from(length), usize::try_from(offset)) else {
        return Err(invalid(format!("{length} elements from {offset} on")));
    };
    let layout = Layout::row(*dtype, length)?;
    let device_id = match on.device_type {
        device::CPU => 0,
        _ => i32::try_from(on.device_id)
            .map_err(|_| invalid(format!("a device with the number {}", on.device_id)))?,
    };
    let numbers = DLDevice { device_type: on.device_type, device_id };
    let (api, kind, device) = dl_device::parse(numbers, PROTOCOL)?;
    if kind == crate::MemoryKind::Object {
        return Err(invalid("memory objects, where addresses are taken".into()));
    }
    let data = data.expose_provenance();
    let skipped = offset.checked_mul(dtype.size());
    let first = match data {
        0 => Some(0),
        _ => skipped.and_then(|skipped| data.checked_add(skipped)),
    };
    let Some(first) = first else {
        let message = format!("element {offset} from {data:#x} on");
        return Err(Error::new(ErrorKind::OutOfBounds, PROTOCOL, message));
    };
    let state = event(on, api)?;
    Ok((Description::at(first, api, layout, kind, device, Access::ReadOnly)?, state))
}

/// The event that must complete first.
fn event(on: &ArrowDeviceArray, api: &'static str) -> Result<Pending> {
    if on.sync_event.is_null() {
        return Ok(Pending::events([]));
    }
    let raw = match api {
        "host" => return Err(invalid("an event of the host".into())),
        // SYCL's event is an object, not a handle.
        "sycl" => on.sync_event.expose_provenance(),
        // SAFETY: points to an event, as the maker of the `ArrowDevice` promised.
        _ => unsafe { on.sync_event.cast::<usize>().read() },
    };
    Ok(Pending::foreign(NativeHandle { api, kind: NativeKind::Event, raw }))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}

impl fmt::Debug for ArrowDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArrowDeviceArray { array, device_type, device_id, .. } = &self.array;
        write!(f, "ArrowDevice({} elements on {device_type}, {device_id})", array.length)
    }
}
