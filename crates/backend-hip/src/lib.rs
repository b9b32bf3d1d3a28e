//! HIP devices: AMD GPUs through the installed runtime.
//!
//! With the feature `hip` off, this crate is empty. With the feature on, it still builds on any machine. It looks for
//! the runtime's library when a device is opened; without the library, opening a device returns an
//! [`Unavailable`](runtime_core::ErrorKind::Unavailable) error. The crate needs ROCm 5.2 or later, or another runtime
//! with the functions that `docs/hip.md` lists.
#![cfg_attr(
    feature = "hip",
    doc = r##"
```
use backend_hip::HipBackend;
use runtime_core::{DeviceRegistry, ErrorKind, ImageFormat, Launch, ModuleImage, args};

let mut registry = DeviceRegistry::new();
registry.register(HipBackend::new())?;
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
// Sound: the kernel accesses only the first `n` elements, and the memory has that many.
unsafe { kernel.launch(&stream, &Launch::cover(4, 256), args![&mut x, 2.0_f32, 4_u32]) }?;
assert_eq!(x.view().to_vec(&stream)?, [2.0, 4.0, 6.0, 8.0]);
# Ok::<(), runtime_core::Error>(())
```
"##
)]
//!
//! # Building
//!
//! Types and constants come from `hip-sys`, whose build script looks for ROCm and links it. A crate that depends on
//! this crate with the feature on needs no preparation on a machine with ROCm. On other machines, two lines in the
//! `.cargo/config.toml` of the workspace, or of a folder above it, keep the script from running. Nothing is then
//! linked, and no function is missing:
//!
//! ```toml
//! [target.x86_64-unknown-linux-gnu.amdhip64]
//! [target.aarch64-unknown-linux-gnu.amdhip64]
//! ```
//!
//! Without these lines, programs need `libamdhip64` for linking. They need it at start only if the linker runs with
//! `--no-as-needed`.
//!
//! # Memory
//!
//! Each call leaves the device current in its thread. Memory comes from the device's own pool, if the device supports
//! pools, and is then freed in stream order. Copies of plain slices block until all work of their stream so far is
//! done; copies of pinned memory do not block.
//!
//! # Kernels
//!
//! Modules are HIP C (if hiprtc is installed), code objects, and uncompressed bundles of code objects. Bundles may
//! contain SPIR-V if the runtime compiles it. Launches are checked against the metadata of code objects: the number of
//! parameters, which parameters are pointers, and the sizes of the others. The element type of memory, and whether the
//! kernel writes it, are not checked.
//!
//! A kernel that hiprtc compiles executes region copies. Without hiprtc they are emulated through the host, and
//! reported as emulated.
//!
//! # Faults
//!
//! Many versions of the runtime end the process after a fault of a program on the device. With other versions, the
//! first wait afterwards returns a [`DeviceFault`](runtime_core::ErrorKind::DeviceFault), and every later call returns
//! [`DeviceLost`](runtime_core::ErrorKind::DeviceLost). When all instances of the device, and all objects that they
//! made, are dropped, the device is reset. It can then be opened again if the runtime clears the fault. Some versions
//! keep the fault, for all devices, until the process ends.
#![deny(unsafe_code)]
#![cfg(feature = "hip")]

mod api;
mod code_object;
mod codes;
#[cfg(test)]
mod compiled;
mod hip;
mod hiprtc;
mod info;
mod kernels;
mod library;
mod module;
mod program;
mod vendor;

pub use backend_gpu::PoolKind;
pub use hip::Hip;

/// The options for opening a device. A selector can set them: `hip:0?pool=cache&cache=off`.
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

/// An opened HIP device, from which a [`Device`](runtime_core::Device) of this backend is made.
///
/// Other libraries of the process may use the device as well.
/// [`Device::with_native_stream`](runtime_core::Device::with_native_stream) takes a stream of such a library:
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
/// `hip` and `hip:0` are the first device, `hip:1` is the second. The runtime's variable `HIP_VISIBLE_DEVICES` selects
/// and orders the devices. Options follow a question mark; see [`HipConfig`].
///
/// Listing devices does not make them current. Listed devices therefore do not report the priorities of streams; opened
/// devices do.
pub type HipBackend = backend_gpu::Backend<Hip>;
