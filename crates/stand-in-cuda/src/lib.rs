//! A stand-in for the CUDA driver: the functions that a program finds in libcuda, over the engine of [`stand_in`].
//!
//! Set `BACKEND_CUDA_DRIVER` to the path of this library. It is for tests on machines with no GPU, and claims to be nothing else:
//! its devices are called `stand-in for a CUDA device (no GPU)`. [`Config`](stand_in::Config) has the variables of the environment
//! that tell what the devices are like and where the report goes; `STAND_IN_VERSION` is the version of the driver, 12040 unless it
//! is set.
//!
//! Codes are those that the driver's manual gives. Some calls that the driver would bear are refused all the same: those
//! with the legacy stream, and work on a stream while another context is current.
#![deny(unsafe_code)]

mod context;
mod copy;
mod device;
mod graph;
mod memory;
mod module;
mod names;
mod pool;
mod process;
mod stream;
