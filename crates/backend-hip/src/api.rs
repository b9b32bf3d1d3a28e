//! The runtime's functions, as the calls that devices make.
#![expect(unsafe_code, reason = "calls the runtime")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::{mem, ptr};

use backend_gpu::handle::{Event, Function, Graph, GraphExec, Module, Pool, Stream, pointer};
use backend_gpu::{Api, created, ok, output};
use hip_sys::hiprt::{
    hipEventDefault, hipEventDisableTiming, hipFunction_attribute, hipHostMallocPortable,
    hipHostMallocWriteCombined, hipMemAccessDesc, hipMemAccessFlags, hipMemAllocationType,
    hipMemAttachGlobal, hipMemLocation, hipMemLocationType, hipMemPoolAttr, hipMemPoolProps,
    hipStreamCaptureMode, hipStreamNonBlocking,
};
use runtime_core::Launch;

use crate::codes::NOT_SUPPORTED;
use crate::library::{GraphFunctions, Library, PeerFunctions, PoolFunctions};

const CAPTURE_MODE: hipStreamCaptureMode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;

fn location(device: c_int) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationType::hipMemLocationTypeDevice, id: device }
}

/// Returns the address of memory that a call allocates.
fn address(call: impl FnOnce(*mut *mut c_void) -> u32) -> Result<u64, u32> {
    let mut memory = ptr::null_mut();
    ok(call(&mut memory))?;
    Ok(memory.expose_provenance() as u64)
}

