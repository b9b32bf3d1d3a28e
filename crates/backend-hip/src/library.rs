//! The runtime's library: its loading and the functions used.
#![expect(unsafe_code, reason = "binds symbols of a C library")]
#![expect(non_snake_case, reason = "functions have the names of the runtime's headers")]

use std::env;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::{self, Display};
use std::sync::OnceLock;

use backend_gpu::text_at;
use backend_support::{Refusal, function_table, libloading, load, named, reason};
use hip_sys::hiprt::{
    hipDevice_t, hipDeviceptr_t, hipError_t, hipEvent_t, hipFunction_attribute, hipFunction_t,
    hipGraph_t, hipGraphExec_t, hipMemAccessDesc, hipMemPool_t, hipMemPoolAttr, hipMemPoolProps,
    hipModule_t, hipPointer_attribute, hipStream_t, hipStreamCaptureMode,
};
use runtime_core::{ErrorKind, Result};

/// The name of a code that the runtime does not name.
const UNKNOWN: &str = "unknown HIP error";

/// The variable that names the library's file, instead of a search by the system.
const VARIABLE: &str = "BACKEND_HIP_LIBRARY";
const NAMES: [&str; 4] =
    ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
/// The folder in which ROCm is installed by default.
const ROCM: &str = "/opt/rocm";

function_table! {
    /// The functions of the runtime: required functions, all of which ROCm 5.2 has, and optional ones.
    pub(crate) Functions:
    every version {
        hipInit(flags: c_uint);
        hipRuntimeGetVersion(version: *mut c_int);
        hipGetErrorName(error: u32) -> *const c_char;

        hipGetDeviceCount(count: *mut c_int);
        hipGetDevice(device: *mut c_int);
        hipSetDevice(device: c_int);
        hipDeviceReset();
        hipDeviceGet(device: *mut hipDevice_t, ordinal: c_int);
        hipDeviceGetName(name: *mut c_char, len: c_int, device: hipDevice_t);
        hipDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int);
        hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t);

        hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int);
        hipStreamDestroy(stream: hipStream_t);
        hipStreamQuery(stream: hipStream_t);
        hipStreamSynchronize(stream: hipStream_t);
        hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint);

        hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint);
        hipEventDestroy(event: hipEvent_t);
        hipEventRecord(event: hipEvent_t, stream: hipStream_t);
        hipEventQuery(event: hipEvent_t);
        hipEventSynchronize(event: hipEvent_t);
        hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t);

        hipMemGetInfo(free: *mut usize, total: *mut usize);
        hipMalloc(pointer: *mut *mut c_void, bytes: usize);
        hipFree(pointer: *mut c_void);
        hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostFree(pointer: *mut c_void);
        hipPointerGetAttribute(
            data: *mut c_void, attribute: hipPointer_attribute, pointer: hipDeviceptr_t,
        );
        hipMemGetAddressRange(
            base: *mut hipDeviceptr_t, bytes: *mut usize, pointer: hipDeviceptr_t,
        );

        hipMemcpyHtoDAsync(
            destination: hipDeviceptr_t, source: *mut c_void, bytes: usize, stream: hipStream_t,
        );
        hipMemcpyDtoHAsync(
            destination: *mut c_void, source: hipDeviceptr_t, bytes: usize, stream: hipStream_t,
        );
        hipMemcpyDtoDAsync(
            destination: hipDeviceptr_t, source: hipDeviceptr_t, bytes: usize, stream: hipStream_t,
        );
        hipMemsetD8Async(address: hipDeviceptr_t, value: u8, count: usize, stream: hipStream_t);
        hipMemsetD16Async(address: hipDeviceptr_t, value: u16, count: usize, stream: hipStream_t);
        hipMemsetD32Async(address: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t);

        hipModuleLoadData(module: *mut hipModule_t, image: *const c_void);
        hipModuleUnload(module: hipModule_t);
        hipModuleGetFunction(
            function: *mut hipFunction_t, module: hipModule_t, name: *const c_char,
        );
        hipModuleLaunchKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: hipStream_t,
            arguments: *mut *mut c_void, extra: *mut *mut c_void,
        );
    }
    newer versions {
        // ROCm 5.2 has these functions, but some other runtimes lack them. Without them there are defaults.
        hipDeviceGetUuid(uuid: *mut [u8; 16], device: hipDevice_t);
        hipDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: c_int);
        hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        hipFuncGetAttribute(
            value: *mut c_int, attribute: hipFunction_attribute, function: hipFunction_t,
        );
        hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: hipFunction_t, block: c_int, shared_bytes: usize,
        );
        hipModuleOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: hipFunction_t,
            shared_bytes: usize, most: c_int,
        );
        hipMallocManaged(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint);
        hipHostUnregister(pointer: *mut c_void);
        hipExtMallocWithFlags(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipStreamWaitValue32(
            stream: hipStream_t, pointer: *mut c_void, value: u32, flags: c_uint, mask: u32,
        );
        // Without it, a capture of another library may forbid waiting.
        hipThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        // 6.0. The suffix names the layout of the structure.
        hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int);
        // 5.6. Without it, a stream of another device is assumed to belong to this device.
        hipStreamGetDevice(stream: hipStream_t, device: *mut c_int);
        // 5.5. The older function supports only kernels that are linked into the program.
        hipModuleLaunchCooperativeKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: hipStream_t,
            arguments: *mut *mut c_void,
        );
    }
}

