//! One interface to every device: traits that backends implement, and checked types that programs use.
//!
//! **Programs** open a [`Device`] by selector from a [`DeviceRegistry`] (or from a backend crate directly) and use
//! [`Memory`], [`Stream`], [`Event`], [`Pinned`], [`Kernel`] and [`RegionPlan`]. These types check every argument once,
//! for all backends. Most calls are safe. The exceptions are `unsafe fn`s: launching a kernel or a graph, adopting
//! objects of other libraries, and a few methods whose views the compiler cannot check. Each states what its caller
//! must ensure.
//!
//! **Backends** implement the traits of [`contract`] and nothing else.
//!
//! The crate does not depend on any vendor's interface.
//!
//! # When to use it
//!
//! Depend on this crate in a backend, and in a library that works with any device. A program that chooses its device
//! when it runs depends on the facade `runtime`, which re-exports everything here; its front page has an example.
//!
//! # Order and blocking
//!
//! The work of one stream runs in the order in which it was enqueued. Work of two streams is ordered by events, and by
//! the use of the same pinned memory. A [`Gate`] holds a stream up until the host opens it.
//!
//! The host blocks only where it needs a result:
//!
//! - in `synchronize`, `Event::wait` and `Event::elapsed_since`;
//! - in copies between a device and a plain slice;
//! - when memory is accessed as a slice.
//!
//! If a device cannot copy regions, or cannot reach another device directly, such copies go through the host and block
//! too.
#![deny(unsafe_code)]

mod capture;
pub mod contract;
mod conversion_error;
mod device;
mod element;
mod embedded;
mod error;
mod gate;
mod graph;
mod host_module;
mod id;
mod image;
mod info;
mod interop;
pub mod interrupt;
mod kernel;
mod launch;
mod layout;
mod mark;
mod measure;
mod memory;
mod native;
mod owner;
mod pinned;
mod record;
mod region;
mod region_plan;
mod registry;
mod slot;
mod statistics;
mod stream;
mod strided;
mod sync;
mod uses;
mod validate;
mod view;

pub use bytemuck;
pub use half::{bf16, f16};
pub use num_complex::Complex;

pub use contract::{EventOptions, PinnedOptions, StreamOptions};
pub use conversion_error::ConversionError;
pub use device::{Device, Unified};
pub use element::{Bool, DType, Element};
pub use embedded::Embedded;
pub use error::{DriverCode, Error, ErrorKind, Result};
pub use gate::{Gate, Opener};
pub use graph::{Graph, Graphs};
pub use host_module::{
    Grid, HostArg, HostKernel, HostModule, KernelFunction, KernelParameter, KernelResult,
    ParallelFor, Plain,
};
pub use id::DeviceId;
pub use image::{ImageCode, ImageFormat, ModuleBundle, ModuleImage};
pub use info::{Capabilities, DeviceInfo, DeviceKind, Limits, PciAddress, Support};
pub use interop::Interop;
pub use kernel::{Arg, Kernel, Module};
pub use launch::Launch;
pub use layout::{Layout, MAX_RANK};
pub use measure::{MeasureOptions, Measurement, Sample, measure, measure_with};
pub use memory::Memory;
pub use native::{NativeHandle, NativeKind, Origin, OriginKind};
pub use owner::Owner;
pub use pinned::{Pinned, PinnedView, PinnedViewMut};
pub use record::{Member, Record, RecordField};
pub use region::{
    Combine, HostSlot, IndexedCopy, IndexedSide, Indices, ItemsEnd, ItemsFold, LoweredCopy,
    LoweredItems, MAX_REGION_RANK, RegionCopy, RegionPhase, RegionProgram, RegionSide, SlotUse,
};
pub use region_plan::RegionPlan;
pub use registry::{Backend, DeviceRegistry, Listing, Selector};
pub use slot::{AnyViewOutside, MemoryViewOutside, Slot};
pub use statistics::{Statistics, Traffic};
pub use stream::{Event, Stream, reported_failures};
pub use validate::{Compare, Mismatch, Tolerance, compare};
pub use view::{
    AnyView, AnyViewMut, Dynamic, Footprint, MemoryView, MemoryViewMut, UnfinishedWrite,
    WriteReport,
};
#[doc(hidden)]
pub use {core::mem::offset_of, core::stringify, record::HasLayout};
