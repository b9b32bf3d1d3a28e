//! The coherence protocol, without a device in it: what is remembered of a buffer, and the one function that changes it.
//!
//! Uses nothing but the standard library, so that its tests enumerate it and its mutants compile on their own.

mod hits;
mod plan;
mod set;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use hits::{HOST_BIT, hits, owner, readable};
pub use plan::Exchange;
pub(crate) use plan::{Action, Plan, Step, plan};
pub(crate) use set::{Set, SmallSet};
pub use state::Reduce;
pub(crate) use state::{
    Access, HOST, Health, LANES, Lane, PARTS, PartId, PartState, Paths, REPLICAS, Refusal,
    ReplicaId, Role, Who,
};
