//! The compiler that `BACKEND_CUDA_NVRTC` names.

use std::env;
use std::ffi::CString;

use stand_in::nvrtc::{Nvrtc, Source};

/// The compiler. Without one, prints that the test is skipped.
pub(super) fn compiler() -> Option<&'static Nvrtc> {
    if env::var_os("BACKEND_CUDA_NVRTC").is_none() {
        eprintln!("skipped: BACKEND_CUDA_NVRTC does not name the library of a compiler");
        return None;
    }
    Some(Nvrtc::named().unwrap())
}

/// The oldest architecture that this version compiles for.
pub(super) fn architecture(nvrtc: &Nvrtc) -> &'static str {
    if nvrtc.version().0 < 13 { "compute_60" } else { "compute_75" }
}

/// The PTX of a source. Panics with the log of the compiler if there are errors.
pub(super) fn compile(nvrtc: &Nvrtc, source: &str, options: &[&str]) -> String {
    let text = |text: &str| CString::new(text).unwrap();
    let options = options.iter().map(|option| text(option)).collect();
    let source =
        Source { name: text("kernels.cu"), text: text(source), options, ..Source::default() };
    nvrtc.compile(&source).unwrap_or_else(|log| panic!("{log}")).ptx
}
