//! Modules, kernels and launches.

use std::str;

use hip_sys::hiprt::hipFunction_attribute as Attribute;
use stand_in::abi::{Buffer, Handle, In, Out, Text};
use stand_in::{Code, MULTIPROCESSORS, Result};

use crate::code;
use crate::device::int;
use crate::process::{answer, current, current_to_wait, engine};
use crate::quirks::check_queries;
use crate::versions::{HIP_5_5, check};

/// Cooperative launches came with HIP 5.5.
fn check_cooperative() -> Result<()> {
    check(HIP_5_5)
}

stand_in::kernel_functions! {
    unload: hipModuleUnload, function: hipModuleGetFunction by current,
    resident_blocks: hipModuleOccupancyMaxActiveBlocksPerMultiprocessor if check_queries,
    launch: hipModuleLaunchKernel,
    launch_cooperative: hipModuleLaunchCooperativeKernel if check_cooperative,
}

stand_in::functions! {
    hipModuleLoadData(module: Out<Handle>, image: In<u8>) = {
        /// The PTX comes from the stand-in's own compiler, so no version is too new.
        const NEWEST: ((u32, u32), u32) = ((u32::MAX, 0), u32::MAX);
        let (engine, context) = current_to_wait()?;
        context.check()?;
        let loaded = engine.module_load(&context, &code::read(image)?, NEWEST);
        module.put(loaded.map_err(|error| error.code)?)
    };
    hipFuncGetAttribute(value: Out<i32>, attribute: u32, function: Handle) = {
        const THREADS: u32 = Attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32;
        const SHARED: u32 = Attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32;
        check_queries()?;
        let function = engine()?.kernel(function)?;
        value.put(match attribute {
            THREADS => int(function.max_threads()),
            SHARED => int(function.entry().static_shared()),
            _ => return Err(Code::INVALID_VALUE),
        })
    };
    hipModuleOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Handle, shared: usize, most: i32
    ) = {
        check_queries()?;
        let function = engine()?.kernel(function)?;
        let most = u32::try_from(most).ok().filter(|most| *most > 0);
        let best = function.best_block(most.unwrap_or(u32::MAX), |_| shared);
        grid.put(int(function.blocks_per_multiprocessor(best, shared) * MULTIPROCESSORS))?;
        block.put(int(best))
    };
}
