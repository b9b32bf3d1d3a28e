//! The MPI library: its functions and constants, and calls of it.

mod abi;
mod adopted;
mod comm;
mod find;
mod functions;
mod mpi;
mod setup;
mod start;
mod turn;

pub(crate) use self::abi::{Handle, Raw, Status};
pub(crate) use self::adopted::{Shared, adopt, adopt_world};
pub(crate) use self::comm::{Comm, Pending, test};
pub(crate) use self::mpi::{Calls, call};
pub(crate) use self::setup::{LONG, Place, Setup, wait};
pub(crate) use self::start::is_ours;
pub(crate) use self::turn::Turn;
