//! Code that backends share, for authors of backends.
//!
//! # Devices whose memory is host memory
//!
//! A *block* is an allocation with a lock. A *span* is a part of a block. *Work* is an operation of a stream on spans:
//! copies, fills, region copies, host kernels. It locks the blocks that it touches in one global order while it runs,
//! and never while it waits in a queue. Unordered operations of two streams therefore leave unspecified bytes, but
//! cause no data race and no deadlock. A *queue* runs tasks in order on its own thread. An *event* is a recorded point
//! in a queue. A *gate* holds queues up until the host opens it.
//!
//! Work in a queue holds its blocks by reference count, so a backend frees memory by dropping it. The storage is freed
//! when the last operation on it is done, and no thread waits for that. Objects whose destructors run code of the
//! program, such as an owner of adopted memory or a kernel, are [retired](Queues::retire) instead, because that code
//! may wait for the queue.
//!
//! # Devices with memory of their own
//!
//! - The kernel of region copies, with one source for OpenCL, CUDA and HIP, and the code that lowers programs to its
//!   launches.
//! - The thread that returns objects to a driver, and the cache of its memory allocations.
//! - The parsing of the [`options`] of selectors.
//! - Behind features: the loading of vendors' libraries, a disk cache of compiled programs, and the work folders of
//!   builds.
//!
//! # A device with asynchronous memory
//!
//! This driver frees memory at once, whatever still uses it. The device may drop objects in flight nevertheless: the
//! [`BlockCache`] reuses memory, and the [`Reaper`] releases everything else, once the streams have reached recorded
//! points (the trait [`Mark`]). `docs/adding-a-device.md` says what else such a device needs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use backend_support::{BlockCache, Failures, Heap, Mark, Reaper, Reclaim};
//! use runtime_core::contract::{Released, own_box};
//! use runtime_core::{DeviceId, Error, ErrorKind, Result};
//!
//! // The calls of the driver, with its codes as errors.
//! # mod driver {
//! #     use std::sync::atomic::{AtomicU64, Ordering};
//! #     static NEXT: AtomicU64 = AtomicU64::new(1);
//! #     pub fn allocate(_: usize) -> Result<u64, u32> { Ok(NEXT.fetch_add(1, Ordering::Relaxed)) }
//! #     pub fn free(_: u64) -> Result<(), u32> { Ok(()) }
//! #     pub fn unload(_: u64) -> Result<(), u32> { Ok(()) }
//! #     pub fn event_wait(_: u64) -> Result<(), u32> { Ok(()) }
//! #     pub fn event_is_reached(_: u64) -> bool { true }
//! # }
//! #[derive(Debug)]
//! struct Driver;
//!
//! /// An event, recorded at the end of a stream.
//! #[derive(Debug)]
//! struct End(u64);
//!
//! impl Mark for End {
//!     fn wait(&self) -> bool {
//!         driver::event_wait(self.0).is_ok()
//!     }
//!
//!     fn is_over(&self) -> bool {
//!         driver::event_is_reached(self.0)
//!     }
//! }
//!
//! impl Heap for Driver {
//!     type Mark = End;
//!
//!     fn allocate(&self, bytes: usize) -> Result<u64, u32> {
//!         driver::allocate(bytes)
//!     }
//!
//!     fn free(&self, address: u64) -> Result<(), u32> {
//!         driver::free(address)
//!     }
//! }
//!
//! /// What the reaper releases.
//! enum Object {
//!     Pinned(u64),
//!     Module(u64),
//! }
//!
//! impl Reclaim for Driver {
//!     type Object = Object;
//!     type Mark = End;
//!
//!     fn reclaim(&self, object: Object) -> Result<()> {
//!         let done = match object {
//!             Object::Pinned(address) => driver::free(address),
//!             Object::Module(module) => driver::unload(module),
//!         };
//!         done.map_err(|code| {
//!             Error::new(ErrorKind::Driver, "release", "refused").with_driver("THE_NAME", code.into())
//!         })
//!     }
//! }
//!
//! // These implement the traits of the contract.
//! struct Memory { address: u64, bytes: usize }
//! struct Pinned(u64);
//! struct Module(u64);
//! struct Regions { words: Memory }
//!
//! struct Device {
//!     failures: Arc<Failures>,
//!     reaper: Reaper<Driver>,
//!     cache: BlockCache<Driver>,
//! }
//!
//! impl Device {
//!     fn new() -> Self {
//!         let (driver, failures) = (Arc::new(Driver), Arc::default());
//!         let reaper = Reaper::new(&DeviceId::new("mine", 0), &driver, &failures);
//!         Self { failures, reaper, cache: BlockCache::new(&driver) }
//!     }
//!
//!     /// What `AcceleratorDevice::release` does with an event for each stream in `after`.
//!     fn release(&self, object: Released, after: Vec<End>) -> Result<()> {
//!         match object {
//!             Released::Memory(memory) => self.free(own_box(memory, "release")?, after),
//!             Released::Regions(regions) => {
//!                 self.free(own_box::<Regions>(regions, "release")?.words, after);
//!             }
//!             Released::Pinned(pinned) => {
//!                 let Pinned(address) = own_box(pinned, "release")?;
//!                 self.reaper.retire(Object::Pinned(address), after);
//!             }
//!             Released::Module(module) => {
//!                 let Module(module) = own_box(module, "release")?;
//!                 self.reaper.retire(Object::Module(module), after);
//!             }
//!             // The driver keeps a graph until its launches are over.
//!             Released::Graph(graph) => drop(graph),
//!         }
//!         Ok(())
//!     }
//!
//!     fn free(&self, memory: Memory, after: Vec<End>) {
//!         if let Err(code) = self.cache.free(memory.address, memory.bytes, after) {
//!             self.failures.keep(
//!                 Error::new(ErrorKind::Driver, "release", "refused").with_driver("THE_NAME", code.into()),
//!             );
//!         }
//!     }
//!
//!     /// What `AcceleratorDevice::synchronize` does after it has waited for every stream.
//!     fn synchronize(&self) -> Result<()> {
//!         self.reaper.drain();
//!         Ok(())
//!     }
//!
//!     /// What `AcceleratorDevice::take_failure` returns, beside failures of streams.
//!     fn take_failure(&self) -> Option<Error> {
//!         self.failures.take()
//!     }
//! }
//!
//! let device = Device::new();
//! let memory = Memory { address: device.cache.allocate(1000).unwrap(), bytes: 1000 };
//! let address = memory.address;
//! device.free(memory, vec![End(1)]);
//! assert_eq!(device.cache.allocate(1000).unwrap(), address); // the same block
//! device.reaper.retire(Object::Module(7), vec![End(2)]);
//! device.synchronize()?;
//! # Ok::<(), runtime_core::Error>(())
//! ```
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
mod gate;
#[cfg(feature = "library")]
mod library;
pub mod options;
mod poll;
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
pub use gate::{Gate, GateState};
#[cfg(feature = "library")]
pub use library::{Refusal, file_of, libloading, load, named, reason};
pub use poll::{POLL_TIMEOUT, poll_until_finished};
pub use queue::{Move, Queue, Queues, Turn};
pub use reaper::{Mark, Reaper, Reclaim};
pub use region_kernel::{
    AddressTable, AddressTables, Binding, Dialect, Mapping, RegionKernel, RegionLaunch,
    RegionLaunches, RegionLimits,
};
pub use work::{HostLaunch, LockedWork, Regions, SlotSpan, Work};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks whether or not a thread panicked while it held the lock. Every critical section here, and in the backends that
/// use this, leaves its data consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
