//! One logical array, coherent on every device: exactly the stale bytes move, when they are needed.
//!
//! An [`ArrayBuffer`] has replicas on any number of devices, the host among them. Every access names a stream, or the
//! host, and says what it does: `read`, `read_write`, or `write` for all of it. The guard it gives lends the values; a
//! write guard that is dropped commits what was enqueued through it. What is stale where it is read is copied then.
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
//!     // SAFETY: the kernel is safe Rust, which touches nothing but its argument.
//!     unsafe { double.launch(&stream, &Launch::cover(4, 4), args![guard.view_mut()?]) }?;
//! }
//! assert_eq!(array.read_host()?[(1, 1)], 32.0); // waits for the device, and copies back
//! assert_eq!(array.version(), 3);
//! println!("{}", array.transfers());
//! # assert_eq!(array.transfers().total().count, 2);
//! # Ok::<(), array_buffer::Error>(())
//! ```
//!
//! # Parts
//!
//! A [`Partition`] cuts an array into boxes, owned ones and ghosts, each with its own validity, so that only the boxes
//! that are stale move. [`ArrayBuffer::split`] borrows them apart:
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
//! A write of owned values makes ghosts stale: reading them is an error until an
//! [exchange](ArrayBuffer::begin_exchange) or a write fills them. Contributions to ghosts
//! ([`accumulate`](ArrayBuffer::accumulate)) wait for a reduction.
//!
//! # What holds
//!
//! - Whoever reads sees the last committed write, on any stream of any device. Streams wait on the device for exactly
//!   the work they depend on. Where the host blocks is [below](#blocking).
//! - `write` never copies. A read of valid values costs neither a copy, nor a wait, nor an allocation.
//! - Reading values that nobody wrote, whose writer failed or that wait for an exchange is a typed error, which names the
//!   writer's line and what became of it.
//! - A failed copy leaves the array as it was. A failed or panicking writer poisons the parts it held, which a complete
//!   overwrite makes good.
//! - A device that works in host memory shares the host's replica: between them nothing is copied.
//!
//! # Blocking
//!
//! | call | the host blocks |
//! |---|---|
//! | [`write`](ArrayBuffer::write), ending a guard, [`from_memory`](ArrayBuffer::from_memory), dropping | no |
//! | other accesses on a stream, exchanges, [`prefetch`](ArrayBuffer::prefetch), [`into_memory`](ArrayBuffer::into_memory), [`duplicate`](ArrayBuffer::duplicate): values that are there, or on a device that this one [reaches](runtime_core::Device::reaches) | no |
//! | … values that come from the host | until they are in pinned memory |
//! | … values that come from a device which this one does not reach | until they are written and read, then as from the host |
//! | accesses on the host, [`prefetch_host`](ArrayBuffer::prefetch_host), [`into_inner`](ArrayBuffer::into_inner), the end of [`lend`](lend()) | until values that are elsewhere are written and copied, and until devices that work in host memory are done with what is accessed; `lend` until all streams are done that it was used on |
//! | [`evict`](ArrayBuffer::evict) | if values are nowhere else: until they are written and copied to the host |
//!
//! Waiting for values to be written is waiting for all that is on the streams that they come through: the one that wrote
//! them, and those that copied them from device to device or changed them since.
//!
//! An array has two pinned pieces of 2 MiB for each device. A copy to the device fills them and does not wait for it. Beyond
//! 4 MiB, or if the device has not done the array's earlier copies, the host waits until a piece is free: for all that is on
//! the stream before. A prefetch of 16 MiB behind a long kernel takes as long as the kernel. On a device without region
//! copies of its own, a part with gaps between its rows is copied row by row, and each row may block.
//!
//! While a call blocks, other threads' calls on the same array wait for it, but for accesses to values that are valid where
//! they are wanted and need no wait, and [`version`](ArrayBuffer::version). A driver may block to allocate or free, and
//! `from_memory` waits for streams of [other owners](runtime_core::Interop::stream_from_native) that worked on the memory.
//!
//! # Failures
//!
//! Failures of asynchronous work are reported by its stream, as everywhere, once and to whoever asks first. An array hears
//! of them all the same ([`Stream::failures`](runtime_core::Stream::failures)): at its next access that waits or copies
//! it invalidates what was written on that stream and not yet waited for by the host, with everything that was made of
//! it: copies on other devices, changes on other streams, ghosts that an exchange filled, duplicates. Values that a kernel
//! of yours makes of it in other arrays are not known to depend on it.
//!
//! What decides all this is one function on plain values, which the tests run in every state that can be reached:
//! `docs/coherence.md` has its table. Where PyOP2 says `data_ro`, `data_rw` and `data_wo`, Kokkos `sync` and `modify`,
//! this says `read`, `read_write` and `write`.
//!
//! # Limits
//!
//! An array has up to six dimensions in row-major order, 64 parts, and replicas on the host and nine devices. It
//! remembers 16 streams at a time, its devices' default streams among them, and keeps a handle of each; exclusive accesses
//! forget idle ones, and a 17th that finds no room is an error. A [constant](Constant) array, which has no such accesses,
//! forgets idle ones when there are more, but keeps a handle of each until it is dropped.
#![deny(unsafe_code)]
#![expect(clippy::unnecessary_safety_comment, reason = "it is in the example above")]

mod account;
mod budget;
mod buffer;
mod check;
mod coherence;
mod core;
mod exchange;
mod guard;
mod kept;
mod lease;
mod lend;
mod mirror;
mod part;
mod partition;
mod poison;
mod scope;
mod shared;
mod site;
mod storage;
mod transfer;

pub use ndarray;
pub use runtime_core::{Error, ErrorKind, Result};

pub use account::{Cause, Transfer, TransferReport, transfer_totals};
pub use budget::{Direction, TransferBudget};
pub use buffer::{ArrayBuffer, Constant, Here, Mutable, PartStatus};
pub use coherence::Reduce;
pub use exchange::{Exchange, InFlight, StarForest};
pub use guard::{HostReadGuard, HostWriteGuard, ReadGuard, WriteGuard};
pub use kept::Kept;
pub use lease::{Lease, Leased};
pub use lend::lend;
pub use part::{PartMut, PartRef};
pub use partition::{Partition, Parts};
pub use scope::{Offload, here, offload, on_host};
pub use shared::{SharedArrayBuffer, SharedRead, SharedWrite};
pub use site::hide_sites;
