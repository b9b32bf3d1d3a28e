//! The engine of stand-ins for vendors' drivers: devices in host memory, for tests on machines that have none.
//!
//! It tests how a program uses a driver, not the driver. Work is asynchronous: each stream has a thread, and pauses before its
//! work, so that a wait which is missing shows. Memory of devices is where the host cannot go, holds
//! [`FRESH`] bytes until it is written, and [`FREED`] ones when it is freed. Failures of work end a context, as they do on a device.
//! What is wrong even where it works, such as freeing memory that unordered work may still use, goes to a report.
//!
//! Kernels are PTX, which [`ptx`] interprets. A driver is its functions over one engine for the [`process`], with the types of
//! [`abi`] for what callers pass.
#![deny(unsafe_code)]

pub mod abi;
mod bytes;
mod callback;
mod clock;
mod code;
mod config;
mod context;
mod engine;
mod event;
mod fault;
mod graph;
mod host;
mod kernel;
mod launch;
mod memory;
mod order;
mod pause;
mod pool;
pub mod process;
pub mod ptx;
mod report;
mod shared;
mod space;
mod stream;
mod table;
mod transfer;
mod work;

pub use callback::Callback;
pub use code::{Code, Result};
pub use config::Config;
pub use context::Context;
pub use engine::Engine;
pub use fault::FaultPlan;
pub use graph::CaptureMode;
pub use kernel::{
    BLOCK, BLOCK_THREADS, Function, GRID, MULTIPROCESSOR_THREADS, MULTIPROCESSORS, SHARED_BYTES,
};
pub use launch::LoadError;
pub use memory::Found;
pub use pool::{Pool, PoolState};
pub use report::Entry;
pub use space::{FREED, FRESH};
pub use stream::Stream;
pub use transfer::End;
pub use work::{Extent, Pitch};
