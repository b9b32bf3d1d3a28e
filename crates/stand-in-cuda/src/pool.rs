//! Memory pools, and memory that is allocated and freed in the order of a stream.

use stand_in::abi::{Access, Buffer, Handle, In, Out, Properties};

use crate::device::ordinal;
use crate::process::{answer, current, engine, engine_to_wait};

stand_in::pool_functions! {
    create: cuMemPoolCreate, trim: cuMemPoolTrimTo = trim by engine_to_wait,
    destroy: cuMemPoolDestroy, get: cuMemPoolGetAttribute, set: cuMemPoolSetAttribute,
    set_access: cuMemPoolSetAccess,
}

stand_in::functions! {
    cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) =
        pool.put(engine()?.default_pool(ordinal(device)?)?);
    cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, pool: Handle, stream: Handle) = {
        let (engine, context) = current()?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    };
    cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) = {
        let (engine, context) = current()?;
        let pool = engine.default_pool(context.device())?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    };
    cuMemFreeAsync(address: u64, stream: Handle) = {
        let (engine, context) = current()?;
        engine.free_in(&context, address, stream)
    };
}
