//! The frame of a rank: MPI from its beginning to its end.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use halo::communicator::Communicator;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::traits::{AsRaw, Communicator as _};
use runtime_core::{Error, ErrorKind, Result};

use crate::communicator::{MpiCommunicator, Place};
use crate::library::{Handle, Turn, in_turn};
use crate::tag::Tags;

/// What a rank that panics ends the job with: the code of a Rust program that does.
const PANICKED: i32 = 101;
const FAILED: i32 = 1;

/// How long a rank waits at its end for messages that were abandoned, and for ranks that it waited for in vain.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts MPI, runs `f` as one rank of the job, and ends MPI. A program does this once.
///
/// If `f` panics or fails, the whole job ends, with code 101 or 1, and so does this process: others would wait for it in
/// vain. It ends with code 1, too, if the latest wait of a rank was a timeout and the other ranks have not come to their end
/// 10 seconds after it. The communicator sends nothing after `run`.
///
/// # Errors
///
/// `Conflict` if MPI was started before; `Unavailable` if it does not take calls from several threads in turn; what MPI
/// reports when it sets up the communicator.
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
    let shared = Arc::clone(ranks.shared());
    match catch_unwind(AssertUnwindSafe(|| f(ranks))) {
        // The panic hook has told.
        Err(_panic) => abort(&universe, PANICKED),
        Ok(Err(error)) => {
            eprintln!("rank {rank}: {error:?}");
            abort(&universe, FAILED)
        }
        Ok(Ok(())) => {}
    }
    if let Err(error) = shared.drain(PATIENCE).and_then(|()| shared.part(PATIENCE)) {
        eprintln!("rank {rank}: {error:?}");
        abort(&universe, FAILED);
    }
    in_turn(|| drop(universe));
    Ok(())
}

fn abort(universe: &Universe, code: i32) -> ! {
    in_turn(|| universe.world().abort(code))
}

/// A communicator of its own for the job's ranks.
#[expect(unsafe_code, reason = "hands a communicator of rsmpi to the library's own calls")]
fn join(universe: &Universe) -> Result<MpiCommunicator> {
    let world = universe.world();
    let (own, node) = in_turn(|| {
        // What else the program does with MPI cannot meet our messages.
        (world.duplicate(), world.split_shared(world.rank()))
    });
    let number = |value: i32| usize::try_from(value).unwrap_or(0);
    let (rank, size) = (number(own.rank()), number(own.size()));
    let (local_rank, local_size) = (number(node.rank()), number(node.size()));
    in_turn(|| drop(node));
    let turn = Turn::take("run")?;
    // SAFETY: it was made just now, and is forgotten below: it lasts as long as MPI runs.
    let handle = unsafe { Handle::new(&turn, own.as_raw()) }?;
    std::mem::forget(own);
    let tags = Tags::up_to(handle.max_tag(&turn)?);
    Ok(MpiCommunicator::new(handle, Place { rank, size, local_rank, local_size, tags }))
}
