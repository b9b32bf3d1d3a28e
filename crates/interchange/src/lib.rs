//! Exports arrays to other libraries and imports theirs, without a copy and with explicit synchronisation.
//!
//! An [`ArrayExchange`] is one array in transfer: its memory, layout, device, access, and when its values are ready. It
//! is moved, not cloned: make one for each consumer, over a shared owner. The owner is dropped once, when the last
//! consumer has finished. A failed conversion returns its input together with the reason ([`ConversionError`]).
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
//! // Export to a consumer that reads DLPack 1.x. This goes into a Python capsule.
//! let memory = device.memory_from_slice(&stream, &[1.0, 2.0, 3.0, 4.0])?;
//! let pending = ArrayExchange::from_memory(memory, &[2, 2], &stream)?;
//! let tensor = pending.host_wait()?.into_dlpack(DlpackOptions::versioned())?;
//!
//! // Import, on a device of this runtime. SAFETY: a tensor on the host is ready when it is exported.
//! let theirs = unsafe { ArrayExchange::from_dlpack(tensor, Ready) }?;
//! let adopted = theirs.into_adopted::<f64>(&device)?;
//! assert_eq!(adopted.view()?.to_vec(&stream)?, [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), runtime_core::Error>(())
//! ```
//!
//! # Protocols
//!
//! | protocol | exports | imports | strides | synchronisation | owner |
//! |---|---|---|---|---|---|
//! | [`dlpack`] | ready, or ordered | any | elements | the producer orders a stream | deleter |
//! | [`CudaArrayInterface`] | ready, or ordered | versions 2, 3 | bytes | a stream of the producer | [`Keeper`] |
//! | [`SyclUsmArrayInterface`] | ready | version 1 | elements | none | [`Keeper`] |
//! | [`ArrayInterface`] (NumPy) | ready | version 3 | bytes | none | [`Keeper`] |
//! | [`arrow`] (C device) | ready, or ordered | one-dimensional arrays | none | an event of the producer | `release` |
//!
//! Attributes that are dictionaries in Python are structures here, with a field for each key. The crate depends neither
//! on Python nor on a vendor's interface: addresses and handles are numbers tagged with the name of their interface.
//!
//! # States
//!
//! An array that comes from a device is [`Pending`]. There are two ways to continue.
//! [`host_wait`](ArrayExchange::host_wait) blocks until the array is [`Ready`].
//! [`order_after`](ArrayExchange::order_after) makes it [`Ordered`] for one stream without blocking. Protocols that
//! cannot say when values are ready accept only ready arrays; the type system enforces this.
//!
//! # When a consumer has finished
//!
//! No protocol says when a consumer's queued work is finished: a deleter may run while kernels are still running. So
//! when exported device memory is returned, the call blocks until all work of that device is finished. [`wait_within`]
//! lets other threads of an interpreter run during this wait. [`release_within`] decides whether imported arrays may
//! still return to their libraries, which may be used only for a time.
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
pub use owner::{Exported, Keeper, release_within, wait_within};
pub use runtime_core::ConversionError;
pub use state::{After, Ordered, Pending, Ready, State};
pub use strides::{ByteStrides, ElemStrides, Shape};
pub use sycl_usm::{SyclObject, SyclUsmArrayInterface};
pub use token::{ContextBinding, DeviceToken};

/// The examples of `docs/interchange.md`, compiled and run as tests.
#[cfg(all(doctest, feature = "array-buffer"))]
#[doc = include_str!("../../../docs/interchange.md")]
struct Page;
