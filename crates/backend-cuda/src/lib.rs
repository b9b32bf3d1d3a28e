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

mod api;
mod binary;
mod codes;
mod info;
mod left;
mod library;
mod module;
mod nvml;
mod nvrtc;
mod program;
mod shipped;
mod signature;
mod vendor;

pub use backend_gpu::PoolKind;
pub use vendor::Cuda;

/// How a device is opened; the options of a selector: `cuda:0?pool=cache&cache=off`.
///
/// ```
/// use backend_cuda::{CudaConfig, PoolKind};
///
/// let config = CudaConfig::new().set("pool", "cache")?.set("cache", "off")?;
/// assert_eq!(config.pool, PoolKind::Cache);
/// assert!(CudaConfig::new().set("pool", "paper").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub type CudaConfig = backend_gpu::Config<Cuda>;

/// An opened CUDA device: what a [`Device`](runtime_core::Device) of this backend is made of.
///
/// It is opened in its primary context, which other libraries of the process work in too, those on the CUDA runtime among
/// them, or in a context that somebody else owns:
///
/// ```no_run
/// use backend_cuda::{CudaConfig, CudaDevice};
/// use runtime_core::{Device, NativeHandle, NativeKind};
///
/// # fn example(context: *mut std::ffi::c_void) -> runtime_core::Result<()> {
/// let raw = context.expose_provenance(); // a `CUcontext`
/// let context = NativeHandle { api: "cuda", kind: NativeKind::Context, raw };
/// // Sound if the context outlives the device.
/// let device = Device::new(unsafe { CudaDevice::from_native(context, &CudaConfig::new()) }?)?;
/// # Ok(())
/// # }
/// ```
pub type CudaDevice = backend_gpu::Device<Cuda>;

/// The backend `cuda`: the devices of the CUDA driver, in its order.
///
/// `cuda` and `cuda:0` are the first, `cuda:1` is the second; the driver's variable `CUDA_VISIBLE_DEVICES` chooses and
/// orders them. Options follow a question mark, see [`CudaConfig`].
///
/// Listing devices makes no context, and so does not tell the priorities of streams, which an opened device does.
pub type CudaDriver = backend_gpu::Driver<Cuda>;

#[cfg(test)]
mod tests {
    use runtime_core::ErrorKind;

    use super::CudaConfig;

    #[test]
    fn wrong_options_name_what_is_wrong() {
        for (option, value, kind) in [
            ("pool", "paper", ErrorKind::InvalidArgument),
            ("cache", "yes", ErrorKind::InvalidArgument),
            ("work-dir", "", ErrorKind::InvalidArgument),
            ("memory", "x", ErrorKind::UnknownDevice),
        ] {
            let error = CudaConfig::new().set(option, value).unwrap_err();
            assert_eq!(error.kind(), kind, "{option}");
            assert!(error.message().contains(option), "{error}");
        }
    }
}
