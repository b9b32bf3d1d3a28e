//! The properties, isolation and counts of simulated devices.
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use backend_sim::{SimBackend, SimConfig, SimHandle};
use runtime_core::{
    Backend, Combine, DType, Device, Error, ErrorKind, Layout, NativeHandle, NativeKind,
    RegionCopy, RegionSide, Slot, Support,
};

fn open(backend: &SimBackend, selector: &str) -> Device {
    backend.open(&selector.parse().unwrap()).unwrap()
}

fn transpose() -> RegionCopy {
    RegionCopy {
        dtype: DType::U32,
        extents: vec![2, 3],
        source: RegionSide { slot: 0, offset: 0, strides: vec![12, 4] },
        destination: RegionSide { slot: 1, offset: 0, strides: vec![4, 8] },
        negate: false,
        combine: Combine::Replace,
    }
}

#[test]
fn the_host_cannot_address_memory_and_fresh_memory_is_poisoned() {
    let device = open(&SimBackend::new(), "sim");
    let memory = device.memory_allocate::<u8>(32).unwrap();
    assert_eq!(memory.as_slice().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(!memory.is_host_visible() && device.unified_memory().is_none());
    assert_eq!(memory.view().to_vec(&device.default_stream()).unwrap(), [0xAB; 32]);
}

#[test]
fn region_copies_are_native_or_emulated_with_one_result() {
    for (selector, support, host_bytes) in
        [("sim", Support::Native, 0), ("sim?regions=off", Support::Emulated, 24)]
    {
        let device = open(&SimBackend::new(), selector);
        assert_eq!(device.capabilities().region_copy, support);
        let stream = device.default_stream();
        let x = device.memory_from_slice(&stream, &[1_u32, 2, 3, 4, 5, 6]).unwrap();
        let mut y = device.memory_allocate::<u32>(6).unwrap();
        let plan = device.plan_regions(&[transpose()]).unwrap();
        let seen = SimHandle::of(&device).unwrap();
        let before = seen.counts();
        plan.execute(&stream, &mut [Slot::from(x.view()), Slot::from(y.view_mut())]).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(seen.counts().to_device.bytes - before.to_device.bytes, host_bytes);
        assert_eq!(y.view().to_vec(&stream).unwrap(), [1, 4, 2, 5, 3, 6]);
    }
}

/// A copy of two bytes, as far apart as a slot permits, from one slot to another.
fn far_apart(slots: [usize; 2], far: usize) -> RegionCopy {
    let side = |slot: usize| {
        let stride = if slot == far { 1 << 58 } else { 1 };
        RegionSide { slot, offset: 0, strides: vec![stride] }
    };
    RegionCopy {
        dtype: DType::U8,
        extents: vec![2],
        source: side(slots[0]),
        destination: side(slots[1]),
        negate: false,
        combine: Combine::Replace,
    }
}

#[test]
fn an_emulated_plan_takes_no_memory_for_slots_that_are_absent() {
    let device = open(&SimBackend::new(), "sim?regions=off");
    let stream = device.default_stream();
    let x = device.memory_from_slice(&stream, &[1_u8, 2]).unwrap();
    let mut y = device.memory_from_slice(&stream, &[0_u8; 2]).unwrap();
    let plan = device.plan_regions(&[far_apart([0, 1], 9), far_apart([0, 2], 2)]).unwrap();
    let slots = &mut [x.view().into(), y.view_mut().into(), Slot::Absent];
    plan.execute(&stream, slots).unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [1, 2]);
}

#[test]
fn an_emulated_column_moves_its_own_bytes_in_one_batch() {
    let device = open(&SimBackend::new(), "sim?regions=off");
    let stream = device.default_stream();
    let mut field = device.memory_from_slice(&stream, &[3_u32; 64 * 64]).unwrap();
    let side = |column: usize| RegionSide { slot: 0, offset: 4 * column, strides: vec![256] };
    let column =
        RegionCopy { extents: vec![64], source: side(1), destination: side(63), ..transpose() };
    let plan = device.plan_regions(&[column]).unwrap();
    let seen = SimHandle::of(&device).unwrap();
    for _ in 0..2 {
        let (before, moved) = (device.statistics(), seen.counts());
        plan.execute(&stream, &mut [Slot::from(field.view_mut())]).unwrap();
        stream.synchronize().unwrap();
        let (after, now) = (device.statistics(), seen.counts());
        assert_eq!(now.to_device.bytes - moved.to_device.bytes, 256);
        assert_eq!(now.from_device.bytes - moved.from_device.bytes, 256);
        assert_eq!(after.to_device.count - before.to_device.count, 1);
        assert_eq!(after.from_device.count - before.from_device.count, 1);
    }
}

