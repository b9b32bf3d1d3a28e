//! Memory by address: shared virtual memory of OpenCL 2, and Intel's unified shared memory.
#![expect(unsafe_code, reason = "calls extension functions of the driver")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem;
use std::ptr;

use cl3::load_library;
use opencl3::command_queue::{enqueue_svm_mem_cpy, enqueue_svm_mem_fill};
use opencl3::error_codes::{CL_OUT_OF_RESOURCES, DLOPEN_FUNCTION_NOT_AVAILABLE};
use opencl3::kernel::{
    CL_KERNEL_EXEC_INFO_SVM_PTRS, set_kernel_arg_svm_pointer, set_kernel_exec_info,
};
use opencl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free};
use opencl3::types::{
    cl_bool, cl_command_queue, cl_context, cl_device_id, cl_event, cl_int, cl_kernel,
    cl_platform_id, cl_uint,
};
use runtime_core::OriginKind;

use crate::platform::integer;

/// The queries for an allocation of unified shared memory, and the kinds of allocations.
const CL_MEM_ALLOC_TYPE_INTEL: cl_uint = 0x419A;
const CL_MEM_ALLOC_BASE_PTR_INTEL: cl_uint = 0x419B;
const CL_MEM_ALLOC_SIZE_INTEL: cl_uint = 0x419C;
const CL_MEM_ALLOC_DEVICE_INTEL: cl_uint = 0x419D;
const CL_MEM_TYPE_HOST_INTEL: usize = 0x4197;
const CL_MEM_TYPE_DEVICE_INTEL: usize = 0x4198;
const CL_MEM_TYPE_SHARED_INTEL: usize = 0x4199;

/// The allocations of unified shared memory that a kernel accesses in addition to its arguments.
const CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL: cl_uint = 0x4203;

/// How a device addresses memory by pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pointers {
    /// Shared virtual memory. `fine` means that host and device may use it at the same time, without mapping it.
    Svm { fine: bool },
    /// Unified shared memory. `shared` means that there is memory that host and device may use at the same time.
    Usm { functions: Usm, shared: bool },
}

/// Host memory of `cl_intel_unified_shared_memory`, which needs no map command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory(pub(crate) Usm);

impl HostMemory {
    /// Allocates host memory that the devices of the context can address.
    pub(crate) fn allocate(
        &self,
        context: cl_context,
        bytes: usize,
        align: usize,
    ) -> Result<*mut c_void, cl_int> {
        let (align, mut code) = (cl_uint::try_from(align).unwrap_or(0), CL_OUT_OF_RESOURCES);
        // SAFETY: the context is alive, no properties are passed, and the receiver of the address frees it.
        let pointer =
            unsafe { (self.0.host_alloc)(context, ptr::null(), bytes, align, &raw mut code) };
        match code {
            0 if !pointer.is_null() => Ok(pointer),
            0 => Err(CL_OUT_OF_RESOURCES),
            code => Err(code),
        }
    }

    /// Frees memory.
    ///
    /// # Safety
    ///
    /// `pointer` is from [`allocate`](Self::allocate) in this context, and no command uses it any more.
    pub(crate) unsafe fn free(
        &self,
        context: cl_context,
        pointer: *mut c_void,
    ) -> Result<(), cl_int> {
        // SAFETY: the caller guarantees the pointer.
        checked(unsafe { (self.0.free)(context, pointer) })
    }
}

impl Pointers {
    /// Whether there is memory that host and device may use at the same time.
    pub(crate) fn unified(&self) -> bool {
        match self {
            Self::Svm { fine } => *fine,
            Self::Usm { shared, .. } => *shared,
        }
    }

    /// Allocates device memory. If `unified` is set, the host can address it, too.
    pub(crate) fn allocate(
        &self,
        (context, device): (cl_context, cl_device_id),
        bytes: usize,
        align: usize,
        unified: bool,
    ) -> Result<*mut c_void, cl_int> {
        let align = cl_uint::try_from(align).unwrap_or(0);
        let pointer = match self {
            Self::Svm { .. } => {
                let fine = if unified { CL_MEM_SVM_FINE_GRAIN_BUFFER } else { 0 };
                // SAFETY: the context is alive, and the receiver of the address frees it.
                unsafe { svm_alloc(context, CL_MEM_READ_WRITE | fine, bytes, align) }?
            }
            Self::Usm { functions, .. } => {
                let allocate =
                    if unified { functions.shared_alloc } else { functions.device_alloc };
                let mut code = CL_OUT_OF_RESOURCES;
                // SAFETY: as above; no properties are passed.
                let pointer =
                    unsafe { allocate(context, device, ptr::null(), bytes, align, &raw mut code) };
                if code != 0 {
                    return Err(code);
                }
                pointer
            }
        };
        if pointer.is_null() { Err(CL_OUT_OF_RESOURCES) } else { Ok(pointer) }
    }

