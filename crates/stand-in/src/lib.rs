//! What drivers without a device are made of: for tests of the backends on machines with no GPU.
#![forbid(unsafe_code)]

pub mod ptx;
