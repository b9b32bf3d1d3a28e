//! Memory pools, and memory in the order of streams.
#![expect(unsafe_code, reason = "exports functions by name")]

use stand_in::abi::{Access, Buffer, Handle, In, Out, Properties};
use stand_in::{Code, Result};

use crate::device::ordinal;
use crate::process::{answer, current, engine};
use crate::quirks::quirks;

stand_in::pool_functions! {
    destroy: hipMemPoolDestroy, default_of: hipDeviceGetDefaultMemPool, of: hipDeviceGetMemPool,
    get: hipMemPoolGetAttribute, set: hipMemPoolSetAttribute, set_access: hipMemPoolSetAccess,
}

#[unsafe(no_mangle)]
extern "C" fn hipMemPoolCreate(pool: Out<Handle>, properties: In<Properties>) -> u32 {
    answer(|| {
        let device = ordinal(properties.get()?.place()?.device()?)?;
        pool.put(engine()?.pool_create(device)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMemPoolTrimTo(pool: Handle, keep: usize) -> u32 {
    answer(|| {
        engine()?.pool(pool)?.trim_unused(keep);
        Ok(())
    })
}

/// Allocates in the order of a stream; no bytes are nowhere.
fn allocate(
    address: Out<u64>,
    bytes: usize,
    stream: Handle,
    pool: impl FnOnce(usize) -> Result<Handle>,
) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        if bytes == 0 {
            return address.put(0);
        }
        let pool = pool(context.device())?;
        match engine.allocate_in(&context, pool, bytes, stream) {
            Err(Code::OUT_OF_MEMORY) if quirks()?.null_memory => address.put(0),
            allocated => address.put(allocated?),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipMallocFromPoolAsync(
    address: Out<u64>,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> u32 {
    allocate(address, bytes, stream, |_| Ok(pool))
}

#[unsafe(no_mangle)]
extern "C" fn hipMallocAsync(address: Out<u64>, bytes: usize, stream: Handle) -> u32 {
    allocate(address, bytes, stream, |device| engine()?.default_pool(device))
}

#[unsafe(no_mangle)]
extern "C" fn hipFreeAsync(address: u64, stream: Handle) -> u32 {
    answer(|| {
        let (engine, context) = current()?;
        if address == 0 { Ok(()) } else { engine.free_in(&context, address, stream) }
    })
}
