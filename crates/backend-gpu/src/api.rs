//! A vendor's interface: each method is one call and makes no decisions.
#![expect(unsafe_code, reason = "declares the calls of a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Debug;

use runtime_core::Launch;

use crate::handle::{Event, Function, Graph, GraphExec, Module, Pool, Stream};

/// The functions of a vendor's library, loaded for the rest of the process.
///
/// A method makes one call. It returns the call's error code unchanged, or the call's result. If the library lacks a
/// function, the method returns [`NOT_SUPPORTED`](crate::Codes::NOT_SUPPORTED). [`Codes`](crate::Codes) defines the
/// meaning of codes. Objects belong to the current context, unless a method names a device. A *place* is a value that
/// can be current in a thread: the address of a context, or the number of a device.
///
/// # Safety
///
/// Each method does what its documentation says and nothing else; `Ok` means that the vendor's function returned
/// success. An implementation may rely on the callers of its unsafe methods for the following. Handles are alive and
/// belong to this library. The library allocated the addresses. Pointers are valid for the named number of bytes, until
/// the work that a method enqueues is finished.
#[expect(
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    reason = "the trait states it once for all methods"
)]
pub unsafe trait Api: Debug + Send + Sync + 'static {
    /// The capture mode of a thread whose calls captures do not affect.
    const RELAXED: c_uint;

    /// The symbolic name of a code.
    fn name(&self, code: u32) -> &'static str;

    // Devices.

    /// The number of a device, from its place in the library's order.
    fn device(&self, ordinal: c_int) -> Result<c_int, u32>;
    /// An attribute of a device.
    fn device_attribute(&self, device: c_int, attribute: c_uint) -> Result<c_int, u32>;
    /// Writes the name of a device, which ends with a NUL.
    fn device_name(&self, device: c_int, name: &mut [c_char; 256]) -> Result<(), u32>;
    /// The UUID of a device.
    fn device_uuid(&self, device: c_int) -> Result<[u8; 16], u32>;
    /// The number of bytes of a device's memory.
    fn device_memory(&self, device: c_int) -> Result<usize, u32>;

    // The thread's current place.

    /// Returns the current place.
    fn current(&self) -> Result<usize, u32>;
    /// Makes a place current.
    unsafe fn make_current(&self, place: usize) -> Result<(), u32>;
    /// Sets the thread's capture mode to `mode`, and writes the previous mode to `mode`.
    fn exchange_capture_mode(&self, mode: &mut c_uint) -> Result<(), u32>;
    /// The number of free bytes of memory, and the total number of bytes.
    fn memory_info(&self) -> Result<(usize, usize), u32>;
    /// The lowest and the highest priority of streams; smaller numbers are more urgent.
    fn priority_range(&self) -> Result<(c_int, c_int), u32>;

    // Streams.

    /// Creates a stream that is not ordered with any other stream.
    fn stream_create(&self, priority: c_int) -> Result<Stream, u32>;
    /// Destroys a stream. Its work still runs to completion.
    unsafe fn stream_destroy(&self, stream: Stream) -> Result<(), u32>;
    /// Returns `Ok` if everything on a stream is done.
    unsafe fn stream_query(&self, stream: Stream) -> Result<(), u32>;
    /// Blocks until everything on a stream is done.
    unsafe fn stream_synchronize(&self, stream: Stream) -> Result<(), u32>;
    /// Makes a stream wait for an event.
    unsafe fn stream_wait(&self, stream: Stream, event: Event) -> Result<(), u32>;
    /// Makes a stream wait until the number in 4 bytes of a signal is at least `value`. The number and the value are
    /// less than 2³¹.
    unsafe fn stream_wait_value(&self, stream: Stream, signal: u64, value: u32) -> Result<(), u32>;
    /// Begins a capture that does not affect the calls of threads.
    unsafe fn capture_begin(&self, stream: Stream) -> Result<(), u32>;
    /// Ends a capture.
    unsafe fn capture_end(&self, stream: Stream) -> Result<Graph, u32>;

    // Events.

    /// Creates an event.
    fn event_create(&self, timing: bool) -> Result<Event, u32>;
    /// Destroys an event. Pending waits for it still end.
    unsafe fn event_destroy(&self, event: Event) -> Result<(), u32>;
    /// Records an event.
    unsafe fn event_record(&self, event: Event, stream: Stream) -> Result<(), u32>;
    /// Returns `Ok` if the work before an event is done.
    unsafe fn event_query(&self, event: Event) -> Result<(), u32>;
    /// Blocks until the work before an event is done.
    unsafe fn event_synchronize(&self, event: Event) -> Result<(), u32>;
    /// The milliseconds between two events.
    unsafe fn event_elapsed(&self, start: Event, end: Event) -> Result<f32, u32>;

    // Memory.

    /// Allocates device memory.
    fn allocate(&self, bytes: usize) -> Result<u64, u32>;
    /// Frees device memory, managed memory or memory of a pool.
    unsafe fn free(&self, address: u64) -> Result<(), u32>;
    /// Allocates memory that the host and devices can address.
    fn allocate_managed(&self, bytes: usize) -> Result<u64, u32>;
    /// Allocates page-locked host memory for all devices.
    fn allocate_host(&self, bytes: usize, write_combined: bool) -> Result<u64, u32>;
    /// Frees page-locked host memory.
    unsafe fn free_host(&self, address: u64) -> Result<(), u32>;
    /// Allocates a signal: 8 bytes that the host writes and for which streams can wait.
    fn allocate_signal(&self) -> Result<u64, u32>;
    /// Frees a signal.
    unsafe fn free_signal(&self, address: u64) -> Result<(), u32>;
    /// Page-locks memory of the host for all devices.
    unsafe fn register_host(&self, address: u64, bytes: usize) -> Result<(), u32>;
    /// Unlocks memory of the host that was registered.
    unsafe fn unregister_host(&self, address: u64) -> Result<(), u32>;

    // Memory pools.

    /// Creates a pool of a device's memory.
    fn pool_create(&self, device: c_int) -> Result<Pool, u32>;
    /// Destroys a pool. Memory that is not free yet stays until it is freed.
    unsafe fn pool_destroy(&self, pool: Pool) -> Result<(), u32>;
    /// Sets how many free bytes a pool keeps.
    unsafe fn pool_set_threshold(&self, pool: Pool, bytes: u64) -> Result<(), u32>;
    /// Sets whether an allocation may reuse memory whose free is still pending. The stream of the allocation then waits
    /// for the free.
    unsafe fn pool_set_internal_dependencies(&self, pool: Pool, on: c_int) -> Result<(), u32>;
    /// The number of bytes of the device's memory that a pool holds.
    unsafe fn pool_reserved(&self, pool: Pool) -> Result<u64, u32>;
    /// The number of bytes of a pool that are in use.
    unsafe fn pool_used(&self, pool: Pool) -> Result<u64, u32>;
    /// Gives a device access to a pool's memory.
    unsafe fn pool_let_reach(&self, pool: Pool, device: c_int) -> Result<(), u32>;
    /// Returns memory of a pool to the device, except for `keep` bytes.
    unsafe fn pool_trim(&self, pool: Pool, keep: usize) -> Result<(), u32>;
    /// Allocates memory of a pool, in the order of a stream.
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
    /// Fills memory with an 8-bit number.
    unsafe fn fill_8(&self, to: u64, value: u8, count: usize, stream: Stream) -> Result<(), u32>;
    /// Fills memory with a 16-bit number.
    unsafe fn fill_16(&self, to: u64, value: u16, count: usize, stream: Stream) -> Result<(), u32>;
    /// Fills memory with a 32-bit number.
    unsafe fn fill_32(&self, to: u64, value: u32, count: usize, stream: Stream) -> Result<(), u32>;

    // Other devices.

    /// Whether a device can access the memory of another. 0 means no.
    fn peer_possible(&self, device: c_int, peer: c_int) -> Result<c_int, u32>;
    /// Gives the current place access to the memory of another place.
    unsafe fn peer_enable(&self, peer: usize) -> Result<(), u32>;
    /// Copies to an address of one place from an address of another.
    unsafe fn copy_peer(
        &self,
        to: (u64, usize),
        from: (u64, usize),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32>;

    // Graphs.

    /// Creates an executable graph.
    unsafe fn graph_instantiate(&self, graph: Graph) -> Result<GraphExec, u32>;
    /// Destroys a captured graph.
    unsafe fn graph_destroy(&self, graph: Graph) -> Result<(), u32>;
    /// Launches an executable graph.
    unsafe fn graph_launch(&self, graph: GraphExec, stream: Stream) -> Result<(), u32>;
    /// Destroys an executable graph. Its launches still run to completion.
    unsafe fn graph_exec_destroy(&self, graph: GraphExec) -> Result<(), u32>;

    // Modules and their functions.

    /// Unloads a module.
    unsafe fn module_unload(&self, module: Module) -> Result<(), u32>;
    /// The function with this name.
    unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function, u32>;
    /// The maximum number of threads in a block of a function.
    unsafe fn function_threads(&self, function: Function) -> Result<c_int, u32>;
    /// The number of bytes of shared memory that a function declares.
    unsafe fn function_shared(&self, function: Function) -> Result<c_int, u32>;
    /// A suitable number of threads in a block of a function.
    unsafe fn suggested_block(&self, function: Function, shared: usize) -> Result<c_int, u32>;
    /// The number of blocks of a function that one processor of the device can hold at once.
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
    /// Launches a function whose blocks all run at once.
    unsafe fn launch_cooperative(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: *mut *mut c_void,
    ) -> Result<(), u32>;
}

