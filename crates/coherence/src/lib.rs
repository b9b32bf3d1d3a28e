//! The coherence protocol of one array: the state of its parts, and the one function that changes it.
//!
//! This crate is not for programs. It has the decisions of the crate `array-buffer`, which carries them out. It knows
//! no device and no memory, and uses only the standard library. So its tests visit every state, and each mutant of it
//! compiles on its own.
//!
//! An array is divided into *parts*, which are [owned or ghosts](Role). Each part has *replicas*: one on the host, and
//! one on each device that uses it. The streams that use the array are *lanes*. [`PartState`] says which replicas hold
//! the current values of a part, whether these can be used, and which lanes may still work on the bytes. [`plan`] takes
//! the state of all parts and an [`Action`]. It returns the [`Step`]s to do in their order, and the next state; or a
//! [`Refusal`], which changes nothing. [`Paths`] says which replicas reach each other.
//!
//! ```
//! use coherence::{Access, Action, HOST, LANES, PartSet, PartState, Paths, REPLICAS, Role, Set, Step, plan};
//!
//! // One device: its replica is 1, and its default stream is lane 0.
//! let (at, by) = (1, Some(0));
//! let paths = Paths {
//!     host: Set::one(HOST),
//!     peers: [Set::EMPTY; REPLICAS],
//!     lanes: [0; REPLICAS],
//!     locked: None,
//!     direct: PartSet::EMPTY,
//!     workers: Set::EMPTY,
//!     relays: Set::EMPTY,
//!     places: [at; LANES],
//! };
//! let (parts, part) = ([PartState::new(Role::Owned)], PartSet::one(0));
//! let write = plan(&parts, part, Action::Acquire { at, by, access: Access::Write }, &paths)?;
//! assert_eq!(write.steps, []);
//! let written = plan(&write.next, part, Action::Commit, &paths)?;
//!
//! // The host waits for the writer, and copies. A second read does nothing.
//! let read = plan(&written.next, part, Action::Read { at: HOST, by: None }, &paths)?;
//! let copy = Step::Copy { part: 0, from: at, to: HOST, reads: by, writes: None };
//! assert_eq!(read.steps, [Step::Wait { who: None, on: 0 }, copy]);
//! let again = plan(&read.next, part, Action::Read { at: HOST, by: None }, &paths)?;
//! assert_eq!(again.steps, []);
//! # Ok::<(), coherence::Refusal>(())
//! ```
//!
//! # Invariants
//!
//! - Exactly the missing parts are copied, each once, from a valid replica. A `write` copies nothing.
//! - A user waits for all work that conflicts with its own, and every wait is needed.
//! - Values whose writer failed, or was forgotten, are never readable; nor is anything derived from them.
//! - A step that fails leaves values where they were, and records the work that it may have enqueued.
//! - A good owned part is valid somewhere.
//! - The [accesses without an action](fast_readers) are those for which [`plan`] has neither a step nor a change.
//!
//! The page `docs/coherence.md` of the repository has the table of states and actions, the rules for waits, and the
//! list of proofs.

mod fast_path;
mod merge;
mod plan;
mod set;
mod state;
#[cfg(test)]
mod tests;

pub use fast_path::{HOST_BIT, Owner, Whole, fast_readers, owner, readable};
pub use merge::{Pieces, common, kept, loss, merge, rejoin, waits};
pub use plan::{Action, Exchange, Plan, Step, keep, plan, take_up};
pub use set::{Bits, PartSet, Set};
pub use state::{
    Access, Bytes, HOST, Health, LANES, Lane, PARTS, PartId, PartState, Paths, REPLICAS, Records,
    Reduce, Refusal, ReplicaId, Role, Who,
};
