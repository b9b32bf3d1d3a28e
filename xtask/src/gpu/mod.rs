//! Tests of GPU backends, mostly on machines without a GPU.

pub(crate) mod bundle;
pub(crate) mod cuda_drivers;
pub(crate) mod nvidia_compilers;
pub(crate) mod rocm_compiler;
pub(crate) mod run_bundle;
pub(crate) mod stand_in;
pub(crate) mod steps;
pub(crate) mod suites;
