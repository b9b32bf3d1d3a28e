//! Machines without a driver, or with one that is none: what is missing is told.

use std::fs;

use backend_cuda::CudaDriver;
use runtime_core::{Driver, ErrorKind, ImageFormat, ModuleBundle, ModuleImage};

use crate::{in_child, is_child};

/// In the process that was started: says what the driver says.
fn tell() {
    match CudaDriver::new().devices() {
        Ok(devices) => println!("{} devices", devices.len()),
        Err(error) => {
            let opened = CudaDriver::new().open(&"cuda:0".parse().unwrap()).unwrap_err();
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
    let text = in_child("absence::no_library", &[("BACKEND_CUDA_DRIVER", "libnowhere.so")]);
    assert!(text.contains("Unavailable: devices: unavailable: no CUDA driver"), "{text}");
    assert!(text.contains("libnowhere.so"), "{text}");
}

#[test]
fn a_file_that_is_no_library() {
    if is_child() {
        return tell();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libcuda.so.1");
    fs::write(&file, "no library").unwrap();
    let variables = [("BACKEND_CUDA_DRIVER", file.to_str().unwrap())];
    let text = in_child("absence::a_file_that_is_no_library", &variables);
    assert!(text.contains("Unavailable: devices: unavailable: no CUDA driver"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_that_is_no_driver() {
    if is_child() {
        return tell();
    }
    let variables = [("BACKEND_CUDA_DRIVER", "libc.so.6")];
    let text = in_child("absence::a_library_that_is_no_driver", &variables);
    assert!(text.contains("Driver: devices: driver error: this is no CUDA driver"), "{text}");
}

#[test]
fn a_driver_without_a_device() {
    if is_child() {
        return tell();
    }
    let none = [("CUDA_VISIBLE_DEVICES", ""), ("STAND_IN_DEVICES", "0")];
    let text = in_child("absence::a_driver_without_a_device", &none);
    if text.contains("no CUDA driver") {
        return crate::skip("no driver");
    }
    assert!(text.contains("Unavailable: devices: unavailable: a driver for CUDA 1"), "{text}");
    assert!(text.contains(", but no device [CUDA_ERROR_NO_DEVICE (100)]"), "{text}");
}

#[test]
fn no_compiler() {
    if is_child() {
        let Some(device) = crate::open("") else { return };
        let image = crate::source("extern \"C\" __global__ void k() {}");
        let error = device.module_load(image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
        let expected =
            "the image is CUDA C; the device takes cubin, PTX; no CUDA C here: BACKEND_CUDA_NVRTC=";
        assert!(error.message().starts_with(expected), "{error}");
        assert!(error.message().contains("libnowhere.so"), "{error}");
        return;
    }
    in_child("absence::no_compiler", &[("BACKEND_CUDA_NVRTC", "libnowhere.so")]);
}

/// The driver would refuse all that it makes: a bundle's PTX is taken instead.
#[test]
fn a_compiler_that_is_newer_than_the_driver() {
    const PTX: &str =
        ".version 8.0\n.target sm_60\n.address_size 64\n.visible .entry k() { ret; }\n";
    let image = crate::source("extern \"C\" __global__ void k() {}");
    if is_child() {
        let Some(device) = crate::open("") else { return };
        let (major, _) = device.info().driver_version.split_once('.').unwrap();
        let error = match device.module_load(image.clone()) {
            Ok(_) => return crate::skip("the compiler is not newer than the driver"),
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
    in_child("absence::a_compiler_that_is_newer_than_the_driver", &[("STAND_IN_VERSION", "12000")]);
}

#[test]
fn a_device_that_is_not_there() {
    if crate::open("").is_none() {
        return;
    }
    for (selector, expected) in
        [("cuda:99", "devices"), ("cuda:x", "number"), ("cuda:0:1", "number")]
    {
        let error = CudaDriver::new().open(&selector.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
        assert!(error.to_string().contains(selector), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
