//! Shared parts of devices whose memory is host memory, for authors of backends.
//!
//! A *block* is an allocation with a lock. A *span* is a part of a block. *Work* is an operation of a stream on spans:
//! copies, fills, region copies, host kernels. It locks the blocks that it touches in one global order while it runs,
//! and never while it waits in a queue. Unordered operations of two streams therefore leave unspecified bytes, but
//! cause no data race and no deadlock. A *queue* runs tasks in order on its own thread. An *event* marks a place in a
//! queue.
//!
//! Work in a queue holds its blocks by reference count, so a backend frees memory by dropping it. The storage is freed
//! when the last operation on it is done, and no thread waits for that. Objects whose destructors run code of the
//! program, such as an owner of adopted memory or a kernel, are [retired](Queues::retire) instead, because that code
//! may wait for the queue.
//!
//! For devices with their own memory, this crate has the kernel of region copies, with one source for OpenCL, CUDA and
//! HIP, and the code that lowers programs to its launches; the thread that returns objects to a driver, and the cache
//! of its plain allocations; the parsing of selectors' [`options`]; and, behind features, the loading of vendors'
//! libraries, a disk cache of compiled programs, and the work folders of builds.
#![deny(unsafe_code)]

mod access;
mod block;
mod block_cache;
#[cfg(feature = "cache")]
mod builds;
#[cfg(feature = "cache")]
mod cache;
mod cores;
mod event;
mod fault;
mod fill;
mod functions;
#[cfg(feature = "library")]
mod library;
pub mod options;
mod patience;
mod queue;
mod reaper;
mod region_kernel;
mod work;

pub use block::{Block, Span};
pub use block_cache::{BlockCache, Heap};
#[cfg(feature = "cache")]
pub use builds::{Builds, Intermediates, headline, not_taken};
#[cfg(feature = "cache")]
pub use cache::{CacheKey, DiskCache, reads_files, stamp};
pub use cores::Cores;
pub use event::Event;
pub use fault::{Failures, Identity, guarded};
pub use fill::Fill;
pub use functions::{Function, functions_load};
#[cfg(feature = "library")]
pub use library::{Refusal, file_of, libloading, load, named, reason};
pub use patience::{PATIENCE, outlast};
pub use queue::{Queue, Queues, Turn};
pub use reaper::{Mark, Reaper, Reclaim};
pub use region_kernel::{
    AddressTable, AddressTables, Binding, Dialect, Mapping, RegionKernel, RegionLaunch,
    RegionLaunches, RegionLimits,
};
pub use work::{Held, HostLaunch, Regions, SlotSpan, Work};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks whether or not a thread panicked while it held the lock. Every critical section here, and in the
/// backends that use this, leaves its data consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
