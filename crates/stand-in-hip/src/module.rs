//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint, c_void};
use std::str;
use std::sync::Arc;

use hip_sys::hiprt::hipFunction_attribute as Attribute;
use stand_in::abi::{Buffer, Handle, In, Out, Text};
use stand_in::ptx::Geometry;
use stand_in::{Code, Function, MULTIPROCESSORS, Result};

use crate::code;
use crate::device::int;
use crate::process::{answer, current, current_to_wait, engine};
use crate::quirks::can_answer;
use crate::versions::check;

#[unsafe(no_mangle)]
extern "C" fn hipModuleLoadData(module: Out<Handle>, image: In<u8>) -> u32 {
    /// The stand-in's own compiler made the text, so that no version of it is too new.
    const NEWEST: ((u32, u32), u32) = ((u32::MAX, 0), u32::MAX);
    answer(|| {
        let (engine, context) = current_to_wait()?;
        context.check()?;
        let loaded = engine.module_load(&context, &code::read(image)?, NEWEST);
        module.put(loaded.map_err(|error| error.code)?)
    })
}

/// The options are for compilers of other vendors, as the runtime has it.
#[unsafe(no_mangle)]
extern "C" fn hipModuleLoadDataEx(
    module: Out<Handle>,
    image: In<u8>,
    _count: c_uint,
    _options: In<c_uint>,
    _values: In<Buffer>,
) -> u32 {
    hipModuleLoadData(module, image)
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleUnload(module: Handle) -> u32 {
    answer(|| current_to_wait()?.0.module_unload(module))
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) -> u32 {
    answer(|| {
        let name = str::from_utf8(name.bytes()?).map_err(|_| Code::NOT_FOUND)?;
        function.put(engine()?.function(module, name)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Handle) -> u32 {
    const THREADS: u32 = Attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32;
    const SHARED: u32 = Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32;
    const REGISTERS: u32 = Attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS as u32;
    const DYNAMIC: u32 = Attribute::HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
    const MAX: u32 = Attribute::HIP_FUNC_ATTRIBUTE_MAX as u32;
    answer(|| {
        can_answer()?;
        let function = engine()?.kernel(function)?;
        value.put(match attribute {
            THREADS => int(function.max_threads()),
            SHARED => int(function.entry().static_shared()),
            REGISTERS => 32,
            DYNAMIC => int(function.dynamic_shared()),
            _ if attribute < MAX => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<c_int>,
    function: Handle,
    threads: c_int,
    shared: usize,
) -> u32 {
    answer(|| {
        can_answer()?;
        let threads = u32::try_from(threads).map_err(|_| Code::INVALID_VALUE)?;
        let function = engine()?.kernel(function)?;
        blocks.put(int(function.blocks_per_multiprocessor(threads, shared)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleOccupancyMaxPotentialBlockSize(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: Handle,
    shared: usize,
    most: c_int,
) -> u32 {
    answer(|| {
        can_answer()?;
        let function = engine()?.kernel(function)?;
        let most = u32::try_from(most).ok().filter(|most| *most > 0);
        let best = function.best_block(most.unwrap_or(u32::MAX), |_| shared);
        grid.put(int(function.blocks_per_multiprocessor(best, shared) * MULTIPROCESSORS))?;
        block.put(int(best))
    })
}

/// The bytes of a launch's arguments, which the caller has put together: pairs of what comes and where it is, up to an end.
fn packed(extra: In<Buffer>, len: usize) -> Result<Box<[u8]>> {
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    const END: usize = 3;
    let (mut bytes, mut size) = (None, None);
    for index in (0..).step_by(2) {
        let value = || extra.at(index + 1);
        match extra.at(index)?.start().addr() {
            POINTER => bytes = Some(value()?.holding::<u8>()),
            SIZE => size = Some(value()?.holding::<usize>().get()?),
            END => break,
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    let bytes =
        bytes.filter(|_| size.is_some_and(|size| size >= len)).ok_or(Code::INVALID_VALUE)?;
    Ok(bytes.take(len)?.into())
}

/// Launches a kernel on the current device.
fn launch(
    function: Handle,
    geometry: Geometry,
    stream: Handle,
    arguments: In<*const c_void>,
    extra: Option<In<Buffer>>,
    check: impl FnOnce(&Function, &Geometry) -> Result<()>,
) -> Result<()> {
    let (engine, context) = current()?;
    let function: Arc<Function> = engine.kernel(function)?;
    check(&function, &geometry)?;
    let params = function.entry().params();
    let params = match extra.filter(|extra| !extra.is_null()) {
        Some(_) if !arguments.is_null() => return Err(Code::INVALID_VALUE),
        Some(extra) => packed(extra, params.last().map_or(0, |last| last.offset + last.size))?,
        None => arguments.arguments(params)?,
    };
    engine.launch(&context, &function, geometry, params, stream)
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleLaunchKernel(
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
    extra: In<Buffer>,
) -> u32 {
    answer(|| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared: shared as usize };
        launch(function, geometry, stream, arguments, Some(extra), |_, _| Ok(()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipModuleLaunchCooperativeKernel(
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
        check("hipModuleLaunchCooperativeKernel")?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let geometry = Geometry { grid, block, dynamic_shared: shared as usize };
        launch(function, geometry, stream, arguments, None, Function::check_cooperative)
    })
}
