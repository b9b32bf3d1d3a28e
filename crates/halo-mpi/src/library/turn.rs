//! The right to call MPI, one call at a time, and its error codes.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use runtime_core::{Error, ErrorKind, Result};

use super::abi::Handle;
use super::find::find;
use super::mpi::{Mpi, call, to_text};

const SUCCESS: c_int = 0;

/// Held during every call: MPI may be started for threads that call it one at a time. MPI calls back when a
/// communicator is freed, also in a call of ours.
static TURN: ReentrantMutex<()> = ReentrantMutex::new(());
/// The library, once it is open.
pub(super) static OPEN: OnceLock<&'static Mpi> = OnceLock::new();
/// Whether MPI was found running. If the program has started it, it may have ended since.
pub(super) static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this crate has started it.
pub(super) static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The right to call MPI, which is running.
pub(crate) struct Turn {
    pub(crate) mpi: &'static Mpi,
    _guard: ReentrantMutexGuard<'static, ()>,
}

/// How far MPI has come in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    New,
    Running,
    Ended,
}

impl Turn {
    /// Waits for its turn.
    ///
    /// # Errors
    ///
    /// `PeerLost` if MPI is not running, or no longer running.
    pub(crate) fn take(operation: &'static str) -> Result<Self> {
        let guard = TURN.lock();
        let not_running = || Error::new(ErrorKind::PeerLost, operation, "MPI is not running");
        let mpi = OPEN.get().ok_or_else(not_running)?;
        let turn = Self { mpi, _guard: guard };
        let is_running = IS_STARTED.load(Ordering::Relaxed)
            && (IS_OURS.load(Ordering::Relaxed) || turn.state() == State::Running);
        if is_running { Ok(turn) } else { Err(not_running()) }
    }

    /// Opens the library, and takes a turn, whether MPI is running or not.
    pub(super) fn open() -> Result<Self> {
        let guard = TURN.lock();
        let mpi = match OPEN.get() {
            Some(mpi) => mpi,
            // Another thread would need the turn.
            None => OPEN.get_or_init({
                let mpi = Mpi::bind(find()?)?;
                || Box::leak(Box::new(mpi))
            }),
        };
        Ok(Self { mpi, _guard: guard })
    }

    pub(super) fn state(&self) -> State {
        let (mut started, mut ended) = (0, 0);
        let asked = call!(self.mpi, t => {
            // SAFETY: may be called at any time.
            unsafe { (t.initialized)(&mut started) }
        });
        // SAFETY: as above.
        let asked = asked | call!(self.mpi, t => unsafe { (t.finalized)(&mut ended) });
        match (asked, started, ended) {
            (SUCCESS, 0, _) => State::New,
            (SUCCESS, _, 0) => {
                IS_STARTED.store(true, Ordering::Relaxed);
                State::Running
            }
            _ => State::Ended,
        }
    }

    /// Ends all processes of the job.
    pub(crate) fn abort(&self, exit_code: c_int) -> ! {
        let world = self.mpi.constants.comm_world;
        // SAFETY: MPI is running.
        call!(self.mpi, t => unsafe { (t.abort)(Handle::down(world), exit_code) });
        std::process::exit(exit_code)
    }

    /// Converts the code of a call to its result.
    pub(crate) fn outcome(&self, operation: &'static str, code: c_int) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(operation, code)) }
    }

    #[cold]
    fn failure(&self, operation: &'static str, code: c_int) -> Error {
        // More than any library needs.
        const ROOM: usize = 1024;
        let mut text = [0 as c_char; ROOM];
        let mut length = 0;
        let described = call!(self.mpi, t => {
            // SAFETY: the text has the size that MPI requires. The code came from a call during this turn.
            unsafe { (t.error_string)(code, text.as_mut_ptr(), &mut length) }
        });
        let text = to_text(&text, if described == SUCCESS { length } else { 0 });
        // For example `MPI_ERR_RANK: invalid rank`, or several lines.
        let named = text.split_once(": ").filter(|(name, _)| name.starts_with("MPI_ERR_"));
        let (name, words) = named.unwrap_or(("MPI", &text));
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Error::new(ErrorKind::Driver, operation, words).with_driver(name.to_owned(), code.into())
    }
}
