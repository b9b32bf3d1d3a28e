//! The run of a rank: starts MPI and ends it.

use std::fmt::Debug;
use std::io::{self, Write as _};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{process, thread};

use halo::communicator::Communicator;
use runtime_core::Result;

use crate::communicator::MpiCommunicator;
use crate::library::Turn;

/// The exit code of the job if a rank panics: that of a Rust program that panics.
const PANICKED: i32 = 101;
const FAILED: i32 = 1;

/// How long a rank waits at its beginning for the others.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a rank waits at its end for messages of dropped requests, and for ranks that it waited for until a timeout.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts MPI, runs `f` as one rank of the job, and ends MPI. A program does this once, unless it has started MPI by
/// other means: MPI is then left running, and was started with `MPI_THREAD_MULTIPLE`. Without `mpiexec` the job has one
/// rank.
///
/// An error of `f` is printed by `Debug`. `f` does not call `std::process::exit`: some launchers call that a success.
///
/// If `f` panics or fails, the whole job ends with code 101 or 1, including this process: otherwise other ranks would
/// wait for it forever. The job also ends with code 1 if messages of dropped requests are still in transit 10 seconds
/// after `f` returns, if MPI fails then, or if the latest wait of a rank timed out and the other ranks have not reached
/// their end 10 seconds later. The communicator sends nothing after `run`.
///
/// # Errors
///
/// `Unavailable` if there is no MPI library, with what was tried; if the library has another ABI, or lacks a function;
/// and if it does not take calls from several threads. `Conflict` if two MPI libraries are loaded, if `run` has started
/// MPI before, and if the launcher is another MPI's, so that each rank would be alone. `Timeout` if other ranks have
/// not called `run` 10 minutes after they have started MPI. If a rank never starts MPI, a library may wait for it: the
/// process ends after 10 minutes then, with code 1. The errors that MPI reports when it sets up the communicator.
pub fn run<E: Debug>(f: impl FnOnce(MpiCommunicator) -> Result<(), E>) -> Result<()> {
    drop(Turn::start()?);
    let ranks = MpiCommunicator::world(START_TIMEOUT)?;
    let rank = ranks.rank();
    let job = Arc::clone(ranks.job());
    match catch_unwind(AssertUnwindSafe(|| f(ranks))) {
        // The panic hook has printed the panic.
        Err(_panic) => abort(PANICKED),
        Ok(Err(error)) => {
            print(rank, &error);
            abort(FAILED)
        }
        Ok(Ok(())) => {}
    }
    if let Err(error) =
        job.wait_for_abandoned(END_TIMEOUT).and_then(|()| job.wait_for_all_ranks(END_TIMEOUT))
    {
        print(rank, &error);
        abort(FAILED);
    }
    Turn::take("run")?.end()
}

/// Prints an error. The job ends also if that is not possible, or panics.
fn print(rank: usize, error: &dyn Debug) {
    let print = || writeln!(io::stderr(), "rank {rank}: {error:?}");
    // A panic's value might panic when it is dropped.
    mem::forget(catch_unwind(AssertUnwindSafe(print)));
}

/// Ends the job, or this process if MPI is no longer running.
fn abort(code: i32) -> ! {
    // Some launchers discard what was printed right before.
    thread::sleep(Duration::from_millis(100));
    match Turn::take("run") {
        Ok(turn) => turn.abort(code),
        Err(_) => process::exit(code),
    }
}
