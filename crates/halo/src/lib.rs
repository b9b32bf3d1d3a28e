//! Halo exchange between ranks.
#![deny(unsafe_code)]

pub mod communicator;
mod field;
mod fingerprint;
mod kind;
mod symmetry;
mod topology;

pub use runtime_core::{Error, ErrorKind, Result};

pub use field::{Dim, FieldSpec};
pub use kind::{Kind, Quantity};
pub use symmetry::Symmetry;
pub use topology::{Block, Link, Neighbour, Side, Topology};
