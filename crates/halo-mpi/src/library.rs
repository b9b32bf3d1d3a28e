//! The MPI library: one call at a time, and its error codes.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use mpi::ffi;
use parking_lot::{Mutex, MutexGuard};
use runtime_core::{Error, ErrorKind, Result};

/// Held during every call: MPI is initialized only for threads that call it one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The right to call MPI, which is running.
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Turn {
    /// Waits for its turn.
    ///
    /// # Errors
    ///
    /// `PeerLost` if MPI is not running, or no longer running.
    pub(crate) fn take(operation: &'static str) -> Result<Self> {
        let turn = TURN.lock();
        let (mut started, mut ended) = (0, 0);
        // SAFETY: may be called at any time.
        let asked = unsafe { ffi::MPI_Initialized(&mut started) };
        // SAFETY: as above.
        let asked = asked | unsafe { ffi::MPI_Finalized(&mut ended) };
        if asked != SUCCESS || started == 0 || ended != 0 {
            return Err(Error::new(ErrorKind::PeerLost, operation, "MPI is not running"));
        }
        Ok(Self(turn))
    }
}

/// Runs `f`, which calls MPI by other means, while holding the turn.
pub(crate) fn in_turn<R>(f: impl FnOnce() -> R) -> R {
    let _turn = TURN.lock();
    f()
}

const SUCCESS: c_int = ffi::MPI_SUCCESS.cast_signed();

/// A communicator whose calls return errors.
#[derive(Clone, Copy)]
pub(crate) struct Handle(pub(crate) ffi::MPI_Comm);

// SAFETY: a handle identifies an object of the library, which any thread may use while it holds the turn.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Makes calls on the communicator return errors.
    ///
    /// # Safety
    ///
    /// `communicator` is a communicator, and remains valid while MPI runs.
    pub(crate) unsafe fn new(turn: &Turn, communicator: ffi::MPI_Comm) -> Result<Self> {
        // SAFETY: the caller has a communicator, and MPI is running.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(communicator, ffi::RSMPI_ERRORS_RETURN) };
        outcome(turn, "set_errhandler", code)?;
        Ok(Self(communicator))
    }

    /// The largest tag.
    pub(crate) fn max_tag(self, turn: &Turn) -> Result<u32> {
        const OPERATION: &str = "tag limit";
        let mut value = ptr::null_mut::<c_int>();
        let mut found = 0;
        // The constant is signed in some libraries and unsigned in others.
        let key = c_int::try_from(ffi::MPI_TAG_UB).unwrap_or_default();
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: the attribute is a pointer to an int; MPI writes the pointer to `value`.
        let code = unsafe { ffi::MPI_Comm_get_attr(self.0, key, place, &mut found) };
        outcome(turn, OPERATION, code)?;
        if found == 0 {
            // Some libraries attach it only to the communicator of all processes.
            // SAFETY: as above; MPI is initialised, so that communicator exists.
            let code =
                unsafe { ffi::MPI_Comm_get_attr(ffi::RSMPI_COMM_WORLD, key, place, &mut found) };
            outcome(turn, OPERATION, code)?;
        }
        if found == 0 || value.is_null() {
            return Err(Error::new(ErrorKind::Driver, OPERATION, "MPI reports no largest tag"));
        }
        // SAFETY: MPI set it to its own int, which lives as long as the communicator.
        let limit = unsafe { *value };
        u32::try_from(limit)
            .map_err(|_| Error::new(ErrorKind::Driver, OPERATION, format!("MPI reports {limit}")))
    }
}

/// A barrier that all ranks enter without blocking.
pub(crate) struct Barrier(ffi::MPI_Request);

impl Barrier {
    pub(crate) fn new(turn: &Turn, on: Handle) -> Result<Self> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the communicator lasts as long as MPI runs, which it does in this turn.
        let code = unsafe { ffi::MPI_Ibarrier(on.0, &mut request) };
        outcome(turn, "run", code)?;
        Ok(Self(request))
    }

    /// Whether all ranks have reached it.
    pub(crate) fn test(&mut self, turn: &Turn) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the request was started, or is null because it was found complete.
        let code = unsafe { ffi::MPI_Test(&mut self.0, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        outcome(turn, "run", code)?;
        Ok(done != 0)
    }
}

/// Converts the code of a call to its result.
pub(crate) fn outcome(_turn: &Turn, operation: &'static str, code: c_int) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(failure(operation, code)) }
}

#[cold]
fn failure(operation: &'static str, code: c_int) -> Error {
    const ROOM: usize = ffi::MPI_MAX_ERROR_STRING as usize;
    let mut text = [0 as c_char; ROOM];
    let mut length = 0;
    // SAFETY: the text has the size that MPI requires. The code came from a call during this turn.
    let described = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length) };
    let length =
        if described == SUCCESS { usize::try_from(length).unwrap_or(0).min(ROOM) } else { 0 };
    let text: Vec<u8> = text[..length].iter().map(|c| c.to_ne_bytes()[0]).collect();
    let text = String::from_utf8_lossy(&text);
    // For example `MPI_ERR_RANK: invalid rank`.
    let (name, words) = text.split_once(": ").unwrap_or(("MPI", &text));
    Error::new(ErrorKind::Driver, operation, words).with_driver(name.to_owned(), code.into())
}
