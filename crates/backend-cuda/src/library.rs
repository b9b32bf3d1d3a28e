//! The driver's library: loading it, and the functions that are taken from it.
//!
//! Functions return plain numbers: a driver may be newer than the bindings and return codes that they do not know.
#![expect(unsafe_code, reason = "binds symbols of a C library")]
#![expect(non_snake_case, reason = "functions have the names of the driver's headers")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt::{self, Display};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUjit_option, CUmemAccessDesc, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUmodule, CUoccupancyB2DSize, CUpointer_attribute, CUresult,
    CUstream, CUstreamCaptureMode, CUuuid,
};
use runtime_core::{Error, ErrorKind, Result};

/// The least driver: what it lacks, later ones do not make up for.
const LEAST_VERSION: Version = Version(12_000);

/// Where the library is, instead of where the system looks.
const VARIABLE: &str = "BACKEND_CUDA_DRIVER";
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];

/// A function of the driver.
macro_rules! function {
    ($($type:ty),*) => { unsafe extern "C" fn($($type),*) -> u32 };
}

macro_rules! functions {
    (
        every driver { $($name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        newer drivers { $($newer:ident($($newer_arg:ident: $newer_type:ty),* $(,)?);)* }
    ) => {
        /// The functions, bound once; those of newer drivers may be missing.
        pub(crate) struct Functions {
            $(pub(crate) $name: function!($($type),*),)*
            $(pub(crate) $newer: Option<function!($($newer_type),*)>,)*
        }

        impl Functions {
            /// Binds the symbols, or names the first that is missing.
            fn bind(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the headers of the driver declare the function so.
                    $($name: *unsafe { library.get(stringify!($name)) }
                        .map_err(|_| stringify!($name))?,)*
                    // SAFETY: as above.
                    $($newer: unsafe { library.get(stringify!($newer)) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}

functions! {
    every driver {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuGetErrorName(error: u32, name: *mut *const c_char);

        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
        cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);

        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

        cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamQuery(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);

        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
        cuEventSynchronize(event: CUevent);
        cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
        cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(pointer: *mut c_void);
        cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
        cuMemPoolDestroy(pool: CUmemoryPool);
        cuMemPoolSetAttribute(
            pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void,
        );
        cuMemPoolGetAttribute(
            pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void,
        );
        cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
        cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
        cuMemAllocFromPoolAsync(
            address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream,
        );
        cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
        cuPointerGetAttribute(
            data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr,
        );

        cuMemcpyHtoDAsync_v2(
            destination: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream,
        );
        cuMemcpyDtoHAsync_v2(
            destination: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream,
        );
        cuMemcpyDtoDAsync_v2(
            destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream,
        );
        cuMemcpyPeerAsync(
            destination: CUdeviceptr, destination_context: CUcontext,
            source: CUdeviceptr, source_context: CUcontext, bytes: usize, stream: CUstream,
        );
        cuMemsetD8Async(address: CUdeviceptr, value: u8, count: usize, stream: CUstream);
        cuMemsetD16Async(address: CUdeviceptr, value: u16, count: usize, stream: CUstream);
        cuMemsetD32Async(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

        cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void,
            count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void,
        );
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncGetAttribute(
            value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction,
        );
        cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: CUfunction, block: c_int, shared_bytes: usize,
        );
        cuOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: CUfunction,
            shared_bytes_of: CUoccupancyB2DSize, shared_bytes: usize, most: c_int,
        );
        cuLaunchKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            arguments: *mut *mut c_void, extra: *mut *mut c_void,
        );
        cuLaunchCooperativeKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            arguments: *mut *mut c_void,
        );

        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(exec: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);
    }
    newer drivers {
        // 12.4
        cuFuncGetParamInfo(
            function: CUfunction, index: usize, offset: *mut usize, size: *mut usize,
        );
    }
}
