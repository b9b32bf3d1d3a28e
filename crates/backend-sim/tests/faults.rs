//! Faults occur only where they are planned, with typed errors.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use backend_sim::{Fault, Operation, SimBackend, SimConfig, SimDevice, SimHandle};
use runtime_core::{
    Combine, DType, Device, DeviceRegistry, Error, ErrorKind, Grid, HostModule, Kernel, Launch,
    RegionCopy, RegionSide, Result, args,
};

fn device(fault: Fault) -> Device {
    Device::new(SimDevice::new(0, SimConfig::new().fault(fault))).unwrap()
}

fn code(error: &Error) -> String {
    error.driver().unwrap().to_string()
}

fn kernel(device: &Device) -> Kernel {
    let module = HostModule::new().with("k", |_: &Grid<'_>| {});
    device.module_load(&module).unwrap().kernel("k").unwrap()
}

fn launch(kernel: &Kernel) -> Result<()> {
    kernel.launch_checked(&kernel.device().default_stream(), &Launch::cover(1, 1), args![])
}

#[test]
fn the_planned_allocation_fails_although_it_is_tried_twice() {
    let device = device(Fault::fail(Operation::Allocation, 2));
    let first = device.memory_allocate::<u8>(100).unwrap();
    let error = device.memory_allocate::<u8>(100).unwrap_err();
    assert_eq!(
        (error.kind(), code(&error).as_str()),
        (ErrorKind::OutOfMemory, "SIM_OUT_OF_MEMORY (2)")
    );
    let third = device.memory_allocate::<u8>(100).unwrap();
    let counts = SimHandle::of(&device).unwrap().counts();
    assert_eq!(counts.allocations, 2);
    drop((first, third));
}

#[test]
fn a_trim_releases_freed_memory_after_memory_ran_out() {
    let device = Device::new(SimDevice::new(0, SimConfig::new().memory_bytes(1000))).unwrap();
    let first = device.memory_allocate::<u8>(600).unwrap();
    let error = device.memory_allocate::<u8>(500).unwrap_err();
    assert_eq!(
        (error.kind(), code(&error).as_str()),
        (ErrorKind::OutOfMemory, "SIM_OUT_OF_MEMORY (2)")
    );
    drop(first);
    assert_eq!(device.memory_pool().unwrap().reserved_bytes(), 600);
    assert_eq!(device.memory_allocate::<u8>(500).unwrap().len(), 500);
}

#[test]
fn a_copy_fails_at_once_or_late() {
    for (fault, late) in
        [(Fault::fail(Operation::Copy, 2), false), (Fault::fail_late(Operation::Copy, 2), true)]
    {
        let device = device(fault);
        let stream = device.default_stream();
        let mut x = device.memory_from_slice(&stream, &[1_u8; 8]).unwrap();
        let enqueued = x.view_mut().fill(&stream, 2_u8);
        let reported = if late { enqueued.and_then(|()| stream.synchronize()) } else { enqueued };
        let error = reported.unwrap_err();
        assert_eq!(
            (error.kind(), code(&error).as_str()),
            (ErrorKind::Driver, "SIM_COPY_FAILED (700)")
        );
        assert_eq!(error.device(), Some(device.id()));
        stream.synchronize().unwrap();
        assert_eq!(x.view().to_vec(&stream).unwrap(), [1; 8]);
    }
}

#[test]
fn a_late_failure_makes_a_blocking_read_fail() {
    let device = device(Fault::fail_late(Operation::Copy, 2));
    let stream = device.default_stream();
    let mut x = device.memory_from_slice(&stream, &[1_u8; 8]).unwrap();
    x.view_mut().fill(&stream, 2_u8).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap_err().kind(), ErrorKind::Driver);
}

/// Others get it too, whoever reports it.
#[test]
fn a_blocking_copy_counts_the_failures_of_earlier_work_and_not_its_own() {
    let device = device(Fault::fail_late(Operation::Copy, 2));
    let stream = device.default_stream();
    let mut x = device.memory_from_slice(&stream, &[1_u8; 8]).unwrap();
    x.fill(&stream, 2).unwrap();
    assert!(x.to_vec(&stream).unwrap_err().is_of_earlier_work());
    assert_eq!(stream.failures(), 1);
    SimHandle::of(&device).unwrap().inject(Fault::fail(Operation::Copy, 4));
    assert!(!x.to_vec(&stream).unwrap_err().is_of_earlier_work());
    assert_eq!(stream.failures(), 1);
    assert_eq!(x.to_vec(&stream).unwrap(), [1; 8]);
}

