//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "exports functions by name, and calls a function of the caller")]

use std::str;

use cudarc::driver::sys::{CUfunction_attribute as Attribute, CUjit_option as Jit};
use stand_in::abi::{Buffer, Handle, In, Out, Text};
use stand_in::{Code, LoadError, MULTIPROCESSORS, Result};

use crate::device::{TARGET, int, version};
use crate::process::{answer, current, current_to_wait, engine};

/// The newest PTX that a driver supports, from the newest driver to the oldest.
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

/// The first version that has `cuFuncGetParamInfo`.
const WITH_PARAMETERS: u32 = 12_040;

fn load(module: Out<Handle>, image: Text) -> Result<(), LoadError> {
    let (engine, context) = current_to_wait()?;
    let image = image.bytes()?;
    // PTX has its version near its start. Other images may be binary, and may contain NULs.
    let text = str::from_utf8(image).ok().filter(|text| text.contains(".version"));
    let text = text.ok_or(match image {
        // Machine code for a real device.
        [0x7f, b'E', b'L', b'F', ..] | [0x50, 0xed, 0x55, 0xba, ..] => Code::NO_BINARY_FOR_GPU,
        _ => Code::INVALID_IMAGE,
    })?;
    let driver = version()?;
    let newest = PTX.iter().find(|(version, _)| driver >= *version).map_or((7, 8), |row| row.1);
    Ok(module.put(engine.module_load(&context, text, (newest, TARGET))?)?)
}

/// Every version has queries about kernels, and cooperative launches.
fn always() -> Result<()> {
    Ok(())
}

// Code may be loaded when a kernel is first looked up, which a capture forbids.
stand_in::kernel_functions! {
    unload: cuModuleUnload, function: cuModuleGetFunction by current_to_wait,
    resident_blocks: cuOccupancyMaxActiveBlocksPerMultiprocessor if always, launch: cuLaunchKernel,
    launch_cooperative: cuLaunchCooperativeKernel if always,
}

stand_in::functions! {
    cuModuleLoadData(module: Out<Handle>, image: Text) =
        load(module, image).map_err(|error| error.code);
    cuModuleLoadDataEx(
        module: Out<Handle>, image: Text, count: u32, options: In<u32>, values: In<Buffer>
    ) = {
        const LOG: u32 = Jit::CU_JIT_ERROR_LOG_BUFFER as u32;
        const LOG_SIZE: u32 = Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32;
        let options = options.take(count as usize)?;
        let value = |option| {
            let index = options.iter().position(|given| *given == option);
            index.map(|index| values.at(index)).transpose()
        };
        let log = value(LOG)?.zip(value(LOG_SIZE)?);
        load(module, image).map_err(|error| {
            if let Some((log, size)) = log {
                let _no_room = log.put_text(&error.log, size.start().addr());
            }
            error.code
        })
    };
    cuFuncGetParamInfo(function: Handle, index: usize, offset: Out<usize>, size: Out<usize>) = {
        let engine = engine()?;
        if version()? < WITH_PARAMETERS {
            return Err(Code::NOT_FOUND);
        }
        let function = engine.kernel(function)?;
        let param = function.entry().params().get(index).ok_or(Code::INVALID_VALUE)?;
        offset.put(param.offset)?;
        size.offer(param.size);
        Ok(())
    };
    cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Handle) = {
        const THREADS: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32;
        const SHARED: u32 = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32;
        let function = engine()?.kernel(function)?;
        value.put(match attribute {
            THREADS => int(function.max_threads()),
            SHARED => int(function.entry().static_shared()),
            _ => return Err(Code::INVALID_VALUE),
        })
    };
    cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) = {
        const DYNAMIC: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
        let function = engine()?.kernel(function)?;
        match (attribute, usize::try_from(value)) {
            (DYNAMIC, Ok(bytes)) => function.set_dynamic_shared(bytes),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Handle,
        shared_of: Option<unsafe extern "C" fn(i32) -> usize>, shared: usize, most: i32,
    ) = {
        let function = engine()?.kernel(function)?;
        let most = u32::try_from(most).ok().filter(|most| *most > 0);
        let shared_of = |threads| {
            shared_of.map_or(shared, |shared_of| {
                // SAFETY: callers of the driver pass a function that accepts any block size.
                unsafe { shared_of(int(threads)) }
            })
        };
        let best = function.best_block(most.unwrap_or(u32::MAX), shared_of);
        let blocks = function.blocks_per_multiprocessor(best, shared_of(best));
        grid.put(int(blocks * MULTIPROCESSORS))?;
        block.put(int(best))
    };
}
