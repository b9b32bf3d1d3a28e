//! Modules: what compilers and the runtime say, and what is refused before they see it.

use std::fs;

use runtime_core::contract::ParamKind;
use runtime_core::{Device, Error, ErrorKind, ImageFormat, ModuleImage};

use crate::{open, open_with_compiler, source};

fn refused(device: &Device, image: ModuleImage<'_>) -> Error {
    let error = device.module_load(image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
    error
}

#[test]
fn the_compilers_log_is_in_the_error() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let error =
        refused(&device, source("extern \"C\" __global__ void k() {\n  int x = nothing;\n}"));
    let log = error.log().unwrap();
    assert!(log.contains("nothing"), "{log}");
    assert!(error.message().contains("error"), "{error}");
    assert_eq!(error.driver().unwrap().name, "HIPRTC_ERROR_COMPILATION");
    let error = refused(&device, source("int i;").with_options(["--no-such-option"]));
    // Versions differ in what they call it.
    assert!(error.driver().unwrap().name.starts_with("HIPRTC_ERROR_"), "{error}");
}

#[test]
fn a_source_of_nothing_is_refused() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let error = refused(&device, source(""));
    assert_eq!(error.driver().unwrap().name, "HIPRTC_ERROR_INVALID_INPUT");
}

#[test]
fn code_that_no_runtime_should_see_is_refused() {
    let Some(device) = open("") else { return };
    let code = |bytes: &'static [u8]| ModuleImage::binary(ImageFormat::CodeObject, bytes);
    for (image, expected) in [
        (code(b"something"), "neither"),
        (code(b"\x7fELF\x02\x01"), "beyond its end"),
        (code(b"__CLANG_OFFLOAD_BUNDLE__\x01"), "beyond its end"),
        (ModuleImage::source(ImageFormat::CodeObject, "text"), "another kind"),
    ] {
        let error = refused(&device, image);
        assert!(error.message().contains(expected), "{error}");
    }
}

/// The stand-in has no compiler of SPIR-V, and says so in the runtime's words.
#[test]
fn spirv_in_a_bundle_is_left_to_the_runtime() {
    let Some(device) = open("") else { return };
    let (name, spirv) =
        ("hip-spirv64-amd-amdhsa--amdgcnspirv", [0x0723_0203_u32, 0x1_0600, 0, 1, 0]);
    let spirv = spirv.map(u32::to_le_bytes);
    let head = 24 + 8 + 24 + name.len();
    let numbers =
        [1, head, spirv.as_flattened().len(), name.len()].map(|n| (n as u64).to_le_bytes());
    let magic = b"__CLANG_OFFLOAD_BUNDLE__";
    let bundle =
        [&magic[..], numbers.as_flattened(), name.as_bytes(), spirv.as_flattened()].concat();
    let image = ModuleImage::binary(ImageFormat::CodeObject, bundle);
    let Err(error) = device.module_load(image) else { return };
    assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
    assert!(error.message().contains("amdgcnspirv") && error.driver().is_some(), "{error}");
}

#[test]
fn parameters_are_those_of_the_loaded_kernel() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let text = "struct S { double a; int b[3]; };
        extern \"C\" __global__ void k(float *x, char a, short b, int c, long long d, float e, double f, S s) {}
        extern \"C\" __global__ void none() {}";
    let module = device.module_load(source(text)).unwrap();
    let kernel = module.kernel("k").unwrap();
    let parameters = kernel.parameters().unwrap();
    let sizes: Vec<_> = parameters.iter().map(|p| p.size.unwrap_or(8)).collect();
    assert_eq!(sizes, [8, 1, 2, 4, 8, 4, 8, 24]);
    let is_value: Vec<_> = parameters.iter().map(|p| p.kind == ParamKind::Value).collect();
    assert_eq!(is_value, [false, true, true, true, true, true, true, true]);
    assert_eq!(module.kernel("none").unwrap().parameters().unwrap(), []);
    let missing = module.kernel("K").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::KernelNotFound);
    assert!(missing.message().contains("\"K\""), "{missing}");
}

#[test]
fn intermediates_are_kept_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let text = "extern \"C\" __global__ void k() {}";
    let folders = || fs::read_dir(folder.path()).unwrap().count();
    {
        let Some(device) = open_with_compiler(&format!("?work-dir={path}")) else { return };
        let module = device.module_load(source(text)).unwrap();
        assert_eq!(folders(), 1);
        drop(module);
        assert_eq!(folders(), 0, "the folder was not removed with its module");
    }
    let Some(device) = open_with_compiler(&format!("?work-dir={path}&keep=on")) else { return };
    drop(device.module_load(source(text)).unwrap());
    refused(&device, source("nonsense"));
    assert_eq!(folders(), 2);
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap().path();
        let options = fs::read_to_string(entry.join("options")).unwrap();
        assert!(options.contains("--offload-arch="), "{options}");
        let log = fs::read_to_string(entry.join("build.log")).unwrap();
        assert_eq!(log.contains("error"), !entry.join("program.hsaco").exists());
    }
}

#[test]
fn nothing_can_be_kept_nowhere() {
    let selector = "hip:0?keep=on".parse().unwrap();
    let error = runtime_core::Driver::open(&backend_hip::HipDriver::new(), &selector).unwrap_err();
    let expected = [ErrorKind::InvalidArgument, ErrorKind::Unavailable];
    assert!(expected.contains(&error.kind()), "{error}");
}
