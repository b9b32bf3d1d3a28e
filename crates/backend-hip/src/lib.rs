//! HIP devices: AMD GPUs through the runtime that is installed.
//!
//! With the feature `hip` off this crate is empty. With it on it still builds on any machine: the runtime's library is
//! looked for when a device is opened, and its absence is an [`Unavailable`](runtime_core::ErrorKind::Unavailable) error.
//! ROCm 5.2 and later do, and other runtimes that have the functions that `docs/hip.md` lists.
#![cfg_attr(
    feature = "hip",
    doc = r##"
```
use backend_hip::HipDriver;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(HipDriver::new())?;
let device = match registry.open("hip:0") {
    Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
    device => device?,
};
if !device.info().formats.contains(&ImageFormat::HipC) {
    return Ok(()); // no hiprtc on this machine
}
let source = r#"
    extern "C" __global__ void scale(float *x, float by, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= by;
    }"#;
let kernel = device.module_load(ModuleImage::source(ImageFormat::HipC, source))?.kernel("scale")?;
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
//! # Building
//!
//! Types and constants are those of `hip-sys`, whose build script looks for ROCm and links it. Whoever depends on this
//! crate with its feature on does nothing on a machine with ROCm; elsewhere two lines in the `.cargo/config.toml` of the
//! workspace, or of a folder above it, keep the script from running. Nothing is linked then, and nothing is missed:
//!
//! ```toml
//! [target.x86_64-unknown-linux-gnu.amdhip64]
//! [target.aarch64-unknown-linux-gnu.amdhip64]
//! ```
//!
//! Without them, programs need `libamdhip64` to be linked; to start they need it only under a linker that is told
//! `--no-as-needed`.
//!
//! # Memory
//!
//! Every call leaves the device current in its thread. Memory comes from a pool of the device's own, where it has pools,
//! and is freed in stream order. Copies of plain slices wait for their stream; those of pinned memory wait for nothing.
//!
//! # Kernels
//!
//! Modules are HIP C where hiprtc is installed, and code objects or uncompressed bundles of them, in which there may be SPIR-V
//! where the runtime compiles it. Launches are checked against the metadata of code objects: how many parameters there are, which of them are pointers, and the sizes of the
//! others. What memory holds, and whether it is written, nobody tells.
//!
//! Region copies are a kernel that hiprtc compiles; without it they are emulated through the host, and say so.
//!
//! # Faults
//!
//! Many versions of the runtime end the process when a program is stopped. Where one does not, whoever waits first is told
//! by a [`DeviceFault`](runtime_core::ErrorKind::DeviceFault), and every later call is
//! [`DeviceLost`](runtime_core::ErrorKind::DeviceLost). The device is reset when every instance of it is dropped, with all
//! that it made, and can be opened again then where the runtime lets go of the fault; some keep it, for all devices, until
//! the process ends.
#![deny(unsafe_code)]
#![cfg(feature = "hip")]

mod api;
mod code_object;
mod codes;
#[cfg(test)]
mod compiled;
mod hiprtc;
mod info;
mod kernels;
mod library;
mod module;
mod program;
mod vendor;

pub use backend_gpu::PoolKind;
pub use vendor::Hip;

/// How a device is opened; the options of a selector: `hip:0?pool=cache&cache=off`.
///
/// ```
/// use backend_hip::{HipConfig, PoolKind};
///
/// let config = HipConfig::new().set("pool", "cache")?.set("cache", "off")?;
/// assert_eq!(config.pool, PoolKind::Cache);
/// assert!(HipConfig::new().set("pool", "paper").is_err());
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub type HipConfig = backend_gpu::Config<Hip>;

/// An opened HIP device: what a [`Device`](runtime_core::Device) of this backend is made of.
///
/// Other libraries of the process may use the device as well.
/// [`Device::with_native_stream`](runtime_core::Device::with_native_stream) takes a stream of theirs:
///
/// ```no_run
/// use backend_hip::{HipConfig, HipDevice};
/// use runtime_core::{Device, NativeHandle, NativeKind};
///
/// # fn example(stream: *mut std::ffi::c_void) -> runtime_core::Result<()> {
/// let raw = stream.expose_provenance(); // a `hipStream_t`
/// let stream = NativeHandle { api: "hip", kind: NativeKind::Stream, raw };
/// let device = HipDevice::open(0, &HipConfig::new())?;
/// // Sound if the stream outlives the device.
/// let device = unsafe { Device::with_native_stream(device, stream) }?;
/// # Ok(())
/// # }
/// ```
pub type HipDevice = backend_gpu::Device<Hip>;

/// The backend `hip`: the devices of the HIP runtime, in its order.
///
/// `hip` and `hip:0` are the first, `hip:1` is the second; the runtime's variable `HIP_VISIBLE_DEVICES` chooses and
/// orders them. Options follow a question mark, see [`HipConfig`].
///
/// Listing devices does not make them current, and so does not tell the priorities of streams, which an opened device
/// does.
pub type HipDriver = backend_gpu::Driver<Hip>;
