//! Stencils and fields: one safe kernel for every device, on any number of ranks, with the same bits everywhere.
#![deny(unsafe_code)]

extern crate self as stencil;

mod argument;
mod arguments;
mod boundary;
mod description;
mod domain;
mod erased;
mod exchange;
mod exchanges;
mod field;
mod gather;
#[doc(hidden)]
pub mod generated;
mod geometry;
mod grid;
mod host;
mod kernel;
mod launch;
#[cfg(feature = "npy")]
pub mod npy;
mod probe;
mod shape;

pub use boundary::Boundary;
pub use description::{C, In, InOut, Intent, Out, Stencil};
pub use erased::Number;
pub use field::{End, Field, FieldBuilder, Location};
pub use grid::{Grid, GridBuilder};
pub use launch::Launch;
pub use runtime_core::{Error, ErrorKind, Result};
pub use stencil_macros::{stencil, stencils};