    /// Frees memory.
    ///
    /// # Safety
    ///
    /// `pointer` is from [`allocate`](Self::allocate) in this context, and no command uses it any more.
    pub(crate) unsafe fn free(
        &self,
        context: cl_context,
        pointer: *mut c_void,
    ) -> Result<(), cl_int> {
        match self {
            // SAFETY: the caller guarantees the pointer.
            Self::Svm { .. } => unsafe { svm_free(context, pointer) },
            // SAFETY: as above.
            Self::Usm { functions, .. } => checked(unsafe { (functions.free)(context, pointer) }),
        }
    }

    /// Enqueues a copy, and waits for it if it is `blocking`. Either side may be host memory.
    ///
    /// # Safety
    ///
    /// Both sides have `bytes` bytes, do not overlap, and live until the copy is over.
    pub(crate) unsafe fn copy(
        &self,
        queue: cl_command_queue,
        blocking: cl_bool,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
    ) -> Result<cl_event, cl_int> {
        match self {
            // SAFETY: the caller guarantees both sides.
            Self::Svm { .. } => unsafe {
                enqueue_svm_mem_cpy(queue, blocking, dst, src, bytes, 0, ptr::null())
            },
            Self::Usm { functions, .. } => {
                let mut event = ptr::null_mut();
                // SAFETY: as above.
                let code = unsafe {
                    (functions.copy)(
                        queue,
                        blocking,
                        dst,
                        src,
                        bytes,
                        0,
                        ptr::null(),
                        &raw mut event,
                    )
                };
                checked(code).map(|()| event)
            }
        }
    }

    /// Enqueues a fill.
    ///
    /// # Safety
    ///
    /// The memory at `pointer` has `bytes` bytes, and `pointer` is a multiple of the pattern's length.
    pub(crate) unsafe fn fill(
        &self,
        queue: cl_command_queue,
        pointer: *mut c_void,
        pattern: &[u8],
        bytes: usize,
    ) -> Result<cl_event, cl_int> {
        let (start, len) = (pattern.as_ptr().cast::<c_void>(), pattern.len());
        match self {
            // SAFETY: the caller guarantees the memory; the pattern is copied during the call.
            Self::Svm { .. } => unsafe {
                enqueue_svm_mem_fill(queue, pointer, start, len, bytes, 0, ptr::null())
            },
            Self::Usm { functions, .. } => {
                let mut event = ptr::null_mut();
                // SAFETY: as above.
                let code = unsafe {
                    (functions.fill)(
                        queue,
                        pointer,
                        start,
                        len,
                        bytes,
                        0,
                        ptr::null(),
                        &raw mut event,
                    )
                };
                checked(code).map(|()| event)
            }
        }
    }

    /// Passes the driver the allocations that a kernel accesses by addresses that are not arguments. The list replaces
    /// the previous one and holds at most what the kernel's launches need. Each entry is the start of an allocation.
    ///
    /// # Safety
    ///
    /// No other thread sets arguments of the kernel at the same time.
    pub(crate) unsafe fn set_indirect(
        &self,
        kernel: cl_kernel,
        pointers: &[*const c_void],
    ) -> Result<(), cl_int> {
        if pointers.is_empty() {
            return Ok(());
        }
        let what = match self {
            Self::Svm { .. } => CL_KERNEL_EXEC_INFO_SVM_PTRS,
            Self::Usm { .. } => CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL,
        };
        let (bytes, list) = (size_of_val(pointers), pointers.as_ptr().cast());
        // SAFETY: the caller guarantees the kernel; the list is only read during the call.
        unsafe { set_kernel_exec_info(kernel, what, bytes, list) }
    }

    /// Sets an address as the kernel's argument.
    ///
    /// # Safety
    ///
    /// No other thread sets arguments of the kernel at the same time.
    pub(crate) unsafe fn set_argument(
        &self,
        kernel: cl_kernel,
        index: cl_uint,
        pointer: *const c_void,
    ) -> Result<(), cl_int> {
        match self {
            // SAFETY: the caller guarantees the kernel.
            Self::Svm { .. } => unsafe { set_kernel_arg_svm_pointer(kernel, index, pointer) },
            Self::Usm { functions, .. } => {
                // SAFETY: as above.
                checked(unsafe { (functions.set_argument)(kernel, index, pointer) })
            }
        }
    }
}

fn checked(code: cl_int) -> Result<(), cl_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

type Alloc = unsafe extern "C" fn(
    cl_context,
    cl_device_id,
    *const u64,
    usize,
    cl_uint,
    *mut cl_int,
) -> *mut c_void;
type HostAlloc =
    unsafe extern "C" fn(cl_context, *const u64, usize, cl_uint, *mut cl_int) -> *mut c_void;
