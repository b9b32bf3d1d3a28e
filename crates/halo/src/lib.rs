//! Halo exchange between ranks.
#![deny(unsafe_code)]

pub mod communicator;

pub use runtime_core::{Error, ErrorKind, Result};
