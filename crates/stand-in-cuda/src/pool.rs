//! Memory pools, and memory in the order of streams.
#![expect(unsafe_code, reason = "exports functions by name")]

use stand_in::abi::{Access, Buffer, Handle, In, Out, Properties, answer};

use crate::device::ordinal;
use crate::process::{current, engine, mode};

stand_in::pool_functions! {
    destroy: cuMemPoolDestroy, default_of: cuDeviceGetDefaultMemPool, of: cuDeviceGetMemPool,
    get: cuMemPoolGetAttribute, set: cuMemPoolSetAttribute, set_access: cuMemPoolSetAccess,
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(pool: Out<Handle>, properties: In<Properties>) -> u32 {
    answer(|| {
        let device = ordinal(properties.get()?.place()?.device()?)?;
        let engine = engine()?;
        engine.may_wait(mode())?;
        pool.put(engine.pool_create(device)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> u32 {
    answer(|| {
        let engine = engine()?;
        engine.may_wait(mode())?;
        engine.pool(pool)?.trim(keep);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(
    address: Out<u64>,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        let pool = engine.default_pool(context.device())?;
        address.put(engine.allocate_in(&context, pool, bytes, stream)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        engine.free_in(&context, address, stream)
    })
}