function_table! {
    /// The functions of memory pools.
    #[derive(Debug)]
    pub(crate) PoolFunctions:
    every version {
        hipMemPoolCreate(pool: *mut hipMemPool_t, properties: *const hipMemPoolProps);
        hipMemPoolDestroy(pool: hipMemPool_t);
        hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void);
        hipMemPoolGetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void);
        hipMemPoolSetAccess(pool: hipMemPool_t, access: *const hipMemAccessDesc, count: usize);
        hipMemPoolTrimTo(pool: hipMemPool_t, keep: usize);
        hipMallocFromPoolAsync(
            pointer: *mut *mut c_void, bytes: usize, pool: hipMemPool_t, stream: hipStream_t,
        );
        hipFreeAsync(pointer: *mut c_void, stream: hipStream_t);
    }
    newer versions {}
}

function_table! {
    /// The functions of graphs.
    #[derive(Debug)]
    pub(crate) GraphFunctions:
    every version {
        hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode);
        hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t);
        hipGraphInstantiateWithFlags(
            exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong,
        );
        hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t);
        hipGraphExecDestroy(exec: hipGraphExec_t);
        hipGraphDestroy(graph: hipGraph_t);
    }
    newer versions {}
}

function_table! {
    /// The functions of copies between devices.
    #[derive(Debug)]
    pub(crate) PeerFunctions:
    every version {
        hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
        hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint);
        hipMemcpyPeerAsync(
            destination: *mut c_void, destination_device: c_int,
            source: *const c_void, source_device: c_int, bytes: usize, stream: hipStream_t,
        );
    }
    newer versions {}
}

/// The runtime of this machine, loaded for the rest of the process.
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Library {
    pub(crate) functions: Functions,
    /// The functions of optional abilities. A runtime has all functions of an ability, or the ability is `None`.
    pub(crate) pools: Option<PoolFunctions>,
    pub(crate) graphs: Option<GraphFunctions>,
    pub(crate) peers: Option<PeerFunctions>,
    pub(crate) version: Version,
    /// The number of its devices, at least 1.
    pub(crate) devices: usize,
}

/// A version of HIP, in the runtime's format: 50221153 is 5.2.21153.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) c_int);

impl Version {
    pub(crate) fn major(self) -> c_int {
        self.0 / 10_000_000
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.0 / 100_000 % 100, self.0 % 100_000)
    }
}

/// The runtime. The search runs once per process.
///
/// # Errors
///
/// `Unavailable` if there is no runtime or no device, or the runtime or driver is too old; `Driver` if the runtime is
/// broken.
pub(crate) fn library() -> Result<&'static Library> {
    static PROBED: OnceLock<Result<Library, Refusal>> = OnceLock::new();
    PROBED.get_or_init(|| probe(find())).as_ref().map_err(Refusal::error)
}

