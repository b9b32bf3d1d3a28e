//! Devices over a vendor's interface: the parts that CUDA and HIP share.
//!
//! [`Api`] is a vendor's interface, with one method for each call. [`Vendor`] has the parts in which vendors differ:
//! the meaning of codes, the opening and description of devices, and the building of programs. [`Device`] implements
//! the rest for a vendor: memory, streams, events, graphs, launches, copies between devices, region copies, and objects
//! of other libraries.
//!
//! Only vendors use a device's [`OpenDevice`] and [`Context`]. Both conclude from error codes whether work is finished,
//! and a wrong code could break memory safety. Therefore safe code has no access to them.
//!
//! | file | subject |
//! |---|---|
//! | `api.rs`, `handle.rs`, `vendor.rs` | the parts that a vendor implements |
//! | `config.rs`, `backend.rs`, `properties.rs`, `device.rs` | opening devices; creating and releasing a device's objects |
//! | `context.rs`, `call.rs` | the context of the library's calls, and whether it works; results of calls |
//! | `raw_stream.rs`, `stream.rs`, `fill.rs`, `event.rs` | streams of the library and of the contract |
//! | `memory.rs`, `pinned.rs`, `claim.rs`, `pool.rs`, `allocation.rs` | memory, its allocation and registration |
//! | `program.rs`, `rtc.rs`, `kernel.rs`, `launch.rs`, `own.rs` | modules, launches, the backend's own kernels |
//! | `graph.rs`, `peer.rs`, `region.rs`, `interop.rs`, `monitor.rs` | abilities |
//! | `open_device.rs`, `reaper.rs` | state shared by the objects of a device; the release of objects once their streams finish |
#![deny(unsafe_code)]

mod allocation;
mod api;
mod backend;
mod call;
mod claim;
mod config;
mod context;
mod device;
mod event;
mod fill;
mod gate;
mod graph;
pub mod handle;
mod interop;
mod kernel;
mod launch;
mod memory;
mod monitor;
mod open_device;
mod own;
mod peer;
mod pinned;
mod pool;
mod program;
mod properties;
mod raw_stream;
mod reaper;
mod region;
mod rtc;
mod stream;
mod vendor;

pub use api::Api;
pub use backend::Backend;
pub use call::{Written, ok, written};
pub use claim::Claim;
pub use config::{Config, PoolKind};
pub use context::Context;
pub use device::{Device, Lends};
pub use kernel::aligned;
pub use launch::address;
pub use open_device::OpenDevice;
pub use own::BuiltinKernels;
pub use pool::Pooled;
pub use program::{refused, text};
pub use properties::{Attributes, Properties, described};
pub use raw_stream::Mark;
pub use reaper::Object;
pub use rtc::{Content, Program, Rtc, Size, text_at, text_of};
pub use stream::Stream;
pub use vendor::{
    AddressInfo, BuiltinKernel, Busy, Code, Codes, Contexts, Description, InUse, Kernels,
    NotLoaded, Programs, Recipe, Unfit, Vendor, Words, error,
};
