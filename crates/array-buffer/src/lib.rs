//! One logical array, coherent on every device: exactly the stale bytes move, when they are needed.
#![deny(unsafe_code)]

mod account;
mod budget;
mod buffer;
mod check;
mod coherence;
mod core;
mod exchange;
mod guard;
mod lend;
mod mirror;
mod part;
mod partition;
mod scope;
mod shared;
mod storage;
mod transfer;

pub use ndarray;
pub use runtime_core::{Error, ErrorKind, Result};

pub use account::{Cause, Transfer, TransferReport, transfer_totals};
pub use budget::{Direction, TransferBudget};
pub use buffer::{ArrayBuffer, Constant, Here, Mutable, PartStatus};
pub use coherence::Reduce;
pub use exchange::{Exchange, InFlight, StarForest};
pub use guard::{HostReadGuard, HostWriteGuard, ReadGuard, WriteGuard};
pub use lend::lend;
pub use part::{PartMut, PartRef};
pub use partition::{Partition, Parts};
pub use scope::{Offload, here, offload, on_host};
pub use shared::{SharedArrayBuffer, SharedRead, SharedWrite};
