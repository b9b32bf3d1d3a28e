//! The start and the end of MPI, and whether it suits this crate if the program has started it.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ptr;
use std::sync::atomic::Ordering;

use runtime_core::{Error, ErrorKind, Result};

use super::comm::Comm;
use super::find::Launcher;
use super::mpi::{Mpi, call};
use super::turn::{IS_OURS, IS_STARTED, State, Turn};

/// Whether this crate has started MPI, and not the program.
pub(crate) fn is_ours() -> bool {
    IS_OURS.load(Ordering::Relaxed)
}

impl Turn {
    /// Opens MPI and starts it, unless the program has started it already.
    ///
    /// # Errors
    ///
    /// Those of opening. `Conflict` if MPI was started by this function before, has ended, or does not know the job that
    /// the launcher has started. `Unavailable` if calls from several threads are not supported.
    pub(crate) fn start() -> Result<Self> {
        const OPERATION: &str = "run";
        let turn = Self::open()?;
        let constants = &turn.mpi.constants;
        let conflict = |message: String| Error::new(ErrorKind::Conflict, OPERATION, message);
        if is_ours() || turn.state() == State::Ended {
            return Err(conflict("MPI was started before".to_owned()));
        }
        if turn.state() == State::Running {
            turn.check_threads()?;
            return Ok(turn);
        }
        let (mut provided, none) = (0, ptr::null_mut());
        let wanted = constants.thread_serialized;
        let code = call!(turn.mpi, t => {
            // SAFETY: MPI has not been started, and no thread starts it while this one holds the turn.
            unsafe { (t.init_thread)(ptr::null_mut(), none, wanted, &mut provided) }
        });
        turn.outcome(OPERATION, code)?;
        IS_OURS.store(true, Ordering::Relaxed);
        IS_STARTED.store(true, Ordering::Relaxed);
        if provided < wanted {
            turn.end()?;
            let version = &turn.mpi.version;
            let message = format!("{version} does not take calls from several threads in turns");
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, message));
        }
        let world = Comm::new(constants.comm_world);
        world.return_errors(&turn)?;
        if let Some(Launcher { name, variable, ranks }) = Launcher::of_job()
            && world.size(&turn)? == 1
            && ranks > 1
        {
            let Mpi { path, version, .. } = turn.mpi;
            let path = path.display();
            turn.end()?;
            return Err(conflict(format!(
                "{name} has started {ranks} ranks ({variable}), but each is alone for {path} ({version}): start them with the mpiexec of this library, or let HALO_MPI_LIBRARY name that of the launcher"
            )));
        }
        Ok(turn)
    }

    /// Checks that several threads may call MPI at the same time, since the program may do so.
    pub(super) fn check_threads(&self) -> Result<()> {
        let mut provided = 0;
        let code = call!(self.mpi, t => {
            // SAFETY: MPI is running.
            unsafe { (t.query_thread)(&mut provided) }
        });
        self.outcome("query_thread", code)?;
        if provided < self.mpi.constants.thread_multiple {
            let message = "MPI was started without MPI_THREAD_MULTIPLE, so this crate may not call it beside other code of the program";
            return Err(Error::new(ErrorKind::Unavailable, "query_thread", message));
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
