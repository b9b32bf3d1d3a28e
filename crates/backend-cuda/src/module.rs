//! Modules and kernels of CUDA.
#![expect(unsafe_code, reason = "loads modules and launches kernels through the driver")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use backend_gpu::handle::{Function, Module};
use backend_gpu::{
    Api, BuiltinKernel, Code, Context, Device, Kernels, NotLoaded, Stream, address, aligned, ok,
    written,
};
use backend_support::headline;
use cudarc::driver::sys::{CUfunction_attribute, CUjit_option};
use runtime_core::contract::{ParamInfo, ParamKind};
use runtime_core::{Launch, Result};

use crate::codes::INVALID_VALUE;
use crate::cuda::Cuda;
use crate::library::Library;
use crate::shipped::{Shipped, ShippedKernels, function};
use crate::signature::Signatures;

/// Shared memory that a launch may use without a request, both declared and dynamic. More must be requested.
const SHARED_BYTES: u32 = 48 << 10;

/// The number of threads in a block of the fill kernel, and of blocks of a launch for each multiprocessor.
const BLOCK: u32 = 256;
const BLOCKS_PER_UNIT: u32 = 8;

impl Kernels<Self> for Cuda {
    type Builtin = ShippedKernels;
    const MAX_REGION_BLOCKS: u32 = u32::MAX;

    fn builtin_kernels(context: &Arc<Context<Self>>) -> ShippedKernels {
        ShippedKernels::new(context)
    }

    fn region_function(device: &Device<Self>, kernel: BuiltinKernel) -> Result<Function> {
        let kernel = match kernel {
            BuiltinKernel::Regions(binding) => Shipped::regions(binding),
            BuiltinKernel::RegionTable => Shipped::RegionTable,
        };
        // SAFETY: the state gets only the code of the load.
        let shared = unsafe { device.shared() };
        let found = function(&shared.kernels, kernel);
        found.map_err(|code| shared.error("plan_regions", code, "its kernel"))
    }

    unsafe fn fill_pattern(
        stream: &Stream<Self>,
        to: u64,
        bytes: usize,
        words: [u32; 4],
    ) -> Result<()> {
        const OPERATION: &str = "memory_fill";
        // SAFETY: the state gets only the code of the load.
        let shared = unsafe { stream.shared() };
        let function = function(&shared.kernels, Shipped::Fill)
            .map_err(|code| shared.error(OPERATION, code, "its kernel"))?;
        let count = bytes as u64 / 4;
        let blocks = count.div_ceil(BLOCK.into());
        let most = shared.compute_units.saturating_mul(BLOCKS_PER_UNIT);
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX).min(most);
        let launch = Launch::new([grid, 1, 1], [BLOCK, 1, 1]);
        let [a, b, c, d] = &words;
        let mut pointers =
            [address(&to), address(&count), address(a), address(b), address(c), address(d)];
        let fill = |api: &Library, stream| {
            // SAFETY: the arguments have the types of the kernel's parameters, and the call copies them. The caller
            // guarantees the range.
            unsafe { api.launch(function, &launch, stream, pointers.as_mut_ptr()) }
        };
        // SAFETY: the outcome is that of the launch.
        unsafe { stream.call(OPERATION, "a fill", fill) }
    }

    fn load(context: &Context<Self>, code: &Code<Self>) -> Result<Module, NotLoaded> {
        let image = aligned(&code.image, 0);
        let mut log = vec![0_u8; 16 << 10];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values =
            [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
        let loaded = context.outside_captures(|api| {
            let (load, image) = (api.functions.cuModuleLoadDataEx, image.as_ptr().cast());
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            // SAFETY: text ends with a NUL, and binaries are complete; the log has as many bytes as the options say.
            written(|module| unsafe { load(module, image, 2, options, values) })
        });
        loaded.map_err(|code| {
            let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let log = String::from_utf8_lossy(log).into_owned();
            let about =
                if log.is_empty() { "the driver does not take the code" } else { headline(&log) };
            NotLoaded { code, about: about.to_owned(), log: Some(log) }
        })
    }

    fn instead_of(signatures: &Option<Signatures>, kernel: &str) -> String {
        signatures.as_ref().map_or(String::new(), |all| format!("; {}", all.instead_of(kernel)))
    }

    fn parameters(
        context: &Context<Self>,
        function: Function,
        signatures: &Option<Signatures>,
        kernel: &str,
    ) -> Option<Vec<ParamInfo>> {
        parameters(context, function, signatures.as_ref().and_then(|all| all.get(kernel)))
    }

    fn granted(_: u32, declared: u32) -> u32 {
        SHARED_BYTES.saturating_sub(declared)
    }

    fn raise_shared(context: &Context<Self>, function: Function, bytes: u32) -> Result<(), u32> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        context.outside_captures(|api| {
            let set = api.functions.cuFuncSetAttribute;
            // SAFETY: the function belongs to a loaded module.
            ok(unsafe { set(function.pointer(), attribute, bytes) })
        })
    }

    fn max_shared(bytes: u32) -> String {
        format!("it has at most {bytes} in addition to its static shared memory")
    }
}

/// The kernel's parameters as PTX declares them. If the driver reports another number of parameters, or PTX is not
/// available, only their sizes.
fn parameters(
    context: &Context<Cuda>,
    function: Function,
    declared: Option<&[ParamInfo]>,
) -> Option<Vec<ParamInfo>> {
    match sizes(context, function) {
        Some(sizes) if declared.is_none_or(|declared| declared.len() != sizes.len()) => {
            Some(sizes.into_iter().map(of_size).collect())
        }
        _ => declared.map(<[_]>::to_vec),
    }
}

/// The sizes of a kernel's parameters, if the driver reports them.
fn sizes(context: &Context<Cuda>, function: Function) -> Option<Vec<usize>> {
    let ask = context.api.functions.cuFuncGetParamInfo?;
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function belongs to a loaded module, and the numbers are written to valid places.
        match unsafe { ask(function.pointer(), sizes.len(), &mut offset, &mut size) } {
            0 => sizes.push(size),
            // There is no parameter with that number.
            INVALID_VALUE => return Some(sizes),
            _ => return None,
        }
    }
}

/// A parameter of which only the size is known. It can be memory only if it has the size of a pointer.
fn of_size(size: usize) -> ParamInfo {
    let is_pointer = size == size_of::<u64>();
    let kind = if is_pointer { ParamKind::Unknown } else { ParamKind::Value };
    ParamInfo::new(kind).with_size(size)
}
