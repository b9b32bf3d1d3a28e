//! Machines without a driver, or with one that is none: what is missing is told.

use std::fs;

use backend_cuda::CudaDriver;
use runtime_core::{Driver, ErrorKind};

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
fn no_compiler() {
    if is_child() {
        let Some(device) = crate::open("") else { return };
        let image = crate::source("extern \"C\" __global__ void k() {}");
        let error = device.module_load(image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
        assert!(error.to_string().contains("CUDA C"), "{error}");
        return;
    }
    in_child("absence::no_compiler", &[("BACKEND_CUDA_NVRTC", "libnowhere.so")]);
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
