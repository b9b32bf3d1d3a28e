//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "exports functions by name, and reads the arguments of kernels")]

use std::ffi::{c_int, c_uint, c_void};
use std::str;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction_attribute as Attribute, CUjit_option as Jit};
use stand_in::ptx::Geometry;
use stand_in::{Code, Function, LoadError, MULTIPROCESSORS, Result};

use crate::device::{TARGET, int, version};
use crate::process::{current, current_to_wait, engine};
use stand_in::abi::{Buffer, Handle, In, Out, Text, answer};

/// The newest PTX that a driver takes, from the newest driver to the oldest.
const PTX: &[(u32, (u32, u32))] = &[
    (13_010, (9, 1)),
    (13_000, (9, 0)),
    (12_090, (8, 8)),
    (12_080, (8, 7)),
    (12_070, (8, 6)),
    (12_050, (8, 5)),
    (12_040, (8, 4)),
    (12_030, (8, 3)),
    (12_020, (8, 2)),
    (12_010, (8, 1)),
    (12_000, (8, 0)),
];

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
    let driver = version()?;
    let newest = PTX.iter().find(|(version, _)| driver >= *version).map_or((7, 8), |row| row.1);
    Ok(module.put(engine.module_load(&context, text, (newest, TARGET))?)?)
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
                let _no_room = log.put_text(&error.log, size.start().addr());
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
        // Code may be loaded when it is asked for first.
        function.put(current_to_wait()?.0.function(module, name)?)
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
        if version()? < PARAMETERS_TOLD {
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
        let shared_of = |threads| {
            shared_of.map_or(shared, |shared_of| {
                // SAFETY: callers of the driver pass a function that tells bytes for any size of a block.
                unsafe { shared_of(int(threads)) }
            })
        };
        let best = function.best_block(most.unwrap_or(u32::MAX), shared_of);
        let blocks = function.blocks_per_multiprocessor(best, shared_of(best));
        grid.put(int(blocks * MULTIPROCESSORS))?;
        block.put(int(best))
    })
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
    let params = arguments.arguments(function.entry().params())?;
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
        launch(function, geometry, stream, arguments, Function::check_cooperative)
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
