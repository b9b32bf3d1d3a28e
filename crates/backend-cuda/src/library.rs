//! The driver's library: its loading and the functions used.
#![expect(unsafe_code, reason = "binds symbols of a C library")]
#![expect(non_snake_case, reason = "functions have the names of the driver's headers")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::{self, Display};
use std::sync::OnceLock;

use backend_gpu::text_at;
use backend_support::{Refusal, function_table, libloading, load, named, reason};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUjit_option, CUmemAccessDesc, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUmodule, CUoccupancyB2DSize, CUpointer_attribute, CUresult, CUstream, CUstreamCaptureMode,
};
use runtime_core::{ErrorKind, Result};

/// The oldest supported driver. It has all required functions.
const LEAST_VERSION: Version = Version(12_000);

/// The name of a code that the driver does not name.
const UNKNOWN: &str = "unknown CUDA error";

/// The variable that names the library's file, instead of a search by the system.
const VARIABLE: &str = "BACKEND_CUDA_DRIVER";
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];

function_table! {
    /// The functions of the driver. Functions of newer drivers may be missing.
    pub(crate) Functions:
    every version {
        cuInit(flags: c_uint);
        cuGetErrorName(error: u32, name: *mut *const c_char);

        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
        cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);

        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxGetDevice(device: *mut CUdevice);
        cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

        cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
        cuStreamQuery(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);

        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
        cuEventSynchronize(event: CUevent);
        cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
        cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(pointer: *mut c_void);
        cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
        cuMemPoolDestroy(pool: CUmemoryPool);
        cuMemPoolSetAttribute(
            pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void,
        );
        cuMemPoolGetAttribute(
            pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void,
        );
        cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
        cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
        cuMemAllocFromPoolAsync(
            address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream,
        );
        cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
        cuPointerGetAttribute(
            data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr,
        );

        cuMemcpyHtoDAsync_v2(
            destination: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream,
        );
        cuMemcpyDtoHAsync_v2(
            destination: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream,
        );
        cuMemcpyDtoDAsync_v2(
            destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream,
        );
        cuMemcpyPeerAsync(
            destination: CUdeviceptr, destination_context: CUcontext,
            source: CUdeviceptr, source_context: CUcontext, bytes: usize, stream: CUstream,
        );
        cuMemsetD8Async(address: CUdeviceptr, value: u8, count: usize, stream: CUstream);
        cuMemsetD16Async(address: CUdeviceptr, value: u16, count: usize, stream: CUstream);
        cuMemsetD32Async(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

        cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void,
            count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void,
        );
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncGetAttribute(
            value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction,
        );
        cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: CUfunction, block: c_int, shared_bytes: usize,
        );
        cuOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: CUfunction,
            shared_bytes_of: CUoccupancyB2DSize, shared_bytes: usize, most: c_int,
        );
        cuLaunchKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            arguments: *mut *mut c_void, extra: *mut *mut c_void,
        );
        cuLaunchCooperativeKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            arguments: *mut *mut c_void,
        );

        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(exec: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);
    }
    newer versions {
        // Every supported driver has them, but other libraries that take its place may lack them.
        cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
        cuMemHostUnregister(pointer: *mut c_void);
        cuStreamWaitValue32_v2(
            stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint,
        );
        // 12.4
        cuFuncGetParamInfo(
            function: CUfunction, index: usize, offset: *mut usize, size: *mut usize,
        );
    }
}

/// The driver of this machine, loaded for the rest of the process.
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Library {
    pub(crate) functions: Functions,
    pub(crate) version: Version,
    /// The number of its devices, at least 1.
    pub(crate) devices: usize,
}

/// A version of CUDA, in the format of drivers and compilers: 12040 is 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) c_int);

impl Version {
    pub(crate) fn major(self) -> c_int {
        self.0 / 1000
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.0 % 1000 / 10)
    }
}

/// The driver. The search runs once per process.
///
/// # Errors
///
/// `Unavailable` if there is no driver or no device, or the driver is too old; `Driver` if the driver is broken.
pub(crate) fn library() -> Result<&'static Library> {
    static PROBED: OnceLock<Result<Library, Refusal>> = OnceLock::new();
    let probed = PROBED.get_or_init(|| match named(VARIABLE) {
        Some(path) => probe(&[&path]),
        None => probe(NAMES),
    });
    probed.as_ref().map_err(Refusal::error)
}

