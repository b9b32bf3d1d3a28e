//! The run of a rank: starts MPI and ends it.

use std::fmt::Debug;
use std::io::{self, Write as _};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use halo::communicator::Communicator;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::traits::{AsRaw, Communicator as _};
use runtime_core::{Error, ErrorKind, Result};

use crate::communicator::MpiCommunicator;
use crate::job::Place;
use crate::library::{Handle, Turn, in_turn};
use crate::tag::Tags;

/// The exit code of the job if a rank panics: that of a Rust program that panics.
const PANICKED: i32 = 101;
const FAILED: i32 = 1;

/// How long a rank waits at its end for messages of dropped requests, and for ranks that it waited for until a timeout.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts MPI, runs `f` as one rank of the job, and ends MPI. A program does this once.
///
/// If `f` panics or fails, the whole job ends with code 101 or 1, including this process: otherwise other ranks would
/// wait for it forever. The job also ends with code 1 if messages of dropped requests are still in transit 10 seconds
/// after `f` returns, if MPI fails then, or if the latest wait of a rank timed out and the other ranks have not reached
/// their end 10 seconds later. The communicator sends nothing after `run`.
///
/// # Errors
///
/// `Conflict` if MPI was started before. `Unavailable` if MPI does not support serialized calls from several threads.
/// The errors that MPI reports when it sets up the communicator.
pub fn run<E: Debug>(f: impl FnOnce(MpiCommunicator) -> Result<(), E>) -> Result<()> {
    let started = in_turn(|| mpi::initialize_with_threading(Threading::Serialized));
    let (universe, threading) =
        started.ok_or_else(|| Error::new(ErrorKind::Conflict, "run", "MPI was started before"))?;
    if threading < Threading::Serialized {
        let message = format!("MPI offers {threading:?} threads; Serialized are needed");
        return Err(Error::new(ErrorKind::Unavailable, "run", message));
    }
    let ranks = join(&universe)?;
    let rank = ranks.rank();
    let job = Arc::clone(ranks.job());
    match catch_unwind(AssertUnwindSafe(|| f(ranks))) {
        // The panic hook has printed the panic.
        Err(_panic) => abort(&universe, PANICKED),
        Ok(Err(error)) => {
            print(rank, &error);
            abort(&universe, FAILED)
        }
        Ok(Ok(())) => {}
    }
    if let Err(error) =
        job.wait_for_abandoned(END_TIMEOUT).and_then(|()| job.wait_for_all_ranks(END_TIMEOUT))
    {
        print(rank, &error);
        abort(&universe, FAILED);
    }
    in_turn(|| drop(universe));
    Ok(())
}

/// Prints an error. The job ends also if that is not possible, or panics.
fn print(rank: usize, error: &dyn Debug) {
    let print = || writeln!(io::stderr(), "rank {rank}: {error:?}");
    // A panic's value might panic when it is dropped.
    mem::forget(catch_unwind(AssertUnwindSafe(print)));
}

fn abort(universe: &Universe, code: i32) -> ! {
    in_turn(|| universe.world().abort(code))
}

/// Makes a separate communicator for the job's ranks.
#[expect(unsafe_code, reason = "hands a communicator of rsmpi to the library's own calls")]
fn join(universe: &Universe) -> Result<MpiCommunicator> {
    let world = universe.world();
    let (own, node) = in_turn(|| {
        // Other MPI messages of the program cannot be mistaken for ours.
        (world.duplicate(), world.split_shared(world.rank()))
    });
    let number = |value: i32| usize::try_from(value).unwrap_or(0);
    let (rank, size) = (number(own.rank()), number(own.size()));
    let (local_rank, local_size) = (number(node.rank()), number(node.size()));
    in_turn(|| drop(node));
    let turn = Turn::take("run")?;
    // SAFETY: it was made above, and is forgotten below, so it lives as long as MPI runs.
    let handle = unsafe { Handle::new(&turn, own.as_raw()) }?;
    mem::forget(own);
    let tags = Tags::up_to(handle.max_tag(&turn)?);
    Ok(MpiCommunicator::new(handle, Place { rank, size, local_rank, local_size, tags }))
}
