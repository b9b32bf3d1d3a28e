//! The PTX interpreter: single instructions, kernels whose threads work together, and the kernels that backends run.
#![cfg(test)]

mod conversions;
mod floats;
mod harness;
mod integers;
mod kernels;
mod memory;
mod nvrtc;
#[path = "../../../backend-support/src/region_kernel/tests/random.rs"]
mod random;
mod refusals;
mod region;
mod shipped;
mod threads;