#[test]
fn a_box_that_no_memory_can_have_is_refused() {
    let device = open(&SimBackend::new(), "sim");
    let stream = device.default_stream();
    let one = Layout::row(DType::U8, 1).unwrap();
    for (start, layout) in [(usize::MAX, one), (usize::MAX, Layout::row(DType::U8, 0).unwrap())] {
        let plan = device.plan_regions(&[far_apart([0, 1], 9)]).unwrap();
        let executed = plan.with_split(1, start, &layout).and_then(|plan| {
            let x = device.memory_from_slice(&stream, &[1_u8, 2]).unwrap();
            let mut y = device.memory_from_slice(&stream, &[0_u8; 4]).unwrap();
            let y = y.view_mut().slice(1..4).unwrap();
            let inner = 1..1 + layout.len();
            let (_, outside) = y.split_off_box(std::slice::from_ref(&inner)).unwrap();
            plan.execute(&stream, &mut [x.view().into(), outside.into()])
        });
        let error = executed.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidArgument, "with_split"));
    }
}

#[test]
fn peers_are_the_devices_of_one_driver_that_both_allow_it() {
    let backend = SimBackend::new();
    let (a, b, alone) =
        (open(&backend, "sim:0"), open(&backend, "sim:1"), open(&backend, "sim:1?peers=off"));
    let unrelated = open(&SimBackend::new(), "sim:1");
    assert!(a.reaches(&b) && b.reaches(&a));
    assert!(!a.reaches(&alone) && !alone.reaches(&a) && !a.reaches(&unrelated));
    assert_eq!(
        (a.capabilities().peer, alone.capabilities().peer),
        (Support::Native, Support::Emulated)
    );
}

#[test]
fn pools_and_monitors_follow_the_memory() {
    let device = open(&SimBackend::with_devices([SimConfig::new().memory_bytes(1000)]), "sim");
    let memory = device.memory_allocate::<u8>(400).unwrap();
    let load = device.monitor().unwrap().load().unwrap();
    assert_eq!((load.memory_used, load.memory_free), (Some(400), Some(600)));
    drop(memory);
    let pool = device.memory_pool().unwrap();
    assert_eq!((pool.used_bytes(), pool.reserved_bytes()), (0, 400));
    pool.trim(0).unwrap();
    assert_eq!(pool.reserved_bytes(), 0);
}

#[test]
fn work_in_flight_keeps_freed_memory_alive() {
    let device = open(&SimBackend::new(), "sim?seed=3");
    let stream = device.default_stream();
    let mut sum = device.memory_allocate::<u32>(64).unwrap();
    for value in 0..50_u32 {
        let mut x = device.memory_allocate::<u32>(64).unwrap();
        x.view_mut().fill(&stream, value).unwrap();
        sum.view_mut().copy_from(&stream, &x.view()).unwrap();
    }
    assert_eq!(sum.view().to_vec(&stream).unwrap(), [49; 64]);
    device.synchronize().unwrap();
    assert_eq!(SimHandle::of(&device).unwrap().used_bytes(), 256);
}

#[test]
#[expect(unsafe_code, reason = "adopts memory")]
fn adopted_memory_is_device_memory_until_its_owner_is_dropped() {
    let device = open(&SimBackend::new(), "sim");
    let stream = device.default_stream();
    let mut owned = vec![1_u32, 2, 3, 4];
    let raw = owned.as_mut_ptr().expose_provenance();
    let handle = NativeHandle { api: "sim", kind: NativeKind::Pointer, raw };
    // SAFETY: the vector owns the elements and is passed as the owner.
    let adopted = unsafe { device.memory_adopt::<u32>(handle, 4, owned) };
    let memory = adopted.unwrap();
    assert!(!memory.is_host_visible());
    assert_eq!(memory.view().to_vec(&stream).unwrap(), [1, 2, 3, 4]);
}

/// The devices are no peers, so the copy would go through other memory.
#[test]
#[expect(unsafe_code, reason = "adopts memory")]
fn a_copy_between_devices_that_adopted_overlapping_memory_is_refused() {
    let mut owned = vec![0_u32; 5];
    let first = owned.as_mut_ptr().expose_provenance();
    let adopt = |start: usize| {
        let device = open(&SimBackend::new(), "sim");
        let raw = first + size_of::<u32>() * start;
        let handle = NativeHandle { api: "sim", kind: NativeKind::Pointer, raw };
        // SAFETY: the vector owns the elements and is dropped after the memory. No work uses them.
        let memory = unsafe { device.memory_adopt::<u32>(handle, 4, ()) }.unwrap();
        (device.default_stream(), memory)
    };
    let ((from, source), (to, mut target)) = (adopt(0), adopt(1));
    assert!(!target.device().reaches(source.device()));
    let error = target.view_mut().copy_from_device(&to, &source.view(), &from).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    drop((source, target));
}

#[test]
fn counters_are_counts() -> Result<(), Error> {
    let device = open(&SimBackend::new(), "sim");
    let stream = device.default_stream();
    let mut open =
        device.counters().unwrap().open(&["from_device_bytes", "synchronizations", "records"])?;
    let memory = device.memory_from_slice(&stream, &[0_u64; 10])?;
    memory.view().to_vec(&stream)?;
    stream.record_event()?;
    stream.synchronize()?;
    let mut values = [0; 3];
    open.read(&mut values)?;
    assert_eq!(values, [80, 1, 1]);
    Ok(())
}
