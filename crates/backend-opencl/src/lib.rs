//! OpenCL devices: CPUs, GPUs and other accelerators through any installed platform.
//!
//! Without the feature `opencl` this crate is empty. With it, the crate still builds on any machine: it loads the
//! OpenCL loader library when a device is opened, and returns [`Unavailable`](runtime_core::ErrorKind::Unavailable) if
//! there is none.
#![cfg_attr(
    feature = "opencl",
    doc = r#"
```
use backend_opencl::OpenClBackend;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(OpenClBackend::new())?;
let device = match registry.open("opencl:0") {
    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
    device => device?,
};
let source = "kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }";
let kernel = device.module_load(ModuleImage::source(ImageFormat::OpenClC, source))?.kernel("scale")?;
let stream = device.default_stream();
let mut x = device.memory_from_slice(&stream, &[1.0_f32, 2.0, 3.0, 4.0])?;
// Sound: the kernel accesses one element per work-item, and there are as many elements.
unsafe { kernel.launch(&stream, &Launch::cover(4, 4), args![&mut x, 2.0_f32]) }?;
assert_eq!(x.view().to_vec(&stream)?, [2.0, 4.0, 6.0, 8.0]);
# Ok::<(), runtime_core::Error>(())
```
"#
)]
//!
//! # Memory
//!
//! If the platform supports `cl_intel_unified_shared_memory`, device memory is unified shared memory, which kernels use
//! by address. Otherwise it is a buffer (`cl_mem`). The selector option `memory` overrides this choice.
//!
//! A kernel gets a pointer to a view's first element. In a buffer, OpenCL only allows pointers to multiples of the
//! device's base alignment (typically 128 to 512 bytes). A view that starts elsewhere is copied to a separate buffer
//! for the launch, and copied back if the kernel may write it. The first such copy emits a `tracing` warning;
//! [`Statistics::realigned`](runtime_core::Statistics::realigned) counts all of them. To avoid these copies, use memory
//! by address (`memory=svm`, `memory=usm`), or rows whose length is a multiple of
//! [`Limits::argument_alignment`](runtime_core::Limits::argument_alignment).
//!
//! # Kernels
//!
//! Launches are checked against the driver's description of the kernel's parameters: how many there are, and for each
//! whether it is memory or a value, its size, its type, and whether it is `const`. A pointer without `const` accepts
//! only mutable views. Pointers to `char` and `uchar` accept memory of any type. A kernel may have one parameter in
//! local memory. It is not an argument of a launch: its size is
//! [`Launch::shared_bytes`](runtime_core::Launch::shared_bytes). Without such a parameter, these bytes have no effect.
//!
//! # Diagnostics
//!
//! `tracing` events of the target `backend_opencl::profile` at level `TRACE` report how long each command waited and
//! ran. Such an event is emitted by a later operation on the stream, at the latest when the stream is synchronized. A
//! subscriber may use the device while it handles an event.
#![deny(unsafe_code)]
#![cfg(feature = "opencl")]

mod arguments;
mod backend;
mod codes;
mod compile;
mod config;
mod device;
mod end;
mod event;
mod gate;
mod handle;
mod info;
mod interop;
mod launch;
mod memory;
mod module;
mod occupancy;
mod open_device;
mod platform;
mod pointers;
mod program;
mod queue;
mod region;
mod region_kernels;
mod signature;
mod sizes;
mod stream;
mod transfer;

pub use backend::OpenClBackend;
pub use config::{MemoryKind, OpenClConfig, RegionMapping};
pub use device::OpenClDevice;