/// A stream that is taken up by its handle has the work of the stream that the handle is of.
#[test]
#[expect(unsafe_code, reason = "takes up a stream by its handle")]
fn a_failure_reported_on_one_handle_of_a_stream_counts_on_the_other() {
    let device = device(Fault::fail_late(Operation::Launch, 1));
    let stream = device.default_stream();
    // SAFETY: the handle is of a stream of this device, which outlives the other.
    let other = unsafe { device.interop().unwrap().stream_from_native(stream.native()) }.unwrap();
    launch(&kernel(&device)).unwrap();
    other.synchronize().unwrap_err();
    stream.synchronize().unwrap();
    assert_eq!([stream.failures(), other.failures()], [1, 1]);
    SimHandle::of(&device).unwrap().inject(Fault::fail_late(Operation::Launch, 2));
    launch(&kernel(&device)).unwrap();
    stream.synchronize().unwrap_err();
    assert_eq!([stream.failures(), other.failures()], [2, 2]);
}

#[test]
fn a_launch_fails_at_once_or_late() {
    for (fault, late) in
        [(Fault::fail(Operation::Launch, 2), false), (Fault::fail_late(Operation::Launch, 2), true)]
    {
        let device = device(fault);
        let kernel = kernel(&device);
        launch(&kernel).unwrap();
        let enqueued = launch(&kernel);
        let reported = if late { enqueued.and_then(|()| device.synchronize()) } else { enqueued };
        let error = reported.unwrap_err();
        assert_eq!(
            (error.kind(), code(&error).as_str()),
            (ErrorKind::DeviceFault, "SIM_LAUNCH_FAILED (719)")
        );
        launch(&kernel).unwrap();
        device.synchronize().unwrap();
    }
}

#[test]
fn a_panicking_kernel_is_a_fault() {
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let module = HostModule::new()
        .with("k", |grid: &Grid<'_>| assert!(grid.threads() == [0; 3], "cell 3 is empty"));
    let kernel = device.module_load(&module).unwrap().kernel("k").unwrap();
    kernel.launch_checked(&device.default_stream(), &Launch::cover(1, 1), args![]).unwrap();
    let error = device.synchronize().unwrap_err();
    assert_eq!(
        (error.kind(), code(&error).as_str()),
        (ErrorKind::DeviceFault, "SIM_LAUNCH_FAILED (719)")
    );
    assert!(error.message().contains("cell 3 is empty"), "{error}");
}

#[test]
fn every_call_on_a_lost_device_fails_and_it_can_be_opened_again() {
    let mut registry = DeviceRegistry::new();
    registry.register(SimBackend::new()).unwrap();
    let device = registry.open("sim:1?lose=4").unwrap();
    let seen = SimHandle::of(&device).unwrap();
    let stream = device.default_stream();
    let kernel = kernel(&device);
    let event = stream.record_event().unwrap();
    let mut x = device.memory_from_slice(&stream, &[1_u8; 8]).unwrap();
    let pinned = device.pinned_allocate::<u8>(8).unwrap();
    assert!(!seen.is_lost());
    let lost = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(
            (error.kind(), code(&error).as_str()),
            (ErrorKind::DeviceLost, "SIM_DEVICE_LOST (46)")
        );
        assert_eq!(error.device(), Some(device.id()));
    };
    lost(x.view_mut().fill(&stream, 2_u8));
    assert!(seen.is_lost());
    for _ in 0..2 {
        lost(stream.synchronize());
        lost(device.synchronize());
    }
    lost(launch(&kernel));
    lost(stream.is_done().map(drop));
    lost(event.wait());
    lost(event.is_done().map(drop));
    lost(stream.record(&event));
    lost(stream.wait(&event));
    lost(x.view().to_vec(&stream).map(drop));
    lost(device.memory_allocate::<u8>(8).map(drop));
    lost(device.pinned_allocate::<u8>(8).map(drop));
    lost(device.event_create(false).map(drop));
    lost(device.stream_create(&Default::default()).map(drop));
    lost(device.module_load(&HostModule::new()).map(drop));
    lost(device.memory_pool().unwrap().trim(0).map_err(|error| error.on(device.id())));
    drop((x, pinned, event, kernel, stream));

    let again = registry.open("sim:1").unwrap();
    let stream = again.default_stream();
    let x = again.memory_from_slice(&stream, &[3_u8; 8]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [3; 8]);
}

