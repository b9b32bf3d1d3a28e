//! OpenCL devices: processors, GPUs and other accelerators through any installed platform.
//!
//! With the feature `opencl` off this crate is empty. With it on it still builds on any machine: the OpenCL loader
//! is looked for when a device is opened, and its absence is an [`Unavailable`](runtime_core::ErrorKind::Unavailable) error.
#![cfg_attr(
    feature = "opencl",
    doc = r#"
```
use backend_opencl::OpenClDriver;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(OpenClDriver::new())?;
let device = match registry.open("opencl:0") {
    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
    device => device?,
};
let source = "kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }";
let kernel = device.module_load(ModuleImage::source(ImageFormat::OpenClC, source))?.kernel("scale")?;
let stream = device.default_stream();
let mut x = device.memory_from_slice(&stream, &[1.0_f32, 2.0, 3.0, 4.0])?;
// Sound: the kernel touches one element per work-item, and there are as many.
unsafe { kernel.launch(&stream, &Launch::cover(4, 4), args![&mut x, 2.0_f32]) }?;
assert_eq!(x.view().to_vec::<f32>(&stream)?, [2.0, 4.0, 6.0, 8.0]);
# Ok::<(), runtime_core::Error>(())
```
"#
)]
//!
//! # Memory
//!
//! Device memory is a buffer (`cl_mem`), or an address where the platform has `cl_intel_unified_shared_memory`;
//! the option `memory` of a selector chooses otherwise. A kernel gets a pointer to a view's first element. Into a
//! buffer there are no pointers but to multiples of the device's base alignment (128 to 512 bytes as a rule), so a view
//! that begins elsewhere is copied to a buffer of its own for the launch, and back if the kernel may write it. Memory
//! by address (`memory=svm`, `memory=usm`) needs no such copies, and neither do rows of a multiple of
//! [`Limits::argument_alignment`](runtime_core::Limits::argument_alignment). The first copy is warned of by `tracing`;
//! [`Statistics::realigned`](runtime_core::Statistics::realigned) counts all.
//!
//! # Kernels
//!
//! Launches are checked against what the driver tells of a kernel's parameters: how many, memory or value, size, type,
//! and `const`, without which a pointer takes mutable views alone. Pointers to `char` and `uchar` take memory of any type. A
//! parameter in local memory is no argument of a launch: it gets
//! [`Launch::shared_bytes`](runtime_core::Launch::shared_bytes), and a kernel may have one; without one, these bytes have
//! no effect.
//!
//! # Diagnosis
//!
//! `tracing` events of the target `backend_opencl::profile` at level `TRACE` tell how long each command waited and ran.
#![deny(unsafe_code)]
#![cfg(feature = "opencl")]

mod codes;
mod config;
mod device;
mod driver;
mod event;
mod handle;
mod info;
mod interop;
mod launch;
mod memory;
mod module;
mod occupancy;
mod platform;
mod pointers;
mod program;
mod queue;
mod region;
mod shared;
mod signature;
mod sizes;
mod stream;
mod transfer;

pub use config::{MemoryKind, OpenClConfig, RegionMapping};
pub use device::OpenClDevice;
pub use driver::OpenClDriver;
