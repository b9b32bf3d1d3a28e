//! Ranks that are threads of one process and exchange by messages, as processes do.
#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::sync::Arc;

use halo::communicator::{Communicator, ThreadCommunicator};

use crate::altered::{Access, Altered};

pub(crate) fn by_messages(rank: ThreadCommunicator) -> Arc<dyn Communicator> {
    Arc::new(Altered { direct: Access::None, ..Altered::new(rank) })
}

/// By messages, but an odd number of ranks read each other's fields.
pub(crate) fn mostly_by_messages(rank: ThreadCommunicator) -> Arc<dyn Communicator> {
    if rank.size().is_multiple_of(2) { by_messages(rank) } else { Arc::new(rank) }
}
