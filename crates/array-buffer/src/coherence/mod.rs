//! The coherence protocol, independent of devices: the state of an array, and the one function that changes it.
//!
//! Uses only the standard library, so its tests can enumerate it and its mutants compile on their own.

mod fast_path;
mod merge;
mod plan;
mod set;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use fast_path::{HOST_BIT, fast_readers, owner, readable};
pub(crate) use merge::{common, kept, loss, merge, rejoin, waits};
pub use plan::Exchange;
pub(crate) use plan::{Action, Plan, Step, keep, plan, take_up};
pub(crate) use set::{Set, SmallSet};
pub use state::Reduce;
pub(crate) use state::{
    Access, Bytes, HOST, Health, LANES, Lane, PARTS, PartId, PartState, Paths, REPLICAS, Refusal,
    ReplicaId, Role, Who,
};
