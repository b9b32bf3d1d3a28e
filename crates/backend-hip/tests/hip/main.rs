//! Tests of HIP devices beyond the rules for every device: those that the vendors have in common, and its own.
#![cfg(feature = "hip")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the tests' own kernels and takes native handles")]

mod others;
mod own;
mod versions;

/// The names that differ in the tests in common.
mod vendor;

/// The tests in common.
#[path = "../../../backend-gpu/tests/suite/mod.rs"]
mod suite;

use suite::common;
