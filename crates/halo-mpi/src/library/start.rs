//! The start and the end of MPI, and whether it suits this crate if the program has started it.
#![expect(unsafe_code, reason = "calls MPI")]

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::{ptr, thread};

use runtime_core::{Error, ErrorKind, Result};

use super::comm::Comm;
use super::find::Launcher;
use super::mpi::{Mpi, call};
use super::turn::{IS_OURS, IS_STARTED, State, Turn};

/// Whether this crate has started MPI, and not the program.
pub(crate) fn is_ours() -> bool {
    IS_OURS.load(Ordering::Relaxed)
}

/// How long MPI may take to start: some libraries wait for all ranks, without a limit of their own.
const START_LIMIT: Duration = Duration::from_secs(600);

/// Ends the process if it is not dropped in time.
struct Watch(#[expect(dead_code, reason = "dropped to end the watch")] mpsc::Sender<()>);

impl Watch {
    fn begin() -> Self {
        let (sender, receiver) = mpsc::channel();
        let watch = move || {
            if receiver.recv_timeout(START_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!(
                    "MPI has not started after {START_LIMIT:?}: every process of the job must start it, as by `run`"
                );
                std::process::exit(1);
            }
        };
        // Without a thread nothing is watched.
        drop(thread::Builder::new().name("MPI start".to_owned()).spawn(watch));
        Self(sender)
    }
}

impl Turn {
    /// Opens MPI and starts it, unless the program has started it already.
    ///
    /// # Errors
    ///
    /// Those of opening. `Conflict` if MPI was started by this function before, has ended, or does not know the job
    /// that the launcher has started. `Unavailable` if calls from several threads are not supported.
    pub(crate) fn start() -> Result<Self> {
        const OPERATION: &str = "run";
        let turn = Self::open()?;
        let constants = &turn.mpi.constants;
        let conflict = |message: String| Error::new(ErrorKind::Conflict, OPERATION, message);
        if is_ours() || turn.state() == State::Ended {
            let message = "MPI can be started once in a process: put all work into one `run`";
            return Err(conflict(message.to_owned()));
        }
        if turn.state() == State::Running {
            turn.check_threads(OPERATION)?;
            turn.check_launcher(OPERATION)?;
            return Ok(turn);
        }
        let (mut provided, none) = (0, ptr::null_mut());
        let wanted = constants.thread_serialized;
        let watch = Watch::begin();
        let code = call!(turn.mpi, t => {
            // SAFETY: MPI has not been started, and no thread starts it while this one holds the turn.
            unsafe { (t.init_thread)(ptr::null_mut(), none, wanted, &mut provided) }
        });
        drop(watch);
        turn.outcome(OPERATION, code)?;
        IS_OURS.store(true, Ordering::Relaxed);
        IS_STARTED.store(true, Ordering::Relaxed);
        if provided < wanted {
            turn.end()?;
            let version = &turn.mpi.version;
            let message = format!("{version} does not take calls from several threads in turns");
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, message));
        }
        Comm::new(constants.comm_world).return_errors(&turn)?;
        if let Err(error) = turn.check_launcher(OPERATION) {
            turn.end()?;
            return Err(error);
        }
        Ok(turn)
    }

    /// Refuses to be one of many ranks that do not know of each other.
    pub(super) fn check_launcher(&self, operation: &'static str) -> Result<()> {
        let world = Comm::new(self.mpi.constants.comm_world);
        let Some(Launcher { name, variable, ranks }) = Launcher::of_job() else { return Ok(()) };
        if ranks < 2 || world.size(self)? > 1 {
            return Ok(());
        }
        let Mpi { path, version, .. } = self.mpi;
        let path = path.display();
        let message = format!(
            "{name} has started {ranks} ranks ({variable}), but each is alone for {path} ({version}): start them with the mpiexec of this library, or let HALO_MPI_LIBRARY name that of the launcher"
        );
        Err(Error::new(ErrorKind::Conflict, operation, message))
    }

    /// Checks that several threads may call MPI at the same time, since the program may do so.
    pub(super) fn check_threads(&self, operation: &'static str) -> Result<()> {
        let mut provided = 0;
        let code = call!(self.mpi, t => {
            // SAFETY: MPI is running.
            unsafe { (t.query_thread)(&mut provided) }
        });
        self.outcome(operation, code)?;
        if provided < self.mpi.constants.thread_multiple {
            let message = "MPI was started without MPI_THREAD_MULTIPLE, which calls beside the program's own need: start it with MPI_Init_thread (mpi4py does so by default)";
            return Err(Error::new(ErrorKind::Unavailable, operation, message));
        }
        Ok(())
    }

    /// Ends MPI if this crate has started it.
    pub(crate) fn end(&self) -> Result<()> {
        if !is_ours() || self.state() != State::Running {
            return Ok(());
        }
        IS_STARTED.store(false, Ordering::Relaxed);
        let code = call!(self.mpi, t => {
            // SAFETY: MPI is running, and was started here.
            unsafe { (t.finalize)() }
        });
        self.outcome("run", code)
    }
}
