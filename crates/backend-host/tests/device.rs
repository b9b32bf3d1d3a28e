//! Order, asynchrony and ownership on the host device.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use backend_host::HostDevice;
use runtime_core::contract::{ParamInfo, ParamKind};
use runtime_core::{
    Combine, DType, Device, ErrorKind, Grid, HostKernel, HostModule, Kernel, KernelFunction,
    Launch, NativeHandle, NativeKind, Plain, RegionCopy, RegionSide, Slot, Stream, StreamOptions,
    args,
};

fn device() -> Device {
    Device::new(HostDevice::with_threads(0, 2).unwrap()).unwrap()
}

fn kernel(device: &Device, module: HostModule) -> Kernel {
    device.module_load(&module).unwrap().kernel("k").unwrap()
}

/// Launches a kernel that holds `memory` until the sender is dropped.
fn occupy(stream: &Stream, memory: &mut runtime_core::Memory<u32>) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (begun, running) = mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let wait = move |_: &Grid<'_>, out: &mut [u32]| {
        begun.send(()).ok();
        gate.lock().unwrap().recv().ok();
        out.fill(7);
    };
    let kernel = kernel(stream.device(), HostModule::new().with("k", wait));
    kernel.launch_checked(stream, &Launch::cover(1, 1), args![memory]).unwrap();
    running.recv().unwrap();
    open
}

#[test]
fn small_operations_do_not_wait_for_memory_that_another_stream_has() {
    let device = device();
    let (busy, idle) =
        (device.default_stream(), device.stream_create(&StreamOptions::default()).unwrap());
    let mut x = device.memory_from_slice(&busy, &[1_u32; 8]).unwrap();
    let mut y = device.memory_from_slice(&busy, &[0_u32; 8]).unwrap();
    let open = occupy(&busy, &mut x);
    let began = Instant::now();
    y.view_mut().copy_from(&idle, &x.view()).unwrap();
    y.view_mut().slice(0..1).unwrap().fill(&busy, 3_u32).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(!idle.is_done().unwrap() && !busy.is_done().unwrap());
    drop(open);
    device.synchronize().unwrap();
    assert_eq!(y.view().to_vec(&idle).unwrap()[1..], [7; 7]);
}

#[test]
#[expect(unsafe_code, reason = "takes up memory that is not there, and is not looked at")]
fn a_vector_that_the_host_has_no_room_for_is_an_error() {
    const LEN: usize = 1 << 44;
    let device = device();
    let native = device.native();
    let anywhere = NativeHandle { api: native.api, kind: NativeKind::Pointer, raw: 1 << 12 };
    // SAFETY: nothing reads the memory, because no address space has room for the vector.
    let memory = unsafe { device.memory_adopt::<u64>(anywhere, LEN, ()) }.unwrap();
    let error = memory.to_vec(&device.default_stream()).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::OutOfMemory, "to_vec"));
    assert!(error.to_string().contains(&format!("{} bytes", LEN * size_of::<u64>())), "{error}");
}

#[test]
#[expect(unsafe_code, reason = "adopts memory twice")]
fn a_copy_between_two_devices_over_the_same_bytes_is_refused_if_it_overlaps() {
    let one = device();
    let two = Device::new(HostDevice::with_threads(1, 2).unwrap()).unwrap();
    assert!(one.reaches(&two) && two.reaches(&one));
    let mut values = [1_u32, 2, 3, 4, 5, 6, 7, 8];
    let raw = values.as_mut_ptr().expose_provenance();
    let handle = NativeHandle { api: one.native().api, kind: NativeKind::Pointer, raw };
    let adopt = |device: &Device| {
        // SAFETY: the elements outlive both memories, and the test uses one memory after the other.
        unsafe { device.memory_adopt::<u32>(handle, 8, ()) }.unwrap()
    };
    let (source, mut target) = (adopt(&one), adopt(&two));
    let (from, to) = (one.default_stream(), two.default_stream());
    for (read, written, overlap) in [(0..4, 3..7, true), (0..8, 0..8, true), (0..4, 4..8, false)] {
        let mut target = target.view_mut().slice(written.clone()).unwrap();
        let source = source.view().slice(read.clone()).unwrap();
        let copied = target.copy_from_device(&to, &source, &from);
        match copied {
            Err(error) => {
                assert!(overlap, "{read:?} to {written:?}: {error}");
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                assert!(error.to_string().contains("on host:1"), "{error}");
            }
            Ok(()) => assert!(!overlap, "{read:?} to {written:?}"),
        }
    }
    assert_eq!(target.to_vec(&to).unwrap(), [1, 2, 3, 4, 1, 2, 3, 4]);
}

