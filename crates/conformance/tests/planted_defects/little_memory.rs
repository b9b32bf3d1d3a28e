//! A host without memory for a copy of a vector that the driver did not give back.
#![expect(unsafe_code, reason = "allocates")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use backend_sim::{SimConfig, SimDevice};
use runtime_core::{Device, ErrorKind};

use crate::faulty_device::{Broken, FaultyDevice};

thread_local! {
    /// The most bytes that the thread can allocate at once.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Little;

// SAFETY: forwarded. An allocation may fail.
unsafe impl GlobalAlloc for Little {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST.get() {
            return ptr::null_mut();
        }
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, first: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(first, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Little = Little;

#[test]
fn a_vector_that_is_neither_given_back_nor_copied_stays_readable() {
    let inner = SimDevice::new(0, SimConfig::new());
    let device = Device::new(FaultyDevice::new(inner, Broken::RegistrationIsKept)).unwrap();
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<u8>(1 << 20).unwrap();
    let vec = vec![7_u8; 1 << 20];
    let address = vec.as_ptr();
    let mut pinned = device.pin_vec(vec).unwrap();
    for _ in 0..2 {
        MOST.set(1 << 19);
        let refused = pinned.into_vec().unwrap_err();
        MOST.set(usize::MAX);
        assert_eq!(refused.error().kind(), ErrorKind::OutOfMemory);
        pinned = refused.into_inner();
        assert_eq!(pinned.as_slice().unwrap(), [7; 1 << 20]);
        assert_eq!(pinned.as_slice().unwrap().as_ptr(), address);
        let error = memory.view_mut().copy_from_pinned(&stream, &pinned).unwrap_err();
        assert!(error.message().contains("failed to unlock"), "{error}");
    }
    pinned.as_mut_slice().unwrap()[0] = 8;
    let copied = pinned.into_vec().unwrap();
    assert_ne!(copied.as_ptr(), address);
    assert_eq!((copied.len(), copied[0], copied[1]), (1 << 20, 8, 7));
}
