//! The tests that CUDA and HIP have in common. Each backend runs them with its own module `vendor`, which names what
//! they call differently.

pub(crate) mod absence;
pub(crate) mod cache;
pub(crate) mod common;
pub(crate) mod faults;
pub(crate) mod interop;
pub(crate) mod launches;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod waits;
