//! Python capsules and the ownership of their contents.
#![expect(unsafe_code, reason = "moves structures of C into capsules and out of them")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use runtime::interchange::arrow::ArrowDevice;
use runtime::interchange::arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use runtime::interchange::dlpack::DlpackTensor;
use runtime::interchange::dlpack::abi::device::CPU;

use crate::error::Result;

const TENSOR: &CStr = c"dltensor_versioned";
const USED_TENSOR: &CStr = c"used_dltensor_versioned";
const LEGACY_TENSOR: &CStr = c"dltensor";
const USED_LEGACY_TENSOR: &CStr = c"used_dltensor";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const DEVICE_ARRAY: &CStr = c"arrow_device_array";

/// Puts a tensor into a capsule. The consumer that renames the capsule frees it; otherwise the capsule does.
pub(super) fn of_tensor(py: Python<'_>, tensor: DlpackTensor) -> Result<Bound<'_, PyCapsule>> {
    let (name, destructor): (_, unsafe extern "C" fn(_)) = match tensor.is_legacy() {
        true => (LEGACY_TENSOR, drop_legacy_tensor),
        false => (TENSOR, drop_tensor),
    };
    let raw = tensor.into_raw();
    // SAFETY: the structure stays until its deleter is called, by the consumer or by the destructor. The destructor
    // checks the name, which says which of the two calls it.
    Ok(unsafe { PyCapsule::new_with_pointer_and_destructor(py, raw, name, Some(destructor)) }?)
}

unsafe extern "C" fn drop_tensor(capsule: *mut ffi::PyObject) {
    // SAFETY: called as the destructor of a capsule.
    if let Some(raw) = unsafe { unused(capsule, TENSOR) } {
        // SAFETY: an unused capsule of this name has a tensor of the current structure.
        drop(unsafe { DlpackTensor::from_versioned(raw.cast()) });
    }
}

unsafe extern "C" fn drop_legacy_tensor(capsule: *mut ffi::PyObject) {
    // SAFETY: called as the destructor of a capsule.
    if let Some(raw) = unsafe { unused(capsule, LEGACY_TENSOR) } {
        // SAFETY: an unused capsule of this name has a tensor of the old structure.
        drop(unsafe { DlpackTensor::from_legacy(raw.cast()) });
    }
}

/// Returns the content of a capsule, if the capsule has this name.
///
/// # Safety
///
/// Called as the destructor of a capsule.
unsafe fn unused(capsule: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a capsule; a destructor is called with the interpreter attached.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the capsule has this name.
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) })
}

/// Takes the tensor out of a capsule; the capsule is then used up.
///
/// # Errors
///
/// `ValueError` if it is not a capsule of a tensor, or was used before.
pub(super) fn into_tensor(capsule: &Bound<'_, PyAny>) -> Result<DlpackTensor> {
    let refuse = PyValueError::new_err::<String>;
    let capsule =
        capsule.cast::<PyCapsule>().map_err(|_| refuse(format!("{capsule:?} is not a capsule")))?;
    let take = |name: &'static CStr, used: &'static CStr| -> PyResult<Option<NonNull<c_void>>> {
        if !capsule.is_valid_checked(Some(name)) {
            return Ok(None);
        }
        let raw = capsule.pointer_checked(Some(name))?;
        // From here on, this code must free the tensor.
        // SAFETY: a capsule, and a name with static lifetime.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(Some(raw))
    };
    if let Some(raw) = take(TENSOR, USED_TENSOR)? {
        // SAFETY: a capsule of this name has such a tensor, which no other code has used.
        return Ok(unsafe { DlpackTensor::from_versioned(raw.cast()) });
    }
    if let Some(raw) = take(LEGACY_TENSOR, USED_LEGACY_TENSOR)? {
        // SAFETY: as above.
        return Ok(unsafe { DlpackTensor::from_legacy(raw.cast()) });
    }
    Err(refuse(format!("{capsule:?} has no tensor, or was used before")).into())
}

