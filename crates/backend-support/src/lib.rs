//! What devices whose memory is host memory have in common, for authors of backends.
//!
//! A *block* is an allocation with a lock; a *span* is a part of one. *Work* is what a stream does to spans: copies,
//! fills, region copies, host kernels. It locks the blocks it touches in one global order while it runs and never
//! while it waits in a queue, so that unordered operations of two streams leave unspecified bytes behind but no data
//! race and no deadlock. A *queue* runs tasks in order on a thread of its own; an *event* marks a place in a queue.
//!
//! Work in a queue holds its blocks by reference count, so a backend frees memory by dropping it: the storage goes
//! when the last operation on it is done, and nobody waits. What runs a program's own code when it is dropped, an owner of
//! adopted memory or a kernel, is [retired](Queues::retire) instead, since that code may wait for the queue.
//!
//! For devices with memory of their own there is the kernel of region copies, one text for OpenCL, CUDA and HIP, and
//! what lowers programs to its launches; the thread that gives objects back to a driver, and the cache over its plain
//! allocations; the reading of selectors' [`options`]; and, behind features, the loading of vendors' libraries, the
//! programs kept on disk and the folders of builds.
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

/// Locks whether or not a thread panicked while it held the lock: every critical section here, and in the backends that use
/// this, leaves its data whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
