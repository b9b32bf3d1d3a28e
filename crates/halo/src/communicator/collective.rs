//! Calls that every rank takes part in, made of messages.

use std::time::{Duration, Instant};

use runtime_core::Result;

use super::{Buffer, COLLECTIVE_TAG, Communicator, deadline};

/// Bruck's algorithm: in each round, ranks have the bytes of twice as many ranks as before, beginning with their own.
pub(super) fn all_gather<C: Communicator + ?Sized>(
    ranks: &C,
    mine: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let deadline = deadline(timeout);
    let remaining = || deadline.saturating_duration_since(Instant::now());
    let mut all = mine.to_vec();
    let mut held = 1;
    while held < size {
        let more = held.min(size - held);
        let bytes = more * mine.len();
        let to = (rank + size - held) % size;
        let from = (rank + held) % size;
        let received = ranks.receive(from, COLLECTIVE_TAG, Buffer::host(vec![0; bytes]))?;
        let sent = ranks.send(to, COLLECTIVE_TAG, Buffer::host(all[..bytes].to_vec()))?;
        all.extend(ranks.wait(received, remaining())?.to_vec()?);
        ranks.wait(sent, remaining())?;
        held += more;
    }
    // They begin with this rank's.
    all.rotate_right(rank * mine.len());
    Ok(all)
}
