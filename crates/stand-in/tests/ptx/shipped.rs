//! PTX that is shipped with its source is what NVRTC 12.0 makes of it.
//!
//! Runs where `BACKEND_CUDA_NVRTC` names an NVRTC 12.0. With `UPDATE_PTX=1` it writes what is outdated instead.

use std::path::Path;
use std::{env, fs};

use crate::nvrtc::{compile, compiler};
use backend_support::{Binding, Dialect, Mapping, RegionKernel};

const ARCHITECTURE: &str = "--gpu-architecture=compute_60";
/// With the oldest sufficient standard, the compiler adds no variables of its own headers.
const OLDEST: &str = "--std=c++03";
/// The standard of region copies, which use `_Pragma`.
const REGION: &str = "--std=c++11";

#[test]
fn shipped_ptx_is_up_to_date() {
    let Some(nvrtc) = compiler() else { return };
    if nvrtc.version() != (12, 0) {
        eprintln!("skipped: the compiler is of version {:?}, not (12, 0)", nvrtc.version());
        return;
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let source_of = |path: &str| {
        let ptx = crates.join(path);
        (fs::read_to_string(ptx.with_extension("cu")).unwrap(), ptx, OLDEST)
    };
    let region = RegionKernel::new(Mapping::Lanes, Binding::Parameters(4), true).unwrap();
    let region = region.source(Dialect::CudaC);
    let shipped = [
        source_of("conformance/src/kernels/kernels.ptx"),
        source_of("stand-in/tests/ptx/data/diffusion.ptx"),
        source_of("stand-in/tests/ptx/data/threads.ptx"),
        (region, crates.join("stand-in/tests/ptx/data/region_copy.ptx"), REGION),
    ];
    for (source, path, standard) in shipped {
        let fresh = compile(nvrtc, &source, &[ARCHITECTURE, standard]);
        if env::var_os("UPDATE_PTX").is_some_and(|value| value == "1") {
            fs::write(&path, fresh).unwrap();
        } else {
            let kept = fs::read_to_string(&path).unwrap();
            assert!(kept == fresh, "{} is outdated: set UPDATE_PTX=1", path.display());
        }
    }
}
