//! Calls that every rank takes part in, made of messages.

use std::mem;
use std::time::{Duration, Instant};

use runtime_core::Result;

use super::{Buffer, COLLECTIVE_TAG, Communicator, Request, deadline};

/// Bruck's algorithm: in each round, ranks have the bytes of twice as many ranks as before, beginning with their own.
pub(super) fn all_gather<C: Communicator + ?Sized>(
    ranks: &C,
    mine: &[u8],
    timeout: Duration,
) -> Result<Vec<u8>> {
    Gather::new(mine).finish(ranks, timeout)
}

/// A gathering that can be waited for again after a timeout: each message is sent once, and met once, however often.
#[derive(Debug)]
pub(crate) struct Gather {
    /// The bytes of ranks that are there, beginning with this rank's.
    all: Vec<u8>,
    /// Bytes of each rank.
    len: usize,
    /// Ranks whose bytes are there when the round is over.
    held: usize,
    /// The receive of the round and its send.
    requests: [Option<Box<dyn Request>>; 2],
}

impl Gather {
    pub(crate) fn new(mine: &[u8]) -> Self {
        Self { all: mine.to_vec(), len: mine.len(), held: 1, requests: [None, None] }
    }

    /// Blocks until the bytes of all ranks are there, and gives them in the order of ranks; once. After a `Timeout` it can be
    /// called again, after any other error it is over.
    pub(crate) fn finish<C: Communicator + ?Sized>(
        &mut self,
        ranks: &C,
        timeout: Duration,
    ) -> Result<Vec<u8>> {
        let (rank, size) = (ranks.rank(), ranks.size());
        let deadline = deadline(timeout);
        loop {
            let left = || deadline.saturating_duration_since(Instant::now());
            while let Some((request, buffer)) = ranks.wait_any(&mut self.requests, left())? {
                if request == 0 {
                    self.all.extend(buffer.to_vec()?);
                }
            }
            if self.held >= size {
                break;
            }
            let more = self.held.min(size - self.held);
            let bytes = more * self.len;
            let to = (rank + size - self.held) % size;
            let from = (rank + self.held) % size;
            let received = ranks.receive(from, COLLECTIVE_TAG, Buffer::host(vec![0; bytes]))?;
            let sent = Buffer::host(self.all[..bytes].to_vec());
            self.requests = [Some(received), Some(ranks.send(to, COLLECTIVE_TAG, sent)?)];
            self.held += more;
        }
        let mut all = mem::take(&mut self.all);
        // They begin with this rank's.
        all.rotate_right(rank * self.len);
        Ok(all)
    }
}
