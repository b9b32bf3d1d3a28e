//! Machines without a runtime, or with one that is none: what is missing is told.

use std::fs;

use backend_hip::HipDriver;
use runtime_core::{Driver, ErrorKind, ImageFormat};

use crate::{in_child, is_child};

/// In the process that was started: says what the runtime says.
fn tell() {
    match HipDriver::new().devices() {
        Ok(devices) => println!("{} devices", devices.len()),
        Err(error) => {
            let opened = HipDriver::new().open(&"hip:0".parse().unwrap()).unwrap_err();
            assert_eq!(opened.to_string(), error.to_string());
            println!("{:?}: {error}", error.kind());
        }
    }
}

#[test]
fn no_library() {
    if is_child() {
        return tell();
    }
    let text = in_child("absence::no_library", &[("BACKEND_HIP_LIBRARY", "libnowhere.so")]);
    assert!(text.contains("Unavailable: devices: unavailable: no HIP runtime"), "{text}");
    assert!(text.contains("libnowhere.so"), "{text}");
}

#[test]
fn a_file_that_is_no_library() {
    if is_child() {
        return tell();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libamdhip64.so");
    fs::write(&file, "no library").unwrap();
    let variables = [("BACKEND_HIP_LIBRARY", file.to_str().unwrap())];
    let text = in_child("absence::a_file_that_is_no_library", &variables);
    assert!(text.contains("Unavailable: devices: unavailable: no HIP runtime"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_that_is_no_runtime() {
    if is_child() {
        return tell();
    }
    let variables = [("BACKEND_HIP_LIBRARY", "libc.so.6")];
    let text = in_child("absence::a_library_that_is_no_runtime", &variables);
    assert!(text.contains("Driver: devices: driver error: this is no HIP runtime"), "{text}");
    assert!(text.contains("libc.so.6: undefined symbol: hipRuntimeGetVersion"), "{text}");
}

/// With what the system has, whatever the caller has named: a device, or a reason for none.
#[test]
fn a_machine_without_a_gpu_is_not_broken() {
    if is_child() {
        return tell();
    }
    let variables = [("BACKEND_HIP_LIBRARY", ""), ("HIP_VISIBLE_DEVICES", "")];
    let text = in_child("absence::a_machine_without_a_gpu_is_not_broken", &variables);
    let reasons = ["no HIP runtime", "but no device", "has no function"];
    let reason = text.contains("Unavailable: ") && reasons.iter().any(|why| text.contains(why));
    assert!(reason || text.contains(" devices"), "{text}");
}

#[test]
fn no_compiler() {
    if is_child() {
        let Some(device) = crate::open("") else { return };
        let image = crate::source("extern \"C\" __global__ void k() {}");
        let error = device.module_load(image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
        assert!(error.to_string().contains("HIP C"), "{error}");
        let regions = device.capabilities().region_copy;
        assert_eq!(regions, runtime_core::Support::Emulated, "its kernel cannot be compiled");
        return;
    }
    in_child("absence::no_compiler", &[("BACKEND_HIPRTC_LIBRARY", "libnowhere.so")]);
}

/// The stand-in has no compiler of its own.
#[test]
fn no_compiler_of_the_stand_in() {
    let test = "absence::no_compiler_of_the_stand_in";
    if !is_child() {
        in_child(test, &[("BACKEND_CUDA_NVRTC", "")]);
        return;
    }
    let Some(device) = crate::open("") else { return };
    if !device.info().name.contains("stand-in") {
        return crate::skip("this is a device of its own");
    }
    assert!(!device.info().formats.contains(&ImageFormat::HipC));
    let absent = &device.info().absent_formats;
    assert!(absent.iter().any(|(format, _)| *format == ImageFormat::HipC), "{absent:?}");
}

#[test]
fn a_device_that_is_not_there() {
    if crate::open("").is_none() {
        return;
    }
    for (selector, expected) in [("hip:99", "devices"), ("hip:x", "number"), ("hip:0:1", "number")]
    {
        let error = HipDriver::new().open(&selector.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
        assert!(error.to_string().contains(selector), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
