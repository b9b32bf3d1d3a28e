//! One interface to every device: open a device by name, move data, launch kernels, measure.
//!
//! ```
//! use runtime::{Grid, HostModule, Launch, args};
//!
//! fn saxpy(grid: &Grid<'_>, y: &mut [f32], x: &[f32], a: f32) {
//!     grid.chunks_mut(y, 4096, |chunk, y| {
//!         for (y, x) in y.iter_mut().zip(&x[4096 * chunk..]) {
//!             *y += a * x;
//!         }
//!     });
//! }
//!
//! # if cfg!(not(feature = "host")) { return Ok(()) }
//! let device = runtime::registry().open("host")?;
//! let stream = device.default_stream();
//! let x = device.memory_from_slice(&stream, &[1.0_f32; 10_000])?;
//! let mut y = device.memory_from_slice(&stream, &[2.0_f32; 10_000])?;
//! let kernel = device.module_load(&HostModule::new().with("saxpy", saxpy))?.kernel("saxpy")?;
//! kernel.launch_checked(&stream, &Launch::cover(10_000, 256), args![&mut y, &x, 3.0_f32])?;
//! assert_eq!(y.view().to_vec(&stream)?, [5.0; 10_000]);
//! # Ok::<(), runtime::Error>(())
//! ```
//!
//! # When to use what
//!
//! Depend on this crate if a program chooses its device when it runs. A library for one backend depends on
//! `runtime-core` and that backend.
//!
//! | for | use |
//! |---|---|
//! | kernels of your own, memory, streams, events | [`Device`], [`Memory`], [`Stream`], [`Kernel`] |
//! | arrays that the host and devices use in turn | `array::ArrayBuffer` |
//! | ghosts of grids, and patterns of unstructured meshes, among ranks | `halo::HaloExchange`, `halo::Forest` |
//! | explicit steps on grids, written once for all devices and ranks | `stencil` |
//! | ranks that are threads, or processes of an MPI job | `ranks::run` |
//!
//! The repository has a guide, `docs/README.md`, with a program for each of these.
//!
//! # Features
//!
//! This crate re-exports `runtime-core` and, depending on features, the backends, the arrays and the halo exchange. It
//! adds only [`registry`], [`BACKENDS`] and, with the feature `halo`, [`ranks`](mod@ranks).
//!
//! | feature | backend | selectors |
//! |---|---|---|
//! | `host` (default) | the processor on which the program runs; kernels are Rust functions | `host`, `host:1` |
//! | `cuda` | NVIDIA GPUs; kernels are CUDA C, PTX or binaries | `cuda:0`, `cuda:1?cache=off` |
//! | `embedded` | bare-metal programs on QEMU or a board; kernels are C, as ELF images; on Linux | `embedded:qemu-riscv64`, `embedded:gdb:HOST:PORT?board=FILE` |
//! | `hip` | AMD GPUs; kernels are HIP C or code objects | `hip:0`, `hip:1?cache=off` |
//! | `opencl` | GPUs, processors and other accelerators with an OpenCL platform; kernels are OpenCL C or SPIR-V | `opencl:0`, `opencl:gpu:0`, `opencl:pocl:1?memory=svm` |
//! | `sim` | simulated accelerators with injected faults, for tests | `sim:0`, `sim:0?seed=7&fail-launch=50` |
//!
//! More features:
//!
//! - `array` (default) adds [`array`](mod@array): arrays that are coherent on every device.
//! - `halo` (default) adds [`halo`](mod@halo): halo exchange between ranks.
//! - `mpi` adds `mpi`: ranks that are processes of an MPI job. The MPI library is found at run time.
//! - `interchange` adds `interchange`: exchange of arrays with other libraries, in both directions.
//! - `npy` adds `stencil::npy`: `.npy` files of fields and arrays.
//! - `picture` adds `stencil::picture`: pictures of arrays, as PNG files.
//! - `stencil` adds `stencil`: kernels written once in a subset of Rust, and fields on grids that ranks share.
//!
//! Features are additive. Neither the build nor the start of the program needs a device. If a device is missing at run
//! time, opening it returns an [`ErrorKind::Unavailable`] error. On a machine without ROCm, the feature `hip` needs two
//! lines of cargo configuration to build: see "Building" in the documentation of `backend-hip`.
//!
//! # Arrays over ranks
//!
//! An array runs the halo exchange itself when an access needs ghosts. This is registered once on each rank:
//!
//! ```
//! # #[cfg(all(feature = "array", feature = "halo", feature = "host"))]
//! # fn main() -> runtime::Result<()> {
//! use std::sync::Arc;
//!
//! use runtime::Device;
//! use runtime::array::{ArrayBuffer, Partition};
//! use runtime::halo::communicator::{Communicator, ThreadCommunicator};
//! use runtime::halo::{Dim, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
//!
//! let device = Device::new(runtime::host::HostDevice::new(0))?;
//! // A ring of two ranks with three cells each, and one ghost cell at either end.
//! let topology = Topology::cartesian(&[6], &[2], &[true])?;
//! let rows = ThreadCommunicator::run(2, |ranks| -> runtime::Result<Vec<f64>> {
//!     let (rank, stream) = (ranks.rank(), device.default_stream());
//!     let cells = FieldSpec::new("cells", runtime::DType::F64, &[Dim::axis(0, 3).halo(1, 1)])?;
//!     let (quantities, options) = ([Quantity::scalar(cells)], HaloOptions::default());
//!     let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
//!
//!     let mut array = ArrayBuffer::<f64, _>::with_partition(Partition::with_ghosts(&[5], &[(1, 1)])?)?;
//!     array.on_stale_ghosts(&stream, move |exchange| {
//!         let (stream, ghosts) = (exchange.stream(), exchange.partition().exchanged());
//!         halo.set_token(exchange.sequence()); // ranks that made other writes get an error
//!         // SAFETY: a halo exchange reads owned cells, and writes no others than these ghosts.
//!         let (owned, all) = unsafe { exchange.whole(ghosts)? };
//!         halo.exchange(stream, &mut [Field::split(owned, all)?])
//!     })?;
//!     array.write_host()?.fill(rank as f64);
//!     let row = array.read_host()?; // exchanges
//!     Ok(row.to_vec())
//! })?;
//! for (row, expected) in rows.into_iter().zip([[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0, 0.0]]) {
//!     assert_eq!(row?, expected);
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "array", feature = "halo", feature = "host")))]
//! # fn main() {}
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::unnecessary_safety_comment, reason = "it is in the example above")]

