//! The runtime's library: loading it, and the functions that are taken from it.
#![expect(unsafe_code, reason = "binds symbols of a C library")]
#![expect(non_snake_case, reason = "functions have the names of the runtime's headers")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::{self, Display};
use std::sync::OnceLock;

use backend_support::{function_table, libloading, load};
use hip_sys::hiprt::{
    hipDevice_t, hipDeviceAttribute_t, hipDeviceptr_t, hipError_t, hipEvent_t,
    hipFunction_attribute, hipFunction_t, hipGraph_t, hipGraphExec_t, hipMemAccessDesc,
    hipMemPool_t, hipMemPoolAttr, hipMemPoolProps, hipModule_t, hipPointer_attribute, hipStream_t,
    hipStreamCaptureMode, hipUUID,
};
use runtime_core::{Error, ErrorKind, Result};

use crate::hiprtc;

/// Where the library is, instead of where the system looks.
const VARIABLE: &str = "BACKEND_HIP_LIBRARY";
const NAMES: &[&str] =
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

function_table! {
    /// The functions of the runtime: those that ROCm 5.2 has, and newer ones that may be missing.
    pub(crate) Functions:
    every version {
        hipInit(flags: c_uint);
        hipRuntimeGetVersion(version: *mut c_int);
        hipGetErrorName(error: u32) -> *const c_char;

        hipGetDeviceCount(count: *mut c_int);
        hipGetDevice(device: *mut c_int);
        hipSetDevice(device: c_int);
        hipDeviceReset();
        hipDeviceGet(device: *mut hipDevice_t, ordinal: c_int);
        hipDeviceGetName(name: *mut c_char, len: c_int, device: hipDevice_t);
        hipDeviceGetUuid(uuid: *mut hipUUID, device: hipDevice_t);
        hipDeviceGetAttribute(value: *mut c_int, attribute: hipDeviceAttribute_t, device: c_int);
        hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t);
        hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
        hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint);

        hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int);
        hipStreamDestroy(stream: hipStream_t);
        hipStreamQuery(stream: hipStream_t);
        hipStreamSynchronize(stream: hipStream_t);
        hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
        hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode);
        hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t);

        hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint);
        hipEventDestroy(event: hipEvent_t);
        hipEventRecord(event: hipEvent_t, stream: hipStream_t);
        hipEventQuery(event: hipEvent_t);
        hipEventSynchronize(event: hipEvent_t);
        hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t);

        hipMemGetInfo(free: *mut usize, total: *mut usize);
        hipMalloc(pointer: *mut *mut c_void, bytes: usize);
        hipFree(pointer: *mut c_void);
        hipMallocManaged(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostFree(pointer: *mut c_void);
        hipMemPoolCreate(pool: *mut hipMemPool_t, properties: *const hipMemPoolProps);
        hipMemPoolDestroy(pool: hipMemPool_t);
        hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void);
        hipMemPoolGetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void);
        hipMemPoolSetAccess(pool: hipMemPool_t, access: *const hipMemAccessDesc, count: usize);
        hipMemPoolTrimTo(pool: hipMemPool_t, keep: usize);
        hipMallocFromPoolAsync(
            pointer: *mut *mut c_void, bytes: usize, pool: hipMemPool_t, stream: hipStream_t,
        );
        hipFreeAsync(pointer: *mut c_void, stream: hipStream_t);
        hipPointerGetAttribute(
            data: *mut c_void, attribute: hipPointer_attribute, pointer: hipDeviceptr_t,
        );
        hipMemGetAddressRange(
            base: *mut hipDeviceptr_t, bytes: *mut usize, pointer: hipDeviceptr_t,
        );

        hipMemcpyHtoDAsync(
            destination: hipDeviceptr_t, source: *mut c_void, bytes: usize, stream: hipStream_t,
        );
        hipMemcpyDtoHAsync(
            destination: *mut c_void, source: hipDeviceptr_t, bytes: usize, stream: hipStream_t,
        );
        hipMemcpyDtoDAsync(
            destination: hipDeviceptr_t, source: hipDeviceptr_t, bytes: usize, stream: hipStream_t,
        );
        hipMemcpyPeerAsync(
            destination: *mut c_void, destination_device: c_int,
            source: *const c_void, source_device: c_int, bytes: usize, stream: hipStream_t,
        );
        hipMemsetD8Async(address: hipDeviceptr_t, value: u8, count: usize, stream: hipStream_t);
        hipMemsetD16Async(address: hipDeviceptr_t, value: u16, count: usize, stream: hipStream_t);
        hipMemsetD32Async(address: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t);

        hipModuleLoadData(module: *mut hipModule_t, image: *const c_void);
        hipModuleUnload(module: hipModule_t);
        hipModuleGetFunction(
            function: *mut hipFunction_t, module: hipModule_t, name: *const c_char,
        );
        hipFuncGetAttribute(
            value: *mut c_int, attribute: hipFunction_attribute, function: hipFunction_t,
        );
        hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: hipFunction_t, block: c_int, shared_bytes: usize,
        );
        hipModuleOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: hipFunction_t,
            shared_bytes: usize, most: c_int,
        );
        hipModuleLaunchKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: hipStream_t,
            arguments: *mut *mut c_void, extra: *mut *mut c_void,
        );

        hipGraphInstantiateWithFlags(
            exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong,
        );
        hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t);
        hipGraphExecDestroy(exec: hipGraphExec_t);
        hipGraphDestroy(graph: hipGraph_t);
    }
    newer versions {
        // 6.0. The suffix names the layout of the structure.
        hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int);
        // After 5.2; the older function takes kernels that were linked into the program alone.
        hipModuleLaunchCooperativeKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: hipStream_t,
            arguments: *mut *mut c_void,
        );
    }
}
