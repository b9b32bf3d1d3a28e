//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "exports functions by name, and reads the arguments of kernels")]

use std::ffi::{c_int, c_uint, c_void};
use std::str;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction_attribute as Attribute, CUjit_option as Jit};
use stand_in::ptx::Geometry;
use stand_in::{Code, Function, LoadError, MULTIPROCESSORS, Result};

use crate::abi::{Buffer, Handle, In, Out, Text, answer};
use crate::device::{TARGET, int};
use crate::process::{current, current_to_wait, engine};

/// From which version on the driver tells parameters of kernels.
const PARAMETERS_TOLD: u32 = 12_040;

fn load(module: Out<Handle>, image: Text) -> Result<(), LoadError> {
    let (engine, context) = current_to_wait()?;
    let image = image.bytes()?;
    // What is PTX says so early; the rest may be binary, which ends anywhere.
    let text = str::from_utf8(image).ok().filter(|text| text.contains(".version"));
    let text = text.ok_or(match image {
        // Programs for a real device.
        [0x7f, b'E', b'L', b'F', ..] | [0x50, 0xed, 0x55, 0xba, ..] => Code::NO_BINARY_FOR_GPU,
        _ => Code::INVALID_IMAGE,
    })?;
    Ok(module.put(engine.module_load(&context, text, TARGET)?)?)
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: Out<Handle>, image: Text) -> u32 {
    answer(|| load(module, image).map_err(|error| error.code))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: Out<Handle>,
    image: Text,
    count: c_uint,
    options: In<c_uint>,
    values: In<Buffer>,
) -> u32 {
    const LOG: u32 = Jit::CU_JIT_ERROR_LOG_BUFFER as u32;
    const LOG_SIZE: u32 = Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32;
    answer(|| {
        let value = |option| -> Result<Option<Buffer>> {
            for index in 0..count as usize {
                if options.at(index)? == option {
                    return values.at(index).map(Some);
                }
            }
            Ok(None)
        };
        let log = value(LOG)?.zip(value(LOG_SIZE)?);
        load(module, image).map_err(|error| {
            if let Some((log, size)) = log {
                let _no_room = log.put_text(&error.log, size.0.addr());
            }
            error.code
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    answer(|| current_to_wait()?.0.module_unload(module))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) -> u32 {
    answer(|| {
        let name = str::from_utf8(name.bytes()?).map_err(|_| Code::NOT_FOUND)?;
        function.put(engine()?.function(module, name)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetParamInfo(
    function: Handle,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> u32 {
    answer(|| {
        let engine = engine()?;
        if engine.config().version < PARAMETERS_TOLD {
            return Err(Code::NOT_FOUND);
        }
        let function = engine.kernel(function)?;
        let param = function.entry().params().get(index).ok_or(Code::INVALID_VALUE)?;
        offset.put(param.offset)?;
        size.offer(param.size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Handle) -> u32 {
    const THREADS: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32;
    const SHARED: u32 = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32;
    const REGISTERS: u32 = Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS as u32;
    const PTX: u32 = Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION as u32;
    const BINARY: u32 = Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION as u32;
    const DYNAMIC: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
    const MAX: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX as u32;
    answer(|| {
        let function = engine()?.kernel(function)?;
        value.put(match attribute {
            THREADS => int(function.max_threads()),
            SHARED => int(function.entry().static_shared()),
            REGISTERS => 32,
            PTX => int(function.target()),
            BINARY => int(TARGET),
            DYNAMIC => int(function.dynamic_shared()),
            _ if attribute < MAX => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) -> u32 {
    const DYNAMIC: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
    const CARVEOUT: u32 = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as u32;
    answer(|| {
        let function = engine()?.kernel(function)?;
        match attribute {
            DYNAMIC => {
                let bytes = usize::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
                function.set_dynamic_shared(bytes)
            }
            CARVEOUT => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<c_int>,
    function: Handle,
    threads: c_int,
    shared: usize,
) -> u32 {
    answer(|| {
        let threads = u32::try_from(threads).map_err(|_| Code::INVALID_VALUE)?;
        let function = engine()?.kernel(function)?;
        blocks.put(int(function.blocks_per_multiprocessor(threads, shared)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: Handle,
    shared_of: Option<unsafe extern "C" fn(c_int) -> usize>,
    shared: usize,
    most: c_int,
) -> u32 {
    answer(|| {
        let function = engine()?.kernel(function)?;
        let most = u32::try_from(most).ok().filter(|most| *most > 0);
        let limit = function.max_threads().min(most.unwrap_or(u32::MAX));
        // The most threads on a multiprocessor; of several sizes the largest.
        let active = |threads: u32| {
            let shared = shared_of.map_or(shared, |shared_of| {
                // SAFETY: callers of the driver pass a function that tells bytes for any size of a block.
                unsafe { shared_of(int(threads)) }
            });
            function.blocks_per_multiprocessor(threads, shared)
        };
        let sizes = (1..=limit).filter(|threads| threads % 32 == 0 || *threads == limit);
        let best = sizes.max_by_key(|threads| (active(*threads) * threads, *threads)).unwrap_or(0);
        grid.put(int(active(best) * MULTIPROCESSORS))?;
        block.put(int(best))
    })
}

/// The bytes of a launch's arguments, which the caller points to one by one.
fn gather(function: &Function, arguments: In<*const c_void>) -> Result<Box<[u8]>> {
    let params = function.entry().params();
    let len = params.iter().map(|param| param.offset + param.size).max().unwrap_or(0);
    let mut bytes = vec![0; len];
    for (index, param) in params.iter().enumerate() {
        let argument = arguments.at(index)?;
        if argument.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let to = &mut bytes[param.offset..param.offset + param.size];
        // SAFETY: callers of the driver point to as many bytes as the kernel's parameter has.
        unsafe { argument.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }
    Ok(bytes.into())
}

/// Launches a kernel in the current context.
fn launch(
    function: Handle,
    geometry: Geometry,
    stream: Handle,
    arguments: In<*const c_void>,
    check: impl FnOnce(&Function, &Geometry) -> Result<()>,
) -> Result<()> {
    let (engine, context) = current()?;
    let function: Arc<Function> = engine.kernel(function)?;
    check(&function, &geometry)?;
    let params = gather(&function, arguments)?;
    engine.launch(&context, &function, geometry, params, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    arguments: In<*const c_void>,
    extra: In<*const c_void>,
) -> u32 {
    answer(|| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared: shared as usize };
        if !extra.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        launch(function, geometry, stream, arguments, |_, _| Ok(()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    arguments: In<*const c_void>,
) -> u32 {
    answer(|| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared: shared as usize };
        launch(function, geometry, stream, arguments, |function, geometry| {
            let threads = geometry.block.iter().fold(1_u32, |all, size| all.saturating_mul(*size));
            let most = function.blocks_per_multiprocessor(threads, geometry.dynamic_shared);
            let blocks =
                geometry.grid.iter().fold(1_u64, |all, size| all.saturating_mul((*size).into()));
            let fits = blocks <= u64::from(most * MULTIPROCESSORS);
            fits.then_some(()).ok_or(Code::COOPERATIVE_LAUNCH_TOO_LARGE)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStart() -> u32 {
    answer(|| current().map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuProfilerStop() -> u32 {
    answer(|| current().map(drop))
}