#[test]
#[expect(unsafe_code, reason = "adopts memory twice")]
fn footprints_tell_whether_memories_of_any_threads_and_devices_share_elements() {
    let devices =
        [0, 1].map(|index| Device::new(HostDevice::with_threads(index, 1).unwrap()).unwrap());
    let ordinary = devices[0].memory_allocate::<u32>(8).unwrap();
    assert!(ordinary.view().footprint().is_none(), "nobody knows its address");
    let handle = ordinary.native().unwrap();
    let adopt = |device: &Device| {
        // SAFETY: nothing accesses the elements, which outlive the memory.
        unsafe { device.memory_adopt::<u32>(handle, 8, ()) }.unwrap()
    };
    let adopted = adopt(&devices[1]);
    let columns =
        |first: usize| adopted.view().reshape(&[2, 4]).unwrap().region(&[0..2, first..first + 2]);
    let [left, middle, right] = [0, 1, 2].map(|first| columns(first).unwrap().footprint().unwrap());
    assert!(middle.overlaps(&left) && middle.overlaps(&right) && !left.overlaps(&right));
    assert!(ordinary.view().footprint().unwrap().overlaps(&middle));
    assert!(adopted.view().slice(3..3).unwrap().footprint().is_none(), "no elements");
    drop(adopted);
    assert!(!middle.overlaps(&left), "the memory is gone");
}

#[test]
fn memory_that_work_uses_is_shown_without_a_wait_or_not_at_all() {
    let device = device();
    let stream = device.default_stream();
    let mut x = device.memory_from_slice(&stream, &[1_u32; 8]).unwrap();
    let open = occupy(&stream, &mut x);
    for refused in [x.try_as_slice().map(drop), x.try_as_mut_slice().map(drop)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    }
    drop(open);
    stream.synchronize().unwrap();
    x.try_as_mut_slice().unwrap()[0] = 3;
    assert_eq!(x.try_as_slice().unwrap(), [3, 7, 7, 7, 7, 7, 7, 7]);
}

/// Does something when it is dropped.
struct AtLast<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtLast<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn work_enqueued_by_a_destructor_during_a_panic_is_waited_for() {
    let device = device();
    let stream = device.default_stream();
    let mut memory = device.memory_from_slice(&stream, &[1_u32; 4]).unwrap();
    let mut pinned = device.pinned_allocate::<u32>(4).unwrap();
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _at_last = AtLast(|| {
            memory.fill(&stream, 7).unwrap();
            memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
        });
        panic!("this passes");
    }));
    assert!(panics.is_err());
    stream.synchronize().unwrap();
    assert_eq!(memory.try_as_slice().unwrap(), [7; 4]);
    // Whoever looks at the memory asks for nothing else on the stream.
    let fault = HostModule::new().with("k", |_: &Grid<'_>| Err("a fault".to_owned()));
    kernel(&device, fault).launch_checked(&stream, &Launch::cover(1, 1), args![]).unwrap();
    assert_eq!(memory.as_slice().unwrap(), [7; 4]);
    assert_eq!(pinned.as_slice().unwrap(), [7; 4]);
    assert_eq!(stream.synchronize().unwrap_err().kind(), ErrorKind::DeviceFault);
}

#[test]
fn a_device_waits_for_streams_that_were_dropped() {
    let device = device();
    let stream = device.stream_create(&StreamOptions::default()).unwrap();
    let mut x = device.memory_from_slice(&stream, &[1_u32; 8]).unwrap();
    let open = occupy(&stream, &mut x);
    drop(stream);
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(open);
    });
    device.synchronize().unwrap();
    assert_eq!(x.as_slice().unwrap(), [7; 8]);
    later.join().unwrap();
}

