//! Devices over a vendor's interface: what CUDA and HIP have in common.
//!
//! [`Api`] is the interface, a method for each call. [`Vendor`] is what the vendors decide differently: the meaning of codes, how
//! devices are opened and described, and how programs are made. A [`Device`] of a vendor does the rest: memory, streams, events,
//! graphs, launches, copies between devices, region copies, and objects of other libraries.
//!
//! What a vendor is lent of a device, its [`Shared`] state and its [`Context`], safe code cannot come by: they believe what codes say
//! of work.
//!
//! | file | subject |
//! |---|---|
//! | `api.rs`, `handle.rs`, `vendor.rs` | what a vendor brings |
//! | `config.rs`, `driver.rs`, `device.rs` | opening devices; what a device makes and gives back |
//! | `context.rs` | what calls go through, and whether it works |
//! | `raw_stream.rs`, `stream.rs`, `fill.rs`, `event.rs` | streams as the library and as the contract has them |
//! | `memory.rs`, `pinned.rs`, `pool.rs`, `room.rs` | memory, and where it comes from |
//! | `program.rs`, `rtc.rs`, `kernel.rs`, `launch.rs`, `own.rs` | modules, launches, kernels of the backend's own |
//! | `graph.rs`, `peer.rs`, `region.rs`, `interop.rs`, `monitor.rs` | abilities |
//! | `shared.rs`, `reaper.rs` | what the objects of a device share; giving back what must wait |
#![deny(unsafe_code)]

mod api;
mod config;
mod context;
mod device;
mod driver;
mod event;
mod fill;
mod graph;
pub mod handle;
mod interop;
mod kernel;
mod launch;
mod memory;
mod monitor;
mod own;
mod peer;
mod pinned;
mod pool;
mod program;
mod raw_stream;
mod reaper;
mod region;
mod room;
mod rtc;
mod shared;
mod stream;
mod vendor;

pub use api::{Api, made, ok, told};
pub use config::{Config, PoolKind};
pub use context::Context;
pub use device::{Device, Lends};
pub use driver::Driver;
pub use kernel::aligned;
pub use launch::address;
pub use own::OwnKernels;
pub use pool::Pooled;
pub use program::{refused, text};
pub use raw_stream::Mark;
pub use reaper::Object;
pub use room::ALIGNMENT;
pub use rtc::{Content, Program, Rtc, Size, text_of};
pub use shared::Shared;
pub use stream::Stream;
pub use vendor::{
    Busy, Code, Codes, Contexts, Description, InUse, Kernels, Known, NotLoaded, Own, Programs,
    Recipe, Unfit, Vendor, Words, error,
};