type Free = unsafe extern "C" fn(cl_context, *mut c_void) -> cl_int;
type SetArgument = unsafe extern "C" fn(cl_kernel, cl_uint, *const c_void) -> cl_int;
type Copy = unsafe extern "C" fn(
    cl_command_queue,
    cl_bool,
    *mut c_void,
    *const c_void,
    usize,
    cl_uint,
    *const cl_event,
    *mut cl_event,
) -> cl_int;
type AllocationInfo = unsafe extern "C" fn(
    cl_context,
    *const c_void,
    cl_uint,
    usize,
    *mut c_void,
    *mut usize,
) -> cl_int;
type Fill = unsafe extern "C" fn(
    cl_command_queue,
    *mut c_void,
    *const c_void,
    usize,
    usize,
    cl_uint,
    *const cl_event,
    *mut cl_event,
) -> cl_int;

/// The functions of `cl_intel_unified_shared_memory`. The loader does not export them, so they are looked up for each
/// platform.
#[derive(Clone, Copy)]
pub(crate) struct Usm {
    host_alloc: HostAlloc,
    device_alloc: Alloc,
    shared_alloc: Alloc,
    free: Free,
    set_argument: SetArgument,
    copy: Copy,
    fill: Fill,
    allocation_info: AllocationInfo,
}

/// An allocation of unified shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocated {
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: OriginKind,
    /// The driver's handle of its device; 0 if it has no device.
    pub(crate) device: usize,
}

impl Usm {
    /// The name of the extension.
    pub(crate) const EXTENSION: &str = "cl_intel_unified_shared_memory";

    /// The host memory of the extension.
    pub(crate) fn host_memory(self) -> HostMemory {
        HostMemory(self)
    }

    /// Returns the allocation of the context that contains an address, which may be any number. Returns `None` if no
    /// allocation contains it.
    pub(crate) fn allocation(self, context: cl_context, address: usize) -> Option<Allocated> {
        let pointer = ptr::without_provenance::<c_void>(address);
        let ask = |what: cl_uint| -> Option<usize> {
            let (mut value, mut len) = ([0_u8; 8], 0);
            let (most, place) = (value.len(), value.as_mut_ptr().cast::<c_void>());
            // SAFETY: the driver does not dereference the address, and writes at most this many bytes.
            let code = unsafe {
                (self.allocation_info)(context, pointer, what, most, place, &raw mut len)
            };
            let reported = value.get(..len).filter(|_| code == 0)?;
            usize::try_from(integer(reported)).ok()
        };
        let kind = match ask(CL_MEM_ALLOC_TYPE_INTEL)? {
            CL_MEM_TYPE_HOST_INTEL => OriginKind::Pinned,
            CL_MEM_TYPE_DEVICE_INTEL => OriginKind::Device,
            CL_MEM_TYPE_SHARED_INTEL => OriginKind::Managed,
            _ => return None,
        };
        Some(Allocated {
            base: ask(CL_MEM_ALLOC_BASE_PTR_INTEL)?,
            bytes: ask(CL_MEM_ALLOC_SIZE_INTEL)?,
            kind,
            device: ask(CL_MEM_ALLOC_DEVICE_INTEL).unwrap_or(0),
        })
    }

    /// Loads the functions of a platform that has the extension. Returns `None` if one is missing.
    pub(crate) fn load(platform: cl_platform_id) -> Option<Self> {
        /// The function of this name, with the type from the extension's specification.
        macro_rules! function {
            ($name:literal as $type:ty) => {{
                let address = function(platform, $name).ok()?;
                // SAFETY: the specification gives the function this type, and the address is not null.
                unsafe { mem::transmute::<*mut c_void, $type>(address) }
            }};
        }
        Some(Self {
            host_alloc: function!(c"clHostMemAllocINTEL" as HostAlloc),
            device_alloc: function!(c"clDeviceMemAllocINTEL" as Alloc),
            shared_alloc: function!(c"clSharedMemAllocINTEL" as Alloc),
            free: function!(c"clMemFreeINTEL" as Free),
            set_argument: function!(c"clSetKernelArgMemPointerINTEL" as SetArgument),
            copy: function!(c"clEnqueueMemcpyINTEL" as Copy),
            fill: function!(c"clEnqueueMemFillINTEL" as Fill),
            allocation_info: function!(c"clGetMemAllocInfoINTEL" as AllocationInfo),
        })
    }
}

impl fmt::Debug for Usm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::EXTENSION)
    }
}

fn function(platform: cl_platform_id, name: &CStr) -> Result<*mut c_void, cl_int> {
    let library = load_library().as_ref().map_err(|_| DLOPEN_FUNCTION_NOT_AVAILABLE)?;
    let address = library
        .clGetExtensionFunctionAddressForPlatform(platform, name.as_ptr())
        .unwrap_or(ptr::null_mut());
    if address.is_null() { Err(DLOPEN_FUNCTION_NOT_AVAILABLE) } else { Ok(address) }
}
