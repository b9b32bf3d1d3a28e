//! The driver's functions, as the calls that devices make.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

use backend_gpu::handle::{
    Event, Function, Graph, GraphExec, Module, Pool, Stream, number, pointer, value,
};
use backend_gpu::{Api, Codes, calls};
use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CU_MEMHOSTREGISTER_PORTABLE,
    CUcontext, CUevent_flags, CUfunction_attribute, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationType, CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUstream_flags, CUstreamCaptureMode, CUstreamWaitValue_flags,
};
use runtime_core::Launch;

use crate::cuda::Cuda;
use crate::library::Library;

const CAPTURE_MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const MANAGED: c_uint = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as c_uint;
const AT_LEAST: c_uint = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
const NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;

const THREADS: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
const SHARED: CUfunction_attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;

const THRESHOLD: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
const INTERNAL_DEPENDENCIES: CUmemPool_attribute =
    CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
const RESERVED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
const USED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;

fn context(place: usize) -> CUcontext {
    ptr::with_exposed_provenance_mut(place)
}

fn event_flags(timing: bool) -> c_uint {
    let flags = match timing {
        true => CUevent_flags::CU_EVENT_DEFAULT,
        false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
    };
    flags as c_uint
}

fn host_flags(write_combined: bool) -> c_uint {
    CU_MEMHOSTALLOC_PORTABLE | if write_combined { CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 }
}

