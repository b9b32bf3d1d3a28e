//! Halo exchange: any fields, any layout, any rotation, packed where the fields are.
//!
//! A program that divides a grid among ranks describes it once: a [`Topology`] says who owns which cells and what lies
//! beyond the sides of each block, a [`Quantity`] what a field is and how it lies in memory. [`HaloExchange`] plans
//! everything from that, compares it with the other ranks, and then fills halos as often as it is told to: one launch packs
//! all fields, one message goes to each neighbour, and messages are unpacked as they arrive.
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
//! // Opened once: ranks that share a device copy out of each other's fields.
//! let device = Device::new(HostDevice::new(0))?;
//! let halos = ThreadCommunicator::run(topology.ranks(), |ranks| -> halo::Result<Vec<f64>> {
//!     let stream = device.stream_create(&StreamOptions::default())?;
//!     let rank = ranks.rank();
//!     let [nx, ny, _] = topology.block(rank)?.cells;
//!
//!     // Rows of x with one ghost around: y is the slower dimension.
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
//! # Overlap
//!
//! [`overlap`](HaloExchange::overlap) runs work of the program while halos are on their way, in messages or straight out of
//! the neighbours' memory, and lends that work what the rank owns. [`interior_and_rim`] cuts a stencil step into what
//! can be computed meanwhile and what cannot. [`start`](HaloExchange::start) and [`finish`](InFlight::finish) do the same in
//! two calls, by messages alone.
//!
//! Who keeps values in an array whose parts are lent apart, such as `ArrayBuffer`, gives the exchange owned values to
//! read and ghosts to write as a [`Field::split`], and reads the owned values by the array meanwhile.
//!
//! # Rotated and reflected neighbours
//!
//! Where the axes of two blocks differ, as on the [cubed sphere](Topology::cubed_sphere), components of vectors and
//! tensors change places and signs as their [`Kind`] says, in the copy that packs them. Staggered fields keep their
//! places between cells; the points that two ranks share are not exchanged, but can be
//! [made the same](HaloExchange::synchronize_shared).
//!
//! # Back
//!
//! [`reduce`](HaloExchange::reduce) takes contributions from ghosts to their owners: sums, minima, maxima, in an order that
//! does not depend on timing.
//!
//! # Other transports
//!
//! Whatever implements [`Communicator`](communicator::Communicator) carries messages: threads here, MPI in `halo-mpi`.
//! [`HaloTransformer`] packs and unpacks for programs that carry them by themselves.
//!
//! # Limits
//!
//! Fields have up to six dimensions, of which one runs along each axis of the topology, and are in memory of one device,
//! and share no elements. A halo is at most as wide as the neighbour's block. Beyond corners where tiles meet without a cell,
//! ghosts stay as they are, are set to a value or averaged. `docs/halo.md` has the map of the crate.
#![deny(unsafe_code)]

mod agreement;
mod binding;
pub mod communicator;
mod corner;
mod difference;
mod direct;
mod exchange;
mod field;
mod fingerprint;
mod kind;
mod options;
mod overlap;
mod packed;
mod plan;
mod pool;
mod route;
mod staging;
mod stamp;
mod statistics;
mod stencil;
mod symmetry;
mod topology;
mod transfer;
mod transformer;

pub use runtime_core::{Combine, Error, ErrorKind, Result};

pub use agreement::PlanFingerprint;
pub use binding::Field;
pub use exchange::{HaloExchange, InFlight};
pub use field::{Dim, FieldSpec};
pub use kind::{Kind, Quantity};
pub use options::{HaloOptions, Messages, MissingCorners, Staging};
pub use overlap::Progress;
pub use packed::{Incoming, Packed};
pub use staging::StagingTimes;
pub use statistics::{HaloStatistics, NeighbourTraffic, Time};
pub use stencil::{Stencil, interior_and_rim};
pub use symmetry::Symmetry;
pub use topology::{Block, Link, Neighbour, Seam, Side, Topology};
pub use transfer::{Edge, Reach};
pub use transformer::HaloTransformer;
