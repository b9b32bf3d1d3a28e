//! A stand-in for the HIP runtime: the functions that a program finds in libamdhip64, including those of hiprtc, over
//! the engine of [`stand_in`].
//!
//! Set `BACKEND_HIP_LIBRARY` to the path of this library. The library is only for tests on machines without a GPU, and
//! says so: its devices are called `stand-in for a HIP device (no GPU)`. [`Config`](stand_in::Config) lists the
//! variables of the environment that configure the devices and the report. This library has two more variables:
//!
//! | variable | default | |
//! |---|---|---|
//! | `STAND_IN_HIP_VERSION` | 60000000 | the version of the runtime, which refuses attributes and functions that this version lacks |
//! | `STAND_IN_HIP_QUIRKS` | | behaviour of some versions, separated by commas: `null-memory` (a pool without room returns success and the address 0), `lasting-faults` (once work has failed, every call reports the failure until the process ends), `ending-faults` (work that fails ends the process), `no-answers` (queries about functions, blocks and the device of a stream are not supported), `kinds-of-hip-6` (kinds of memory have the numbers of HIP 6, whatever the version) |
//!
//! Its hiprtc compiles with the NVRTC that `BACKEND_CUDA_NVRTC` names, because the engine runs PTX. Without NVRTC it
//! reports no version. Its output has the form of an AMD code object, with the notes that describe kernels, but
//! contains PTX instead of machine code. Real machine code is refused as code for another GPU.
//!
//! The library has the functions that `backend-hip` and its tests call, and no others. Codes are those of the runtime's
//! manual. The stand-in refuses some calls that the runtime accepts: calls with the null stream, and work on a stream
//! while another device is current.
#![deny(unsafe_code)]

mod code;
mod copy;
mod device;
mod graph;
mod hiprtc;
mod memory;
mod metadata;
mod module;
mod names;
mod options;
mod pool;
mod process;
mod quirks;
mod stream;
mod versions;
