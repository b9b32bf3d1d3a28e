//! The processor that a program runs on, as a device.
//!
//! Memory is host memory, so the host reads and writes it without a copy. Kernels are Rust functions
//! ([`HostModule`](runtime_core::HostModule)). A kernel begins on its stream's thread, or in a thread that waits for
//! the stream. Its [`Grid`](runtime_core::Grid) loops run on all cores, as do large copies, fills and region copies.
//! Other parallel loops in a kernel run on the threads of the library that implements them.
//!
//! Each [`HostDevice`] is independent of every other. Host devices can reach each other's memory and events.
//!
//! ```
//! use backend_host::HostBackend;
//! use runtime_core::{DeviceRegistry, Grid, HostModule, Launch, args};
//!
//! fn scale(grid: &Grid<'_>, x: &mut [f64], by: f64) {
//!     grid.chunks_mut(x, 4096, |_, part| part.iter_mut().for_each(|x| *x *= by));
//! }
//!
//! let mut registry = DeviceRegistry::new();
//! registry.register(HostBackend::new())?;
//! let device = registry.open("host?threads=2")?;
//! let stream = device.default_stream();
//! let mut x = device.memory_from_slice(&stream, &[1.0, 2.0, 3.0])?;
//! let kernel = device.module_load(&HostModule::new().with("scale", scale))?.kernel("scale")?;
//! kernel.launch_checked(&stream, &Launch::cover(3, 1), args![&mut x, 2.0])?;
//! assert_eq!(x.view().to_vec(&stream)?, [2.0, 4.0, 6.0]);
//! # Ok::<(), runtime_core::Error>(())
//! ```
//!
//! On Linux, events of the process are counted as far as the kernel permits it ([`HostDevice`] lists the names):
//!
//! ```
//! use backend_host::HostBackend;
//! use runtime_core::{DeviceRegistry, MeasureOptions, measure};
//!
//! let mut registry = DeviceRegistry::new();
//! registry.register(HostBackend::new())?;
//! let device = registry.open("host")?;
//! let stream = device.default_stream();
//! let counters = device.counters().map(|counters| counters.names()).unwrap_or_default();
//! let options = MeasureOptions { repeat: 2, counters, ..MeasureOptions::default() };
//! let mut x = device.memory_allocate::<f64>(100_000)?;
//! let filled = measure(&stream, &options, || x.view_mut().fill(&stream, 1.0))?;
//! for (name, count) in options.counters.iter().zip(&filled.samples[0].counts) {
//!     println!("{count:.1} {name} per run");
//! }
//! # Ok::<(), runtime_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod backend;
mod cores;
#[cfg(all(target_os = "linux", not(miri)))]
mod counters;
#[cfg(any(not(target_os = "linux"), miri))]
#[path = "no_counters.rs"]
mod counters;
mod device;
mod event;
mod flops;
mod gate;
mod graph;
mod machine;
mod memory;
mod monitor;
mod region;
mod stream;

pub use backend::HostBackend;
pub use device::HostDevice;
pub use flops::peak_flops;