#[test]
fn faults_and_panics_carry_device_and_code() {
    let device = Device::new(HostDevice::new(5)).unwrap();
    let stream = device.default_stream();
    let fault = |_: &Grid<'_>| Err::<(), _>("singular matrix".to_owned());
    let panic = |grid: &Grid<'_>| grid.for_each(1000, |i| assert!(i != 611, "cell {i} is empty"));
    for (module, message) in [
        (HostModule::new().with("k", fault), "singular matrix"),
        (HostModule::new().with("k", panic), "cell 611 is empty"),
    ] {
        kernel(&device, module).launch_checked(&stream, &Launch::cover(1, 1), args![]).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFault);
        assert!(error.message().contains("kernel \"k\": "), "{error}");
        assert!(error.message().contains(message), "{error}");
        assert_eq!(error.device(), Some(device.id()));
        assert_eq!(error.driver().unwrap().to_string(), "HOST_KERNEL_FAULT (1)");
        stream.synchronize().unwrap();
    }
}

#[test]
fn nothing_runs_after_a_fault_until_it_is_reported() {
    const MESSAGE: &str = "this test's fault";
    const THREADS: usize = 32;
    const LEN: usize = 10 * THREADS;
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match panic.to_string().contains(MESSAGE) {
        true => drop(PRINTED.fetch_add(1, Ordering::Relaxed)),
        false => print(panic),
    }));
    let device = Device::new(HostDevice::with_threads(0, THREADS).unwrap()).unwrap();
    let stream = device.default_stream();
    let bad = |grid: &Grid<'_>, x: &mut [u32]| {
        grid.chunks_mut(x, 1, |_, _| {
            thread::sleep(Duration::from_millis(1));
            panic!("{MESSAGE}");
        });
    };
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let good = move |_: &Grid<'_>, x: &mut [u32]| {
        counted.fetch_add(1, Ordering::Relaxed);
        x.fill(2);
    };
    let module = HostModule::new().with("bad", bad).with("good", good);
    let module = device.module_load(&module).unwrap();
    let launch = |name: &str, x: &mut runtime_core::Memory<u32>| {
        let kernel = module.kernel(name).unwrap();
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![x]).unwrap();
    };
    let mut x = device.memory_from_slice(&stream, &[1_u32; LEN]).unwrap();
    for _ in 0..100 {
        launch("bad", &mut x);
        launch("good", &mut x);
    }
    x.view_mut().fill(&stream, 3_u32).unwrap();
    let event = stream.record_event().unwrap();
    event.wait().unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.message().starts_with("kernel \"bad\": panicked: this test's"), "{error}");
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    // Each of the device's threads may be in one call when the first panics.
    assert!((1..=THREADS).contains(&PRINTED.load(Ordering::Relaxed)), "{PRINTED:?}");
    assert_eq!(x.view().to_vec(&stream).unwrap(), [1; LEN]);
    launch("good", &mut x);
    assert_eq!(x.view().to_vec(&stream).unwrap(), [2; LEN]);
}

#[test]
fn a_struct_is_one_argument() {
    let device = device();
    let stream = device.default_stream();
    let mut x = device.memory_from_slice(&stream, &[0.0_f64; 20]).unwrap();
    let copy = |_: &Grid<'_>, x: &mut [f64], Plain(many): Plain<[f64; 20]>| {
        x.copy_from_slice(&many);
    };
    let kernel = kernel(&device, HostModule::new().with("k", copy));
    let many: [f64; 20] = std::array::from_fn(|index| index as f64);
    kernel.launch_checked(&stream, &Launch::cover(1, 1), args![&mut x, &Plain(many)]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), many);
    let short = Plain([0.0_f64; 19]);
    let error =
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![&mut x, &short]).unwrap_err();
    assert!(error.message().contains("152 bytes for a parameter of 160"), "{error}");
}

