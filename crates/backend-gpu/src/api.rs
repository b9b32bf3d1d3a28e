//! A vendor's interface: one call per method, which decides nothing.
#![expect(unsafe_code, reason = "declares the calls of a C library")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt::Debug;
use std::ptr;

use runtime_core::Launch;

use crate::handle::{Event, Function, Graph, GraphExec, Module, Pool, Stream};

/// The functions of a vendor's library, loaded for the rest of the process.
///
/// A method makes one call and returns its code as it is, or what the call made. A function that the library lacks has the code
/// [`NOT_SUPPORTED`](crate::Codes::NOT_SUPPORTED). What codes mean, [`Codes`](crate::Codes) tells. Objects are of the current
/// context, unless a method names a device. A *place* is what can be current in a thread: the address of a context, or the number
/// of a device.
///
/// # Safety
///
/// Each method does what it says and nothing else; `Ok` means that the vendor's function told success. An implementor may
/// trust that handles are alive and of this library, that addresses were allocated by it, and that pointers lead to as many
/// bytes as are named, until what a method enqueues is over. Callers of its unsafe methods vouch for that.
#[expect(
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    reason = "the trait says it once for all methods"
)]
pub unsafe trait Api: Debug + Send + Sync + 'static {
    /// The capture mode of a thread whose calls captures do not concern.
    const RELAXED: c_uint;

    /// The symbolic name of a code.
    fn name(&self, code: u32) -> &'static str;

    // What is current in the thread.

    /// The place that is current.
    fn current(&self) -> Result<usize, u32>;
    /// Makes a place current.
    unsafe fn make_current(&self, place: usize) -> Result<(), u32>;
    /// Puts the thread's capture mode where the mode is, and the one of before there.
    fn exchange_capture_mode(&self, mode: &mut c_uint) -> Result<(), u32>;
    /// How many bytes of memory are free, and how many there are.
    fn memory_info(&self) -> Result<(usize, usize), u32>;
    /// The priorities of streams: least and greatest; smaller numbers are more urgent.
    fn priority_range(&self) -> Result<(c_int, c_int), u32>;

    // Streams.

    /// A stream that is ordered with no other.
    fn stream_create(&self, priority: c_int) -> Result<Stream, u32>;
    /// Destroys a stream, whose work runs to its end.
    unsafe fn stream_destroy(&self, stream: Stream) -> Result<(), u32>;
    /// Whether everything on a stream is done.
    unsafe fn stream_query(&self, stream: Stream) -> Result<(), u32>;
    /// Waits for everything on a stream.
    unsafe fn stream_synchronize(&self, stream: Stream) -> Result<(), u32>;
    /// Lets a stream wait for an event.
    unsafe fn stream_wait(&self, stream: Stream, event: Event) -> Result<(), u32>;
    /// Begins a capture that does not concern threads.
    unsafe fn capture_begin(&self, stream: Stream) -> Result<(), u32>;
    /// Ends a capture.
    unsafe fn capture_end(&self, stream: Stream) -> Result<Graph, u32>;

    // Events.

    /// An event.
    fn event_create(&self, timing: bool) -> Result<Event, u32>;
    /// Destroys an event; what waits for it comes to its end.
    unsafe fn event_destroy(&self, event: Event) -> Result<(), u32>;
    /// Records an event.
    unsafe fn event_record(&self, event: Event, stream: Stream) -> Result<(), u32>;
    /// Whether the work before an event is done.
    unsafe fn event_query(&self, event: Event) -> Result<(), u32>;
    /// Waits for an event.
    unsafe fn event_synchronize(&self, event: Event) -> Result<(), u32>;
    /// Milliseconds between two events.
    unsafe fn event_elapsed(&self, start: Event, end: Event) -> Result<f32, u32>;

    // Memory.

    /// Device memory.
    fn allocate(&self, bytes: usize) -> Result<u64, u32>;
    /// Frees device memory, managed memory or memory of a pool.
    unsafe fn free(&self, address: u64) -> Result<(), u32>;
    /// Memory that host and devices address.
    fn allocate_managed(&self, bytes: usize) -> Result<u64, u32>;
    /// Page-locked host memory for every device.
    fn allocate_host(&self, bytes: usize, write_combined: bool) -> Result<u64, u32>;
    /// Frees page-locked host memory.
    unsafe fn free_host(&self, address: u64) -> Result<(), u32>;

    // Memory pools.

    /// A pool of a device's memory.
    fn pool_create(&self, device: c_int) -> Result<Pool, u32>;
    /// Destroys a pool; what is not free yet stays for as long.
    unsafe fn pool_destroy(&self, pool: Pool) -> Result<(), u32>;
    /// How many free bytes a pool keeps.
    unsafe fn pool_set_threshold(&self, pool: Pool, bytes: u64) -> Result<(), u32>;
    /// Whether an allocation may wait, in its stream, for what holds up memory that is not free yet.
    unsafe fn pool_set_internal_dependencies(&self, pool: Pool, on: c_int) -> Result<(), u32>;
    /// Bytes that a pool has of the device.
    unsafe fn pool_reserved(&self, pool: Pool) -> Result<u64, u32>;
    /// Bytes of a pool that are in use.
    unsafe fn pool_used(&self, pool: Pool) -> Result<u64, u32>;
    /// Lets a device reach a pool's memory.
    unsafe fn pool_let_reach(&self, pool: Pool, device: c_int) -> Result<(), u32>;
    /// Gives memory of a pool back to the device, but for so many bytes.
    unsafe fn pool_trim(&self, pool: Pool, keep: usize) -> Result<(), u32>;
    /// Memory of a pool, in the order of a stream.
    unsafe fn pool_allocate(&self, pool: Pool, bytes: usize, stream: Stream) -> Result<u64, u32>;
    /// Frees memory of a pool, in the order of a stream.
    unsafe fn pool_free(&self, address: u64, stream: Stream) -> Result<(), u32>;

    // Copies and fills.

    /// Copies within the device.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), u32>;
    /// Copies from the host.
    unsafe fn copy_to(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32>;
    /// Copies to the host.
    unsafe fn copy_from(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32>;
    /// Fills with a number of 8 bits.
    unsafe fn fill_8(&self, to: u64, value: u8, count: usize, stream: Stream) -> Result<(), u32>;
    /// Fills with a number of 16 bits.
    unsafe fn fill_16(&self, to: u64, value: u16, count: usize, stream: Stream) -> Result<(), u32>;
    /// Fills with a number of 32 bits.
    unsafe fn fill_32(&self, to: u64, value: u32, count: usize, stream: Stream) -> Result<(), u32>;

    // Other devices.

    /// Whether a device can reach the memory of another.
    fn peer_possible(&self, device: c_int, peer: c_int) -> Result<c_int, u32>;
    /// Lets the current place reach the memory of another.
    unsafe fn peer_enable(&self, peer: usize) -> Result<(), u32>;
    /// Copies to an address of a place from one of another.
    unsafe fn copy_peer(
        &self,
        to: (u64, usize),
        from: (u64, usize),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32>;

    // Graphs.

    /// A graph that can be launched.
    unsafe fn graph_instantiate(&self, graph: Graph) -> Result<GraphExec, u32>;
    /// Destroys what a capture recorded.
    unsafe fn graph_destroy(&self, graph: Graph) -> Result<(), u32>;
    /// Launches a graph.
    unsafe fn graph_launch(&self, graph: GraphExec, stream: Stream) -> Result<(), u32>;
    /// Destroys a graph, whose launches come to their end.
    unsafe fn graph_exec_destroy(&self, graph: GraphExec) -> Result<(), u32>;

    // Modules and their functions.

    /// Unloads a module.
    unsafe fn module_unload(&self, module: Module) -> Result<(), u32>;
    /// The function of a name.
    unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function, u32>;
    /// Most threads of a block of a function.
    unsafe fn function_threads(&self, function: Function) -> Result<c_int, u32>;
    /// Bytes of shared memory that a function declares.
    unsafe fn function_shared(&self, function: Function) -> Result<c_int, u32>;
    /// The threads of a block that suit a function.
    unsafe fn suggested_block(&self, function: Function, shared: usize) -> Result<c_int, u32>;
    /// How many blocks of a function a processor of the device holds at once.
    unsafe fn resident_blocks(
        &self,
        function: Function,
        block: c_int,
        shared: usize,
    ) -> Result<c_int, u32>;
    /// Launches a function.
    unsafe fn launch(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: *mut *mut c_void,
    ) -> Result<(), u32>;
    /// Launches a function whose blocks run at once.
    unsafe fn launch_cooperative(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: *mut *mut c_void,
    ) -> Result<(), u32>;
}

/// The outcome that a code stands for.
///
/// # Errors
///
/// The code, unless it is 0.
#[inline]
pub fn ok(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The handle, or other pointer, that a call writes.
///
/// # Errors
///
/// The code of the call.
#[inline]
pub fn made<T, H: From<*mut T>>(call: impl FnOnce(*mut *mut T) -> u32) -> Result<H, u32> {
    let mut raw = ptr::null_mut();
    ok(call(&mut raw))?;
    Ok(raw.into())
}

/// The number that a call writes.
///
/// # Errors
///
/// The code of the call.
#[inline]
pub fn told<T: Default>(call: impl FnOnce(*mut T) -> u32) -> Result<T, u32> {
    let mut value = T::default();
    ok(call(&mut value))?;
    Ok(value)
}
