use backend_cuda::{CudaBackend, CudaConfig, CudaDevice};
use runtime_core::{Device, ImageFormat, Kernel, ModuleImage, Result};

pub(crate) const NAME: &str = "cuda";
pub(crate) const FIRST: &str = "cuda:0";
pub(crate) const WHAT: &str = "CUDA driver";
pub(crate) const SOURCE: ImageFormat = ImageFormat::CudaC;
/// Formats that are not compiled.
pub(crate) const READY: [ImageFormat; 2] = [ImageFormat::Ptx, ImageFormat::Cubin];

/// Variables that name libraries, and the name without one.
pub(crate) const LIBRARY: &str = "BACKEND_CUDA_DRIVER";
pub(crate) const LIBRARY_NAME: &str = "libcuda.so.1";
pub(crate) const COMPILER: &str = "BACKEND_CUDA_NVRTC";

/// The text of an error about another library, or about a missing compiler.
pub(crate) const VERSION: &str = "cuDriverGetVersion";
pub(crate) const NO_COMPILER: &str =
    "the image is CUDA C; the device takes cubin, PTX; no CUDA C here: BACKEND_CUDA_NVRTC=";

/// Names of codes: how they begin, and some of them.
pub(crate) const CODES: &str = "CUDA_ERROR_";
pub(crate) const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";
pub(crate) const COMPILER_CODES: &str = "NVRTC_ERROR_";
pub(crate) const COMPILATION: &str = "NVRTC_ERROR_COMPILATION";

/// The option that names an architecture, and the file of a compiled program.
pub(crate) const ARCHITECTURE: &str = "--gpu-architecture=";
pub(crate) const PROGRAM: &str = "program.ptx";

/// Whether the kernel of region copies is compiled, and whether the code distinguishes pointers from 64-bit numbers.
pub(crate) const COMPILES_ITS_KERNELS: bool = false;
pub(crate) const KNOWS_POINTERS: bool = false;

/// Functions of the driver.
pub(crate) const SET_CURRENT: &str = "cuCtxSetCurrent";
pub(crate) const STREAM_CREATE: &str = "cuStreamCreateWithPriority";
pub(crate) const STREAM_DESTROY: &str = "cuStreamDestroy_v2";
pub(crate) const CAPTURE_BEGIN: &str = "cuStreamBeginCapture_v2";
pub(crate) const CAPTURE_END: &str = "cuStreamEndCapture";
pub(crate) const GRAPH_DESTROY: &str = "cuGraphDestroy";

/// The variable by which the stand-in does as some versions; what becomes of faults.
pub(crate) const QUIRKS: &str = "STAND_IN_CUDA_QUIRKS";
pub(crate) const FAULTS: [&str; 2] = ["", "lasting-faults"];
pub(crate) const STOPS_WITHOUT_COMPILER: bool = true;

/// The driver's own streams, what is none, and what the errors say.
pub(crate) const DEFAULT_STREAMS: [usize; 2] = [1, 2];
pub(crate) const NO_STREAMS: &[usize] = &[0];
pub(crate) const WHICH_STREAMS: &str = "1 is the legacy one";
pub(crate) const OF_ANOTHER: &str = "another context";

/// Versions that differ in the numbers of kinds of memory, as set for the stand-in.
pub(crate) const STAND_IN_VERSION: &str = "STAND_IN_VERSION";
pub(crate) const VERSIONS: &[&str] = &["12040"];

const PTX: &str = "
.version 7.0
.target sm_60
.address_size 64
.visible .entry stop(.param .u64 x) { trap; }
.visible .entry nothing() { ret; }
";

pub(crate) fn backend() -> CudaBackend {
    CudaBackend::new()
}

pub(crate) fn open(ordinal: usize) -> Result<CudaDevice> {
    CudaDevice::open(ordinal, &CudaConfig::new())
}

fn kernel(device: &Device, name: &str) -> Kernel {
    device.module_load(ModuleImage::source(ImageFormat::Ptx, PTX)).unwrap().kernel(name).unwrap()
}

/// A kernel that is stopped when it runs.
pub(crate) fn stopping(device: &Device) -> Kernel {
    kernel(device, "stop")
}

/// A kernel that does nothing, unless there is none without a compiler.
pub(crate) fn nothing(device: &Device) -> Option<Kernel> {
    Some(kernel(device, "nothing"))
}

pub(crate) fn faults_may_end_the_process(_: &[(&str, &str)]) -> bool {
    false
}

/// Images that are refused, and what the errors say.
pub(crate) fn broken_images() -> Vec<(ModuleImage<'static>, &'static str)> {
    let cubin = |bytes: &'static [u8]| ModuleImage::binary(ImageFormat::Cubin, bytes);
    vec![
        (ModuleImage::source(ImageFormat::Ptx, ".version\0"), "NUL at byte 8"),
        (ModuleImage::binary(ImageFormat::Ptx, &b"\xff"[..]), "UTF-8"),
        (cubin(b"something"), "neither"),
        (cubin(b"\x7fELF\x02\x01"), "headers"),
        (ModuleImage::source(ImageFormat::Cubin, "text"), "another kind"),
    ]
}