/// Implements methods of [`Api`]: each entry is a method and the call that it makes.
///
/// ```text
/// calls! { library:
///     unsafe fn stream_destroy(stream: Stream) = (library.functions.destroy)(stream.pointer());
///     fn stream_create(priority: c_int) -> Stream |stream| =
///         (library.functions.create)(&mut stream, priority);
/// }
/// ```
///
/// A call may write results to variables, whose names stand between bars. The method returns their values, converted by
/// [`Written`](crate::Written).
#[macro_export]
macro_rules! calls {
    ($library:ident:) => {};
    (
        $library:ident:
        fn $name:ident $arguments:tt $(-> $result:ty |$($place:ident),+|)? = $call:expr;
        $($rest:tt)*
    ) => {
        $crate::calls! { @ $library [] $name $arguments [$($result)?] [$($($place)+)?] $call }
        $crate::calls! { $library: $($rest)* }
    };
    (
        $library:ident:
        unsafe fn $name:ident $arguments:tt $(-> $result:ty |$($place:ident),+|)? = $call:expr;
        $($rest:tt)*
    ) => {
        $crate::calls! { @ $library [unsafe] $name $arguments [$($result)?] [$($($place)+)?] $call }
        $crate::calls! { $library: $($rest)* }
    };
    (
        @ $library:ident [$($unsafe:tt)?] $name:ident ($($argument:ident: $type:ty),*)
        [$($result:ty)?] [$($place:ident)*] $call:expr
    ) => {
        #[inline]
        $($unsafe)? fn $name(&self, $($argument: $type),*) -> Result<($($result)?), u32> {
            let $library = self;
            $(let mut $place = Default::default();)*
            // SAFETY: the caller guarantees that the method's arguments are valid. The library writes only to valid
            // places.
            $crate::ok(unsafe { $call })?;
            Ok(($($crate::Written::written($place)),*))
        }
    };
}
