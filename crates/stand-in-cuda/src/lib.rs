//! A stand-in for the CUDA driver: the functions that a program finds in libcuda, over the engine of [`stand_in`].
//!
//! Set `BACKEND_CUDA_DRIVER` to the path of this library. The library is only for tests on machines without a GPU, and
//! says so: its devices are called `stand-in for a CUDA device (no GPU)`. [`Config`](stand_in::Config) lists the
//! variables of the environment that configure the devices and the report. `STAND_IN_VERSION` sets the version of the
//! driver; the default is 12040. `STAND_IN_CUDA_QUIRKS=lasting-faults` lets every call report a failure of work until
//! the process ends, as driver 580 does.
//!
//! The library has the functions that `backend-cuda` and its tests call, and no others. Codes are those of the driver's
//! manual. The stand-in refuses some calls that the driver accepts: calls with the legacy stream, and work on a stream
//! while another context is current.
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
