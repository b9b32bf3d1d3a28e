//! A small but complete device, written against `runtime-core` alone.
//!
//! Its memory is a vector, its streams are threads, and its kernels are Rust functions. It has none of the optional
//! abilities, so region copies and copies between devices are served through the host.
//!
//! ```
//! use foreign_device::ForeignBackend;
//! use runtime_core::DeviceRegistry;
//!
//! let mut registry = DeviceRegistry::new();
//! registry.register(ForeignBackend)?;
//! let device = registry.open("foreign:1")?;
//! let stream = device.default_stream();
//! let memory = device.memory_from_slice(&stream, &[1.0_f32, 2.0])?;
//! assert_eq!(memory.view().to_vec(&stream)?, [1.0, 2.0]);
//! # Ok::<(), runtime_core::Error>(())
//! ```

mod device;
mod memory;
mod stream;

pub use device::{ForeignBackend, ForeignDevice};