/// The library of the runtime, which may contain the compiler.
pub(crate) fn find() -> Result<libloading::Library, String> {
    match named(VARIABLE) {
        Some(path) => load(&[&path]),
        None => load_any(&NAMES.map(str::to_owned)),
    }
}

/// Loads the first library with one of these names that the system finds, or that is in a folder of ROCm.
pub(crate) fn load_any(names: &[String]) -> Result<libloading::Library, String> {
    let variables = ["HIP_PATH", "ROCM_PATH"].map(|variable| env::var(variable).ok());
    let places = places(names, variables.into_iter().flatten().chain([ROCM.to_owned()]));
    load(&places.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The names, followed by the files with these names in these folders of ROCm.
fn places(names: &[String], folders: impl Iterator<Item = String>) -> Vec<String> {
    let folders = folders.filter(|folder| !folder.is_empty());
    let files =
        folders.flat_map(|folder| names.iter().map(move |name| format!("{folder}/lib/{name}")));
    names.iter().cloned().chain(files).collect()
}

fn probe(found: Result<libloading::Library, String>) -> Result<Library, Refusal> {
    let unavailable = |message| Refusal::new(ErrorKind::Unavailable, message);
    let library = found.map_err(|why| unavailable(format!("no HIP runtime: {why}")))?;
    let version = runtime_version(&library)?;
    let functions = Functions::bind(&library).map_err(|symbol| {
        unavailable(format!("HIP {version} has no function {symbol}, which a runtime must have"))
    })?;
    let (pools, graphs, peers) = (
        PoolFunctions::bind(&library).ok(),
        GraphFunctions::bind(&library).ok(),
        PeerFunctions::bind(&library).ok(),
    );
    // The library is never unloaded: the runtime keeps threads, and state that its handles point to.
    std::mem::forget(library);
    // SAFETY: this is the first call, and its flags are valid.
    let code = unsafe { (functions.hipInit)(0) };
    refuse(code, version, || functions.name(code), "the runtime cannot be initialised")?;
    let mut devices = 0;
    // SAFETY: the number is written to a valid place.
    let code = unsafe { (functions.hipGetDeviceCount)(&mut devices) };
    refuse(code, version, || functions.name(code), "the runtime does not list its devices")?;
    match usize::try_from(devices) {
        Ok(devices) if devices > 0 => {
            Ok(Library { functions, pools, graphs, peers, version, devices })
        }
        _ => Err(unavailable(format!("HIP {version}, but no device"))),
    }
}

/// Queries the version. Every runtime reports it before it is initialised.
fn runtime_version(library: &libloading::Library) -> Result<Version, Refusal> {
    // SAFETY: the headers of the runtime declare this type.
    let function =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> u32>("hipRuntimeGetVersion") }
            .map_err(|error| {
            Refusal::new(ErrorKind::Driver, format!("this is no HIP runtime: {}", reason(&error)))
        })?;
    let mut version = 0;
    // SAFETY: the number is written to a valid place.
    let code = unsafe { function(&mut version) };
    let what = "the runtime does not report its version";
    refuse(code, Version(version), || UNKNOWN, what)?;
    Ok(Version(version))
}

/// Converts codes of an unusable runtime to refusals. Some codes mean that there is no device.
fn refuse(
    code: u32,
    version: Version,
    name: impl Fn() -> &'static str,
    what: &str,
) -> Result<(), Refusal> {
    const NO_DEVICE: u32 = hipError_t::hipErrorNoDevice as u32;
    const INVALID_DEVICE: u32 = hipError_t::hipErrorInvalidDevice as u32;
    const INSUFFICIENT_DRIVER: u32 = hipError_t::hipErrorInsufficientDriver as u32;
    let (kind, message) = match code {
        0 => return Ok(()),
        // The version determines which of the two codes is returned.
        NO_DEVICE | INVALID_DEVICE => {
            (ErrorKind::Unavailable, format!("HIP {version}, but no device"))
        }
        INSUFFICIENT_DRIVER => {
            (ErrorKind::Unavailable, format!("HIP {version}, but too old a kernel driver for it"))
        }
        _ => (ErrorKind::Driver, what.to_owned()),
    };
    Err(Refusal { kind, message, code: Some((name(), code)) })
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HIP {}", self.version)
    }
}

