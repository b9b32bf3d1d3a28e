//! Machines without a library, or with one that is none: the error names what is missing.

use std::fs;

use runtime_core::{Backend, ErrorKind, Support};

use crate::common::{in_child, is_child, open, source};
use crate::vendor;

/// In the process that was started: says what the library says.
pub(crate) fn print_devices() {
    match vendor::backend().devices() {
        Ok(devices) => println!("{} devices", devices.len()),
        Err(error) => {
            let opened = vendor::backend().open(&vendor::FIRST.parse().unwrap()).unwrap_err();
            assert_eq!(opened.to_string(), error.to_string());
            println!("{:?}: {error}", error.kind());
        }
    }
}

#[test]
fn no_library() {
    if is_child() {
        return print_devices();
    }
    let text = in_child("suite::absence::no_library", &[(vendor::LIBRARY, "libnowhere.so")]);
    assert!(
        text.contains(&format!("Unavailable: devices: unavailable: no {}", vendor::WHAT)),
        "{text}"
    );
    assert!(text.contains("libnowhere.so"), "{text}");
}

#[test]
fn a_file_that_is_no_library() {
    if is_child() {
        return print_devices();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(vendor::LIBRARY_NAME);
    fs::write(&file, "no library").unwrap();
    let variables = [(vendor::LIBRARY, file.to_str().unwrap())];
    let text = in_child("suite::absence::a_file_that_is_no_library", &variables);
    assert!(
        text.contains(&format!("Unavailable: devices: unavailable: no {}", vendor::WHAT)),
        "{text}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_of_another_kind() {
    if is_child() {
        return print_devices();
    }
    let variables = [(vendor::LIBRARY, "libc.so.6")];
    let text = in_child("suite::absence::a_library_of_another_kind", &variables);
    let expected = format!("Driver: devices: driver error: this is no {}", vendor::WHAT);
    assert!(text.contains(&expected) && text.contains(vendor::VERSION), "{text}");
}

#[test]
fn no_compiler() {
    if is_child() {
        let Some(device) = open("") else { return };
        let error = device.module_load(source("extern \"C\" __global__ void k() {}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
        assert!(error.message().starts_with(vendor::NO_COMPILER), "{error}");
        assert!(error.message().contains("libnowhere.so"), "{error}");
        let emulated = device.capabilities().region_copy == Support::Emulated;
        assert_eq!(emulated, vendor::COMPILES_ITS_KERNELS, "the kernel of region copies");
        return;
    }
    in_child("suite::absence::no_compiler", &[(vendor::COMPILER, "libnowhere.so")]);
}

#[test]
fn a_device_that_is_not_there() {
    if open("").is_none() {
        return;
    }
    for (device, expected) in [(":99", "devices"), (":x", "number"), (":0:1", "number")] {
        let selector = format!("{}{device}", vendor::NAME);
        let error = vendor::backend().open(&selector.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice, "{error}");
        assert!(error.to_string().contains(&selector), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
