//! Counters beyond the process's limit of file descriptors. The limit applies to the process, so this test is a program
//! of its own.
#![cfg(target_os = "linux")]

use std::fs;

use backend_host::HostDevice;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use runtime_core::{Device, ErrorKind};

#[test]
fn too_many_counters_name_the_limit() {
    let device = Device::new(HostDevice::new(0)).unwrap();
    let Some(counters) = device.counters() else { return };
    let names = counters.names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // One more than are open, so that the threads can still be listed.
    let few = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, few, hard).unwrap();
    let error = counters.open(&names).err();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains(&format!("may have {few} open")), "{error}");
    assert_eq!(error.driver().unwrap().to_string(), "EMFILE (24)");
    assert!(counters.open(&names).is_ok());
}
