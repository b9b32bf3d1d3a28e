//! The engine of stand-ins for vendors' drivers: devices in host memory, for tests on machines without such devices.
//!
//! It tests how a program uses a driver, not the driver. Work is asynchronous: each stream has a thread, which pauses
//! before its work, so that missing waits become visible. The host cannot access device memory. Device memory holds
//! [`FRESH`] bytes until it is written, and [`FREED`] bytes after it is freed. Failed work ends a context, as on a
//! device. The report lists uses that are wrong even if they happen to work, such as a free of memory that unordered
//! work may still use.
//!
//! Kernels are PTX, which [`ptx`] interprets. A stand-in consists of the driver's functions over one engine for the
//! [`process`]. These functions use the types of [`abi`] for their callers' arguments.
#![deny(unsafe_code)]

pub mod abi;
mod bytes;
mod callback;
mod capture;
mod clock;
mod code;
mod config;
mod context;
mod engine;
mod event;
mod fault;
mod host;
mod kernel;
mod mark;
pub mod nvrtc;
mod pause;
mod pool;
pub mod process;
pub mod ptx;
mod report;
mod space;
mod state;
mod stream;
mod table;
mod work;

pub use callback::Callback;
pub use capture::CaptureMode;
pub use code::{Code, Result};
pub use config::Config;
pub use context::Context;
pub use engine::{AddressInfo, Endpoint, Engine, LoadError};
pub use fault::FaultPlan;
pub use kernel::{
    BLOCK, BLOCK_THREADS, Function, GRID, MULTIPROCESSOR_THREADS, MULTIPROCESSORS, SHARED_BYTES,
};
pub use pool::{Pool, PoolState};
pub use report::Entry;
pub use space::{FREED, FRESH};
pub use stream::Stream;
