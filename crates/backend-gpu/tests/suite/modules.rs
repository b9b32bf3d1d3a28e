//! Modules: what compilers and the library say, and what is refused before they see it.

use std::fs;

use runtime_core::contract::ParamKind;
use runtime_core::{Device, Error, ErrorKind, ModuleImage};

use crate::common::{open, open_with_compiler, source};
use crate::vendor;

pub(crate) fn refused(device: &Device, image: ModuleImage<'_>) -> Error {
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
    assert_eq!(error.driver().unwrap().name, vendor::COMPILATION);
    let error = refused(&device, source("int i;").with_options(["--no-such-option"]));
    // Versions differ in what they call it.
    assert!(error.driver().unwrap().name.starts_with(vendor::COMPILER_CODES), "{error}");
}

#[test]
fn code_that_no_library_should_see_is_refused() {
    let Some(device) = open("") else { return };
    for (image, expected) in vendor::broken_images() {
        let error = refused(&device, image);
        assert!(error.message().contains(expected), "{error}");
    }
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
    assert_eq!(is_value, [false, true, true, true, vendor::KNOWS_POINTERS, true, true, true]);
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
        assert!(options.contains(vendor::ARCHITECTURE), "{options}");
        let log = fs::read_to_string(entry.join("build.log")).unwrap();
        assert_eq!(log.contains("error"), !entry.join(vendor::PROGRAM).exists());
    }
}

#[test]
fn keeping_intermediates_without_a_folder_is_refused() {
    let selector = format!("{}?keep=on", vendor::FIRST).parse().unwrap();
    let error = runtime_core::Backend::open(&vendor::backend(), &selector).unwrap_err();
    let expected = [ErrorKind::InvalidArgument, ErrorKind::Unavailable];
    assert!(expected.contains(&error.kind()), "{error}");
}

#[test]
fn options_that_no_compiler_reads_are_refused() {
    let Some(device) = open("") else { return };
    for format in vendor::READY {
        let image = ModuleImage::source(format, "").with_options(["-lineinfo"]);
        let error = device.module_load(image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let expected = format!("an image of {format} takes no options: \"-lineinfo\"");
        assert_eq!(error.message(), expected);
    }
}