fn location(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn access(device: c_int) -> CUmemAccessDesc {
    let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemAccessDesc { location: location(device), flags }
}

fn properties(device: c_int) -> CUmemPoolProps {
    // SAFETY: every field may be 0: none, invalid, null.
    let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
    properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(device);
    properties
}

// SAFETY: each method calls the driver's function for its name, with its arguments.
unsafe impl Api for Library {
    const RELAXED: c_uint = CAPTURE_MODE as c_uint;

    fn name(&self, code: u32) -> &'static str {
        self.functions.name(code)
    }

    calls! { library:
        fn device(ordinal: c_int) -> c_int |device| =
            (library.functions.cuDeviceGet)(&mut device, ordinal);
        fn device_attribute(device: c_int, attribute: c_uint) -> c_int |value| =
            (library.functions.cuDeviceGetAttribute)(&mut value, attribute, device);
        fn device_name(device: c_int, name: &mut [c_char; 256]) =
            (library.functions.cuDeviceGetName)(name.as_mut_ptr(), 256, device);
        fn device_uuid(device: c_int) -> [u8; 16] |uuid| =
            (library.functions.cuDeviceGetUuid_v2)(&mut uuid, device);
        fn device_memory(device: c_int) -> usize |bytes| =
            (library.functions.cuDeviceTotalMem_v2)(&mut bytes, device);

        fn current() -> usize |context| = (library.functions.cuCtxGetCurrent)(&mut context);
        unsafe fn make_current(place: usize) = (library.functions.cuCtxSetCurrent)(context(place));
        fn exchange_capture_mode(mode: &mut c_uint) =
            (library.functions.cuThreadExchangeStreamCaptureMode)(mode);
        fn memory_info() -> (usize, usize) |free, total| =
            (library.functions.cuMemGetInfo_v2)(&mut free, &mut total);
        fn priority_range() -> (c_int, c_int) |least, greatest| =
            (library.functions.cuCtxGetStreamPriorityRange)(&mut least, &mut greatest);

        fn stream_create(priority: c_int) -> Stream |stream| =
            (library.functions.cuStreamCreateWithPriority)(&mut stream, NON_BLOCKING, priority);
        unsafe fn stream_destroy(stream: Stream) =
            (library.functions.cuStreamDestroy_v2)(stream.pointer());
        unsafe fn stream_query(stream: Stream) =
            (library.functions.cuStreamQuery)(stream.pointer());
        unsafe fn stream_synchronize(stream: Stream) =
            (library.functions.cuStreamSynchronize)(stream.pointer());
        unsafe fn stream_wait(stream: Stream, event: Event) =
            (library.functions.cuStreamWaitEvent)(stream.pointer(), event.pointer(), 0);
        unsafe fn stream_wait_value(stream: Stream, signal: u64, value: u32) =
            Cuda::optional(library.functions.cuStreamWaitValue32_v2)?(
                stream.pointer(), signal, value, AT_LEAST,
            );
        unsafe fn capture_begin(stream: Stream) =
            (library.functions.cuStreamBeginCapture_v2)(stream.pointer(), CAPTURE_MODE);
        unsafe fn capture_end(stream: Stream) -> Graph |graph| =
            (library.functions.cuStreamEndCapture)(stream.pointer(), &mut graph);

        fn event_create(timing: bool) -> Event |event| =
            (library.functions.cuEventCreate)(&mut event, event_flags(timing));
        unsafe fn event_destroy(event: Event) =
            (library.functions.cuEventDestroy_v2)(event.pointer());
        unsafe fn event_record(event: Event, stream: Stream) =
            (library.functions.cuEventRecord)(event.pointer(), stream.pointer());
        unsafe fn event_query(event: Event) = (library.functions.cuEventQuery)(event.pointer());
        unsafe fn event_synchronize(event: Event) =
            (library.functions.cuEventSynchronize)(event.pointer());
        unsafe fn event_elapsed(start: Event, end: Event) -> f32 |milliseconds| =
            (library.functions.cuEventElapsedTime)(
                &mut milliseconds, start.pointer(), end.pointer(),
            );

        fn allocate(bytes: usize) -> u64 |address| =
            (library.functions.cuMemAlloc_v2)(&mut address, bytes);
        unsafe fn free(address: u64) = (library.functions.cuMemFree_v2)(address);
        fn allocate_managed(bytes: usize) -> u64 |address| =
            (library.functions.cuMemAllocManaged)(&mut address, bytes, MANAGED);
        fn allocate_host(bytes: usize, write_combined: bool) -> u64 |memory| =
            (library.functions.cuMemHostAlloc)(&mut memory, bytes, host_flags(write_combined));
        unsafe fn free_host(address: u64) = (library.functions.cuMemFreeHost)(pointer(address));
        fn allocate_signal() -> u64 |memory| =
            (library.functions.cuMemHostAlloc)(&mut memory, 8, CU_MEMHOSTALLOC_PORTABLE);
        unsafe fn free_signal(address: u64) = (library.functions.cuMemFreeHost)(pointer(address));
        unsafe fn register_host(address: u64, bytes: usize) =
            Cuda::optional(library.functions.cuMemHostRegister_v2)?(
                pointer(address), bytes, CU_MEMHOSTREGISTER_PORTABLE,
            );
        unsafe fn unregister_host(address: u64) =
            Cuda::optional(library.functions.cuMemHostUnregister)?(pointer(address));

        fn pool_create(device: c_int) -> Pool |pool| =
            (library.functions.cuMemPoolCreate)(&mut pool, &properties(device));
        unsafe fn pool_destroy(pool: Pool) = (library.functions.cuMemPoolDestroy)(pool.pointer());
        unsafe fn pool_set_threshold(pool: Pool, bytes: u64) =
            (library.functions.cuMemPoolSetAttribute)(pool.pointer(), THRESHOLD, value(&bytes));
        unsafe fn pool_set_internal_dependencies(pool: Pool, on: c_int) =
            (library.functions.cuMemPoolSetAttribute)(
                pool.pointer(), INTERNAL_DEPENDENCIES, value(&on),
            );
        unsafe fn pool_reserved(pool: Pool) -> u64 |bytes| =
            (library.functions.cuMemPoolGetAttribute)(pool.pointer(), RESERVED, number(&mut bytes));
        unsafe fn pool_used(pool: Pool) -> u64 |bytes| =
            (library.functions.cuMemPoolGetAttribute)(pool.pointer(), USED, number(&mut bytes));
        unsafe fn pool_let_reach(pool: Pool, device: c_int) =
            (library.functions.cuMemPoolSetAccess)(pool.pointer(), &access(device), 1);
        unsafe fn pool_trim(pool: Pool, keep: usize) =
            (library.functions.cuMemPoolTrimTo)(pool.pointer(), keep);
        unsafe fn pool_allocate(pool: Pool, bytes: usize, stream: Stream) -> u64 |address| =
            (library.functions.cuMemAllocFromPoolAsync)(
                &mut address, bytes, pool.pointer(), stream.pointer(),
            );
        unsafe fn pool_free(address: u64, stream: Stream) =
            (library.functions.cuMemFreeAsync)(address, stream.pointer());

        unsafe fn copy(to: u64, from: u64, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream.pointer());
        unsafe fn copy_to(to: u64, from: *const u8, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, stream.pointer());
        unsafe fn copy_from(to: *mut u8, from: u64, bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, stream.pointer());
        unsafe fn fill_8(to: u64, value: u8, count: usize, stream: Stream) =
            (library.functions.cuMemsetD8Async)(to, value, count, stream.pointer());
        unsafe fn fill_16(to: u64, value: u16, count: usize, stream: Stream) =
            (library.functions.cuMemsetD16Async)(to, value, count, stream.pointer());
        unsafe fn fill_32(to: u64, value: u32, count: usize, stream: Stream) =
            (library.functions.cuMemsetD32Async)(to, value, count, stream.pointer());

        fn peer_possible(device: c_int, peer: c_int) -> c_int |can| =
            (library.functions.cuDeviceCanAccessPeer)(&mut can, device, peer);
        unsafe fn peer_enable(peer: usize) =
            (library.functions.cuCtxEnablePeerAccess)(context(peer), 0);
        unsafe fn copy_peer(to: (u64, usize), from: (u64, usize), bytes: usize, stream: Stream) =
            (library.functions.cuMemcpyPeerAsync)(
                to.0, context(to.1), from.0, context(from.1), bytes, stream.pointer(),
            );

        unsafe fn graph_instantiate(graph: Graph) -> GraphExec |exec| =
            (library.functions.cuGraphInstantiateWithFlags)(&mut exec, graph.pointer(), 0);
        unsafe fn graph_destroy(graph: Graph) =
            (library.functions.cuGraphDestroy)(graph.pointer());
        unsafe fn graph_launch(graph: GraphExec, stream: Stream) =
            (library.functions.cuGraphLaunch)(graph.pointer(), stream.pointer());
        unsafe fn graph_exec_destroy(graph: GraphExec) =
            (library.functions.cuGraphExecDestroy)(graph.pointer());

        unsafe fn module_unload(module: Module) =
            (library.functions.cuModuleUnload)(module.pointer());
        unsafe fn module_function(module: Module, name: &CStr) -> Function |function| =
            (library.functions.cuModuleGetFunction)(&mut function, module.pointer(), name.as_ptr());
        unsafe fn function_threads(function: Function) -> c_int |threads| =
            (library.functions.cuFuncGetAttribute)(&mut threads, THREADS, function.pointer());
        unsafe fn function_shared(function: Function) -> c_int |bytes| =
            (library.functions.cuFuncGetAttribute)(&mut bytes, SHARED, function.pointer());
        unsafe fn suggested_block(function: Function, shared: usize) -> c_int |block| =
            (library.functions.cuOccupancyMaxPotentialBlockSize)(
                &mut 0, &mut block, function.pointer(), None, shared, 0,
            );
        unsafe fn resident_blocks(
            function: Function, block: c_int, shared: usize
        ) -> c_int |blocks| =
            (library.functions.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &mut blocks, function.pointer(), block, shared,
            );
        unsafe fn launch(
            function: Function, launch: &Launch, stream: Stream, arguments: *mut *mut c_void
        ) = (library.functions.cuLaunchKernel)(
                function.pointer(), launch.grid[0], launch.grid[1], launch.grid[2],
                launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                stream.pointer(), arguments, ptr::null_mut(),
            );
        unsafe fn launch_cooperative(
            function: Function, launch: &Launch, stream: Stream, arguments: *mut *mut c_void
        ) = (library.functions.cuLaunchCooperativeKernel)(
                function.pointer(), launch.grid[0], launch.grid[1], launch.grid[2],
                launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                stream.pointer(), arguments,
            );
    }
}