unsafe extern "C" fn drop_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: called as the destructor of a capsule.
    if let Some(raw) = unsafe { unused(capsule, SCHEMA) } {
        // SAFETY: a capsule of this name has such a structure in a box.
        let schema = *unsafe { Box::from_raw(raw.as_ptr().cast::<ArrowSchema>()) };
        // SAFETY: made here, or empty since the consumer has moved it out.
        drop(unsafe { ArrowDevice::from_raw(schema, ArrowDeviceArray::released()) });
    }
}

unsafe extern "C" fn drop_device_array(capsule: *mut ffi::PyObject) {
    // SAFETY: called as the destructor of a capsule.
    if let Some(raw) = unsafe { unused(capsule, DEVICE_ARRAY) } {
        // SAFETY: as above.
        let array = *unsafe { Box::from_raw(raw.as_ptr().cast::<ArrowDeviceArray>()) };
        // SAFETY: as above.
        drop(unsafe { ArrowDevice::from_raw(ArrowSchema::released(), array) });
    }
}

unsafe extern "C" fn drop_array(capsule: *mut ffi::PyObject) {
    // SAFETY: called as the destructor of a capsule.
    if let Some(raw) = unsafe { unused(capsule, ARRAY) } {
        // SAFETY: as above.
        let array = on_host(*unsafe { Box::from_raw(raw.as_ptr().cast::<ArrowArray>()) });
        // SAFETY: as above.
        drop(unsafe { ArrowDevice::from_raw(ArrowSchema::released(), array) });
    }
}

/// An array in host memory.
fn on_host(array: ArrowArray) -> ArrowDeviceArray {
    ArrowDeviceArray { array, device_id: -1, device_type: CPU, ..ArrowDeviceArray::released() }
}

/// The capsules of a schema and of an array.
pub(crate) type Pair<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// Puts both structures into capsules, the array as one of device memory.
pub(super) fn of_arrow(py: Python<'_>, arrow: ArrowDevice) -> Result<Pair<'_>> {
    let (schema, array) = arrow.into_raw();
    let array = boxed(array);
    // SAFETY: in a box that the destructor frees.
    let array = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, array, DEVICE_ARRAY, Some(drop_device_array))
    }?;
    Ok((of_schema(py, schema)?, array))
}

/// Puts both structures of an array in host memory into capsules.
pub(super) fn of_host_arrow(py: Python<'_>, arrow: ArrowDevice) -> Result<Pair<'_>> {
    let (schema, array) = arrow.into_raw();
    let array = boxed(array.array);
    // SAFETY: in a box that the destructor frees.
    let array =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, array, ARRAY, Some(drop_array)) }?;
    Ok((of_schema(py, schema)?, array))
}

fn of_schema(py: Python<'_>, schema: ArrowSchema) -> Result<Bound<'_, PyCapsule>> {
    let schema = boxed(schema);
    // SAFETY: in a box that the destructor frees.
    Ok(unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, schema, SCHEMA, Some(drop_schema))
    }?)
}

fn boxed<T>(value: T) -> NonNull<c_void> {
    NonNull::from(Box::leak(Box::new(value))).cast()
}

/// Takes the contents out of a pair of capsules, which are empty afterwards.
///
/// # Errors
///
/// `ValueError` if they are not such capsules.
pub(super) fn into_arrow(pair: &Bound<'_, PyAny>) -> Result<ArrowDevice> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<ArrowSchema>();
    let array = match array.is_valid_checked(Some(ARRAY)) {
        true => {
            let array = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
            // SAFETY: capsules of these names have these structures; the places they are moved from are marked as
            // released.
            on_host(unsafe { array.replace(ArrowArray::released()) })
        }
        false => {
            let array = array.pointer_checked(Some(DEVICE_ARRAY))?.cast::<ArrowDeviceArray>();
            // SAFETY: as above.
            unsafe { array.replace(ArrowDeviceArray::released()) }
        }
    };
    // SAFETY: as above.
    let schema = unsafe { schema.replace(ArrowSchema::released()) };
    // SAFETY: just moved out of the producer's capsules, so owned here, and truthful by the protocol. A released array
    // is refused.
    Ok(unsafe { ArrowDevice::from_raw(schema, array) })
}
