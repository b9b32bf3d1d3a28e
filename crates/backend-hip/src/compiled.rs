//! Tests that hiprtc and hipcc compile every kernel, and that its parameters can be read. They need these compilers but
//! no GPU.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{Write, stderr};
use std::process::Command;

use backend_gpu::BuiltinKernel;
use backend_support::{Binding, RegionKernel};
use runtime_core::contract::{ParamInfo, ParamKind};
use runtime_core::{DType, ErrorKind, ImageCode};

use crate::code_object::{self, Metadata};
use crate::hiprtc::{Compiler, compiler};
use crate::kernels::{self, ALL};
use crate::library::Version;

/// One GPU of CDNA 2 and one of RDNA 2.
const ARCHITECTURES: [&str; 2] = ["gfx90a", "gfx1030"];
/// The variable that names hipcc. The test does not search for it.
const HIPCC: &str = "BACKEND_HIP_HIPCC";

fn skip(why: &str) {
    drop(writeln!(stderr(), "skipped: {why}"));
}

/// The compiler, if it supports these architectures.
fn found() -> Option<&'static Compiler> {
    const ROCM: Version = Version(50_200_000);
    let compiler = compiler(ROCM).map_err(skip).ok()?;
    let nothing =
        compiler.compile(c"__global__ void none() {}", &[c"--offload-arch=gfx90a".to_owned()]);
    if let Ok(nothing) = &nothing
        && code_object::read(&nothing.code, "").is_ok_and(|read| read.target == "gfx90a")
    {
        return Some(compiler);
    }
    skip("the compiler makes no code for gfx90a");
    None
}

/// The text of the conformance suite's kernels.
fn conformance() -> String {
    let bundle = conformance::kernels::hip_c();
    match bundle.images()[0].code() {
        ImageCode::Text(text) => text.clone().into_owned(),
        _ => panic!("the suite's kernels are text"),
    }
}

fn value(dtype: DType) -> ParamInfo {
    ParamInfo::new(ParamKind::Value).with_size(dtype.size())
}

const MEMORY: ParamInfo = ParamInfo::new(ParamKind::Memory);

/// Checks the parameters of the suite's kernels.
fn check_conformance(metadata: &Metadata) {
    let saxpy = [MEMORY, MEMORY, value(DType::F32), value(DType::U32)];
    assert_eq!(metadata.kernel("saxpy"), Some(&saxpy[..]));
    let values = [
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F32,
        DType::F64,
    ];
    let many: Vec<ParamInfo> =
        [MEMORY].into_iter().chain(values.map(value)).chain([MEMORY]).collect();
    assert_eq!(metadata.kernel("many_arguments"), Some(&many[..]));
    assert_eq!(metadata.kernel("no_such_kernel"), None);
}

#[test]
fn hiprtc_compiles_every_kernel() {
    let Some(compiler) = found() else { return };
    for architecture in ARCHITECTURES {
        let compile = |source: &str| {
            let option = CString::new(format!("--offload-arch={architecture}")).unwrap();
            let compiled = compiler.compile(&CString::new(source).unwrap(), &[option]).unwrap();
            let metadata = code_object::read(&compiled.code, architecture).unwrap();
            assert_eq!(metadata.target, architecture);
            metadata
        };
        check_conformance(&compile(&conformance()));
        for kernel in ALL {
            let metadata = compile(&kernels::source(kernel).unwrap());
            let list = |addresses: usize| value(DType::U64).with_size(8 * addresses);
            let pair = [MEMORY, value(DType::U64)];
            let (name, of_slots) = match kernel {
                BuiltinKernel::Regions(Binding::Parameters(slots)) => {
                    ("region_copy", pair.repeat(slots))
                }
                BuiltinKernel::Regions(Binding::List(slots)) => ("region_copy", vec![list(slots)]),
                BuiltinKernel::Regions(Binding::Table) => ("region_copy", vec![MEMORY]),
                BuiltinKernel::RegionTable => {
                    ("region_table", vec![list(RegionKernel::MAX_LISTED)])
                }
            };
            assert_eq!(metadata.kernel(name), Some(&[&pair[..], &of_slots].concat()[..]));
        }
        compile(include_str!("../../stand-in/tests/ptx/data/diffusion.cu"));
    }
}

#[test]
fn errors_of_hiprtc_have_its_log() {
    let Some(compiler) = found() else { return };
    let source = c"extern \"C\" __global__ void k() {\n  int x = nothing;\n}";
    let error = compiler.compile(source, &[c"--offload-arch=gfx90a".to_owned()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    assert_eq!(error.driver().unwrap().name, "HIPRTC_ERROR_COMPILATION");
    assert!(error.message().contains("nothing"), "{error}");
    assert!(error.log().unwrap().contains("nothing"), "{error:?}");
}

/// hipcc makes bundles of code objects.
#[test]
fn hipcc_compiles_every_kernel() {
    let Some(hipcc) = env::var_os(HIPCC) else { return skip("BACKEND_HIP_HIPCC names no hipcc") };
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("kernels.hip"), folder.path().join("kernels.hsaco"));
    for text in
        ALL.map(|kernel| kernels::source(kernel).unwrap()).into_iter().chain([conformance()])
    {
        fs::write(&source, &text).unwrap();
        let mut command = Command::new(&hipcc);
        command.args(["--genco", "-O3", "-include", "hip/hip_runtime.h"]);
        command.arg("-Rpass-analysis=kernel-resource-usage");
        command.args(ARCHITECTURES.map(|architecture| format!("--offload-arch={architecture}")));
        let output = command.arg(&source).arg("-o").arg(&binary).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{reported}");
        // Kernels read addresses directly, and not from a copy in each work-item's private memory.
        let nothing = reported.lines().filter(|line| line.contains("ScratchSize [bytes/lane]: 0"));
        assert!(text.contains("saxpy") || nothing.count() == ARCHITECTURES.len(), "{reported}");
        let binary = fs::read(&binary).unwrap();
        for architecture in ARCHITECTURES {
            let metadata = code_object::read(&binary, architecture).unwrap();
            assert_eq!(metadata.target, architecture);
            if text.contains("saxpy") {
                check_conformance(&metadata);
            } else {
                let kernels = ["region_copy", "region_table"];
                assert!(kernels.iter().any(|name| metadata.kernel(name).is_some()));
            }
        }
        let cut = code_object::read(&binary[..binary.len() - 1000], ARCHITECTURES[0]);
        assert!(cut.unwrap_err().contains("beyond its end"));
    }
}
