//! One logical array, coherent on every device. When an access needs values, exactly the stale bytes are copied.
//!
//! An [`ArrayBuffer`] has replicas on any number of devices; the host counts as one. Each access names a stream or the
//! host, and its kind: `read`, `read_write`, or `write`, which overwrites everything. An access copies the stale values
//! to its place, and returns a guard that lends the values. Dropping a write guard commits the work that was enqueued
//! through it.
//!
//! ```
//! use array_buffer::ArrayBuffer;
//! use backend_sim::{SimConfig, SimDevice};
//! use runtime_core::{Device, Grid, HostModule, Launch, args};
//!
//! fn double(_: &Grid<'_>, x: &mut [f64]) {
//!     x.iter_mut().for_each(|x| *x *= 2.0);
//! }
//!
//! let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
//! let stream = device.default_stream();
//! let double = device.module_load(&HostModule::new().with("double", double))?.kernel("double")?;
//!
//! let mut array = ArrayBuffer::from_array(ndarray::array![[1.0, 2.0], [3.0, 4.0]])?;
//! for _ in 0..3 {
//!     let mut guard = array.read_write(&stream)?; // copies to the device once
//!     double.launch_checked(&stream, &Launch::cover(4, 4), args![guard.view_mut()?])?;
//! }
//! assert_eq!(array.read_host()?[(1, 1)], 32.0); // waits for the device, and copies back
//! assert_eq!(array.version(), 3);
//! println!("{}", array.transfers());
//! # assert_eq!(array.transfers().total().count, 2);
//! # Ok::<(), array_buffer::Error>(())
//! ```
//!
//! # When to use it
//!
//! Use it where the host and devices use the same values in turn, where ghosts must not be read when they are stale, and
//! for arrays larger than a device's memory. For values that stay on one device, `Memory` of `runtime-core` is enough.
//! On grids, the fields of `stencil` are arrays of this crate, and exchange their ghosts by themselves.
//!
//! # Structs
//!
//! The elements are numbers, or structs that [`record!`](runtime_core::record) declares:
//!
//! ```
//! use array_buffer::ArrayBuffer;
//! use backend_sim::{SimConfig, SimDevice};
//! use runtime_core::{Device, Grid, HostModule, Launch, args, record};
//!
//! record! {
//!     #[derive(Debug, PartialEq)]
//!     struct Particle {
//!         position: [f64; 2],
//!         velocity: [f64; 2],
//!     }
//! }
//!
//! fn advance(_: &Grid<'_>, particles: &mut [Particle], time: f64) {
//!     for Particle { position, velocity } in particles {
//!         position.iter_mut().zip(velocity).for_each(|(x, v)| *x += *v * time);
//!     }
//! }
//!
//! let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
//! let stream = device.default_stream();
//! let module = device.module_load(&HostModule::new().with("advance", advance))?;
//! let start = Particle { position: [0.0, 1.0], velocity: [2.0, 0.0] };
//! let mut particles = ArrayBuffer::from_vec(vec![start; 100], 100)?;
//! let mut guard = particles.read_write(&stream)?;
//! let launch = Launch::cover(100, 100);
//! module.kernel("advance")?.launch_checked(&stream, &launch, args![guard.view_mut()?, 0.5])?;
//! guard.commit()?;
//! assert_eq!(particles.read_host()?[99], Particle { position: [1.0, 1.0], ..start });
//! # Ok::<(), array_buffer::Error>(())
//! ```
//!
//! # Parts
//!
//! A [`Partition`] divides an array into parts, which are boxes. A part holds owned or ghost values, and has its own
//! validity. So only the stale parts are copied. [`ArrayBuffer::split`] borrows sets of parts separately:
//!
//! ```
//! use array_buffer::{ArrayBuffer, Partition, Parts};
//! use backend_sim::{SimConfig, SimDevice};
//! use runtime_core::Device;
//!
//! const INTERIOR: usize = 0;
//! let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
//! let (compute, receive) = (device.default_stream(), device.stream_create(&Default::default())?);
//! let partition = Partition::with_ghosts(&[6], &[(1, 1)])?;
//! let ghosts = partition.ghosts();
//! let mut field = ArrayBuffer::from_array_with(ndarray::Array1::<f64>::zeros(6), partition)?;
//! {
//!     let [inner, mut halo] = field.split([Parts::one(INTERIOR), ghosts])?;
//!     let reads = inner.read(&compute)?; // a kernel reads the interior …
//!     let mut arrives = halo.write(&receive)?; // … while the halo is filled
//!     for part in ghosts.iter() {
//!         arrives.part_mut(part)?.fill(&receive, 7.0)?;
//!     }
//!     arrives.commit()?;
//!     assert_eq!(reads.view()?.len(), 4);
//! }
//! assert_eq!(field.read_host()?.to_vec(), [7.0, 0.0, 0.0, 0.0, 0.0, 7.0]);
//! # Ok::<(), array_buffer::Error>(())
//! ```
//!
//! A write of owned values makes the ghosts stale. Reading a stale ghost is an error until an
//! [exchange](ArrayBuffer::begin_exchange) or a write fills it. Contributions to ghosts
//! ([`accumulate`](ArrayBuffer::accumulate)) stay in the ghosts until a reduction adds them to the owned values.
//! [`ArrayBuffer::on_stale_ghosts`] lets accesses run these exchanges when they need them.
//!
//! # More than fits
//!
//! A [`MemoryBudget`] limits the memory of arrays on one device. If an access needs memory and the limit is reached, or
//! the device has none left, then parts of any of these arrays leave the device. Values that exist nowhere else are
//! copied to the host first. So an array in parts may be larger than the device's memory. [`MemoryBudget::record`]
//! records the uses of a step that a program repeats, and [`MemoryBudget::repeat`] uses the record: parts leave whose
//! values are needed last, and copies run ahead of their uses.
//!
//! # Guarantees
//!
//! - A read sees the last committed write, on any stream of any device. Streams wait on the device, for the streams that
//!   they depend on: for all work that is enqueued there by then. The host blocks only as described
//!   [below](#blocking).
//! - `write` never copies. A read of valid values needs no copy, no wait and no allocation.
//! - Reading returns an error if the values were never written, if their writer failed, or if they need an exchange
//!   first. Each case has its own kind of error. If the writer failed, the error gives the writer's source line and the
//!   failure.
//! - A copy that cannot be enqueued leaves the array as it was. A writer that fails or panics poisons the parts that it
//!   held; [`WriteGuard`] states the exception. A complete overwrite makes a poisoned part valid again.
//! - A device that works in host memory shares the host's replica, and so does one after
//!   [`unify`](ArrayBuffer::unify). No copies are made between the two.
//!
//! # Blocking
//!
//! | call | the host blocks |
//! |---|---|
//! | [`write`](ArrayBuffer::write) except as below, ending a guard, [`from_memory`](ArrayBuffer::from_memory), dropping | no |
//! | ending a write of an array with a [home](ArrayBuffer::set_home) on a device | as another access on the home's stream |
//! | … with a home on the host | until the work and the copy are done; with page-locked host memory: no |
//! | ending a write that is [checked](ArrayBuffer::set_check_writes) | until the work is done |
//! | the first access, also a `write`, on a device that works in host memory; [`page_lock`](ArrayBuffer::page_lock) | until prefetched copies between host memory and devices are done |
//! | other accesses on a stream, exchanges, [`prefetch`](ArrayBuffer::prefetch), [`duplicate`](ArrayBuffer::duplicate): values that are already on the device, or on a device that this one [reaches](runtime_core::Device::reaches) | no |
//! | … values that are copied from the host | until they are in pinned memory; a prefetch: no |
//! | … values that are copied from a device that this one does not reach | until they are written and have left that device, piece by piece through pinned memory of both devices; then as for values from the host; a prefetch: no |
//! | [`prefetch_host`](ArrayBuffer::prefetch_host) | no; values on a device without [gates](runtime_core::Device::gate), and those of a device that works in host memory: as an access on the host |
//! | … values that are copied between a device and host memory that is [page-locked](ArrayBuffer::page_lock) for it | no |
//! | accesses on the host, [`into_inner`](ArrayBuffer::into_inner), the end of [`lend`](lend()) and [`lend_page_locked`] | until values that are elsewhere are written and copied, and until devices that work in host memory have finished with the accessed values; the end of `lend`: until all streams on which the array was used have finished |
//! | accesses on a device with a [`MemoryBudget`] that need memory | as above; and for each part that leaves to make room, as `evict` |
//! | [`into_memory`](ArrayBuffer::into_memory) | as above; until work of other streams that the values came through is done |
//! | [`repartition`](ArrayBuffer::repartition) | until its copies are done, and those between devices and host memory that prefetches, or accesses to page-locked memory, have enqueued; not at all if there are none |
//! | [`evict`](ArrayBuffer::evict), [`evict_host`](ArrayBuffer::evict_host) | if the values are nowhere else: until they are written and copied to the host; if copies of them are still running: until one of these has arrived |
//! | [`unify`](ArrayBuffer::unify) | as `page_lock`, and then as `evict` |
//! | [`duplicate`](ArrayBuffer::duplicate) of values that are all on the host, or are being copied to it | as an access on the host |
//!
//! Waiting until values are written means waiting for all work on the streams that produced them: the stream that wrote
//! them, and the streams that copied them between devices or changed them since.
//!
//! The device that has the values sends them on a stream of the array that is used for nothing else; a device has up to
//! four of them, so that no copy to the host is enqueued behind one that waits, as long as one is idle. So a copy waits
//! for the work that wrote its values, and for no other work of the program. If the copy fails, the values that it
//! reads are not lost.
//!
//! An array has two pinned buffers of 2 MiB for each device, and further ones if several threads copy at once. A copy
//! to the device fills them and does not wait for the device. If the copy is longer than 4 MiB, or if the device has
//! not finished the array's earlier copies, the host waits until a buffer is free. This waits for all earlier work on
//! the stream. For example, a read of 16 MiB after a long kernel blocks until the kernel has finished. If a device has
//! no region copies of its own, a part with gaps between its rows is copied row by row, and each row may block.
//!
//! A prefetch does not copy values from or to the host itself, except up to 64 KiB to a device. It enqueues all copies,
//! and a thread fills or empties their pinned memory: two pieces for each stream, of 2 to 16 MiB each, which all arrays
//! share. With these in place, a prefetch of up to 1 GiB that has no gaps takes less than a millisecond, whatever is
//! enqueued before it; the first one allocates them. Work that is enqueued on the stream afterwards sees the values.
//! The next access of the host to the part waits for the thread: to write after a prefetch to a device, until the
//! values are in pinned memory; to use the values after [`prefetch_host`](ArrayBuffer::prefetch_host), until they are
//! there. A prefetch between devices that do not reach each other works in the same way: the thread copies from pinned
//! memory of one to pinned memory of the other, while both devices copy. Work on the source's stream waits until the
//! thread has copied the last two pieces. A prefetch waits like a read, and [`TransferReport::prefetches_that_waited`]
//! counts its copies, if a device has no [gates](runtime_core::Device::gate), or if it would have to wait for copies of
//! the same part between the host and another device.
//!
//! A kernel that uses prefetched values waits for all copies that are on the prefetch's stream by then. So let a loop
//! launch the kernel of one part before it prefetches the next part, or prefetch on several streams in turn.
//!
//! An array whose host memory is [page-locked](ArrayBuffer::page_lock) for a device needs none of this: the device
//! copies from and to that memory itself. The host then waits when it uses a part, until the part's copies are done. It
//! waits neither for copies of other parts nor for work enqueued behind the copies.
//!
//! A kernel that is a Rust function cannot wait for the stream that it runs on. An access of such a kernel that would
//! have to, also through a thread that prepares copies, returns an error that
//! [`is_refused_wait`](runtime_core::Error::is_refused_wait).
//!
//! An access that refreshes ghosts also blocks as long as the exchange does, and as long as another thread refreshes
//! them.
//!
//! While a call waits for a device, or copies values through the host, other threads may call the same array. Only an
//! access to a part that the first call is copying through the host waits until that copy is made, unless it needs no
//! copy and no wait itself. The lock of the array's state is held while a call decides and enqueues. The exceptions are
//! calls that borrow the array exclusively (`evict`, `page_lock`, `unify`, `repartition`), and the first access on a
//! device that works in host memory. A driver may block to allocate or free. `from_memory` waits for streams of [other
//! owners](runtime_core::Interop::stream_from_native) that worked on the memory.
//!
//! Kernels that run on the host may call the array for which a call waits. A `tracing` subscriber that receives the
//! events of a call must not call the same array: the call would never return. This does not hold for what [refreshes
//! ghosts](ArrayBuffer::on_stale_ghosts).
//!
//! # Failures
//!
//! As everywhere, a stream reports failures of asynchronous work once, to the first caller that checks it. An array
//! detects these failures even if another caller received the report
//! ([`Stream::failures`](runtime_core::Stream::failures)). At its next access, the array declares the values invalid
//! that were written on that stream, unless the host has already waited for that stream to read them. (To read values
//! from page-locked memory, the host waits for their copies, and not for the stream.) The same holds for everything
//! derived from them: copies on other devices, changes on other streams, ghosts filled by an exchange, duplicates. It
//! does not track values that your kernels derive from them in other arrays.
//!
//! A copy that fails after it was enqueued loses no values: the place that it wrote is no longer valid. The next access
//! to the part, on any stream or on the host, returns the failure, once, and the access after it copies again. The
//! error names the array's shape, the part, its bytes and the device. The access asks the stream of the copy, so it may
//! also find the failure of other work on that stream, which the stream then does not report again. What was enqueued
//! between the copy and its failure has read what the copy left. If the array is dropped first, the stream of the
//! prefetch reports the failure, and for copies that the array's own streams make,
//! [`Device::synchronize`](runtime_core::Device::synchronize) does.
//!
//! A failure of a kernel that no call has reported yet is unknown to all streams but its own. Therefore a kernel, or a
//! copy from a guard's view, on another stream may read what the failed work left.
//! [`read_host`](ArrayBuffer::read_host) waits for all streams through which the values came, and so does not.
//!
//! One function on plain values makes all these decisions. The tests run it in every reachable state;
//! `docs/coherence.md` has its table. The names `read`, `read_write` and `write` correspond to `data_ro`, `data_rw` and
//! `data_wo` in PyOP2, and to `sync` and `modify` in Kokkos.
//!
//! # Limits
//!
//! An array has up to six dimensions, in row-major order or that which its [`Partition`] says, up to 256 parts, and
//! replicas on the host and on up to 31 devices. An access that copies or waits looks at all parts, so its time grows
//! with their number. It tracks up to 63 streams at a time, including one to four for the copies of each device, and
//! keeps a handle of each. Exclusive accesses drop idle streams from this list when it is long. If a 64th stream finds
//! no room, the access returns an error. Accesses to parts of [`split`](ArrayBuffer::split) and [`lend`] drop none. A
//! device keeps its place until the array is dropped. A [constant](Constant) array has no exclusive accesses. It stops
//! tracking idle streams when it needs room, but keeps a handle of each stream, and so the stream, until the array is
//! dropped.
#![deny(unsafe_code)]

