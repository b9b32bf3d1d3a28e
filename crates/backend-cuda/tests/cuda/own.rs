//! Tests for CUDA alone: PTX, a compiler that is newer than the driver, names of C++.

use runtime_core::{ErrorKind, ImageFormat, ModuleBundle, ModuleImage};

use crate::common::{in_child, is_child, open, open_with_compiler, skip, source};
use crate::suite::absence::print_devices;
use crate::suite::cache::entries;
use crate::suite::modules::refused;

/// A program that the driver refuses is refused however often it is built.
#[test]
fn a_program_that_does_not_load_is_not_cached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let Some(device) = open_with_compiler(&format!("?cache-dir={}", path.display())) else {
        return;
    };
    let text = "extern \"C\" __global__ void k() { asm(\"no.such.instruction;\"); }";
    let error = device.module_load(source(text)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
    assert!(!path.exists() || entries(path).is_empty());
}

#[test]
fn the_drivers_log_is_in_the_error() {
    let Some(device) = open("") else { return };
    let ptx = ".version 7.0\n.target sm_60\n.address_size 64\n.visible .entry k() { nonsense; }\n";
    let error = refused(&device, ModuleImage::source(ImageFormat::Ptx, ptx));
    assert!(error.log().is_some_and(|log| log.contains('4')), "{error:?}");
    assert!(error.driver().unwrap().name.starts_with("CUDA_ERROR_"), "{error}");
}

#[test]
fn a_mangled_kernel_name_is_suggested() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let module = device.module_load(source("__global__ void k(int *x) { *x = 1; }")).unwrap();
    let missing = module.kernel("k").unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::KernelNotFound, "{missing}");
    let expected = "it has \"_Z1kPi\": declare it extern \"C\"";
    assert!(missing.message().ends_with(expected), "{missing}");
}

#[test]
fn the_error_of_a_missing_kernel_lists_the_available_ones() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let text = "extern \"C\" __global__ void k() {} extern \"C\" __global__ void none() {}";
    let missing = device.module_load(source(text)).unwrap().kernel("K").unwrap_err();
    assert_eq!(missing.message(), "no kernel \"K\" in the module; it has k, none");
}

#[test]
fn compiler_errors_have_code_and_line() {
    let Some(device) = open_with_compiler("?cache=off") else { return };
    let text = "extern \"C\" __global__ void k() {\n  int x = nothing;\n}";
    let error = refused(&device, source(text));
    assert!(error.log().unwrap().contains("program.cu(2)"), "{error:?}");
    let error = refused(&device, source("").with_options(["--no-such-option"]));
    assert_eq!(error.driver().unwrap().name, "NVRTC_ERROR_INVALID_OPTION");
}

#[test]
fn a_driver_without_a_device() {
    if is_child() {
        return print_devices();
    }
    let none = [("CUDA_VISIBLE_DEVICES", ""), ("STAND_IN_DEVICES", "0")];
    let text = in_child("own::a_driver_without_a_device", &none);
    if text.contains("no CUDA driver") {
        return skip("no driver");
    }
    assert!(text.contains("Unavailable: devices: unavailable: a driver for CUDA 1"), "{text}");
    assert!(text.contains(", but no device [CUDA_ERROR_NO_DEVICE (100)]"), "{text}");
}

/// The driver would refuse all that it makes: a bundle's PTX is taken instead.
#[test]
fn a_compiler_that_is_newer_than_the_driver() {
    const PTX: &str =
        ".version 8.0\n.target sm_60\n.address_size 64\n.visible .entry k() { ret; }\n";
    let image = source("extern \"C\" __global__ void k() {}");
    if is_child() {
        let Some(device) = open("") else { return };
        let (major, _) = device.info().driver_version.split_once('.').unwrap();
        let error = match device.module_load(image.clone()) {
            Ok(_) => return skip("the compiler is not newer than the driver"),
            Err(error) => error,
        };
        let expected = format!("one of CUDA {major} does");
        assert!(
            error.message().contains(&expected) || error.message().contains("no NVRTC"),
            "{error}"
        );
        let bundle =
            ModuleBundle::new().with(image).with(ModuleImage::source(ImageFormat::Ptx, PTX));
        device.module_load_bundle(&bundle).unwrap().kernel("k").unwrap();
        return;
    }
    in_child("own::a_compiler_that_is_newer_than_the_driver", &[("STAND_IN_VERSION", "12000")]);
}
