//! Ranks as threads of one process.

mod claims;
mod direct;
mod group;
mod loans;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, mem, thread};

use runtime_core::{Device, Error, ErrorKind, Result};

pub(crate) use self::claims::Claims;
pub(crate) use self::direct::Declined;
pub use self::direct::{Direct, LentViews, Loan, LoanEvents, LoanSession};
pub(super) use self::group::Group;
use super::{Buffer, Collectives, Communicator, Envelope, MAX_RANKS, Request, Way};

/// One of several ranks that are threads of one process.
///
/// If the buffers of sender and receiver are of the same kind, the message is not copied: the two exchange their
/// memory. A buffer that a send returns then holds other bytes. Otherwise the bytes are copied within the call that
/// posts the second of the two requests: it blocks until the work that fills the sender's buffer and the copy are done.
/// Ranks avoid that by clones of one `Device` and the same staging.
///
/// A rank leaves when its communicator is dropped. Messages that it sent before still arrive. A rank that waits for
/// more gets `PeerLost` at once. If a panic drops the communicator, every wait of any rank gets `PeerLost`.
///
/// ```
/// use std::time::Duration;
/// use halo::ErrorKind;
/// use halo::communicator::{Buffer, Communicator, ThreadCommunicator};
///
/// let [one, two] = ThreadCommunicator::group(2)?.try_into().unwrap();
/// one.send(1, 3, Buffer::host(vec![42; 8]))?.test()?;
/// drop(one);
/// let received = two.receive(0, 3, Buffer::host(vec![0; 8]))?;
/// assert_eq!(two.wait(received, Duration::ZERO)?.to_vec()?, [42; 8]);
/// let received = two.receive(0, 3, Buffer::host(vec![0; 8]))?;
/// let error = two.wait(received, Duration::from_secs(60)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::PeerLost);
/// # Ok::<(), halo::Error>(())
/// ```
pub struct ThreadCommunicator {
    group: Arc<Group>,
    rank: usize,
    collectives: Collectives,
}

/// The largest tag that every MPI supports: programs that run on threads also run on MPI.
const MAX_TAG: u32 = 32767;

impl ThreadCommunicator {
    /// Makes the communicators of all ranks of a new group, in order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no ranks, or more than 2^24.
    pub fn group(size: usize) -> Result<Vec<Self>> {
        if !(1..=MAX_RANKS).contains(&size) {
            let message = format!("{size} ranks; 1 to {MAX_RANKS}");
            return Err(Error::new(ErrorKind::InvalidArgument, "group", message));
        }
        let group = Arc::new(Group::new(size));
        let rank = |rank| {
            let collectives = Collectives::of_group(&group, rank);
            Self { group: Arc::clone(&group), rank, collectives }
        };
        Ok((0..size).map(rank).collect())
    }

    /// Runs `f` in `size` threads, one for each rank of a new group. Returns the results in order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no ranks, or more than 2^24. `Driver` if a thread cannot be started; ranks that wait for
    /// it then get an error.
    ///
    /// # Panics
    ///
    /// Panics if `f` panics in a rank, after all threads have ended, with the panic of the first rank that panicked.
    pub fn run<T: Send>(size: usize, f: impl Fn(Self) -> T + Sync) -> Result<Vec<T>> {
        let ranks = Self::group(size)?;
        let group = Arc::clone(&ranks[0].group);
        let ended: Vec<_> = thread::scope(|scope| {
            let f = &f;
            let start = |communicator: Self| {
                let end = End { group: Arc::clone(&communicator.group), rank: communicator.rank };
                thread::Builder::new().name(format!("rank {}", end.rank)).spawn_scoped(
                    scope,
                    move || {
                        let _end = end;
                        f(communicator)
                    },
                )
            };
            let threads: Vec<_> = ranks.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.map(thread::ScopedJoinHandle::join)).collect()
        });
        let mut results = Vec::with_capacity(size);
        let mut panics = Vec::new();
        let mut failure = None;
        for (rank, end) in ended.into_iter().enumerate() {
            match end {
                Ok(Ok(result)) => results.push(result),
                Ok(Err(panic)) => panics.push((rank, panic)),
                Err(error) => {
                    let message = format!("cannot start the thread of rank {rank}");
                    failure.get_or_insert(
                        Error::new(ErrorKind::Driver, "run", message).with_source(error),
                    );
                }
            }
        }
        if !panics.is_empty() {
            let first = panics.iter().position(|panic| Some(panic.0) == group.panicked());
            let (_, panic) = panics.swap_remove(first.unwrap_or(0));
            // A second panic in a destructor would abort the process.
            results.into_iter().for_each(|result| {
                mem::forget(catch_unwind(AssertUnwindSafe(|| drop(result))));
            });
            mem::forget(panics);
            resume_unwind(panic);
        }
        failure.map_or(Ok(results), Err)
    }
}

/// Notifies the other ranks when the thread of a rank panics, even if its communicator lives on.
struct End {
    group: Arc<Group>,
    rank: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            self.group.leave(self.rank, true);
        }
    }
}

impl Communicator for ThreadCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn max_tag(&self) -> u32 {
        MAX_TAG
    }

    fn passes_memory_of(&self, _: &Device) -> bool {
        true
    }

    fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    fn direct(&self) -> Option<Direct<'_>> {
        Some(Direct::new(&self.group, self.rank))
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Send, to, tag, &buffer)?;
        match self.group.lost("send", to, &envelope) {
            Some(lost) => Err(lost),
            None => Ok(Box::new(self.group.post(self.rank, envelope, buffer))),
        }
    }

    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Receive, from, tag, &buffer)?;
        // A rank that has left may have sent the message before.
        Ok(Box::new(self.group.post(self.rank, envelope, buffer)))
    }

    fn discard(&self, tags: Range<u32>) -> Result<()> {
        self.group.discard(self.rank, &tags);
        Ok(())
    }

    fn progress(&self) -> u64 {
        self.group.progress(self.rank)
    }

    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        self.group.wait_beyond(self.rank, seen, deadline);
    }
}

impl Drop for ThreadCommunicator {
    fn drop(&mut self) {
        self.group.leave(self.rank, thread::panicking());
    }
}

impl fmt::Debug for ThreadCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadCommunicator(rank {} of {})", self.rank, self.size())
    }
}
