//! What is HIP's alone: code objects, the environment of its compiler, what some versions of the runtime do.

use std::path::{Path, PathBuf};
use std::{env, fs};

use runtime_core::{ErrorKind, ImageFormat, ModuleImage};

use crate::absence::tell;
use crate::cache::{build_and_run, entries};
use crate::common::{in_child, is_child, open, open_with_compiler, skip, source};
use crate::memory::more_than_there_is_is_refused_and_leaves_the_device_usable;
use crate::modules::refused;
use crate::vendor::QUIRKS;

/// What is found was made by the same compiler, with the options that it takes from the environment.
#[test]
fn another_compiler_makes_another_program() {
    const TEST: &str = "own::another_compiler_makes_another_program";
    const FOLDER: &str = "HIP_TEST_CACHE";
    if let Some(folder) = env::var_os(FOLDER) {
        build_and_run(Path::new(&folder));
        return;
    }
    let (cache, libraries) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if !build_and_run(cache.path()) {
        return;
    }
    let library = PathBuf::from(env::var_os("BACKEND_HIP_LIBRARY").unwrap_or_default());
    if !library.ends_with("libstandin_hip.so") {
        return skip("BACKEND_HIP_LIBRARY does not name the stand-in, a file that can be copied");
    }
    let copy = libraries.path().join("another.so");
    fs::copy(library, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let folder = cache.path().to_str().unwrap();
    for (variable, entries_then) in [
        ((FOLDER, folder), 1),
        (("HIPRTC_COMPILE_OPTIONS_APPEND", "-DA"), 2),
        (("HIPRTC_LINK_OPTIONS_APPEND", "-DA"), 3),
        (("BACKEND_HIPRTC_LIBRARY", copy), 4),
    ] {
        in_child(TEST, &[(FOLDER, folder), variable]);
        assert_eq!(entries(cache.path()).len(), entries_then, "{variable:?}");
    }
}

/// Some versions of the runtime tell success there, and give no address.
#[test]
fn a_pool_that_gives_no_address_has_no_room() {
    const TEST: &str = "own::a_pool_that_gives_no_address_has_no_room";
    if !is_child() {
        in_child(TEST, &[(QUIRKS, "null-memory")]);
        return;
    }
    more_than_there_is_is_refused_and_leaves_the_device_usable();
}

#[test]
fn a_source_of_nothing_is_refused() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let error = refused(&device, source(""));
    assert_eq!(error.driver().unwrap().name, "HIPRTC_ERROR_INVALID_INPUT");
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

/// With what the system has, whatever the caller has named: a device, or a reason for none.
#[test]
fn a_machine_without_a_gpu_is_not_broken() {
    if is_child() {
        return tell();
    }
    let variables = [("BACKEND_HIP_LIBRARY", ""), ("HIP_VISIBLE_DEVICES", "")];
    let text = in_child("own::a_machine_without_a_gpu_is_not_broken", &variables);
    let reasons = ["no HIP runtime", "but no device", "has no function"];
    let reason = text.contains("Unavailable: ") && reasons.iter().any(|why| text.contains(why));
    assert!(reason || text.contains(" devices"), "{text}");
}

/// The stand-in has no compiler of its own.
#[test]
fn no_compiler_of_the_stand_in() {
    let test = "own::no_compiler_of_the_stand_in";
    if !is_child() {
        in_child(test, &[("BACKEND_CUDA_NVRTC", "")]);
        return;
    }
    let Some(device) = open("") else { return };
    if !device.info().name.contains("stand-in") {
        return skip("this is a device of its own");
    }
    assert!(!device.info().formats.contains(&ImageFormat::HipC));
    let absent = &device.info().absent_formats;
    assert!(absent.iter().any(|(format, _)| *format == ImageFormat::HipC), "{absent:?}");
}
