//! Programs that are stopped, each in a process of its own: they take the context with them, and in many versions of
//! HIP the process.

use std::io::{Write, stderr};

use runtime_core::{Backend, Device, ErrorKind, Launch, Result, args};

use crate::common::{STOPPING, in_child, is_child, open, open_with_compiler, run, skip};
use crate::vendor::{self, QUIRKS};

/// The first device, where a program can be stopped.
fn open_to_stop() -> Option<Device> {
    if vendor::STOPS_WITHOUT_COMPILER { open("") } else { open_with_compiler("") }
}

/// Stops a program on a device.
pub(crate) fn stop_on(device: &Device) {
    let kernel = vendor::stopping(device);
    let mut x = device.memory_allocate::<u32>(1).unwrap();
    drop(writeln!(stderr(), "{STOPPING}"));
    run(&kernel, &Launch::cover(1, 1), args![&mut x]).unwrap();
    // Not a wait, which would report it.
    while !device.default_stream().is_done().unwrap() {
        std::thread::yield_now();
    }
}

/// Stops a program, and gets its fault.
fn stop(device: &Device) {
    stop_on(device);
    let fault = device.default_stream().synchronize().unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::DeviceFault, "{fault}");
    let code = fault.driver().unwrap();
    assert!(code.code >= 700 && code.name.starts_with(vendor::CODES), "{fault}");
}

/// Runs a test in processes of its own: where a fault is of its device alone, where it stays until the process ends,
/// and where it ends the process. Returns their output.
pub(crate) fn with_faults_of_all_kinds(test: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let outputs =
        vendor::FAULTS.map(|quirks| in_child(test, &[variables, &[(QUIRKS, quirks)]].concat()));
    outputs.into()
}

/// A device that was opened again after a fault. `None`, said aloud, where the fault stays until the process ends, as
/// the stand-in has it on request or the runtime happens to have it.
pub(crate) fn opened_again(outcome: Result<Device>) -> Option<Device> {
    match outcome {
        Err(lost) if lost.message().contains("in a new process") => {
            assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
            skip("a fault stays until the process ends");
            None
        }
        again => {
            assert_eq!(std::env::var(QUIRKS).unwrap_or_default(), "", "the fault did not stay");
            Some(again.unwrap())
        }
    }
}

#[test]
fn a_fault_is_reported_once_and_then_the_device_is_lost() {
    if !is_child() {
        in_child("suite::faults::a_fault_is_reported_once_and_then_the_device_is_lost", &[]);
        return;
    }
    let Some(device) = open_to_stop() else { return };
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u32>(4).unwrap();
    stop(&device);
    for outcome in [
        stream.synchronize(),
        device.synchronize(),
        memory.fill(&stream, 1_u32),
        memory.copy_from_slice(&stream, &[1; 4]),
        memory.to_vec(&stream).map(drop),
        device.memory_allocate::<u32>(4).map(drop),
        device.pinned_allocate::<u32>(4).map(drop),
        stream.record_event().map(drop),
    ] {
        let lost = outcome.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
        assert!(lost.driver().is_some_and(|driver| driver.code >= 700), "{lost}");
    }
}

#[test]
fn every_instance_reports_a_fault_once() {
    if !is_child() {
        in_child("suite::faults::every_instance_reports_a_fault_once", &[]);
        return;
    }
    let (Some(device), Some(other)) = (open_to_stop(), open_to_stop()) else { return };
    stop(&device);
    assert_eq!(other.synchronize().unwrap_err().kind(), ErrorKind::DeviceFault);
    assert_eq!(other.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_lost_device_is_opened_again_when_its_instances_are_gone() {
    if !is_child() {
        let test = "suite::faults::a_lost_device_is_opened_again_when_its_instances_are_gone";
        with_faults_of_all_kinds(test, &[]);
        return;
    }
    let Some(device) = open_to_stop() else { return };
    let memory = device.memory_allocate::<u32>(4).unwrap();
    stop(&device);
    let backend = vendor::backend();
    let again = || backend.open(&vendor::FIRST.parse().unwrap());
    let error = again().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.message().contains("still held"), "{error}");
    drop(device);
    assert_eq!(again().unwrap_err().kind(), ErrorKind::DeviceLost, "its memory is still there");
    drop(memory);
    let Some(device) = opened_again(again()) else { return };
    let stream = device.default_stream();
    let memory = device.memory_from_slice(&stream, &[1_u32, 2, 3]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [1, 2, 3]);
}

#[test]
fn the_first_copy_after_a_fault_reports_it() {
    if !is_child() {
        in_child("suite::faults::the_first_copy_after_a_fault_reports_it", &[]);
        return;
    }
    let Some(device) = open_to_stop() else { return };
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u32>(4).unwrap();
    let before = stream.failures();
    stop_on(&device);
    let mut copy = || memory.copy_from_slice(&stream, &[1; 4]).unwrap_err().kind();
    assert_eq!((copy(), copy()), (ErrorKind::DeviceFault, ErrorKind::DeviceLost));
    assert_eq!(stream.failures(), before + 2);
    assert_eq!(stream.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_fault_takes_no_memory_with_it() {
    if !is_child() {
        let test = "suite::faults::a_fault_takes_no_memory_with_it";
        with_faults_of_all_kinds(test, &[("STAND_IN_MEMORY", "64")]);
        return;
    }
    let Some(mut device) = open_to_stop() else { return };
    for _ in 0..3 {
        let memory = device.memory_allocate::<u8>(40 << 20).unwrap();
        stop(&device);
        drop((memory, device));
        let again = vendor::backend().open(&vendor::FIRST.parse().unwrap());
        let Some(again) = opened_again(again) else { return };
        device = again;
    }
}