fn probe(names: &[&str]) -> Result<Library, Refusal> {
    let unavailable = |message| Refusal::new(ErrorKind::Unavailable, message);
    let library = load(names).map_err(|why| unavailable(format!("no CUDA driver: {why}")))?;
    let version = driver_version(&library)?;
    if version < LEAST_VERSION {
        let message = format!("the driver is for CUDA {version}; {LEAST_VERSION} is the least");
        return Err(unavailable(message));
    }
    let functions = Functions::bind(&library).map_err(|symbol| {
        let message = format!("the driver for CUDA {version} has no function {symbol}");
        Refusal::new(ErrorKind::Driver, message)
    })?;
    // The library is never unloaded: the driver keeps threads, and state that its handles point to.
    std::mem::forget(library);
    // SAFETY: this is the first call, and its flags are valid.
    let code = unsafe { (functions.cuInit)(0) };
    let driver = format!("a driver for CUDA {version}");
    refuse(code, || functions.name(code), &driver, "the driver cannot be initialised")?;
    let mut devices = 0;
    // SAFETY: the number is written to a valid place.
    let code = unsafe { (functions.cuDeviceGetCount)(&mut devices) };
    refuse(code, || functions.name(code), &driver, "the driver does not list its devices")?;
    match usize::try_from(devices) {
        Ok(devices) if devices > 0 => Ok(Library { functions, version, devices }),
        _ => Err(unavailable(no_device(&driver))),
    }
}

/// Queries the version. Every driver reports it before it is initialised.
fn driver_version(library: &libloading::Library) -> Result<Version, Refusal> {
    // SAFETY: the headers of the driver declare this type.
    let function =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> u32>("cuDriverGetVersion") }
            .map_err(|error| {
                Refusal::new(
                    ErrorKind::Driver,
                    format!("this is no CUDA driver: {}", reason(&error)),
                )
            })?;
    let mut version = 0;
    // SAFETY: the number is written to a valid place.
    let code = unsafe { function(&mut version) };
    let what = "the driver does not report its version";
    refuse(code, || UNKNOWN, "a CUDA driver", what)?;
    Ok(Version(version))
}

fn no_device(driver: &str) -> String {
    format!("{driver}, but no device")
}

/// Converts codes of an unusable driver to refusals. Some codes mean that there is no device.
fn refuse(
    code: u32,
    name: impl Fn() -> &'static str,
    driver: &str,
    what: &str,
) -> Result<(), Refusal> {
    const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
    const STUB: u32 = CUresult::CUDA_ERROR_STUB_LIBRARY as u32;
    let (kind, message, name) = match code {
        0 => return Ok(()),
        NO_DEVICE => (ErrorKind::Unavailable, no_device(driver), "CUDA_ERROR_NO_DEVICE"),
        STUB => (
            ErrorKind::Unavailable,
            "the library is the stub that programs are linked with, not a driver".to_owned(),
            "CUDA_ERROR_STUB_LIBRARY",
        ),
        _ => (ErrorKind::Driver, what.to_owned(), name()),
    };
    Err(Refusal { kind, message, code: Some((name, code)) })
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}", self.version)
    }
}

impl Functions {
    /// The symbolic name of a code.
    pub(crate) fn name(&self, code: u32) -> &'static str {
        let mut name = std::ptr::null();
        // SAFETY: a pointer is written to a valid place.
        let _ = unsafe { (self.cuGetErrorName)(code, &mut name) };
        // SAFETY: the driver writes the address of a text, or null. The text stays, since the driver is never unloaded.
        unsafe { text_at(name) }.unwrap_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_unavailable() {
        let refusal = probe(&["libcuda-that-is-nowhere.so"]).err().unwrap();
        assert_eq!(refusal.kind, ErrorKind::Unavailable);
        assert!(refusal.message.contains("no CUDA driver"), "{}", refusal.message);
        assert!(refusal.message.contains("that-is-nowhere"), "{}", refusal.message);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_no_driver() {
        let refusal = probe(&["libc.so.6"]).err().unwrap();
        assert_eq!(refusal.kind, ErrorKind::Driver);
        assert!(refusal.message.contains("no CUDA driver"), "{}", refusal.message);
    }

    #[test]
    fn missing_and_broken_libraries_differ() {
        let refused = |code| refuse(code, || "CUDA_ERROR_UNKNOWN", "a driver", "broken");
        let refusal = |code| refused(code).unwrap_err().error();
        for (code, kind, name) in [
            (100, ErrorKind::Unavailable, "CUDA_ERROR_NO_DEVICE (100)"),
            (34, ErrorKind::Unavailable, "CUDA_ERROR_STUB_LIBRARY (34)"),
            (999, ErrorKind::Driver, "CUDA_ERROR_UNKNOWN (999)"),
        ] {
            let error = refusal(code);
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(refused(0).is_ok());
    }

    #[test]
    fn version_numbers_are_decoded() {
        assert_eq!(Version(12_040).to_string(), "12.4");
        assert_eq!(Version(13_000).to_string(), "13.0");
        assert!(Version(11_080) < LEAST_VERSION);
    }
}
