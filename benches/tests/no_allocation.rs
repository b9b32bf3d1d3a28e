//! The checked front allocates nothing in calls to a backend.
#![expect(unsafe_code, reason = "counts allocations, and launches on a device that does nothing")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use array_buffer::ArrayBuffer;
use conformance::NullDevice;
use runtime_core::{Device, ImageFormat, Launch, ModuleImage, args};

/// The system's allocator, with a count of the current thread's allocations.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller guarantees the same conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the same conditions.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn taken(mut work: impl FnMut()) -> usize {
    // The first use of a stream is recorded, which allocates once.
    work();
    let before = TAKEN.with(Cell::get);
    work();
    TAKEN.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(taken(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn no_operation_allocates() {
    let device = Device::new(NullDevice::default()).unwrap();
    let stream = device.default_stream();
    let mut memory = device.memory_allocate::<f64>(64).unwrap();
    let other = device.memory_allocate::<f64>(64).unwrap();
    let mut pinned = device.pinned_allocate::<f64>(64).unwrap();
    let event = device.event_create(false).unwrap();
    let module = device.module_load(ModuleImage::source(ImageFormat::Ptx, "")).unwrap();
    let kernel = module.kernel("abc").unwrap();
    let launch = Launch::cover(64, 64);
    let mut shown = device.unified_memory().unwrap().allocate::<f64>(64).unwrap();
    let mut host = [0.0; 64];
    let mut captured = device.pinned_allocate::<f64>(64).unwrap();
    let graph = device.graphs().unwrap().capture(|to| {
        memory.view_mut().copy_from_pinned(to, &pinned)?;
        memory.view().copy_to_pinned(to, &mut captured)
    });
    let graph = graph.unwrap();
    let count = taken(|| {
        memory.view_mut().copy_from_slice(&stream, &host).unwrap();
        memory.view().copy_to_slice(&stream, &mut host).unwrap();
        memory.view_mut().copy_from(&stream, &other.view()).unwrap();
        memory.view_mut().fill(&stream, 1.0).unwrap();
        memory.view_mut().copy_from_pinned(&stream, &pinned).unwrap();
        memory.view().copy_to_pinned(&stream, &mut pinned).unwrap();
        pinned.as_mut_slice().unwrap();
        shown.view_mut().fill(&stream, 1.0).unwrap();
        shown.as_mut_slice().unwrap();
        stream.record(&event).unwrap();
        stream.wait(&event).unwrap();
        // SAFETY: the null device accesses no byte.
        unsafe { kernel.launch(&stream, &launch, args![&memory, &other, memory.view()]) }.unwrap();
        // SAFETY: as above.
        unsafe { graph.launch(&stream) }.unwrap();
    });
    assert_eq!(count, 0);
}

#[test]
fn no_access_to_a_valid_replica_allocates() {
    let device = Device::new(NullDevice::default()).unwrap();
    let stream = device.default_stream();
    let mut array = ArrayBuffer::from_vec(vec![0.0_f64; 64], (8, 8)).unwrap();
    // The same calls, because the array records the writer.
    let mut write = |stream| {
        let mut guard = array.read_write(stream).unwrap();
        guard.view_mut().unwrap().fill(stream, 1.0).unwrap();
        guard.commit().unwrap();
        array.read(stream).unwrap().view().unwrap();
    };
    write(&stream);
    assert_eq!(taken(|| write(&stream)), 0);
    let mut array = ArrayBuffer::from_vec(vec![0.0_f64; 64], (8, 8)).unwrap();
    let mut write = || array.read_write_host().unwrap()[(0, 0)] += 1.0;
    write();
    assert_eq!(taken(&mut write), 0);
    assert_eq!(taken(|| assert_eq!(array.read_host().unwrap().len(), 64)), 0);
}
