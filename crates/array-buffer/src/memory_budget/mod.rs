//! Limits on the memory of arrays on a device.

mod budget;
mod forecast;
mod full;
mod ledger;
mod membership;
mod policy;
mod step;

pub use budget::MemoryBudget;
pub(crate) use budget::{Idle, Left, Resident, RoomCause, Standing};
pub(crate) use membership::{Membership, Room};
pub use policy::{Candidate, LatestNextUse, LeastRecentlyUsed, Policy, Priority};
pub use step::{RecordedStep, Recording, Repeat};
