//! Versions of the runtime, and other runtimes that lack more, each in a process of its own: on the stand-in, of which
//! a copy can be without functions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use backend_hip::HipBackend;
use runtime_core::{
    Backend, ErrorKind, Launch, NativeHandle, NativeKind, OriginKind, StreamOptions, Support, args,
};

use crate::common::{in_child, is_child, open, open_with_compiler, run, skip, source};
use crate::vendor::QUIRKS;

/// Functions that HIP 5.2 has, and other runtimes may lack.
const OPTIONAL: [&str; 9] = [
    "hipDeviceGetUuid",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetStreamPriorityRange",
    "hipFuncGetAttribute",
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    "hipModuleOccupancyMaxPotentialBlockSize",
    "hipMallocManaged",
    "hipHostRegister",
    "hipStreamWaitValue32",
];
/// One of the functions of each ability that a runtime may lack: pools, graphs, copies between devices.
const ABILITIES: [&str; 3] = ["hipMemPoolTrimTo", "hipGraphLaunch", "hipMemcpyPeerAsync"];
/// Functions that came after HIP 5.2: with HIP 5.5 and 5.6, and with HIP 6.
const NEW: [&str; 3] =
    ["hipModuleLaunchCooperativeKernel", "hipStreamGetDevice", "hipGetDevicePropertiesR0600"];

/// A copy of the stand-in that has no functions of these names. `None`, said aloud, on another runtime.
fn without(functions: &[&str], folder: &Path) -> Option<PathBuf> {
    let library = PathBuf::from(env::var_os("BACKEND_HIP_LIBRARY").unwrap_or_default());
    if !library.ends_with("libstandin_hip.so") {
        skip("BACKEND_HIP_LIBRARY does not name the stand-in, a file that can be copied");
        return None;
    }
    let mut bytes = fs::read(library).unwrap();
    let (mut at, mut places) = (0, Vec::new());
    for text in bytes.split(|byte| *byte == 0) {
        if functions.iter().any(|function| function.as_bytes() == text) {
            places.push(at);
        }
        at += text.len() + 1;
    }
    assert!(places.len() >= functions.len(), "not all of {functions:?} are in the library");
    for place in places {
        bytes[place] = b'x';
    }
    let copy = folder.join("libstandin_hip.so");
    fs::write(&copy, bytes).unwrap();
    Some(copy)
}

/// Runs a test in a process of its own on a stand-in of a version, without these functions.
fn on(test: &str, version: &str, functions: &[&str], quirks: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(copy) = without(functions, folder.path()) else { return };
    let library = ("BACKEND_HIP_LIBRARY", copy.to_str().unwrap());
    in_child(test, &[library, ("STAND_IN_HIP_VERSION", version), (QUIRKS, quirks)]);
}

#[test]
fn a_device_of_each_version_works() {
    if !is_child() {
        let test = "versions::a_device_of_each_version_works";
        on(test, "50221153", &NEW, "");
        on(test, "50731921", &NEW[2..], "");
        on(test, "60443482", &[], "");
        on(test, "70051831", &[], "");
        return;
    }
    let Some(device) = open("") else { return };
    let version = &device.info().driver_version;
    let pci = device.info().pci.unwrap();
    assert_eq!((pci.domain, pci.bus, pci.device), (0, 1, 0), "{version}");
    let stream = device.stream_create(&StreamOptions::default()).unwrap();
    let memory = device.memory_from_slice(&stream, &[1_u32, 2, 3]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [1, 2, 3]);
    let cooperative = device.capabilities().cooperative_launch;
    assert_eq!(cooperative == Support::Native, !version.starts_with("5.2"), "{version}");
    let Some(device) = open_with_compiler("?cache=off") else { return };
    assert_eq!(device.info().architecture, "gfx1030", "{version}");
    assert_eq!(device.info().vendor, "AMD", "{version}");
    let kernel = device
        .module_load(source("extern \"C\" __global__ void k(int *x) { x[threadIdx.x] = 5; }"));
    let kernel = kernel.unwrap().kernel("k").unwrap();
    let mut x = device.memory_allocate::<i32>(64).unwrap();
    run(&kernel, &Launch::cover(64, 64), args![&mut x]).unwrap();
    assert_eq!(x.to_vec(&device.default_stream()).unwrap()[..2], [5, 5]);
}

