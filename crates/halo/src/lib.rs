//! Halo exchange between ranks.
#![deny(unsafe_code)]

mod binding;
pub mod communicator;
mod exchange;
mod field;
mod fingerprint;
mod kind;
mod options;
mod plan;
mod pool;
mod route;
mod stencil;
mod symmetry;
mod topology;
mod transfer;
mod transformer;

pub use runtime_core::{Combine, Error, ErrorKind, Result};

pub use binding::Field;
pub use exchange::{HaloExchange, InFlight};
pub use field::{Dim, FieldSpec};
pub use kind::{Kind, Quantity};
pub use options::{HaloOptions, MissingCorners, Staging};
pub use stencil::{Stencil, interior_and_rim};
pub use symmetry::Symmetry;
pub use topology::{Block, Link, Neighbour, Side, Topology};
pub use transfer::{Edge, Reach};
pub use transformer::{HaloTransformer, Incoming, Packed};
