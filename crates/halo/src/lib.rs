//! Halo exchange for any fields, memory layouts and rotated neighbours, and for any pattern of single items. The device
//! of the fields packs them.
//!
//! A program that divides a grid among ranks describes the division once. A [`Topology`] states which rank owns which
//! cells and what lies beyond the sides of each block. A [`Quantity`] states what a field is and how it lies in memory.
//! [`HaloExchange`] makes a plan from this description and compares it with the plans of the other ranks. Then each
//! call fills the halos: one launch packs all fields, each neighbour gets one message, and messages are unpacked as
//! they arrive.
//!
//! ```
//! use std::sync::Arc;
//!
//! use backend_host::HostDevice;
//! use halo::communicator::{Communicator, ThreadCommunicator};
//! use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology};
//! use runtime_core::{DType, Device, StreamOptions};
//!
//! // 8 × 6 cells, periodic along x, on two ranks, which are threads here.
//! let topology = Topology::cartesian(&[8, 6], &[2, 1], &[true, false])?;
//! // Opened once: ranks that share a device copy directly from each other's fields.
//! let device = Device::new(HostDevice::new(0))?;
//! let halos = ThreadCommunicator::run(topology.ranks(), |ranks| -> halo::Result<Vec<f64>> {
//!     let stream = device.stream_create(&StreamOptions::default())?;
//!     let rank = ranks.rank();
//!     let [nx, ny, _] = topology.block(rank)?.cells;
//!
//!     // Rows along x with one ghost cell on every side: y is the slower dimension.
//!     let dims = [Dim::axis(1, ny).halo(1, 1), Dim::axis(0, nx).halo(1, 1)];
//!     let height = FieldSpec::new("height", DType::F64, &dims)?;
//!     let shape = height.layout().shape().to_vec();
//!     let options = HaloOptions::default();
//!     let quantities = [Quantity::scalar(height)];
//!     let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
//!
//!     let mut values = device.memory_allocate::<f64>(shape.iter().product())?;
//!     values.fill(&stream, rank as f64)?;
//!     for _step in 0..3 {
//!         // … launch kernels on the stream, then:
//!         halo.exchange(&stream, &mut [values.view_mut().reshape(&shape)?.into()])?;
//!     }
//!     let row = values.view().reshape(&shape)?.region(&[1..2, 0..nx + 2])?;
//!     row.to_vec(&stream)
//! })?;
//! for (rank, row) in halos.into_iter().enumerate() {
//!     let (own, other) = (rank as f64, 1.0 - rank as f64);
//!     assert_eq!(row?, [other, own, own, own, own, other]);
//! }
//! # Ok::<(), halo::Error>(())
//! ```
//!
//! # When to use it
//!
//! Use it with kernels of your own on several ranks, on a grid ([`HaloExchange`]) or without one ([`Forest`]). The fields
//! of the crate `stencil` make these exchanges themselves. An `ArrayBuffer` of `array-buffer` can call one when an access
//! needs ghosts: the front page of `runtime` has an example.
//!
//! # Overlap
//!
//! [`overlap`](HaloExchange::overlap) runs work of the program during an exchange. It lends that work the values that
//! the rank owns. The exchange may use messages or direct copies from the neighbours' memory. [`interior_and_rim`]
//! splits a stencil step into the part that can be computed during the exchange and the part that cannot.
//! [`start`](HaloExchange::start) and [`finish`](InFlight::finish) do the same in two calls, always by messages.
//!
//! An array type that lends parts of its memory separately, such as `ArrayBuffer`, passes the owned values (to read)
//! and the ghosts (to write) to the exchange as a [`Field::split`]. The owned values can be read through the array
//! during the exchange.
//!
//! # Rotated and reflected neighbours
//!
//! Where the axes of two blocks differ, as on the [cubed sphere](Topology::cubed_sphere), the components of vectors and
//! tensors change places and signs according to their [`Kind`]. The copy that packs them does this. Staggered fields
//! keep their positions between cells. Points that two ranks share are not exchanged, but
//! [`synchronize_shared`](HaloExchange::synchronize_shared) makes them equal.
//!
//! # Several blocks on a rank, and boxes of ghosts
//!
//! A rank may have [several blocks](Topology::on_ranks), and its messages serve all of them. If the neighbours of blocks
//! do not follow from sides, [regions](Topology::of_regions) say which cells are the ghosts in any box:
//!
//! ```
//! use std::sync::Arc;
//!
//! use backend_host::HostDevice;
//! use halo::communicator::{Communicator, ThreadCommunicator};
//! use halo::{Dim, Field, FieldSpec, HaloExchange, HaloOptions, Quantity, Region, Symmetry, Topology};
//! use runtime_core::{DType, Device};
//!
//! // Three blocks of four cells. East of each are the two middle cells of the next, in reverse order.
//! let region = |block| {
//!     let (neighbour, symmetry) = ((block + 1) % 3, Symmetry::MIRROR_X);
//!     Region { block, ghosts: [4..6], neighbour, cells: [1..3], symmetry }
//! };
//! let topology = Topology::of_regions(&[[4]; 3], &[0, 1, 2].map(region))?.on_ranks(&[0, 1, 0])?;
//! let device = Device::new(HostDevice::new(0))?;
//! let found = ThreadCommunicator::run(2, |ranks| -> halo::Result<Vec<Vec<i32>>> {
//!     let stream = device.default_stream();
//!     let blocks = topology.blocks_of(ranks.rank())?; // 0 and 2, or 1
//!     let field = FieldSpec::new("f", DType::I32, &[Dim::axis(0, 4).halo(0, 2)])?;
//!     let quantities = vec![Quantity::scalar(field); blocks.len()];
//!     let options = HaloOptions::default();
//!     let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &quantities, &device, &options)?;
//!     let mut memories = Vec::new();
//!     for block in blocks {
//!         let cells = [0, 1, 2, 3, -1, -1].map(|cell| 10 * block as i32 + cell);
//!         memories.push(device.memory_from_slice(&stream, &cells)?);
//!     }
//!     let mut fields: Vec<Field> = memories.iter_mut().map(|memory| memory.view_mut().into()).collect();
//!     halo.exchange(&stream, &mut fields)?;
//!     drop(fields);
//!     memories.iter().map(|memory| memory.to_vec(&stream)).collect()
//! })?;
//! assert_eq!(found[0].clone()?, [[0, 1, 2, 3, 12, 11], [20, 21, 22, 23, 2, 1]]);
//! # Ok::<(), halo::Error>(())
//! ```
//!
//! # Reverse exchange
//!
//! [`reduce`](HaloExchange::reduce) sends contributions from ghosts to their owners: sums, minima or maxima, in an
//! order that does not depend on timing.
//!
//! # Any other pattern
//!
//! A [`Forest`] exchanges what no grid describes, such as the values of an unstructured mesh. Each leaf of a rank
//! points to a root of any rank. [`broadcast`](Forest::broadcast) copies roots to leaves, and
//! [`reduce`](Forest::reduce) combines leaves with their roots, in an order that does not depend on timing.
//!
//! # Other transports
//!
//! Any implementation of [`Communicator`](communicator::Communicator) carries messages: threads in this crate, MPI in
//! `halo-mpi`. [`HaloTransformer`] only packs and unpacks, for programs with their own transport.
//!
//! # Limits
//!
//! Fields have up to six dimensions, with the items of a forest as one of them. Each axis of the topology has one
//! dimension that runs along it. Fields share no elements. The fields of a block are in memory of one device. A halo is at most as
//! wide as the neighbour's block. Ghosts beyond corners where tiles meet without a cell stay unchanged, are set to a
//! value, or are averaged. `docs/halo.md` describes the structure of the crate.
#![deny(unsafe_code)]

pub mod communicator;
mod engine;
mod exchange;
mod field;
mod options;
mod plan;
mod stencil;
mod topology;
mod transformer;

pub use runtime_core::{Combine, Error, ErrorKind, Result};

pub use engine::statistics::{HaloStatistics, NeighbourTraffic, StagingTimes, Time};
pub use exchange::forest::{Forest, ForestSize, Leaf};
pub use exchange::overlap::Progress;
pub use exchange::{HaloExchange, InFlight};
pub use field::{Dim, Field, FieldSpec, Kind, Quantity};
pub use options::{ForestOptions, HaloOptions, Messages, MissingCorners, Reach, Staging};
pub use plan::fingerprint::PlanFingerprint;
pub use plan::transfer::Edge;
pub use stencil::{Stencil, interior_and_rim};
pub use topology::links::Link;
pub use topology::regions::Region;
pub use topology::{Block, Neighbour, Seam, Side, Symmetry, Topology};
pub use transformer::{HaloTransformer, Incoming, Packed};
