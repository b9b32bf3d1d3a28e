//! CUDA devices: NVIDIA GPUs through the installed driver.
//!
//! With the feature `cuda` off, this crate is empty. With the feature on, it still builds on any machine. It looks for
//! the driver's library when a device is opened; without the library, opening a device returns an
//! [`Unavailable`](runtime_core::ErrorKind::Unavailable) error. The crate needs a driver for CUDA 12.0 or later.
#![cfg_attr(
    feature = "cuda",
    doc = r##"
```
use backend_cuda::CudaBackend;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(CudaBackend::new())?;
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
// Sound: the kernel accesses only the first `n` elements, and the memory has that many.
unsafe { kernel.launch(&stream, &Launch::cover(4, 256), args![&mut x, 2.0_f32, 4_u32]) }?;
assert_eq!(x.view().to_vec(&stream)?, [2.0, 4.0, 6.0, 8.0]);
# Ok::<(), runtime_core::Error>(())
```
"##
)]
//!
//! # Memory
//!
//! A device works in its primary context, which it shares with other libraries of the process. Each call leaves this
//! context current in its thread. Memory comes from the device's own pool and is freed in stream order. Copies of plain
//! slices block until all work of their stream so far is done; copies of pinned memory do not block.
//!
//! # Kernels
//!
//! Modules are CUDA C (if NVRTC is installed), PTX, cubins and fatbins. Launches are checked against the number and
//! sizes of the kernel's parameters, as the driver and PTX report them. A 64-bit number cannot be distinguished from a
//! pointer, unless PTX declares which it is. The element type of memory, and whether the kernel writes it, are not
//! checked.
//!
//! # Faults
//!
//! A fault of a program on the device breaks its context. The first wait afterwards returns a
//! [`DeviceFault`](runtime_core::ErrorKind::DeviceFault), and every later call returns
//! [`DeviceLost`](runtime_core::ErrorKind::DeviceLost). The device can be opened again once all of its instances, and
//! all objects that they made, are dropped, unless other libraries of the process keep the broken context.
#![deny(unsafe_code)]
#![cfg(feature = "cuda")]

mod api;
mod binary;
mod codes;
mod cuda;
mod info;
mod library;
mod module;
mod nvml;
mod nvrtc;
mod program;
mod shipped;
mod signature;
mod surviving_memory;
mod vendor;

pub use backend_gpu::PoolKind;
pub use cuda::Cuda;

/// The options for opening a device. A selector can set them: `cuda:0?pool=cache&cache=off`.
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

/// An opened CUDA device, from which a [`Device`](runtime_core::Device) of this backend is made.
///
/// The device works in its primary context, which other libraries of the process use too, for example those based on
/// the CUDA runtime. Or it works in a context that another library owns:
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
/// `cuda` and `cuda:0` are the first device, `cuda:1` is the second. The driver's variable `CUDA_VISIBLE_DEVICES`
/// selects and orders the devices. Options follow a question mark; see [`CudaConfig`].
///
/// Listing devices creates no context. Listed devices therefore do not report the priorities of streams; opened devices
/// do.
pub type CudaBackend = backend_gpu::Backend<Cuda>;

#[cfg(test)]
mod tests {
    use runtime_core::ErrorKind;

    use super::CudaConfig;

    #[test]
    fn errors_of_options_name_the_option_and_the_value() {
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
