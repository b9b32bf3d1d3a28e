//! Arrays handed over to everybody else's libraries, and taken from them, without a copy and with their synchronisation
//! stated.
//!
//! An [`ArrayExchange`] is one array on its way: memory, layout, device, access, and when its values are there. It moves and
//! is not cloned: make one for each consumer, over an owner that is shared. The owner is dropped once, when the last
//! consumer is done. A conversion that is refused gives back what it was given, with the reason ([`Refused`]).
//!
//! ```
//! use backend_host::HostDevice;
//! use interchange::dlpack::DlpackOptions;
//! use interchange::{ArrayExchange, Ready};
//! use runtime_core::Device;
//!
//! let device = Device::new(HostDevice::new(0))?;
//! let stream = device.default_stream();
//!
//! // Ours, to somebody who reads DLPack 1.x: what goes into a Python capsule.
//! let memory = device.memory_from_slice(&stream, &[1.0, 2.0, 3.0, 4.0])?;
//! let pending = ArrayExchange::from_memory(memory, &[2, 2], &stream)?;
//! let tensor = pending.host_wait()?.into_dlpack(DlpackOptions::versioned())?;
//!
//! // And theirs, on a device of this runtime. SAFETY: a tensor on the host is ready when it is handed over.
//! let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }?;
//! let adopted = theirs.into_adopted::<f64>(&device)?;
//! assert_eq!(adopted.view()?.to_vec::<f64>(&stream)?, [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), runtime_core::Error>(())
//! ```
//!
//! # Protocols
//!
//! | protocol | hands over | takes | strides | synchronisation | owner |
//! |---|---|---|---|---|---|
//! | [`dlpack`] | ready, or ordered | any | elements | the producer orders a stream | deleter |
//! | [`CudaArrayInterface`] | ready, or ordered | 2, 3 | bytes | a stream of the producer's | [`Keeper`] |
//! | [`SyclUsmArrayInterface`] | ready | 1 | elements | none | [`Keeper`] |
//! | [`ArrayInterface`] (NumPy) | ready | 3 | bytes | none | [`Keeper`] |
//! | [`arrow`] (C device) | ready, or ordered | rows | none | an event of the producer's | `release` |
//!
//! The attributes that are dictionaries in Python are structures with a field for each key. The crate knows neither Python
//! nor a vendor's interface: addresses and handles are numbers that carry the name of their interface.
//!
//! # States
//!
//! What comes from a device is [`Pending`]. Two ways lead on: [`host_wait`](ArrayExchange::host_wait) blocks until the
//! array is [`Ready`], and [`order_after`](ArrayExchange::order_after) makes it [`Ordered`] for one stream without blocking.
//! Protocols that cannot say when values are there take what is ready and nothing else, by type.
//!
//! # When a consumer is done
//!
//! No protocol says when a consumer's queued work is over: a deleter may run while kernels still do. So memory of a
//! device that was handed over blocks, when it comes back, until all work of that device is done. [`wait_within`] lets an
//! interpreter's other threads run meanwhile.
#![deny(unsafe_code)]
#![expect(clippy::unnecessary_safety_comment, reason = "it is in the example above")]

mod adopt;
#[cfg(feature = "array-buffer")]
mod array_buffer;
mod array_interface;
pub mod arrow;
mod cuda_array_interface;
mod description;
mod dl_device;
pub mod dlpack;
mod exchange;
mod lend;
mod owner;
mod refused;
mod state;
mod strides;
mod sycl_usm;
mod token;
mod typestr;

pub use adopt::{Adopted, AdoptedBytes};
#[cfg(feature = "array-buffer")]
pub use array_buffer::ReadReplica;
pub use array_interface::ArrayInterface;
pub use cuda_array_interface::CudaArrayInterface;
pub use description::{Access, MemoryKind};
pub use exchange::ArrayExchange;
pub use owner::{Exported, Keeper, wait_within};
pub use refused::Refused;
pub use state::{After, Ordered, Pending, Ready, State};
pub use strides::{ByteStrides, ElemStrides, Shape};
pub use sycl_usm::{SyclObject, SyclUsmArrayInterface};
pub use token::{ContextBinding, DeviceToken};

/// The page's example, so that it is compiled and run.
#[cfg(all(doctest, feature = "array-buffer"))]
#[doc = include_str!("../../../docs/interchange.md")]
struct Page;
