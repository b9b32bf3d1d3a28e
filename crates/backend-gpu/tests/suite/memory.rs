//! Memory: patterns, adoption, reuse.

use std::sync::Arc;
use std::time::{Duration, Instant};

use num_complex::Complex;
use runtime_core::{ConversionError, Device, ErrorKind, Memory, NativeHandle, NativeKind, Pinned};

use crate::common::{in_child, is_child, open, open_second, skip};
use crate::vendor;

const POOLS: [&str; 2] = ["", "?pool=cache"];

#[test]
fn patterns_of_any_width_fill_any_range() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let value = Complex::new(1.5_f32, -2.5);
    let mut memory = device.memory_from_slice(&stream, &[Complex::new(0.0, 0.0); 5000]).unwrap();
    memory.view_mut().slice(1..4444).unwrap().fill(&stream, value).unwrap();
    let wide = Complex::new(1.5_f64, 0.1);
    let mut wide_memory = device.memory_allocate::<Complex<f64>>(1001).unwrap();
    wide_memory.fill(&stream, wide).unwrap();
    let found = memory.to_vec(&stream).unwrap();
    assert!(found[1..4444].iter().all(|found| *found == value));
    let zero = Complex::new(0.0, 0.0);
    assert!(found[0] == zero && found[4444..].iter().all(|found| *found == zero));
    assert!(wide_memory.to_vec(&stream).unwrap().iter().all(|found| *found == wide));
}

#[test]
fn freed_memory_is_used_again() {
    for pool in POOLS {
        let Some(device) = open(pool) else { return };
        let account = device.memory_pool().unwrap();
        for _ in 0..100 {
            let mut memory = device.memory_allocate::<u8>(1 << 20).unwrap();
            memory.fill(&device.default_stream(), 1_u8).unwrap();
            drop(memory);
            device.synchronize().unwrap();
        }
        let reserved = account.reserved_bytes();
        assert!(reserved < 100 << 20, "{pool}: {reserved} bytes for 1 MiB at a time");
        account.trim(0).unwrap();
        assert_eq!(account.reserved_bytes(), account.used_bytes(), "{pool}");
    }
}

#[test]
fn a_trim_keeps_no_more_unused_memory_than_requested() {
    for pool in POOLS {
        let Some(device) = open(pool) else { return };
        let account = device.memory_pool().unwrap();
        // A driver returns whole blocks only.
        let first = device.memory_allocate::<u8>(1).unwrap();
        let block = account.reserved_bytes();
        drop(first);
        let held = device.memory_allocate::<u8>(8 << 20).unwrap();
        drop(device.memory_allocate::<u8>(6 << 20).unwrap());
        device.synchronize().unwrap();
        account.trim(6 << 20).unwrap();
        let [used, reserved] = [account.used_bytes(), account.reserved_bytes()];
        let most = used.next_multiple_of(block) + (6 << 20);
        assert!(reserved >= used && reserved <= most, "{pool}: {reserved} for {used}");
        account.trim(0).unwrap();
        assert_eq!(account.reserved_bytes(), used.next_multiple_of(block), "{pool}");
        drop(held);
    }
}

#[test]
pub(crate) fn more_than_there_is_is_refused_and_leaves_the_device_usable() {
    for pool in POOLS {
        let Some(device) = open(pool) else { return };
        let most = device.info().limits.max_allocation_bytes;
        let _held = device.memory_allocate::<u8>(1000).unwrap();
        let error = device.memory_allocate::<u8>(most).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert_eq!(error.driver().unwrap().name, vendor::OUT_OF_MEMORY);
        assert!(error.message().contains(&most.to_string()), "{error}");
        device.memory_allocate::<u8>(1000).unwrap();
    }
}

/// Host memory is no part of the device's, and managed memory need not be.
#[test]
fn pinned_and_unified_memory_may_be_larger_than_the_devices() {
    if !is_child() {
        let test = "suite::memory::pinned_and_unified_memory_may_be_larger_than_the_devices";
        in_child(test, &[("STAND_IN_MEMORY", "16")]);
        return;
    }
    let Some(device) = open("") else { return };
    let most = device.info().limits.max_allocation_bytes;
    if most > 1 << 30 {
        return skip("the device has so much memory that the host may not have more");
    }
    let error = device.memory_allocate::<u8>(most + 1).unwrap_err();
    assert!(error.driver().is_none(), "{error}");
    let mut pinned = device.pinned_allocate::<u8>(most + 1).unwrap();
    pinned.as_mut_slice().unwrap()[most] = 1;
    // Whether there is more than fits is the driver's to say.
    for outcome in [
        device.pinned_allocate::<u8>(most << 10).map(drop),
        device.unified_memory().map_or(Ok(()), |all| all.allocate::<u8>(most + 1).map(drop)),
    ] {
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert_eq!(error.driver().unwrap().name, vendor::OUT_OF_MEMORY);
        }
    }
}