#[test]
fn optional_attributes_may_be_absent() {
    if !is_child() {
        let test = "versions::optional_attributes_may_be_absent";
        on(test, "60000000", &[], "no-answers");
        on(test, "60000000", &[&OPTIONAL[..], &ABILITIES, &NEW].concat(), "");
        return;
    }
    let Some(device) = open("") else { return };
    if env::var(QUIRKS).unwrap_or_default().is_empty() {
        assert_eq!((device.info().uuid, device.info().pci), (None, None));
        assert_eq!(device.info().limits.priorities, (0, 0));
        assert!(device.unified_memory().is_none());
        let refused = device.pin_vec(vec![1_u8]).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
        let capabilities = device.capabilities();
        assert!([capabilities.graphs, capabilities.peer].iter().all(|has| *has != Support::Native));
        for option in ["pool=driver", "gates=on"] {
            let selector = format!("hip:0?{option}").parse().unwrap();
            let error = HipBackend::new().open(&selector).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(option), "{error}");
        }
    }
    let stream = device.default_stream();
    let raw = stream.native().raw;
    let handle = NativeHandle { api: "hip", kind: NativeKind::Stream, raw };
    // SAFETY: the stream outlives what is made of it.
    let taken = unsafe { device.interop().unwrap().stream_from_native(handle) }.unwrap();
    taken.synchronize().unwrap();
    drop(taken);
    let Some(device) = open_with_compiler("?cache=off&options=--offload-arch=gfx1030") else {
        return;
    };
    let kernel = device
        .module_load(source("extern \"C\" __global__ void k(int *x) { x[threadIdx.x] = 5; }"));
    let kernel = kernel.unwrap().kernel("k").unwrap();
    assert_eq!(kernel.suggested_block(0).unwrap(), 256);
    assert_eq!(kernel.resident_blocks(64, 0).unwrap(), None);
    let mut x = device.memory_allocate::<i32>(256).unwrap();
    run(&kernel, &kernel.cover(256).unwrap(), args![&mut x]).unwrap();
    assert_eq!(x.to_vec(&device.default_stream()).unwrap(), [5; 256]);
    let too_many = Launch::cover(2048, device.info().limits.max_block_threads);
    run(&kernel, &too_many, args![&mut device.memory_allocate::<i32>(2048).unwrap()]).unwrap();
}

#[test]
fn a_function_that_a_runtime_must_have_is_named() {
    let test = "versions::a_function_that_a_runtime_must_have_is_named";
    if !is_child() {
        on(test, "60000000", &["hipMemcpyDtoDAsync"], "");
        return;
    }
    let error = HipBackend::new().open(&"hip:0".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("no function hipMemcpyDtoDAsync"), "{error}");
}

/// By what the runtime says of host memory, and not by its version.
#[test]
fn kinds_of_memory_are_found_in_every_version() {
    let test = "versions::kinds_of_memory_are_found_in_every_version";
    if !is_child() {
        on(test, "50221153", &NEW, "");
        on(test, "50221153", &NEW, "kinds-of-hip-6");
        on(test, "60000000", &[], "");
        return;
    }
    let Some(device) = open("") else { return };
    let kind = |raw| {
        let handle = NativeHandle { api: "hip", kind: NativeKind::Pointer, raw };
        // SAFETY: an address may be any number.
        unsafe { device.interop().unwrap().origin(handle) }.unwrap().unwrap().kind
    };
    let memory = device.memory_allocate::<u8>(8).unwrap();
    assert_eq!(kind(memory.native().unwrap().raw), OriginKind::Device);
    let pinned = device.pinned_allocate::<u8>(8).unwrap();
    assert_eq!(kind(pinned.as_slice().unwrap().as_ptr().addr()), OriginKind::Pinned);
    let unified = device.unified_memory().unwrap().allocate::<u8>(8).unwrap();
    assert_eq!(kind(unified.native().unwrap().raw), OriginKind::Managed);
}

#[test]
fn memory_has_the_stated_alignment_on_every_runtime() {
    if !is_child() {
        let test = "versions::memory_has_the_stated_alignment_on_every_runtime";
        in_child(test, &[("STAND_IN_ALIGNMENT", "128")]);
        return;
    }
    for pool in ["", "?pool=cache"] {
        let Some(device) = open(pool) else { return };
        let stream = device.default_stream();
        let alignment = device.info().limits.allocation_alignment.get();
        let used = device.memory_pool().unwrap().used_bytes();
        for bytes in [1, 300, 1 << 20] {
            let mut memory = device.memory_allocate::<u8>(bytes).unwrap();
            assert!(memory.native().unwrap().raw.is_multiple_of(alignment), "{pool}: {memory:?}");
            memory.fill(&stream, 3_u8).unwrap();
            assert_eq!(memory.to_vec(&stream).unwrap(), vec![3; bytes]);
        }
        let unified = device.unified_memory().unwrap().allocate::<u8>(1).unwrap();
        assert!(unified.native().unwrap().raw.is_multiple_of(alignment), "{pool}");
        drop(unified);
        device.synchronize().unwrap();
        assert_eq!(device.memory_pool().unwrap().used_bytes(), used, "{pool}");
    }
}
