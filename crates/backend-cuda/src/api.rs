//! The driver's functions, as the calls that devices make.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::{mem, ptr};

use backend_gpu::handle::{Event, Function, Graph, GraphExec, Module, Pool, Stream, pointer};
use backend_gpu::{Api, created, ok, output};
use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CUcontext, CUevent_flags,
    CUfunction_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType,
    CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUstream_flags, CUstreamCaptureMode,
};
use runtime_core::Launch;

use crate::library::Library;

const CAPTURE_MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn location(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
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

impl Library {
    /// # Safety
    ///
    /// The function belongs to a loaded module.
    unsafe fn attribute(
        &self,
        function: Function,
        attribute: CUfunction_attribute,
    ) -> Result<c_int, u32> {
        let ask = self.functions.cuFuncGetAttribute;
        // SAFETY: the caller guarantees the function, and the number is written to a valid place.
        output(|value| unsafe { ask(value, attribute, function.pointer()) })
    }

    /// # Safety
    ///
    /// The pool is alive, and the attribute is a 64-bit number.
    unsafe fn pool_number(&self, pool: Pool, attribute: CUmemPool_attribute) -> Result<u64, u32> {
        let ask = self.functions.cuMemPoolGetAttribute;
        // SAFETY: the caller guarantees the pool, and the number is written to a valid place.
        output(|value: *mut u64| unsafe { ask(pool.pointer(), attribute, value.cast()) })
    }

    /// # Safety
    ///
    /// The pool is alive, and the attribute has the type `T`.
    unsafe fn pool_set<T>(
        &self,
        pool: Pool,
        attribute: CUmemPool_attribute,
        mut value: T,
    ) -> Result<(), u32> {
        let value = (&raw mut value).cast::<c_void>();
        // SAFETY: the caller guarantees the pool, and the call reads a value of the attribute's type.
        ok(unsafe { (self.functions.cuMemPoolSetAttribute)(pool.pointer(), attribute, value) })
    }
}

// SAFETY: each method calls the driver's function for its name, with its arguments. In each block: the caller
// guarantees that the method's arguments are valid, and the driver writes only to valid places.
unsafe impl Api for Library {
    const RELAXED: c_uint = CAPTURE_MODE as c_uint;

    fn name(&self, code: u32) -> &'static str {
        self.functions.name(code)
    }

    calls! { library:
        copy_to(to: u64, from: *const u8, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, stream.pointer());
        copy_from(to: *mut u8, from: u64, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, stream.pointer());
        make_current(place: usize) =
            (library.functions.cuCtxSetCurrent)(ptr::with_exposed_provenance_mut(place));
        peer_enable(peer: usize) =
            (library.functions.cuCtxEnablePeerAccess)(ptr::with_exposed_provenance_mut(peer), 0);
        stream_destroy(stream: Stream) = (library.functions.cuStreamDestroy_v2)(stream.pointer());
        stream_query(stream: Stream) = (library.functions.cuStreamQuery)(stream.pointer());
        stream_synchronize(stream: Stream) =
            (library.functions.cuStreamSynchronize)(stream.pointer());
        stream_wait(stream: Stream, event: Event) =
            (library.functions.cuStreamWaitEvent)(stream.pointer(), event.pointer(), 0);
        capture_begin(stream: Stream) =
            (library.functions.cuStreamBeginCapture_v2)(stream.pointer(), CAPTURE_MODE);
        event_destroy(event: Event) = (library.functions.cuEventDestroy_v2)(event.pointer());
        event_record(event: Event, stream: Stream) =
            (library.functions.cuEventRecord)(event.pointer(), stream.pointer());
        event_query(event: Event) = (library.functions.cuEventQuery)(event.pointer());
        event_synchronize(event: Event) = (library.functions.cuEventSynchronize)(event.pointer());
        free(address: u64) = (library.functions.cuMemFree_v2)(address);
        free_host(address: u64) = (library.functions.cuMemFreeHost)(pointer(address));
        pool_destroy(pool: Pool) = (library.functions.cuMemPoolDestroy)(pool.pointer());
        pool_trim(pool: Pool, keep: usize) =
            (library.functions.cuMemPoolTrimTo)(pool.pointer(), keep);
        pool_free(address: u64, stream: Stream) =
            (library.functions.cuMemFreeAsync)(address, stream.pointer());
        copy(to: u64, from: u64, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream.pointer());
        fill_8(to: u64, value: u8, count: usize, stream: Stream) =
            (library.functions.cuMemsetD8Async)(to, value, count, stream.pointer());
        fill_16(to: u64, value: u16, count: usize, stream: Stream) =
            (library.functions.cuMemsetD16Async)(to, value, count, stream.pointer());
        fill_32(to: u64, value: u32, count: usize, stream: Stream) =
            (library.functions.cuMemsetD32Async)(to, value, count, stream.pointer());
        graph_destroy(graph: Graph) = (library.functions.cuGraphDestroy)(graph.pointer());
        graph_launch(graph: GraphExec, stream: Stream) =
            (library.functions.cuGraphLaunch)(graph.pointer(), stream.pointer());
        graph_exec_destroy(graph: GraphExec) =
            (library.functions.cuGraphExecDestroy)(graph.pointer());
        module_unload(module: Module) = (library.functions.cuModuleUnload)(module.pointer());
    }

    #[inline]
    fn current(&self) -> Result<usize, u32> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: as above.
        ok(unsafe { (self.functions.cuCtxGetCurrent)(&mut context) })?;
        Ok(context.expose_provenance())
    }

    fn exchange_capture_mode(&self, mode: &mut c_uint) -> Result<(), u32> {
        // SAFETY: as above.
        ok(unsafe { (self.functions.cuThreadExchangeStreamCaptureMode)(mode) })
    }

    fn memory_info(&self) -> Result<(usize, usize), u32> {
        let mut total = 0;
        // SAFETY: as above.
        let free = output(|free| unsafe { (self.functions.cuMemGetInfo_v2)(free, &mut total) })?;
        Ok((free, total))
    }

    fn priority_range(&self) -> Result<(c_int, c_int), u32> {
        let mut greatest = 0;
        let ask = self.functions.cuCtxGetStreamPriorityRange;
        // SAFETY: as above.
        let least = output(|least| unsafe { ask(least, &mut greatest) })?;
        Ok((least, greatest))
    }

    fn stream_create(&self, priority: c_int) -> Result<Stream, u32> {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: as above.
        created(|raw| unsafe { (self.functions.cuStreamCreateWithPriority)(raw, flags, priority) })
    }

    unsafe fn capture_end(&self, stream: Stream) -> Result<Graph, u32> {
        // SAFETY: as above.
        created(|raw| unsafe { (self.functions.cuStreamEndCapture)(stream.pointer(), raw) })
    }

    fn event_create(&self, timing: bool) -> Result<Event, u32> {
        let flags = if timing {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        // SAFETY: as above.
        created(|raw| unsafe { (self.functions.cuEventCreate)(raw, flags as u32) })
    }

    unsafe fn event_elapsed(&self, start: Event, end: Event) -> Result<f32, u32> {
        let elapsed = self.functions.cuEventElapsedTime;
        // SAFETY: as above.
        output(|milliseconds| unsafe { elapsed(milliseconds, start.pointer(), end.pointer()) })
    }

    fn allocate(&self, bytes: usize) -> Result<u64, u32> {
        // SAFETY: as above.
        output(|address| unsafe { (self.functions.cuMemAlloc_v2)(address, bytes) })
    }

    fn allocate_managed(&self, bytes: usize) -> Result<u64, u32> {
        let flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
        // SAFETY: as above.
        output(|address| unsafe { (self.functions.cuMemAllocManaged)(address, bytes, flags) })
    }

    fn allocate_host(&self, bytes: usize, write_combined: bool) -> Result<u64, u32> {
        let combined = if write_combined { CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
        let flags = CU_MEMHOSTALLOC_PORTABLE | combined;
        let mut memory = ptr::null_mut();
        // SAFETY: as above.
        ok(unsafe { (self.functions.cuMemHostAlloc)(&mut memory, bytes, flags) })?;
        Ok(memory.expose_provenance() as u64)
    }

    fn pool_create(&self, device: c_int) -> Result<Pool, u32> {
        // SAFETY: every field may be 0: none, invalid, null.
        let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location(device);
        // SAFETY: the call reads the properties.
        created(|raw| unsafe { (self.functions.cuMemPoolCreate)(raw, &properties) })
    }

    unsafe fn pool_set_threshold(&self, pool: Pool, bytes: u64) -> Result<(), u32> {
        // SAFETY: as above.
        unsafe {
            self.pool_set(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
        }
    }

    unsafe fn pool_set_internal_dependencies(&self, pool: Pool, on: c_int) -> Result<(), u32> {
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        // SAFETY: as above.
        unsafe { self.pool_set(pool, attribute, on) }
    }

    unsafe fn pool_reserved(&self, pool: Pool) -> Result<u64, u32> {
        // SAFETY: as above.
        unsafe { self.pool_number(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) }
    }

    unsafe fn pool_used(&self, pool: Pool) -> Result<u64, u32> {
        // SAFETY: as above.
        unsafe { self.pool_number(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT) }
    }

    unsafe fn pool_let_reach(&self, pool: Pool, device: c_int) -> Result<(), u32> {
        let access = CUmemAccessDesc {
            location: location(device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: as above; the call reads the single description.
        ok(unsafe { (self.functions.cuMemPoolSetAccess)(pool.pointer(), &access, 1) })
    }

    #[inline]
    unsafe fn pool_allocate(&self, pool: Pool, bytes: usize, stream: Stream) -> Result<u64, u32> {
        let (allocate, pool) = (self.functions.cuMemAllocFromPoolAsync, pool.pointer());
        // SAFETY: as above.
        output(|address| unsafe { allocate(address, bytes, pool, stream.pointer()) })
    }

    fn peer_possible(&self, device: c_int, peer: c_int) -> Result<c_int, u32> {
        // SAFETY: as above.
        output(|can| unsafe { (self.functions.cuDeviceCanAccessPeer)(can, device, peer) })
    }

    #[inline]
    unsafe fn copy_peer(
        &self,
        (to, here): (u64, usize),
        (from, there): (u64, usize),
        bytes: usize,
        stream: Stream,
    ) -> Result<(), u32> {
        let [here, there] = [here, there].map(ptr::with_exposed_provenance_mut);
        let copy = self.functions.cuMemcpyPeerAsync;
        // SAFETY: as above.
        ok(unsafe { copy(to, here, from, there, bytes, stream.pointer()) })
    }

    unsafe fn graph_instantiate(&self, graph: Graph) -> Result<GraphExec, u32> {
        let instantiate = self.functions.cuGraphInstantiateWithFlags;
        // SAFETY: as above.
        created(|raw| unsafe { instantiate(raw, graph.pointer(), 0) })
    }

    unsafe fn module_function(&self, module: Module, name: &CStr) -> Result<Function, u32> {
        let (find, name) = (self.functions.cuModuleGetFunction, name.as_ptr());
        // SAFETY: as above.
        created(|raw| unsafe { find(raw, module.pointer(), name) })
    }

    unsafe fn function_threads(&self, function: Function) -> Result<c_int, u32> {
        // SAFETY: as above.
        unsafe {
            self.attribute(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        }
    }

    unsafe fn function_shared(&self, function: Function) -> Result<c_int, u32> {
        // SAFETY: as above.
        unsafe {
            self.attribute(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        }
    }

    unsafe fn suggested_block(&self, function: Function, shared: usize) -> Result<c_int, u32> {
        let (mut grid, ask) = (0, self.functions.cuOccupancyMaxPotentialBlockSize);
        let function = function.pointer();
        // SAFETY: as above.
        output(|block| unsafe { ask(&mut grid, block, function, None, shared, 0) })
    }

    unsafe fn resident_blocks(
        &self,
        function: Function,
        block: c_int,
        shared: usize,
    ) -> Result<c_int, u32> {
        let ask = self.functions.cuOccupancyMaxActiveBlocksPerMultiprocessor;
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
        let launch = self.functions.cuLaunchKernel;
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
        let launch = self.functions.cuLaunchCooperativeKernel;
        // SAFETY: as above.
        ok(unsafe { launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments) })
    }
}
