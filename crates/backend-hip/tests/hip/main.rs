//! What HIP devices do beyond the rules that every device keeps: the tests that the vendors have in common, and its own.
#![cfg(feature = "hip")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "launches the tests' own kernels and takes native handles")]

#[path = "../../../backend-gpu/tests/suite/absence.rs"]
mod absence;
#[path = "../../../backend-gpu/tests/suite/cache.rs"]
mod cache;
#[path = "../../../backend-gpu/tests/suite/common.rs"]
mod common;
#[path = "../../../backend-gpu/tests/suite/faults.rs"]
mod faults;
#[path = "../../../backend-gpu/tests/suite/interop.rs"]
mod interop;
#[path = "../../../backend-gpu/tests/suite/launches.rs"]
mod launches;
#[path = "../../../backend-gpu/tests/suite/memory.rs"]
mod memory;
#[path = "../../../backend-gpu/tests/suite/modules.rs"]
mod modules;
mod others;
mod own;
mod versions;
#[path = "../../../backend-gpu/tests/suite/waits.rs"]
mod waits;

/// What the tests in common call differently.
mod vendor;