#[doc(inline)]
pub use runtime_core::*;

#[cfg(feature = "array")]
#[doc(inline)]
pub use array_buffer as array;
#[cfg(feature = "cuda")]
#[doc(inline)]
pub use backend_cuda as cuda;
#[cfg(all(feature = "embedded", target_os = "linux"))]
#[doc(inline)]
pub use backend_embedded as embedded;
#[cfg(feature = "hip")]
#[doc(inline)]
pub use backend_hip as hip;
#[cfg(feature = "host")]
#[doc(inline)]
pub use backend_host as host;
#[cfg(feature = "opencl")]
#[doc(inline)]
pub use backend_opencl as opencl;
#[cfg(feature = "sim")]
#[doc(inline)]
pub use backend_sim as sim;
#[cfg(feature = "halo")]
#[doc(inline)]
pub use halo;
#[cfg(feature = "mpi")]
#[doc(inline)]
pub use halo_mpi as mpi;
#[cfg(feature = "interchange")]
#[doc(inline)]
pub use interchange;
#[cfg(feature = "stencil")]
#[doc(inline)]
pub use stencil;

#[cfg(feature = "halo")]
pub mod ranks;

#[cfg(doctest)]
mod pages;

/// Every backend that this crate has a feature for, and whether it was compiled in.
pub const BACKENDS: &[(&str, bool)] = &[
    ("cuda", cfg!(feature = "cuda")),
    ("embedded", cfg!(all(feature = "embedded", target_os = "linux"))),
    ("hip", cfg!(feature = "hip")),
    ("host", cfg!(feature = "host")),
    ("opencl", cfg!(feature = "opencl")),
    ("sim", cfg!(feature = "sim")),
];

/// Returns a registry of the backends that were compiled in. Backends of other crates can be added to it. Opening a
/// device of a backend that was not compiled in returns an error that names the feature.
///
/// Creating the registry accesses no device and loads no driver library. [`DeviceRegistry::list`] and
/// [`DeviceRegistry::open`] do.
///
/// ```
/// for listing in runtime::registry().list() {
///     match listing.devices {
///         Ok(devices) => devices.iter().for_each(|device| println!("{}: {}", device.id, device.name)),
///         Err(why) => println!("{}: {why}", listing.backend),
///     }
/// }
/// ```
pub fn registry() -> DeviceRegistry {
    let mut registry = DeviceRegistry::new();
    for (name, compiled) in BACKENDS {
        if !compiled {
            let why = match *name {
                "embedded" if cfg!(feature = "embedded") => "it is for Linux alone".to_owned(),
                _ => format!("this program was built without the feature `{name}` of `runtime`"),
            };
            registry.leave_out(*name, why);
        }
    }
    #[cfg(feature = "cuda")]
    add(&mut registry, cuda::CudaBackend::new());
    #[cfg(all(feature = "embedded", target_os = "linux"))]
    add(&mut registry, embedded::EmbeddedBackend::new());
    #[cfg(feature = "hip")]
    add(&mut registry, hip::HipBackend::new());
    #[cfg(feature = "host")]
    add(&mut registry, host::HostBackend::new());
    #[cfg(feature = "opencl")]
    add(&mut registry, opencl::OpenClBackend::new());
    #[cfg(feature = "sim")]
    add(&mut registry, sim::SimBackend::new());
    registry
}

#[cfg(any(
    feature = "cuda",
    all(feature = "embedded", target_os = "linux"),
    feature = "hip",
    feature = "host",
    feature = "opencl",
    feature = "sim"
))]
fn add(registry: &mut DeviceRegistry, backend: impl Backend + 'static) {
    let added = registry.register(backend);
    debug_assert!(added.is_ok(), "two backends of one name: {added:?}");
}
