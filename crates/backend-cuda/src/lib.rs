//! CUDA devices: NVIDIA GPUs through the driver that is installed.
//!
//! With the feature `cuda` off this crate is empty. With it on it still builds on any machine: the driver's library is
//! looked for when a device is opened, and its absence is an [`Unavailable`](runtime_core::ErrorKind::Unavailable) error.
//! Drivers for CUDA 12.0 and later do.
#![cfg_attr(
    feature = "cuda",
    doc = r##"
```
use backend_cuda::CudaDriver;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(CudaDriver::new())?;
let device = match registry.open("cuda:0") {
    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
    device => device?,
};
if !device.info().formats.contains(&ImageFormat::CudaC) {
    return Ok(()); // no NVRTC on this machine
}
let source = r#"
    extern "C" __global__ void scale(float *x, float by, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= by;
    }"#;
let kernel = device.module_load(ModuleImage::source(ImageFormat::CudaC, source))?.kernel("scale")?;
let stream = device.default_stream();
let mut x = device.memory_from_slice(&stream, &[1.0_f32, 2.0, 3.0, 4.0])?;
// Sound: the kernel touches the elements below the number that it is given, and there are as many.
unsafe { kernel.launch(&stream, &Launch::cover(4, 256), args![&mut x, 2.0_f32, 4_u32]) }?;
assert_eq!(x.view().to_vec::<f32>(&stream)?, [2.0, 4.0, 6.0, 8.0]);
# Ok::<(), runtime_core::Error>(())
```
"##
)]
//!
//! # Memory
//!
//! A device works in its primary context, which it shares with other libraries of the process, and every call leaves this
//! context current in its thread. Memory comes from a pool of the device's own and is freed in stream order. Copies of
//! plain slices wait for their stream; those of pinned memory wait for nothing.
//!
//! # Kernels
//!
//! Modules are CUDA C where NVRTC is installed, PTX, and cubins or fatbins. Launches are checked against what the driver
//! and PTX tell of a kernel's parameters: how many there are, and their sizes. A number of 64 bits cannot be told from a
//! pointer, unless PTX says which it is; what memory holds, and whether it is written, nobody tells.
//!
//! # Faults
//!
//! A program that is stopped takes its context with it. Whoever waits first is told by a
//! [`DeviceFault`](runtime_core::ErrorKind::DeviceFault), and every later call is
//! [`DeviceLost`](runtime_core::ErrorKind::DeviceLost). The device can be opened again once every instance of it is dropped,
//! with all that it made, unless other libraries of the process keep the broken context.
#![deny(unsafe_code)]
#![cfg(feature = "cuda")]

mod binary;
mod codes;
mod config;
mod context;
mod device;
mod driver;
mod event;
mod fill;
mod graph;
mod info;
mod interop;
mod launch;
mod left;
mod library;
mod memory;
mod module;
mod nvml;
mod nvrtc;
mod peer;
mod pinned;
mod pool;
mod program;
mod raw_stream;
mod reaper;
mod region;
mod shared;
mod shipped;
mod signature;
mod stream;

pub use config::{CudaConfig, PoolKind};
pub use device::CudaDevice;
pub use driver::CudaDriver;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks whether or not a thread panicked while it held the lock: every critical section here leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
