use std::env;

use backend_hip::{HipBackend, HipConfig, HipDevice};
use runtime_core::{Device, ImageFormat, Kernel, ModuleImage, Result};

use crate::common::source;

pub(crate) const NAME: &str = "hip";
pub(crate) const FIRST: &str = "hip:0";
pub(crate) const WHAT: &str = "HIP runtime";
pub(crate) const SOURCE: ImageFormat = ImageFormat::HipC;
/// Formats that are not compiled.
pub(crate) const READY: [ImageFormat; 1] = [ImageFormat::CodeObject];

/// Variables that name libraries, and the name without one.
pub(crate) const LIBRARY: &str = "BACKEND_HIP_LIBRARY";
pub(crate) const LIBRARY_NAME: &str = "libamdhip64.so";
pub(crate) const COMPILER: &str = "BACKEND_HIPRTC_LIBRARY";

/// The text of an error about another library, or about a missing compiler.
pub(crate) const VERSION: &str = "hipRuntimeGetVersion";
pub(crate) const NO_COMPILER: &str =
    "the image is HIP C; the device takes code object; no HIP C here: ";

/// Names of codes: how they begin, and some of them.
pub(crate) const CODES: &str = "hipError";
pub(crate) const OUT_OF_MEMORY: &str = "hipErrorOutOfMemory";
pub(crate) const COMPILER_CODES: &str = "HIPRTC_ERROR_";
pub(crate) const COMPILATION: &str = "HIPRTC_ERROR_COMPILATION";

/// The option that names an architecture, and the file of a compiled program.
pub(crate) const ARCHITECTURE: &str = "--offload-arch=";
pub(crate) const PROGRAM: &str = "program.hsaco";

/// Whether the kernel of region copies is compiled, and whether the code distinguishes pointers from 64-bit numbers.
pub(crate) const COMPILES_ITS_KERNELS: bool = true;
pub(crate) const KNOWS_POINTERS: bool = true;

/// Functions of the runtime.
pub(crate) const SET_CURRENT: &str = "hipSetDevice";
pub(crate) const STREAM_CREATE: &str = "hipStreamCreateWithPriority";
pub(crate) const STREAM_DESTROY: &str = "hipStreamDestroy";
pub(crate) const CAPTURE_BEGIN: &str = "hipStreamBeginCapture";
pub(crate) const CAPTURE_END: &str = "hipStreamEndCapture";
pub(crate) const GRAPH_DESTROY: &str = "hipGraphDestroy";

/// The variable by which the stand-in does as some versions; what becomes of faults: one is of its device alone, stays
/// until the process ends, or ends the process.
pub(crate) const QUIRKS: &str = "STAND_IN_HIP_QUIRKS";
pub(crate) const FAULTS: [&str; 3] = ["", "lasting-faults", "ending-faults"];
pub(crate) const STOPS_WITHOUT_COMPILER: bool = false;

/// The runtime's own streams, what is none, and what the errors say.
pub(crate) const DEFAULT_STREAMS: [usize; 1] = [0];
pub(crate) const NO_STREAMS: &[usize] = &[1, 2];
pub(crate) const WHICH_STREAMS: &str = "the default stream is 0";
pub(crate) const OF_ANOTHER: &str = "belongs to device 1";

/// Versions that differ in the numbers of kinds of memory, as set for the stand-in.
pub(crate) const STAND_IN_VERSION: &str = "STAND_IN_HIP_VERSION";
pub(crate) const VERSIONS: &[&str] = &["50221153", "60000000"];

pub(crate) fn backend() -> HipBackend {
    HipBackend::new()
}

pub(crate) fn open(ordinal: usize) -> Result<HipDevice> {
    HipDevice::open(ordinal, &HipConfig::new())
}

/// A kernel that is stopped when it runs.
pub(crate) fn stopping(device: &Device) -> Kernel {
    let kernels = device.module_load_bundle(&conformance::kernels::hip_c()).unwrap();
    kernels.kernel("fault").unwrap()
}

/// A kernel that does nothing, unless there is no compiler.
pub(crate) fn nothing(device: &Device) -> Option<Kernel> {
    let module = device.module_load(source("extern \"C\" __global__ void nothing() {}")).ok()?;
    Some(module.kernel("nothing").unwrap())
}

/// Whether the runtime may end the process when a program is stopped: the stand-in does on demand alone.
pub(crate) fn faults_may_end_the_process(variables: &[(&str, &str)]) -> bool {
    let library = env::var(LIBRARY).unwrap_or_default();
    !library.ends_with("libstandin_hip.so") || variables.contains(&(QUIRKS, "ending-faults"))
}

/// Images that are refused, and what the errors say.
pub(crate) fn broken_images() -> Vec<(ModuleImage<'static>, &'static str)> {
    let code = |bytes: &'static [u8]| ModuleImage::binary(ImageFormat::CodeObject, bytes);
    vec![
        (code(b"something"), "neither"),
        (code(b"\x7fELF\x02\x01"), "beyond its end"),
        (code(b"__CLANG_OFFLOAD_BUNDLE__\x01"), "beyond its end"),
        (ModuleImage::source(ImageFormat::CodeObject, "text"), "another kind"),
    ]
}
