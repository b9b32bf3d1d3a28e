//! Copies and fills.

use stand_in::abi::Handle;
use stand_in::{Engine, Result};

use crate::process::{answer, current, engine};

stand_in::copy_functions! {
    to: cuMemcpyHtoDAsync_v2, from: cuMemcpyDtoHAsync_v2, within: cuMemcpyDtoDAsync_v2,
    peer: cuMemcpyPeerAsync between Handle,
    fill_8: cuMemsetD8Async, fill_16: cuMemsetD16Async, fill_32: cuMemsetD32Async,
}

fn device_of(engine: &Engine, context: Handle) -> Result<usize> {
    Ok(engine.context(context)?.device())
}