mod budget;
mod buffer;
mod call_site;
mod check;
mod core;
mod exchange;
mod guard;
mod home;
#[cfg(test)]
mod interleavings;
mod lease;
mod lend;
mod memory_budget;
mod mirror;
mod part;
mod partition;
mod pattern;
mod poison;
mod refresh;
mod report;
mod scope;
mod shared;
mod status;
mod storage;
mod transfer;
mod worker;

use std::sync::atomic;

#[doc(inline)]
pub use coherence::Reduce;
pub use ndarray;
pub use runtime_core::{ConversionError, Error, ErrorKind, Result};

pub use budget::{Direction, TransferBudget};
pub use buffer::{ArrayBuffer, Constant, Here, Mutable};
pub use call_site::hide_call_sites;
pub use exchange::{Exchange, InFlight, StarForest};
pub use guard::{HostReadGuard, HostWriteGuard, ReadGuard, WriteGuard};
pub use home::Home;
pub use lease::{Lease, Leased};
pub use lend::{lend, lend_page_locked};
pub use memory_budget::{
    Candidate, LatestNextUse, LeastRecentlyUsed, MemoryBudget, Policy, Priority, RecordedStep,
    Recording, Repeat,
};
pub use part::{PartMut, PartRef};
pub use partition::{Partition, Parts};
pub use report::{Cause, Eviction, Refresh, Transfer, TransferReport, transfer_totals};
pub use scope::{Offload, here, offload, on_host};
pub use shared::{SharedArrayBuffer, SharedRead, SharedWrite};
pub use status::PartStatus;
