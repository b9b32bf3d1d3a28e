//! Simulated accelerators, for testing programs without a real accelerator.
//!
//! A [`SimDevice`] behaves like a discrete accelerator in the respects that are easy to get wrong:
//!
//! - It has its own memory. The host cannot address it, except for unified memory, which is an option. Fresh memory is
//!   filled with `0xAB`, freed memory with `0xDD`, and the capacity is limited.
//! - Streams run asynchronously, each on its own thread. Before every operation a stream may pause, for a time that a
//!   seeded generator chooses. A program that lacks a wait for an event gives a wrong result under some seed.
//! - Every transfer, launch and synchronisation is counted, so a test can assert that *nothing* was moved.
//! - Faults happen as planned: the n-th allocation, copy or launch fails at once or later, the n-th operation loses the
//!   device, the n-th launch takes long.
//!
//! Kernels are Rust functions ([`HostModule`](runtime_core::HostModule)). One thread runs each kernel.
//!
//! # Testing a program with it
//!
//! Open devices by selector, in the same way as the program opens real devices. Options are those of [`SimConfig`]:
//!
//! ```
//! use backend_sim::{SimBackend, SimHandle};
//! use runtime_core::{DeviceRegistry, ErrorKind};
//!
//! let mut registry = DeviceRegistry::new();
//! registry.register(SimBackend::new())?;
//! let device = registry.open("sim:0?seed=7&fail-copy=3")?;
//! let seen = SimHandle::of(&device).expect("a simulated device");
//!
//! let stream = device.default_stream();
//! let memory = device.memory_from_slice(&stream, &[1.0_f32; 256])?;
//! let back = memory.view().to_vec(&stream)?;
//! assert_eq!(back, [1.0; 256]);
//!
//! // Exactly the required data has moved.
//! let counts = seen.counts();
//! assert_eq!((counts.to_device.count, counts.to_device.bytes), (1, 1024));
//! assert_eq!((counts.from_device.count, counts.from_device.bytes), (1, 1024));
//!
//! // The third copy fails, and the program receives the error.
//! let error = memory.view().to_vec(&stream).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Driver);
//! assert_eq!(error.driver().unwrap().to_string(), "SIM_COPY_FAILED (700)");
//! # Ok::<(), runtime_core::Error>(())
//! ```
//!
//! To look for missing waits, run the same test under many seeds:
//!
//! ```
//! use backend_sim::{SimConfig, SimDevice};
//! use runtime_core::Device;
//!
//! for seed in 0..8 {
//!     let device = Device::new(SimDevice::new(0, SimConfig::new().seed(seed)))?;
//!     let (produce, consume) = (device.default_stream(), device.stream_create(&Default::default())?);
//!     let mut memory = device.memory_allocate::<u32>(64)?;
//!     memory.view_mut().fill(&produce, 5_u32)?;
//!     consume.wait(&produce.record_event()?)?; // without this line some seed fails
//!     assert_eq!(memory.view().to_vec(&consume)?, [5; 64]);
//! }
//! # Ok::<(), runtime_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod alive;
mod backend;
mod codes;
mod config;
mod counts;
mod device;
mod event;
mod fault;
mod gate;
mod graph;
mod interop;
mod link;
mod memory;
mod open_device;
mod region;
mod stream;
mod timing;

pub use backend::SimBackend;
pub use config::SimConfig;
pub use counts::SimCounts;
pub use device::{SimDevice, SimHandle};
pub use fault::{Fault, Operation};
