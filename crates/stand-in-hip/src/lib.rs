//! A stand-in for the HIP runtime: the functions that a program finds in libamdhip64, hiprtc's included, over the engine of
//! [`stand_in`].
//!
//! Set `BACKEND_HIP_LIBRARY` to the path of this library. It is for tests on machines with no GPU, and claims to be nothing else:
//! its devices are called `stand-in for a HIP device (no GPU)`. [`Config`](stand_in::Config) has the variables of the environment
//! that tell what the devices are like and where the report goes. Two more are of this library:
//!
//! | variable | default | |
//! |---|---|---|
//! | `STAND_IN_HIP_VERSION` | 60000000 | the version of the runtime, which refuses the attributes and the functions that it lacks |
//! | `STAND_IN_HIP_QUIRKS` | | what some versions do: `null-memory` (a pool without room tells success and the address 0), `lasting-faults` (once work has failed, every call tells so until the process ends), `ending-faults` (work that fails ends the process), `no-answers` (questions about functions, blocks and the device of a stream are not supported), `kinds-of-hip-6` (kinds of memory have the numbers of HIP 6, whatever the version), separated by commas |
//!
//! Its hiprtc compiles with the NVRTC that `BACKEND_CUDA_NVRTC` names, for the engine runs PTX, and tells no version without. What it hands out has the form
//! of a code object of AMD's, with the notes that describe kernels, and the text in the place of machine code. Real machine
//! code is refused as that of another GPU.
//!
//! Codes are those that the runtime's manual gives. Some calls that the runtime would bear are refused all the same: those
//! with the null stream, and work on a stream while another device is current.
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
mod nvrtc;
mod options;
mod pool;
mod process;
mod properties;
mod quirks;
mod stream;
mod versions;
