//! The runtime's functions, as the calls that devices make.
#![expect(unsafe_code, reason = "calls the runtime")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

use backend_gpu::handle::{
    Event, Function, Graph, GraphExec, Module, Pool, Stream, number, pointer, value,
};
use backend_gpu::{Api, Codes, calls};
use hip_sys::hiprt::{
    hipEventDefault, hipEventDisableTiming, hipFunction_attribute, hipHostMallocPortable,
    hipHostMallocWriteCombined, hipMallocSignalMemory, hipMemAccessDesc, hipMemAccessFlags,
    hipMemAllocationType, hipMemAttachGlobal, hipMemLocation, hipMemLocationType, hipMemPoolAttr,
    hipMemPoolProps, hipStreamCaptureMode, hipStreamNonBlocking, hipStreamWaitValueGte,
};
use runtime_core::Launch;

use crate::hip::Hip;
use crate::library::{GraphFunctions, Library, PeerFunctions, PoolFunctions};

const CAPTURE_MODE: hipStreamCaptureMode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;

const THREADS: hipFunction_attribute =
    hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
const SHARED: hipFunction_attribute = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;

const THRESHOLD: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrReleaseThreshold;
const INTERNAL_DEPENDENCIES: hipMemPoolAttr =
    hipMemPoolAttr::hipMemPoolReuseAllowInternalDependencies;
const RESERVED: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrReservedMemCurrent;
const USED: hipMemPoolAttr = hipMemPoolAttr::hipMemPoolAttrUsedMemCurrent;

/// The number of a device.
fn device(place: usize) -> c_int {
    c_int::try_from(place).unwrap_or(c_int::MAX)
}

fn event_flags(timing: bool) -> c_uint {
    if timing { hipEventDefault } else { hipEventDisableTiming }
}

/// `hipHostRegisterPortable`, which the bindings lack.
const REGISTER_PORTABLE: c_uint = 1;

fn host_flags(write_combined: bool) -> c_uint {
    hipHostMallocPortable | if write_combined { hipHostMallocWriteCombined } else { 0 }
}

fn location(device: c_int) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationType::hipMemLocationTypeDevice, id: device }
}

fn access(device: c_int) -> hipMemAccessDesc {
    let flags = hipMemAccessFlags::hipMemAccessFlagsProtReadWrite;
    hipMemAccessDesc { location: location(device), flags }
}

fn properties(device: c_int) -> hipMemPoolProps {
    // SAFETY: every field may be 0: none, invalid, null.
    let mut properties: hipMemPoolProps = unsafe { mem::zeroed() };
    properties.allocType = hipMemAllocationType::hipMemAllocationTypePinned;
    properties.location = location(device);
    properties
}

impl Library {
    fn pools(&self) -> Result<&PoolFunctions, u32> {
        Hip::optional(self.pools.as_ref())
    }

    fn graphs(&self) -> Result<&GraphFunctions, u32> {
        Hip::optional(self.graphs.as_ref())
    }

    fn peers(&self) -> Result<&PeerFunctions, u32> {
        Hip::optional(self.peers.as_ref())
    }
}

// SAFETY: each method calls the runtime's function for its name, with its arguments. The runtime does not write to the
// source of `copy_to`, although its headers declare a mutable pointer.
unsafe impl Api for Library {
    const RELAXED: c_uint = CAPTURE_MODE as c_uint;

