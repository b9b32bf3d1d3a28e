//! Memory pools, and memory that is allocated and freed in the order of a stream.

use stand_in::Code;
use stand_in::abi::{Access, Buffer, Handle, In, Out, Properties};

use crate::device::ordinal;
use crate::process::{answer, current, engine};
use crate::quirks::quirks;

stand_in::pool_functions! {
    create: hipMemPoolCreate, trim: hipMemPoolTrimTo = trim_unused by engine,
    destroy: hipMemPoolDestroy, get: hipMemPoolGetAttribute, set: hipMemPoolSetAttribute,
    set_access: hipMemPoolSetAccess,
}

stand_in::functions! {
    hipMallocFromPoolAsync(address: Out<u64>, bytes: usize, pool: Handle, stream: Handle) = {
        let (engine, context) = current()?;
        if bytes == 0 {
            return address.put(0);
        }
        match engine.allocate_in(&context, pool, bytes, stream) {
            Err(Code::OUT_OF_MEMORY) if quirks()?.null_memory => address.put(0),
            allocated => address.put(allocated?),
        }
    };
    hipFreeAsync(address: u64, stream: Handle) = {
        let (engine, context) = current()?;
        if address == 0 { Ok(()) } else { engine.free_in(&context, address, stream) }
    };
}
