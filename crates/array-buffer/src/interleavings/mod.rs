//! Two threads use the mirror of an array: in the orders that `shuttle` chooses, with its own atomics, and as threads
//! of the system, whose weak memory orders Miri explores.
#![expect(clippy::duplicate_mod, reason = "each module has its own threads and atomics")]

mod on_shuttle;
mod on_threads;