    fn name(&self, code: u32) -> &'static str {
        self.functions.name(code)
    }

    calls! { library:
        fn device(ordinal: c_int) -> c_int |device| =
            (library.functions.hipDeviceGet)(&mut device, ordinal);
        fn device_attribute(device: c_int, attribute: c_uint) -> c_int |value| =
            (library.functions.hipDeviceGetAttribute)(&mut value, attribute, device);
        fn device_name(device: c_int, name: &mut [c_char; 256]) =
            (library.functions.hipDeviceGetName)(name.as_mut_ptr(), 256, device);
        fn device_uuid(device: c_int) -> [u8; 16] |uuid| =
            Hip::optional(library.functions.hipDeviceGetUuid)?(&mut uuid, device);
        fn device_memory(device: c_int) -> usize |bytes| =
            (library.functions.hipDeviceTotalMem)(&mut bytes, device);

        fn current() -> usize |device| = (library.functions.hipGetDevice)(&mut device);
        unsafe fn make_current(place: usize) = (library.functions.hipSetDevice)(device(place));
        fn exchange_capture_mode(mode: &mut c_uint) =
            Hip::optional(library.functions.hipThreadExchangeStreamCaptureMode)?(mode);
        fn memory_info() -> (usize, usize) |free, total| =
            (library.functions.hipMemGetInfo)(&mut free, &mut total);
        fn priority_range() -> (c_int, c_int) |least, greatest| =
            Hip::optional(library.functions.hipDeviceGetStreamPriorityRange)?(&mut least, &mut greatest);

        fn stream_create(priority: c_int) -> Stream |stream| =
            (library.functions.hipStreamCreateWithPriority)(
                &mut stream, hipStreamNonBlocking, priority,
            );
        unsafe fn stream_destroy(stream: Stream) =
            (library.functions.hipStreamDestroy)(stream.pointer());
        unsafe fn stream_query(stream: Stream) = (library.functions.hipStreamQuery)(stream.pointer());
        unsafe fn stream_synchronize(stream: Stream) =
            (library.functions.hipStreamSynchronize)(stream.pointer());
        unsafe fn stream_wait(stream: Stream, event: Event) =
            (library.functions.hipStreamWaitEvent)(stream.pointer(), event.pointer(), 0);
        unsafe fn stream_wait_value(stream: Stream, signal: u64, value: u32) =
            Hip::optional(library.functions.hipStreamWaitValue32)?(
                stream.pointer(), pointer(signal), value, hipStreamWaitValueGte, u32::MAX,
            );
        unsafe fn capture_begin(stream: Stream) =
            (library.graphs()?.hipStreamBeginCapture)(stream.pointer(), CAPTURE_MODE);
        unsafe fn capture_end(stream: Stream) -> Graph |graph| =
            (library.graphs()?.hipStreamEndCapture)(stream.pointer(), &mut graph);

        fn event_create(timing: bool) -> Event |event| =
            (library.functions.hipEventCreateWithFlags)(&mut event, event_flags(timing));
        unsafe fn event_destroy(event: Event) =
            (library.functions.hipEventDestroy)(event.pointer());
        unsafe fn event_record(event: Event, stream: Stream) =
            (library.functions.hipEventRecord)(event.pointer(), stream.pointer());
        unsafe fn event_query(event: Event) = (library.functions.hipEventQuery)(event.pointer());
        unsafe fn event_synchronize(event: Event) =
            (library.functions.hipEventSynchronize)(event.pointer());
        unsafe fn event_elapsed(start: Event, end: Event) -> f32 |milliseconds| =
            (library.functions.hipEventElapsedTime)(
                &mut milliseconds, start.pointer(), end.pointer(),
            );

        fn allocate(bytes: usize) -> u64 |memory| =
            (library.functions.hipMalloc)(&mut memory, bytes);
        unsafe fn free(address: u64) = (library.functions.hipFree)(pointer(address));
        fn allocate_managed(bytes: usize) -> u64 |memory| =
            Hip::optional(library.functions.hipMallocManaged)?(&mut memory, bytes, hipMemAttachGlobal);
        fn allocate_host(bytes: usize, write_combined: bool) -> u64 |memory| =
            (library.functions.hipHostMalloc)(&mut memory, bytes, host_flags(write_combined));
        unsafe fn free_host(address: u64) = (library.functions.hipHostFree)(pointer(address));
        fn allocate_signal() -> u64 |memory| =
            Hip::optional(library.functions.hipExtMallocWithFlags)?(
                &mut memory, 8, hipMallocSignalMemory,
            );
        unsafe fn free_signal(address: u64) = (library.functions.hipFree)(pointer(address));
        unsafe fn register_host(address: u64, bytes: usize) =
            Hip::optional(library.functions.hipHostRegister)?(pointer(address), bytes, REGISTER_PORTABLE);
        unsafe fn unregister_host(address: u64) =
            Hip::optional(library.functions.hipHostUnregister)?(pointer(address));

        fn pool_create(device: c_int) -> Pool |pool| =
            (library.pools()?.hipMemPoolCreate)(&mut pool, &properties(device));
        unsafe fn pool_destroy(pool: Pool) = (library.pools()?.hipMemPoolDestroy)(pool.pointer());
        unsafe fn pool_set_threshold(pool: Pool, bytes: u64) =
            (library.pools()?.hipMemPoolSetAttribute)(pool.pointer(), THRESHOLD, value(&bytes));
        unsafe fn pool_set_internal_dependencies(pool: Pool, on: c_int) =
            (library.pools()?.hipMemPoolSetAttribute)(
                pool.pointer(), INTERNAL_DEPENDENCIES, value(&on),
            );
        unsafe fn pool_reserved(pool: Pool) -> u64 |bytes| =
            (library.pools()?.hipMemPoolGetAttribute)(pool.pointer(), RESERVED, number(&mut bytes));
        unsafe fn pool_used(pool: Pool) -> u64 |bytes| =
            (library.pools()?.hipMemPoolGetAttribute)(pool.pointer(), USED, number(&mut bytes));
        unsafe fn pool_let_reach(pool: Pool, device: c_int) =
            (library.pools()?.hipMemPoolSetAccess)(pool.pointer(), &access(device), 1);
        unsafe fn pool_trim(pool: Pool, keep: usize) =
            (library.pools()?.hipMemPoolTrimTo)(pool.pointer(), keep);
        unsafe fn pool_allocate(pool: Pool, bytes: usize, stream: Stream) -> u64 |memory| =
            (library.pools()?.hipMallocFromPoolAsync)(
                &mut memory, bytes, pool.pointer(), stream.pointer(),
            );
        unsafe fn pool_free(address: u64, stream: Stream) =
            (library.pools()?.hipFreeAsync)(pointer(address), stream.pointer());

        unsafe fn copy(to: u64, from: u64, bytes: usize, stream: Stream) =
            (library.functions.hipMemcpyDtoDAsync)(
                pointer(to), pointer(from), bytes, stream.pointer(),
            );
        unsafe fn copy_to(to: u64, from: *const u8, bytes: usize, stream: Stream) =
            (library.functions.hipMemcpyHtoDAsync)(
                pointer(to), from.cast_mut().cast(), bytes, stream.pointer(),
            );
        unsafe fn copy_from(to: *mut u8, from: u64, bytes: usize, stream: Stream) =
            (library.functions.hipMemcpyDtoHAsync)(
                to.cast(), pointer(from), bytes, stream.pointer(),
            );
        unsafe fn fill_8(to: u64, value: u8, count: usize, stream: Stream) =
            (library.functions.hipMemsetD8Async)(pointer(to), value, count, stream.pointer());
        unsafe fn fill_16(to: u64, value: u16, count: usize, stream: Stream) =
            (library.functions.hipMemsetD16Async)(pointer(to), value, count, stream.pointer());
        unsafe fn fill_32(to: u64, value: u32, count: usize, stream: Stream) =
            (library.functions.hipMemsetD32Async)(
                pointer(to), value.cast_signed(), count, stream.pointer(),
            );

        fn peer_possible(device: c_int, peer: c_int) -> c_int |can| =
            (library.peers()?.hipDeviceCanAccessPeer)(&mut can, device, peer);
        unsafe fn peer_enable(peer: usize) =
            (library.peers()?.hipDeviceEnablePeerAccess)(device(peer), 0);
        unsafe fn copy_peer(to: (u64, usize), from: (u64, usize), bytes: usize, stream: Stream) =
            (library.peers()?.hipMemcpyPeerAsync)(
                pointer(to.0), device(to.1), pointer(from.0), device(from.1), bytes, stream.pointer(),
            );

        unsafe fn graph_instantiate(graph: Graph) -> GraphExec |exec| =
            (library.graphs()?.hipGraphInstantiateWithFlags)(&mut exec, graph.pointer(), 0);
        unsafe fn graph_destroy(graph: Graph) =
            (library.graphs()?.hipGraphDestroy)(graph.pointer());
        unsafe fn graph_launch(graph: GraphExec, stream: Stream) =
            (library.graphs()?.hipGraphLaunch)(graph.pointer(), stream.pointer());
        unsafe fn graph_exec_destroy(graph: GraphExec) =
            (library.graphs()?.hipGraphExecDestroy)(graph.pointer());

        unsafe fn module_unload(module: Module) =
            (library.functions.hipModuleUnload)(module.pointer());
        unsafe fn module_function(module: Module, name: &CStr) -> Function |function| =
            (library.functions.hipModuleGetFunction)(
                &mut function, module.pointer(), name.as_ptr(),
            );
        unsafe fn function_threads(function: Function) -> c_int |threads| =
            Hip::optional(library.functions.hipFuncGetAttribute)?(&mut threads, THREADS, function.pointer());
        unsafe fn function_shared(function: Function) -> c_int |bytes| =
            Hip::optional(library.functions.hipFuncGetAttribute)?(&mut bytes, SHARED, function.pointer());
        unsafe fn suggested_block(function: Function, shared: usize) -> c_int |block| =
            Hip::optional(library.functions.hipModuleOccupancyMaxPotentialBlockSize)?(
                &mut 0, &mut block, function.pointer(), shared, 0,
            );
        unsafe fn resident_blocks(
            function: Function, block: c_int, shared: usize
        ) -> c_int |blocks| =
            Hip::optional(library.functions.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)?(
                &mut blocks, function.pointer(), block, shared,
            );
        unsafe fn launch(
            function: Function, launch: &Launch, stream: Stream, arguments: *mut *mut c_void
        ) = (library.functions.hipModuleLaunchKernel)(
                function.pointer(), launch.grid[0], launch.grid[1], launch.grid[2],
                launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                stream.pointer(), arguments, ptr::null_mut(),
            );
        unsafe fn launch_cooperative(
            function: Function, launch: &Launch, stream: Stream, arguments: *mut *mut c_void
        ) = Hip::optional(library.functions.hipModuleLaunchCooperativeKernel)?(
                function.pointer(), launch.grid[0], launch.grid[1], launch.grid[2],
                launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                stream.pointer(), arguments,
            );
    }
}