/// Methods that only make a call.
macro_rules! calls {
    ($library:ident: $($name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {$(
        #[inline]
        unsafe fn $name(&self, $($argument: $type),*) -> Result<(), u32> {
            let $library = self;
            // SAFETY: the caller guarantees that the method's arguments are valid.
            ok(unsafe { $call })
        }
    )*};
}

/// The number of a device.
fn number(place: usize) -> c_int {
    c_int::try_from(place).unwrap_or(c_int::MAX)
}

impl Library {
    fn pools(&self) -> Result<&PoolFunctions, u32> {
        self.pools.as_ref().ok_or(NOT_SUPPORTED)
    }

    fn graphs(&self) -> Result<&GraphFunctions, u32> {
        self.graphs.as_ref().ok_or(NOT_SUPPORTED)
    }

    fn peers(&self) -> Result<&PeerFunctions, u32> {
        self.peers.as_ref().ok_or(NOT_SUPPORTED)
    }

    /// # Safety
    ///
    /// The function belongs to a loaded module.
    unsafe fn attribute(
        &self,
        function: Function,
        attribute: hipFunction_attribute,
    ) -> Result<c_int, u32> {
        let ask = self.functions.hipFuncGetAttribute.ok_or(NOT_SUPPORTED)?;
        // SAFETY: the caller guarantees the function, and the number is written to a valid place.
        output(|value| unsafe { ask(value, attribute, function.pointer()) })
    }

    /// # Safety
    ///
    /// The pool is alive, and the attribute is a 64-bit number.
    unsafe fn pool_number(&self, pool: Pool, attribute: hipMemPoolAttr) -> Result<u64, u32> {
        let ask = self.pools()?.hipMemPoolGetAttribute;
        // SAFETY: the caller guarantees the pool, and the number is written to a valid place.
        output(|value: *mut u64| unsafe { ask(pool.pointer(), attribute, value.cast()) })
    }

    /// # Safety
    ///
    /// The pool is alive, and the attribute has the type `T`.
    unsafe fn pool_set<T>(
        &self,
        pool: Pool,
        attribute: hipMemPoolAttr,
        mut value: T,
    ) -> Result<(), u32> {
        let (set, value) =
            (self.pools()?.hipMemPoolSetAttribute, (&raw mut value).cast::<c_void>());
        // SAFETY: the caller guarantees the pool, and the call reads a value of the attribute's type.
        ok(unsafe { set(pool.pointer(), attribute, value) })
    }
}

// SAFETY: each method calls the runtime's function for its name, with its arguments. In each block: the caller
// guarantees that the method's arguments are valid, and the runtime writes only to valid places.
unsafe impl Api for Library {
    const RELAXED: c_uint = CAPTURE_MODE as c_uint;

    fn name(&self, code: u32) -> &'static str {
        self.functions.name(code)
    }

    calls! { library:
        copy(to: u64, from: u64, bytes: usize, stream: Stream) =
            (library.functions.hipMemcpyDtoDAsync)(pointer(to), pointer(from), bytes, stream.pointer());
        copy_from(to: *mut u8, from: u64, bytes: usize, stream: Stream) =
            (library.functions.hipMemcpyDtoHAsync)(to.cast(), pointer(from), bytes, stream.pointer());
        fill_8(to: u64, value: u8, count: usize, stream: Stream) =
            (library.functions.hipMemsetD8Async)(pointer(to), value, count, stream.pointer());
        fill_16(to: u64, value: u16, count: usize, stream: Stream) =
            (library.functions.hipMemsetD16Async)(pointer(to), value, count, stream.pointer());
        fill_32(to: u64, value: u32, count: usize, stream: Stream) =
            (library.functions.hipMemsetD32Async)(pointer(to), value.cast_signed(), count, stream.pointer());
        make_current(place: usize) = (library.functions.hipSetDevice)(number(place));
        peer_enable(peer: usize) = (library.peers()?.hipDeviceEnablePeerAccess)(number(peer), 0);
        stream_destroy(stream: Stream) = (library.functions.hipStreamDestroy)(stream.pointer());
        stream_query(stream: Stream) = (library.functions.hipStreamQuery)(stream.pointer());
        stream_synchronize(stream: Stream) =
            (library.functions.hipStreamSynchronize)(stream.pointer());
        stream_wait(stream: Stream, event: Event) =
            (library.functions.hipStreamWaitEvent)(stream.pointer(), event.pointer(), 0);
        capture_begin(stream: Stream) =
            (library.graphs()?.hipStreamBeginCapture)(stream.pointer(), CAPTURE_MODE);
        event_destroy(event: Event) = (library.functions.hipEventDestroy)(event.pointer());
        event_record(event: Event, stream: Stream) =
            (library.functions.hipEventRecord)(event.pointer(), stream.pointer());
        event_query(event: Event) = (library.functions.hipEventQuery)(event.pointer());
        event_synchronize(event: Event) = (library.functions.hipEventSynchronize)(event.pointer());
        free(address: u64) = (library.functions.hipFree)(pointer(address));
        free_host(address: u64) = (library.functions.hipHostFree)(pointer(address));
        pool_destroy(pool: Pool) = (library.pools()?.hipMemPoolDestroy)(pool.pointer());
        pool_trim(pool: Pool, keep: usize) =
            (library.pools()?.hipMemPoolTrimTo)(pool.pointer(), keep);
        pool_free(address: u64, stream: Stream) =
            (library.pools()?.hipFreeAsync)(pointer(address), stream.pointer());
        graph_destroy(graph: Graph) = (library.graphs()?.hipGraphDestroy)(graph.pointer());
        graph_launch(graph: GraphExec, stream: Stream) =
            (library.graphs()?.hipGraphLaunch)(graph.pointer(), stream.pointer());
        graph_exec_destroy(graph: GraphExec) =
            (library.graphs()?.hipGraphExecDestroy)(graph.pointer());
        module_unload(module: Module) = (library.functions.hipModuleUnload)(module.pointer());
    }

    #[inline]
    fn current(&self) -> Result<usize, u32> {
        // SAFETY: as above.
        let device = output(|device| unsafe { (self.functions.hipGetDevice)(device) })?;
        Ok(usize::try_from(device).unwrap_or(usize::MAX))
    }

    fn exchange_capture_mode(&self, mode: &mut c_uint) -> Result<(), u32> {
        let exchange = self.functions.hipThreadExchangeStreamCaptureMode.ok_or(NOT_SUPPORTED)?;
        // SAFETY: as above.
        ok(unsafe { exchange(mode) })
    }

    fn memory_info(&self) -> Result<(usize, usize), u32> {
        let mut total = 0;
        // SAFETY: as above.
        let free = output(|free| unsafe { (self.functions.hipMemGetInfo)(free, &mut total) })?;
        Ok((free, total))
    }

    fn priority_range(&self) -> Result<(c_int, c_int), u32> {
        let mut greatest = 0;
        let ask = self.functions.hipDeviceGetStreamPriorityRange.ok_or(NOT_SUPPORTED)?;
        // SAFETY: as above.
        let least = output(|least| unsafe { ask(least, &mut greatest) })?;
        Ok((least, greatest))
    }

    fn stream_create(&self, priority: c_int) -> Result<Stream, u32> {
        let create = self.functions.hipStreamCreateWithPriority;
        // SAFETY: as above.
        created(|raw| unsafe { create(raw, hipStreamNonBlocking, priority) })
    }

    unsafe fn capture_end(&self, stream: Stream) -> Result<Graph, u32> {
        let end = self.graphs()?.hipStreamEndCapture;
        // SAFETY: as above.
        created(|raw| unsafe { end(stream.pointer(), raw) })
    }

    fn event_create(&self, timing: bool) -> Result<Event, u32> {
        let flags = if timing { hipEventDefault } else { hipEventDisableTiming };
        // SAFETY: as above.
        created(|raw| unsafe { (self.functions.hipEventCreateWithFlags)(raw, flags) })
    }

    unsafe fn event_elapsed(&self, start: Event, end: Event) -> Result<f32, u32> {
        let elapsed = self.functions.hipEventElapsedTime;
        // SAFETY: as above.
        output(|milliseconds| unsafe { elapsed(milliseconds, start.pointer(), end.pointer()) })
    }

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        // SAFETY: as above.
        address(|memory| unsafe { (self.functions.hipMalloc)(memory, bytes) })
    }

    fn allocate_managed(&self, bytes: usize) -> Result<u64, u32> {
        let allocate = self.functions.hipMallocManaged.ok_or(NOT_SUPPORTED)?;
        // SAFETY: as above.
        address(|memory| unsafe { allocate(memory, bytes, hipMemAttachGlobal) })
    }

    fn allocate_host(&self, bytes: usize, write_combined: bool) -> Result<u64, u32> {
        let combined = if write_combined { hipHostMallocWriteCombined } else { 0 };
        let flags = hipHostMallocPortable | combined;
        // SAFETY: as above.
        address(|memory| unsafe { (self.functions.hipHostMalloc)(memory, bytes, flags) })
    }

    fn pool_create(&self, device: c_int) -> Result<Pool, u32> {
        let create = self.pools()?.hipMemPoolCreate;
        // SAFETY: every field may be 0: none, invalid, null.
        let mut properties: hipMemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = hipMemAllocationType::hipMemAllocationTypePinned;
        properties.location = location(device);
        // SAFETY: the call reads the properties.
        created(|raw| unsafe { create(raw, &properties) })
    }

    unsafe fn pool_set_threshold(&self, pool: Pool, bytes: u64) -> Result<(), u32> {
        // SAFETY: as above.
        unsafe { self.pool_set(pool, hipMemPoolAttr::hipMemPoolAttrReleaseThreshold, bytes) }
    }

    unsafe fn pool_set_internal_dependencies(&self, pool: Pool, on: c_int) -> Result<(), u32> {
        // SAFETY: as above.
        unsafe { self.pool_set(pool, hipMemPoolAttr::hipMemPoolReuseAllowInternalDependencies, on) }
    }

    unsafe fn pool_reserved(&self, pool: Pool) -> Result<u64, u32> {
        // SAFETY: as above.
        unsafe { self.pool_number(pool, hipMemPoolAttr::hipMemPoolAttrReservedMemCurrent) }
    }

    unsafe fn pool_used(&self, pool: Pool) -> Result<u64, u32> {
        // SAFETY: as above.
        unsafe { self.pool_number(pool, hipMemPoolAttr::hipMemPoolAttrUsedMemCurrent) }
    }

    unsafe fn pool_let_reach(&self, pool: Pool, device: c_int) -> Result<(), u32> {
        let access = hipMemAccessDesc {
            location: location(device),
            flags: hipMemAccessFlags::hipMemAccessFlagsProtReadWrite,
        };
        // SAFETY: as above; the call reads the single description.
        ok(unsafe { (self.pools()?.hipMemPoolSetAccess)(pool.pointer(), &access, 1) })
    }

    #[inline]
    unsafe fn pool_allocate(&self, pool: Pool, bytes: usize, stream: Stream) -> Result<u64, u32> {
        let (allocate, pool) = (self.pools()?.hipMallocFromPoolAsync, pool.pointer());
        // SAFETY: as above.
        address(|memory| unsafe { allocate(memory, bytes, pool, stream.pointer()) })
    }

    #[inline]
    unsafe fn copy_to(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32> {
        let copy = self.functions.hipMemcpyHtoDAsync;
        // SAFETY: as above; the runtime does not write to the source, although its headers declare a mutable pointer.
        ok(unsafe { copy(pointer(to), from.cast_mut().cast(), bytes, stream.pointer()) })
    }

    fn peer_possible(&self, device: c_int, peer: c_int) -> Result<c_int, u32> {
        let ask = self.peers()?.hipDeviceCanAccessPeer;
        // SAFETY: as above.
        output(|can| unsafe { ask(can, device, peer) })
    }

    #[inline]
    unsafe fn copy_peer(
        &self,
        (to, here): (u64, usize),
        (from, there): (u64, usize),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32> {
        let [here, there] = [here, there].map(number);
        let (copy, to, from) = (self.peers()?.hipMemcpyPeerAsync, pointer(to), pointer(from));
        // SAFETY: as above.
        ok(unsafe { copy(to, here, from, there, bytes, stream.pointer()) })
    }

    unsafe fn graph_instantiate(&self, graph: Graph) -> Result<GraphExec, u32> {
        let instantiate = self.graphs()?.hipGraphInstantiateWithFlags;
        // SAFETY: as above.
        created(|raw| unsafe { instantiate(raw, graph.pointer(), 0) })
    }

    unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function, u32> {
        let (find, name) = (self.functions.hipModuleGetFunction, name.as_ptr());
        // SAFETY: as above.
        created(|raw| unsafe { find(raw, module.pointer(), name) })
    }

    unsafe fn function_threads(&self, function: Function) -> Result<c_int, u32> {
        // SAFETY: as above.
        unsafe {
            self.attribute(
                function,
                hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            )
        }
    }

    unsafe fn function_shared(&self, function: Function) -> Result<c_int, u32> {
        // SAFETY: as above.
        unsafe {
            self.attribute(function, hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        }
    }

    unsafe fn suggested_block(&self, function: Function, shared: usize) -> Result<c_int, u32> {
        let ask = self.functions.hipModuleOccupancyMaxPotentialBlockSize.ok_or(NOT_SUPPORTED)?;
        let (mut grid, function) = (0, function.pointer());
        // SAFETY: as above.
        output(|block| unsafe { ask(&mut grid, block, function, shared, 0) })
    }

    unsafe fn resident_blocks(
        &self,
        function: Function,
        block: c_int,
        shared: usize,
    ) -> Result<c_int, u32> {
        let ask = self.functions.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor;
        let ask = ask.ok_or(NOT_SUPPORTED)?;
        // SAFETY: as above.
        output(|blocks| unsafe { ask(blocks, function.pointer(), block, shared) })
    }

    #[inline]
    unsafe fn launch(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: *mut *mut c_void,
    ) -> Result<(), u32> {
        let ([gx, gy, gz], [bx, by, bz], shared) = (launch.grid, launch.block, launch.shared_bytes);
        let (function, stream, extra) = (function.pointer(), stream.pointer(), ptr::null_mut());
        let launch = self.functions.hipModuleLaunchKernel;
        // SAFETY: as above.
        ok(unsafe { launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra) })
    }

    #[inline]
    unsafe fn launch_cooperative(
        &self,
        function: Function,
        launch: &Launch,
        stream: Stream,
        arguments: *mut *mut c_void,
    ) -> Result<(), u32> {
        let ([gx, gy, gz], [bx, by, bz], shared) = (launch.grid, launch.block, launch.shared_bytes);
        let (function, stream) = (function.pointer(), stream.pointer());
        let launch = self.functions.hipModuleLaunchCooperativeKernel.ok_or(NOT_SUPPORTED)?;
        // SAFETY: as above.
        ok(unsafe { launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments) })
    }
}