#[test]
fn the_device_is_usable_after_an_absurd_allocation() {
    let device = device();
    let error = device.memory_allocate::<u8>(isize::MAX as usize / 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.driver().unwrap().to_string(), "ENOMEM (12)");
    assert_eq!(
        device.memory_allocate::<u8>(usize::MAX).unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
    let memory = device.memory_allocate::<u8>(16).unwrap();
    assert_eq!(device.memory_pool().unwrap().used_bytes(), 16);
    drop(memory);
    assert_eq!(device.memory_pool().unwrap().used_bytes(), 0);
}

#[test]
#[expect(unsafe_code, reason = "adopts memory")]
fn an_owner_is_dropped_when_the_work_is_done() {
    struct Owner(#[expect(dead_code, reason = "keeps the elements")] Vec<u32>, mpsc::Sender<()>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.send(()).ok();
        }
    }
    let device = device();
    let stream = device.default_stream();
    let mut owned = vec![1_u32; 8];
    let raw = owned.as_mut_ptr().expose_provenance();
    let handle = NativeHandle { api: "host", kind: NativeKind::Pointer, raw };
    let (dropped, gone) = mpsc::channel();
    // SAFETY: the vector owns the elements and is passed as the owner.
    let adopted = unsafe { device.memory_adopt::<u32>(handle, 8, Owner(owned, dropped)) };
    let mut memory = adopted.unwrap();
    let open = occupy(&stream, &mut memory);
    drop(memory);
    assert!(gone.try_recv().is_err());
    drop(open);
    gone.recv_timeout(Duration::from_secs(10)).unwrap();
}

/// Panics when it is dropped.
struct Panics(#[expect(dead_code, reason = "keeps the elements")] Vec<u8>);

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("owner refuses");
    }
}

#[test]
#[expect(unsafe_code, reason = "adopts memory")]
fn a_destructor_that_panics_is_no_failure_of_the_device() {
    let device = device();
    let stream = device.default_stream();
    let mut other = device.memory_allocate::<u32>(8).unwrap();
    for in_flight in [false, true] {
        let mut owned = vec![0_u8; 8];
        let raw = owned.as_mut_ptr().expose_provenance();
        let handle = NativeHandle { api: "host", kind: NativeKind::Pointer, raw };
        // SAFETY: the vector owns the elements and is passed as the owner.
        let adopted = unsafe { device.memory_adopt::<u8>(handle, 8, Panics(owned)) };
        let mut memory = adopted.unwrap();
        let captured = Panics(Vec::new());
        let kernel = move |_: &Grid<'_>| {
            let _held = &captured;
        };
        let module = HostModule::new().with("k", kernel);
        let loaded = device.module_load(&module).unwrap();
        let open = in_flight.then(|| occupy(&stream, &mut other));
        memory.view_mut().fill(&stream, 1).unwrap();
        let kernel = loaded.kernel("k").unwrap();
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![]).unwrap();
        drop((memory, loaded, kernel, module));
        drop(open);
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
    }
}

#[test]
fn a_long_chain_of_loaded_modules_takes_little_stack() {
    let device = device();
    let load = |module| device.module_load(&module).unwrap();
    let mut last = load(HostModule::new());
    for _ in 0..200_000 {
        let before = last;
        let kernel = move |_: &Grid<'_>| {
            let _held = &before;
        };
        last = load(HostModule::new().with("k", kernel));
    }
    let small = thread::Builder::new().stack_size(64 << 10);
    small.spawn(|| drop(last)).unwrap().join().unwrap();
}

#[test]
fn host_devices_share_memory_and_events() {
    let (a, b) = (device(), Device::new(HostDevice::new(1)).unwrap());
    assert!(a.reaches(&b) && b.reaches(&a));
    let (on_a, on_b) = (a.default_stream(), b.default_stream());
    let mut x = a.memory_from_slice(&on_a, &[1_u32; 8]).unwrap();
    let open = occupy(&on_a, &mut x);
    on_b.wait(&on_a.record_event().unwrap()).unwrap();
    let mut y = b.memory_allocate::<u32>(8).unwrap();
    y.view_mut().copy_from_device(&on_b, &x.view(), &on_a).unwrap();
    assert!(!on_b.is_done().unwrap());
    drop(open);
    assert_eq!(y.view().to_vec(&on_b).unwrap(), [7; 8]);
}

