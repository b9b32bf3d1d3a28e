//! The monitoring library, if it is installed. It reports the load of devices.
#![expect(unsafe_code, reason = "binds and calls a C library")]
#![expect(non_snake_case, reason = "functions have the names of the library's headers")]

use std::ffi::{CString, c_char, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use backend_gpu::{Busy, ok};
use backend_support::{function_table, load, named};
use runtime_core::PciAddress;

/// The variable that names the library's file, instead of a search by the system.
const VARIABLE: &str = "BACKEND_CUDA_NVML";
#[cfg(not(windows))]
const NAMES: &[&str] = &["libnvidia-ml.so.1"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvml.dll"];

function_table! {
    /// The functions of the monitoring library.
    pub(crate) Functions:
    every version {
        nvmlInit_v2();
        nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, device: *mut *mut c_void);
        nvmlDeviceGetUtilizationRates(device: *mut c_void, rates: *mut Rates);
    }
    newer versions {}
}

/// Percentages over the last sample period, which is at most one second.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    processor: c_uint,
    memory: c_uint,
}

/// The library's functions; `None` if it is not installed or does not work. The search runs once per process.
fn functions() -> Option<&'static Functions> {
    static LOADED: OnceLock<Option<Functions>> = OnceLock::new();
    LOADED
        .get_or_init(|| {
            let library = match named(VARIABLE) {
                Some(path) => load(&[&path]),
                None => load(NAMES),
            };
            let library = library.ok()?;
            let functions = Functions::bind(&library).ok()?;
            std::mem::forget(library);
            // SAFETY: this is the first call, as the library requires.
            ok(unsafe { (functions.nvmlInit_v2)() }).ok()?;
            Some(functions)
        })
        .as_ref()
}

/// The load of the device at an address.
pub(crate) fn busy(at: PciAddress) -> Busy {
    let rates = rates(at);
    // The conversion of a percentage is exact.
    #[expect(clippy::cast_precision_loss, reason = "at most 100")]
    let share = |percent: c_uint| percent.min(100) as f32 / 100.0;
    Busy {
        processor: rates.map(|rates| share(rates.processor)),
        memory: rates.map(|rates| share(rates.memory)),
    }
}

/// The percentages of the device at an address; `None` if they are not reported.
fn rates(at: PciAddress) -> Option<Rates> {
    let functions = functions()?;
    let address = CString::new(format!("{at}.0")).ok()?;
    let mut device = ptr::null_mut();
    // SAFETY: the text ends with a NUL, and the handle is written to a valid place.
    let found =
        unsafe { (functions.nvmlDeviceGetHandleByPciBusId_v2)(address.as_ptr(), &mut device) };
    ok(found).ok()?;
    let mut rates = Rates::default();
    // SAFETY: the library made the handle, and writes two numbers to a valid place.
    ok(unsafe { (functions.nvmlDeviceGetUtilizationRates)(device, &mut rates) }).ok()?;
    Some(rates)
}
