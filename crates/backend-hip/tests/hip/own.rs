//! Tests for HIP alone: code objects, the environment of its compiler, behaviour of some versions of the runtime.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;
use std::{env, fs};

use runtime_core::{
    Backend, Combine, DType, Device, ErrorKind, ImageFormat, ModuleImage, RegionCopy, RegionSide,
};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::common::{in_child, is_child, open, open_with_compiler, skip, source};
use crate::suite::absence::print_devices;
use crate::suite::cache::{build_and_run, entries};
use crate::suite::faults::stop_on;
use crate::suite::memory::more_than_there_is_is_refused_and_leaves_the_device_usable;
use crate::suite::modules::refused;
use crate::vendor::{FIRST, QUIRKS, backend};

/// A cached program was made by the same compiler, with the same options from the environment.
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

/// Some versions of the runtime report success there, and return no address.
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
fn spirv_in_a_bundle_is_loaded_by_the_runtime() {
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
        return print_devices();
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

/// A subscriber that calls a function at each event of one target, and counts the calls.
struct Acts<F>(&'static str, F, Arc<AtomicUsize>);

impl<F: Fn() + Send + Sync + 'static> Subscriber for Acts<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == self.0
    }

    fn event(&self, _: &Event<'_>) {
        (self.1)();
        self.2.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A second subscriber. With a single one, `tracing` disables events that a thread without a subscriber emits first.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Runs `work` in a thread whose events make the thread call `act`. Returns the number of those calls. Fails if `work`
/// takes more than a minute.
fn with_events<F: Fn() + Send + Sync + 'static>(
    target: &'static str,
    act: F,
    work: impl FnOnce() + Send + 'static,
) -> usize {
    let (done, end) = mpsc::channel();
    std::thread::spawn(move || {
        let calls = Arc::new(AtomicUsize::new(0));
        LazyLock::force(&SECOND);
        tracing::subscriber::with_default(Acts(target, act, Arc::clone(&calls)), work);
        done.send(calls.load(Ordering::Relaxed)).unwrap();
    });
    end.recv_timeout(Duration::from_secs(60)).expect("no call waits for ever")
}

#[test]
fn a_subscriber_may_open_the_device_when_its_release_is_reported() {
    const TEST: &str = "own::a_subscriber_may_open_the_device_when_its_release_is_reported";
    if !is_child() {
        in_child(TEST, &[(QUIRKS, "lasting-faults")]);
        return;
    }
    let Some(device) = open_with_compiler("") else { return };
    let opened = || drop(backend().open(&FIRST.parse().unwrap()));
    let calls = with_events("backend_gpu::context", opened, move || {
        stop_on(&device);
        assert!(device.default_stream().synchronize().is_err());
        drop(device);
    });
    assert!(calls > 0, "no event of a device that could not be reset");
}

fn plan(device: &Device) {
    let side = |slot, strides| RegionSide { slot, offset: 0, strides };
    let copy = RegionCopy {
        dtype: DType::F32,
        extents: vec![2],
        source: side(0, vec![8]),
        destination: side(1, vec![4]),
        negate: false,
        combine: Combine::Replace,
    };
    drop(device.plan_regions(&[copy]).unwrap());
}

#[test]
fn a_subscriber_may_plan_what_is_being_planned() {
    let cache = tempfile::tempdir().unwrap();
    let options = format!("?cache-dir={}", cache.path().display());
    let Some(device) = open_with_compiler(&options) else { return };
    plan(&device);
    drop(device);
    // Its kernels are in the cache now, and loading them emits an event.
    let Some(device) = open_with_compiler(&options) else { return };
    let own = device.clone();
    let calls = with_events("backend_gpu::program", move || plan(&own), move || plan(&device));
    assert!(calls > 0, "no event of a kernel from the cache");
}