#[test]
fn large_region_copies_are_right() {
    let device = device();
    let stream = device.default_stream();
    let n = 700;
    let values: Vec<u32> = (0..n * n).collect();
    let side = |slot, strides: [u32; 2]| RegionSide {
        slot,
        offset: 0,
        strides: strides.map(|s| isize::try_from(4 * s).unwrap()).to_vec(),
    };
    let entry = RegionCopy {
        dtype: DType::U32,
        extents: vec![n as usize; 2],
        source: side(0, [n, 1]),
        destination: side(1, [1, n]),
        negate: false,
        combine: Combine::Replace,
    };
    let plan = device.plan_regions(&[entry]).unwrap();
    let x = device.memory_from_slice(&stream, &values).unwrap();
    let mut y = device.memory_allocate::<u32>(values.len()).unwrap();
    plan.execute(&stream, &mut [Slot::from(x.view()), Slot::from(y.view_mut())]).unwrap();
    let turned = y.view().to_vec(&stream).unwrap();
    assert!(
        (0..n)
            .all(|i| (0..n).all(|j| turned[(j * n + i) as usize] == values[(i * n + j) as usize]))
    );
}

#[test]
fn threads_use_one_device_at_once() {
    let device = Arc::new(device());
    thread::scope(|scope| {
        for value in 0..4_u32 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream_create(&StreamOptions::default()).unwrap();
                for round in 0..200 {
                    let mut x = device.memory_allocate::<u32>(1000).unwrap();
                    x.view_mut().fill(&stream, value + round).unwrap();
                    assert_eq!(x.view().to_vec(&stream).unwrap(), [value + round; 1000]);
                }
            });
        }
    });
    assert_eq!(device.memory_pool().unwrap().used_bytes(), 0);
}

/// The threads of this process whose names begin with that of the device.
#[cfg(target_os = "linux")]
fn threads_of(device: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm"))
    };
    tasks.filter_map(|task| name(task).ok()).filter(|name| name.starts_with(device)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn threads_end_with_their_device() {
    let device = Device::new(HostDevice::with_threads(77, 4).unwrap()).unwrap();
    assert_eq!(threads_of("host:77"), 0);
    for _ in 0..3 {
        let stream = device.stream_create(&StreamOptions::default()).unwrap();
        let wait = |grid: &Grid<'_>| grid.for_each(8, |_| thread::sleep(Duration::from_millis(2)));
        let kernel = kernel(&device, HostModule::new().with("k", wait));
        kernel.launch_checked(&stream, &Launch::cover(1, 1), args![]).unwrap();
    }
    device.synchronize().unwrap();
    assert!(threads_of("host:77") > 0);
    drop(device);
    let began = Instant::now();
    while threads_of("host:77") > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{} threads are left",
            threads_of("host:77")
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// A kernel whose parameters are known only at run time.
struct Listed(Vec<ParamInfo>);

impl KernelFunction<Vec<ParamInfo>> for Listed {
    fn into_kernel(self) -> HostKernel {
        HostKernel::new(self.0, |_, _| Ok(()))
    }
}

#[test]
fn kernels_that_no_launch_fits_are_not_loaded() {
    let device = device();
    let load = |parameters| device.module_load(&HostModule::new().with("k", Listed(parameters)));
    let (memory, value) = (ParamInfo::new(ParamKind::Memory), ParamInfo::new(ParamKind::Value));
    let mut many = vec![memory; 127];
    many.push(value.with_size(4096 - 127 * 8));
    load(many.clone()).unwrap();
    load(vec![value.with_dtype(DType::F64), value, memory.with_dtype(DType::F32)]).unwrap();
    many.push(value);
    for (parameters, found) in [
        (many, "129 parameters; the device takes 128"),
        (vec![memory, value.with_size(0)], "parameter 1: a value of no byte"),
        (vec![value.with_size(4097)], "4097 bytes of parameters; the device takes 4096"),
        (vec![value.with_size(usize::MAX); 2], "the device takes 4096"),
        (vec![memory.with_size(0)], "parameter 0: memory of size 0"),
        (vec![ParamInfo::new(ParamKind::Unknown)], "parameter 0: is neither memory nor a value"),
    ] {
        let error = load(parameters).unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::InvalidArgument, Some(device.id())));
        assert!(
            error.message().contains("kernel \"k\"") && error.message().contains(found),
            "{error}"
        );
    }
    let nothing = HostModule::new().with("k", |_: &Grid<'_>, _: Plain<()>| {});
    assert_eq!(device.module_load(&nothing).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
