//! Makes a communicator for this crate from one of the program: a duplicate, and what its ranks know of each other.
//! Nothing here blocks, so a rank that is late is a timeout.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::c_int;
use std::fs;
use std::mem::{self, ManuallyDrop};
use std::thread;
use std::time::{Duration, Instant};

use runtime_core::{Error, ErrorKind, Result, interrupt};

use super::abi::{Handle, Raw};
use super::comm::{Comm, read, test};
use super::mpi::call;
use super::turn::Turn;

/// How long a rank sleeps between two checks that need not be quick.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// A timeout that is as good as none, and that the clock can represent.
const FOREVER: Duration = Duration::from_secs(3_000_000_000);

/// The bytes that name a node.
const NAME: usize = 64;

/// The ranks of a communicator, as one of them sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: usize,
    pub(crate) local_size: usize,
}

/// A communicator that all ranks are making. A call that has ended with a timeout can be continued.
pub(crate) struct Setup {
    operation: &'static str,
    request: Raw,
    stage: Stage,
}

enum Stage {
    /// MPI writes the handle to this place, which is a box.
    Duplicating(*mut usize),
    /// MPI reads the name of this rank's node, and writes those of all ranks.
    Gathering(Comm, ManuallyDrop<(Vec<u8>, Vec<u8>)>),
    /// A call has failed.
    Failed,
}

/// Looks from time to time until there is a result.
///
/// # Errors
///
/// `Timeout`. Those of `look`.
pub(crate) fn wait<R>(
    operation: &'static str,
    timeout: Duration,
    mut look: impl FnMut() -> Result<Option<R>>,
) -> Result<R> {
    let deadline = Instant::now() + timeout.min(FOREVER);
    loop {
        if let Some(result) = look()? {
            return Ok(result);
        }
        if Instant::now() >= deadline {
            let message = format!("after {timeout:?}, other ranks have not called it");
            return Err(Error::new(ErrorKind::Timeout, operation, message));
        }
        interrupt::check()?;
        thread::sleep(LONG);
    }
}

impl Setup {
    /// Starts to duplicate a communicator.
    pub(crate) fn begin(turn: &Turn, operation: &'static str, raw: Raw) -> Result<Self> {
        let place = Box::into_raw(Box::new(0_usize));
        let (request, code) = call!(turn.mpi, t => {
            let mut request = Handle::down(turn.mpi.constants.request_null);
            // SAFETY: the communicator is valid. The place is as large and as aligned as any handle, and is freed only
            // when the request is complete.
            let code = unsafe { (t.comm_idup)(Handle::down(raw), place.cast(), &mut request) };
            (Handle::up(request), code)
        });
        turn.outcome(operation, code)?;
        Ok(Self { operation, request, stage: Stage::Duplicating(place) })
    }

    /// Goes on as far as the other ranks have come. Does not block.
    ///
    /// # Errors
    ///
    /// Those of MPI. After one, this fails again.
    pub(crate) fn poll(&mut self, turn: &Turn) -> Result<Option<(Comm, Place)>> {
        loop {
            match test(turn, self.operation, &mut self.request) {
                Ok(false) => return Ok(None),
                Ok(true) => {
                    if let Some(made) = self.advance(turn)? {
                        return Ok(Some(made));
                    }
                }
                Err(error) => {
                    // MPI may still use what belongs to the stage, which is not freed.
                    self.stage = Stage::Failed;
                    return Err(error);
                }
            }
        }
    }

    /// Goes to the next stage. The request is complete.
    fn advance(&mut self, turn: &Turn) -> Result<Option<(Comm, Place)>> {
        match mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Duplicating(place) => {
                // SAFETY: MPI has written a handle of its ABI.
                let comm = Comm::new(unsafe { read(turn, place.cast()) });
                // SAFETY: it was a box, and MPI no longer uses it.
                drop(unsafe { Box::from_raw(place) });
                comm.return_errors(turn)?;
                self.gather(turn, comm)?;
                Ok(None)
            }
            Stage::Gathering(comm, names) => {
                let (own, all) = ManuallyDrop::into_inner(names);
                let (rank, size) = (comm.rank(turn)?, comm.size(turn)?);
                let is_here = |name: &&[u8]| *name == own;
                let local_rank = all.chunks(NAME).take(rank).filter(is_here).count();
                let local_size = all.chunks(NAME).filter(is_here).count();
                Ok(Some((comm, Place { rank, size, local_rank, local_size })))
            }
            Stage::Failed => {
                let message = "MPI failed when it made the communicator";
                Err(Error::new(ErrorKind::PeerLost, self.operation, message))
            }
        }
    }

    fn gather(&mut self, turn: &Turn, comm: Comm) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "a small number")]
        const COUNT: c_int = NAME as c_int;
        let raw = comm.raw(self.operation)?;
        let byte = turn.mpi.constants.byte;
        let mut names = (node().to_vec(), vec![0; NAME * comm.size(turn)?]);
        let (from, to) = (names.0.as_ptr().cast(), names.1.as_mut_ptr().cast());
        let (request, code) = call!(turn.mpi, t => {
            let mut request = Handle::down(turn.mpi.constants.request_null);
            let (byte, on) = (Handle::down(byte), Handle::down(raw));
            // SAFETY: there is a name for each rank. The memory is freed only when the request is complete.
            let code = unsafe { (t.iallgather)(from, COUNT, byte, to, COUNT, byte, on, &mut request) };
            (Handle::up(request), code)
        });
        let names = ManuallyDrop::new(names);
        turn.outcome(self.operation, code)?;
        (self.request, self.stage) = (request, Stage::Gathering(comm, names));
        Ok(())
    }
}

/// The name of this node: on Linux the number of its start, which containers on it share.
fn node() -> [u8; NAME] {
    let number = fs::read("/proc/sys/kernel/random/boot_id");
    let name = number.or_else(|_| fs::read("/etc/hostname")).unwrap_or_default();
    let mut padded = [0; NAME];
    padded.iter_mut().zip(name).for_each(|(to, from)| *to = from);
    padded
}
