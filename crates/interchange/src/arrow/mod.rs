//! The Arrow C device data interface: rows of numbers, never written, ordered after one event of the producer's, with an owner
//! of its own.
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
use crate::owner::{Keeper, Plain, drop_for_c};
use crate::state::{Ordered, Pending, Ready, State};
use crate::{Access, ArrayExchange, Refused, dl_device};

const PROTOCOL: &str = "arrow";

/// Formats of the element types that Arrow has in the same form. Its truth values are bits.
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

/// A device array and its schema. Dropping it gives both back, unless that has happened.
///
/// They go into two capsules of Python, named `arrow_schema` and `arrow_device_array`.
pub struct ArrowDevice {
    schema: ArrowSchema,
    array: ArrowDeviceArray,
}

// SAFETY: whoever made it promised that both may be given back on any thread.
unsafe impl Send for ArrowDevice {}
// SAFETY: as above; nothing is written through it.
unsafe impl Sync for ArrowDevice {}

impl ArrowDevice {
    /// Takes over both structures: where they were moved from they count as given back.
    ///
    /// # Safety
    ///
    /// Both are the caller's, and what they say is true: `format` is a string, there are as many buffers as `n_buffers` says,
    /// and every element is initialised in memory of the device until the array's `release` is called, which may be on any
    /// thread. `sync_event` is null, or points to an event that lives as long.
    pub unsafe fn from_raw(schema: ArrowSchema, array: ArrowDeviceArray) -> Self {
        Self { schema, array }
    }

    /// Hands both structures over: whoever gets them calls their `release`.
    pub fn into_raw(mut self) -> (ArrowSchema, ArrowDeviceArray) {
        let schema = std::mem::replace(&mut self.schema, ArrowSchema::released());
        let array = std::mem::replace(&mut self.array, ArrowDeviceArray::released());
        (schema, array)
    }
}

impl Drop for ArrowDevice {
    fn drop(&mut self) {
        if let Some(release) = self.array.array.release {
            // SAFETY: owned and not released, and not used again.
            unsafe { release(&raw mut self.array.array) };
        }
        if let Some(release) = self.schema.release {
            // SAFETY: as above.
            unsafe { release(&raw mut self.schema) };
        }
    }
}

impl ArrayExchange<Ready> {
    /// Hands the array over as an Arrow array without nulls. Nobody writes it until it is given back.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it has not one dimension, has gaps, or is of a type that Arrow has not in this form (bool, bf16,
    /// complex numbers), and for memory objects and memory that the protocol has no number for.
    pub fn into_arrow(self) -> Result<ArrowDevice, Refused<Self>> {
        self.arrow(None)
    }
}

impl ArrayExchange<Ordered> {
    /// As [`into_arrow`](ArrayExchange::into_arrow) of what is ready, with an event that marks what is enqueued on the
    /// stream by now.
    ///
    /// # Errors
    ///
    /// As there, and what recording the event reports; `InvalidArgument` if the event is not of the memory's interface.
    pub fn into_arrow(self) -> Result<ArrowDevice, Refused<Self>> {
        match marked(&self.array, self.stream()) {
            Ok(event) => self.arrow(Some(event)),
            Err(error) => Err(Refused::new(self, error)),
        }
    }
}

impl<S: State> ArrayExchange<S> {
    fn arrow(self, event: Option<Event>) -> Result<ArrowDevice, Refused<Self>> {
        let (format, device, address) = match written(&self.array) {
            Ok(written) => written,
            Err(error) => return Err(Refused::new(self, error)),
        };
        let length = i64::try_from(self.array.layout.len()).unwrap_or(i64::MAX);
        let handle = event.as_ref().map_or(0, |event| event.native().raw);
        let with = event.map(|event| Box::new(event) as _);
        let private = Box::into_raw(Box::new(Private {
            buffers: [ptr::null(), ptr::with_exposed_provenance(address)],
            event: ptr::with_exposed_provenance_mut(handle),
            keeper: Keeper::lend(self.owner, with),
        }));
        // SAFETY: just made, and not yet anybody else's.
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

/// What an array that was handed over points to.
struct Private {
    buffers: [*const c_void; 2],
    event: *mut c_void,
    #[expect(dead_code, reason = "it is kept to be dropped")]
    keeper: Keeper,
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the consumer gives the structure that it got, wherever it has moved it.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: the piece that `arrow` made, which nobody uses any more.
    drop_for_c(unsafe { Box::from_raw(array.private_data.cast::<Private>()) });
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as above. It points to nothing but constants.
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

/// An event of the memory's interface after what is on the stream.
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
    /// Takes up an Arrow array of numbers without nulls, as a row that is only to be read. Its values wait for the event that
    /// comes with it, if one does.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for structures that were given back, other types than those of numbers, nulls, children and
    /// dictionaries, another number of buffers than two, a negative length or offset, a null address, and an event of the host;
    /// `UnknownDevice`; `OutOfBounds` if addresses wrap around.
    pub fn from_arrow(arrow: ArrowDevice) -> Result<Self, Refused<ArrowDevice>> {
        match described(&arrow) {
            Ok((array, state)) => {
                Ok(Self { array: Box::new(array), state, owner: Arc::new(Plain::new(arrow)) })
            }
            Err(error) => Err(Refused::new(arrow, error)),
        }
    }
}

fn described(arrow: &ArrowDevice) -> Result<(Description, Pending)> {
    let ArrowDevice { schema, array: on } = arrow;
    let array = &on.array;
    // Nothing else of what was given back may be looked at.
    if array.release.is_none() || schema.release.is_none() || schema.format.is_null() {
        return Err(invalid("an array or a schema that was given back".into()));
    }
    // SAFETY: a string, by the promise of whoever made the `ArrowDevice`.
    let format = unsafe { CStr::from_ptr(schema.format) };
    let Some((dtype, _)) = FORMATS.iter().find(|(_, known)| *known == format) else {
        return Err(invalid(format!("format {format:?}, which is not one of numbers")));
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
    // SAFETY: not null, so that there are as many as `n_buffers` says.
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

/// What comes first.
fn event(on: &ArrowDeviceArray, api: &'static str) -> Result<Pending> {
    if on.sync_event.is_null() {
        return Ok(Pending::events([]));
    }
    let raw = match api {
        "host" => return Err(invalid("an event of the host".into())),
        // SYCL's is an object and not a handle.
        "sycl" => on.sync_event.expose_provenance(),
        // SAFETY: points to an event, by the promise of whoever made the `ArrowDevice`.
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