#[test]
fn work_that_waits_in_a_stream_is_lost_with_the_device() {
    let device = device(Fault::hang(1, Duration::from_secs(60)));
    let seen = SimHandle::of(&device).unwrap();
    launch(&kernel(&device)).unwrap();
    seen.lose();
    assert_eq!(device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn faults_can_be_planned_later() {
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let seen = SimHandle::of(&device).unwrap();
    let kernel = kernel(&device);
    launch(&kernel).unwrap();
    seen.inject(Fault::fail(Operation::Launch, seen.counts().launches + 1));
    assert!(launch(&kernel).is_err());
    launch(&kernel).unwrap();
}

#[test]
fn errors_of_selectors_name_the_cause() {
    let mut registry = DeviceRegistry::new();
    registry.register(SimBackend::new()).unwrap();
    for (selector, kind, named) in [
        ("sim:2", ErrorKind::UnknownDevice, "2 simulated devices"),
        ("sim:a", ErrorKind::UnknownDevice, "sim:a"),
        ("sim?speed=3", ErrorKind::UnknownDevice, "fail-launch"),
        ("sim?seed=x", ErrorKind::InvalidArgument, "seed=x"),
    ] {
        let error = registry.open(selector).unwrap_err();
        assert_eq!(error.kind(), kind, "{selector}");
        assert!(error.message().contains(named), "{error}");
    }
}

/// A failure in front of an emulated plan is an error of the plan, also if another caller receives it. Skipped copies
/// leave bytes of an earlier plan in the runtime's buffer; they reach no memory.
#[test]
fn an_emulated_plan_behind_a_failure_writes_nothing_wrong() {
    let config = SimConfig::new().region_copies(false).jitter(Duration::from_micros(20));
    let device = Device::new(SimDevice::new(0, config)).unwrap();
    let stream = device.default_stream();
    let fails = |_: &Grid<'_>| -> Result<(), String> { Err("planned".to_owned()) };
    let module = device.module_load(&HostModule::new().with("fails", fails)).unwrap();
    let kernel = module.kernel("fails").unwrap();
    let from = device.memory_from_slice(&stream, &[1_i32; 6]).unwrap();
    let others = device.memory_from_slice(&stream, &[777_i32; 6]).unwrap();
    let mut to = device.memory_from_slice(&stream, &[4_i32; 6]).unwrap();
    let side = |slot| RegionSide { slot, offset: 0, strides: vec![8] };
    let plan = device
        .plan_regions(&[RegionCopy {
            dtype: DType::I32,
            extents: vec![3],
            source: side(0),
            destination: side(1),
            negate: false,
            combine: Combine::Replace,
        }])
        .unwrap();
    let stop = AtomicBool::new(false);
    let mut wrong = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _taken = stream.synchronize();
            }
        });
        for _ in 0..200 {
            let mut scratch = device.memory_allocate::<i32>(6).unwrap();
            let _ = plan.execute(&stream, &mut [others.view().into(), scratch.view_mut().into()]);
            let _ = kernel.launch_checked(&stream, &Launch::cover(1, 1), args![]);
            let _ = plan.execute(&stream, &mut [from.view().into(), to.view_mut().into()]);
            let values = loop {
                if let Ok(values) = to.to_vec(&stream) {
                    break values;
                }
            };
            wrong.extend(values.into_iter().filter(|value| ![1, 4].contains(value)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, [0; 0]);
}

/// The host waits for the uses of a memory, and leaves the failures of other work to their stream.
#[test]
#[expect(unsafe_code, reason = "adopts a stream")]
fn waiting_for_the_uses_of_a_memory_takes_no_failure() {
    let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
    let own = device.default_stream();
    let other = device.stream_create(&Default::default()).unwrap();
    // SAFETY: `other` outlives the adopted stream.
    let adopted = unsafe { device.interop().unwrap().stream_from_native(other.native()) }.unwrap();
    let fails = |_: &Grid<'_>| -> Result<(), String> { Err("planned".to_owned()) };
    let module = device.module_load(&HostModule::new().with("fails", fails)).unwrap();
    let kernel = module.kernel("fails").unwrap();
    let mut memory = device.memory_allocate::<i32>(4).unwrap();
    memory.fill(&adopted, 3).unwrap();
    kernel.launch_checked(&adopted, &Launch::cover(1, 1), args![]).unwrap();
    memory.order_before(&own).unwrap();
    assert_eq!(own.failures(), 0);
    let error = adopted.synchronize().unwrap_err();
    assert!(error.message().contains("planned"), "{error}");
    assert_eq!(memory.to_vec(&own).unwrap(), [3; 4]);
}