impl Functions {
    /// The symbolic name of a code.
    pub(crate) fn name(&self, code: u32) -> &'static str {
        // SAFETY: the function accepts any code.
        let name = unsafe { (self.hipGetErrorName)(code) };
        // SAFETY: the text stays, since the runtime is never unloaded.
        unsafe { text_at(name) }.unwrap_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_unavailable() {
        let refusal = probe(load(&["libamdhip64-that-is-nowhere.so"])).err().unwrap();
        assert_eq!(refusal.kind, ErrorKind::Unavailable);
        assert!(refusal.message.contains("no HIP runtime"), "{}", refusal.message);
        assert!(refusal.message.contains("that-is-nowhere"), "{}", refusal.message);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_no_runtime() {
        let refusal = probe(load(&["libc.so.6"])).err().unwrap();
        assert_eq!(refusal.kind, ErrorKind::Driver);
        assert!(refusal.message.contains("no HIP runtime"), "{}", refusal.message);
        for named in ["hipRuntimeGetVersion", "libc.so.6"] {
            assert!(refusal.message.contains(named), "{}", refusal.message);
        }
    }

    #[test]
    fn the_search_path_of_the_system_comes_before_the_rocm_folders() {
        let names = ["a.so.6".to_owned(), "a.so".to_owned()];
        let folders = ["/home/rocm", "", ROCM].map(str::to_owned);
        let expected = [
            "a.so.6",
            "a.so",
            "/home/rocm/lib/a.so.6",
            "/home/rocm/lib/a.so",
            "/opt/rocm/lib/a.so.6",
            "/opt/rocm/lib/a.so",
        ];
        assert_eq!(places(&names, folders.into_iter()), expected);
    }

    #[test]
    fn missing_and_broken_libraries_differ() {
        let version = Version(50_221_153);
        for (code, kind, message) in [
            (100, ErrorKind::Unavailable, "HIP 5.2.21153, but no device [name (100)]"),
            (101, ErrorKind::Unavailable, "HIP 5.2.21153, but no device [name (101)]"),
            (
                35,
                ErrorKind::Unavailable,
                "HIP 5.2.21153, but too old a kernel driver for it [name (35)]",
            ),
            (999, ErrorKind::Driver, "broken [name (999)]"),
        ] {
            let error = refuse(code, version, || "name", "broken").unwrap_err().error();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(message), "{error}");
        }
        assert!(refuse(0, version, || "", "").is_ok());
    }

    #[test]
    fn the_documentation_lists_required_and_optional_functions() {
        let page = include_str!("../../../docs/hip.md");
        let (_, lists) = page.split_once("### Functions of the runtime").unwrap();
        let (needed, others) =
            lists.split("\n## ").next().unwrap().split_once("without them").unwrap();
        let tables = include_str!("library.rs").split_once("#[cfg(test)]").unwrap().0;
        for (index, table) in tables.split("function_table! {").skip(1).enumerate() {
            let table = table.split("\n}\n").next().unwrap();
            let (every, newer) = table.split_once("newer versions").unwrap();
            let first = if index == 0 { needed } else { others };
            for (functions, list) in [(every, first), (newer, others)] {
                for line in functions.lines().map(str::trim).filter(|line| line.starts_with("hip"))
                {
                    let name = line.split('(').next().unwrap();
                    assert!(list.contains(&format!("`{name}`")), "{name}");
                }
            }
        }
    }

    #[test]
    fn version_numbers_are_decoded() {
        assert_eq!(Version(50_221_153).to_string(), "5.2.21153");
        assert_eq!(Version(60_342_134).to_string(), "6.3.42134");
        assert_eq!(Version(70_051_831).major(), 7);
    }
}