/// Page-locking twice is refused before the driver may refuse it or not, also on another device.
#[test]
fn a_page_is_locked_once() {
    let Some(device) = open("") else { return };
    // One of two neighbours in a page.
    let mut kept = Vec::new();
    let refused = (0..1000).find_map(|_| match device.pin_vec(vec![1_u8; 100]) {
        Ok(pinned) => {
            kept.push(pinned);
            None
        }
        Err(refused) => Some(refused),
    });
    let (vec, error) = refused.expect("vectors that share a page").into_parts();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let first = vec.as_ptr().addr();
    assert!(error.message().contains(&format!("100 bytes at {first:#x}")), "{error}");
    let registered = |pinned: &Pinned<u8>| pinned.host_ptr().addr().get();
    let names = |pinned| {
        error.message().contains(&format!("registered bytes at {:#x}", registered(pinned)))
    };
    assert!(kept.iter().any(names), "{error}");
    if let Some(other) = open_second() {
        let error = other.pin_vec(vec).map_err(ConversionError::into_parts).unwrap_err().1;
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
}

/// As much as the driver locks at most.
#[test]
fn more_than_can_be_locked_is_out_of_memory() {
    if !is_child() {
        let test = "suite::memory::more_than_can_be_locked_is_out_of_memory";
        in_child(test, &[("STAND_IN_MEMORY", "1")]);
        return;
    }
    let Some(device) = open("") else { return };
    if device.info().limits.max_allocation_bytes > 1 << 30 {
        return skip("the driver may lock as much as the host has");
    }
    let vec = vec![3_u8; 64 << 20];
    let address = vec.as_ptr();
    let (vec, error) = device.pin_vec(vec).unwrap_err().into_parts();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(error.driver().unwrap().name, vendor::OUT_OF_MEMORY);
    assert!(error.message().contains(&(64 << 20).to_string()), "{error}");
    assert_eq!((vec.as_ptr(), vec.last()), (address, Some(&3)));
    device.pin_vec(vec![3_u8; 1 << 20]).unwrap();
}

/// Adopts a part of a memory, which the owner keeps.
fn adopt(
    device: &Device,
    address: usize,
    len: usize,
    owner: impl Send + Sync + 'static,
) -> runtime_core::Result<Memory<u32>> {
    let handle = NativeHandle { api: vendor::NAME, kind: NativeKind::Pointer, raw: address };
    // SAFETY: the callers' memory stays as long as the owner, or the address is refused.
    unsafe { device.memory_adopt::<u32>(handle, len, owner) }
}

#[test]
fn a_part_of_memory_is_adopted_and_no_more_than_there_is() {
    let Some(device) = open("?pool=cache") else { return };
    let stream = device.default_stream();
    let numbers: Vec<u32> = (0..512).collect();
    let memory = device.memory_from_slice(&stream, &numbers).unwrap();
    let address = memory.native().unwrap().raw;
    let part = adopt(&device, address + 400, 100, ()).unwrap();
    assert_eq!(part.to_vec(&stream).unwrap(), numbers[100..200]);
    let error = adopt(&device, address + 400, 1 << 20, ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let host = numbers.as_ptr().addr();
    let error = adopt(&device, host, 1, ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn memory_of_another_device_is_not_adopted() {
    let Some(device) = open("") else { return };
    let Some(other) = open_second() else { return skip("there is one device") };
    let memory = other.memory_allocate::<u32>(10).unwrap();
    let error = adopt(&device, memory.native().unwrap().raw, 10, ()).unwrap_err();
    assert!(error.message().contains("device 1"), "{error}");
}

#[test]
fn an_owner_that_holds_the_device_is_given_back() {
    let Some(device) = open("") else { return };
    let stream = device.default_stream();
    let memory = device.memory_allocate::<u32>(1 << 16).unwrap();
    let address = memory.native().unwrap().raw;
    let alive = Arc::new(());
    let owner = (Arc::clone(&alive), device.clone(), memory);
    let mut adopted = adopt(&device, address, 1 << 16, owner).unwrap();
    for value in 0..50_u32 {
        adopted.fill(&stream, value).unwrap();
    }
    drop((adopted, stream, device));
    let began = Instant::now();
    while Arc::strong_count(&alive) > 1 {
        assert!(began.elapsed() < Duration::from_secs(30), "the owner is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}
