//! Memory pools, and memory in the order of streams.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::ffi::{c_int, c_uint};

use stand_in::abi::{Access, Buffer, Handle, In, Out, Properties, answer};

use crate::device::ordinal;
use crate::process::{current, engine, mode};

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
extern "C" fn cuMemPoolDestroy(pool: Handle) -> u32 {
    answer(|| engine()?.pool_destroy(pool))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) -> u32 {
    answer(|| pool.put(engine()?.default_pool(ordinal(device)?)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) -> u32 {
    cuDeviceGetDefaultMemPool(pool, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: Buffer) -> u32 {
    answer(|| engine()?.pool(pool)?.attribute(attribute, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: Buffer) -> u32 {
    answer(|| engine()?.pool(pool)?.set_attribute(attribute, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAccess(pool: Handle, accesses: In<Access>, count: usize) -> u32 {
    answer(|| {
        let pool = engine()?.pool(pool)?;
        for index in 0..count {
            let (place, open) = accesses.at(index)?.read()?;
            pool.open_to(ordinal(place.device()?)?, open);
        }
        Ok(())
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
