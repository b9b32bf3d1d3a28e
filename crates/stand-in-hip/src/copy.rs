//! Copies and fills.

use stand_in::abi::Handle;
use stand_in::{Engine, Result};

use crate::device::ordinal;
use crate::process::{answer, current, engine};

stand_in::copy_functions! {
    to: hipMemcpyHtoDAsync, from: hipMemcpyDtoHAsync, within: hipMemcpyDtoDAsync,
    peer: hipMemcpyPeerAsync between i32,
    fill_8: hipMemsetD8Async, fill_16: hipMemsetD16Async, fill_32: hipMemsetD32Async,
}

fn device_of(_engine: &Engine, device: i32) -> Result<usize> {
    ordinal(device)
}
