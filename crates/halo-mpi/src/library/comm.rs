//! Communicators and requests of MPI.
#![expect(unsafe_code, reason = "calls MPI")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime_core::{Error, ErrorKind, Result};

use super::abi::{Constants, Handle, Raw};
use super::mpi::{Calls, call};
use super::turn::Turn;

/// A communicator of MPI.
#[derive(Clone)]
pub(crate) struct Comm {
    pub(super) raw: Raw,
    /// Whether it was freed, together with the communicator that it was made from.
    pub(super) is_freed: Arc<AtomicBool>,
}

impl Comm {
    pub(crate) fn new(raw: Raw) -> Self {
        Self { raw, is_freed: Arc::default() }
    }

    /// The handle, as a function takes it.
    ///
    /// # Errors
    ///
    /// `PeerLost` if the communicator was freed.
    pub(crate) fn raw(&self, operation: &'static str) -> Result<Raw> {
        if self.is_freed.load(Ordering::Acquire) {
            let message = "the communicator was freed by its owner";
            return Err(Error::new(ErrorKind::PeerLost, operation, message));
        }
        Ok(self.raw)
    }

    fn number(&self, turn: &Turn, ask: impl FnOnce(Raw, &mut c_int) -> c_int) -> Result<usize> {
        const OPERATION: &str = "communicator";
        let mut number = 0;
        let code = ask(self.raw(OPERATION)?, &mut number);
        turn.outcome(OPERATION, code)?;
        Ok(usize::try_from(number).unwrap_or(0))
    }

    pub(crate) fn rank(&self, turn: &Turn) -> Result<usize> {
        self.number(turn, |raw, rank| {
            // SAFETY: the communicator is valid, and MPI is running.
            call!(turn.mpi, t => unsafe { (t.comm_rank)(Handle::down(raw), rank) })
        })
    }

    pub(crate) fn size(&self, turn: &Turn) -> Result<usize> {
        self.number(turn, |raw, size| {
            // SAFETY: as above.
            call!(turn.mpi, t => unsafe { (t.comm_size)(Handle::down(raw), size) })
        })
    }

    /// Makes calls on the communicator return errors.
    pub(super) fn return_errors(&self, turn: &Turn) -> Result<()> {
        set_handler(turn, self.raw, turn.mpi.constants.errors_return)
    }

    /// The largest tag.
    pub(crate) fn max_tag(&self, turn: &Turn) -> Result<u32> {
        const OPERATION: &str = "tag limit";
        let Constants { comm_world, tag_ub, .. } = turn.mpi.constants;
        // Some libraries attach it only to the communicator of all processes.
        for raw in [self.raw(OPERATION)?, comm_world] {
            if let Some(value) = attribute(turn, OPERATION, raw, tag_ub)? {
                // SAFETY: MPI set it to its own int, which lives as long as the communicator.
                let limit = unsafe { *value.cast::<c_int>() };
                return u32::try_from(limit).map_err(|_| {
                    Error::new(ErrorKind::Driver, OPERATION, format!("MPI reports {limit}"))
                });
            }
        }
        Err(Error::new(ErrorKind::Driver, OPERATION, "MPI reports no largest tag"))
    }
}

fn set_handler(turn: &Turn, raw: Raw, handler: Raw) -> Result<()> {
    let code = call!(turn.mpi, t => {
        // SAFETY: the communicator and the handler are valid, and MPI is running.
        unsafe { (t.comm_set_errhandler)(Handle::down(raw), Handle::down(handler)) }
    });
    turn.outcome("set_errhandler", code)
}

/// Runs `f` while calls on a communicator of the program return errors. Otherwise its own handler decides, which
/// usually ends the job.
pub(super) fn returning_errors<R>(
    turn: &Turn,
    raw: Raw,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let errors_return = turn.mpi.constants.errors_return;
    let (handler, code) = call!(turn.mpi, t => {
        let mut handler = Handle::down(errors_return);
        // SAFETY: the communicator is valid, and MPI is running.
        let code = unsafe { (t.comm_get_errhandler)(Handle::down(raw), &mut handler) };
        (Handle::up(handler), code)
    });
    turn.outcome("get_errhandler", code)?;
    set_handler(turn, raw, errors_return)?;
    let result = f();
    set_handler(turn, raw, handler)?;
    let code = call!(turn.mpi, t => {
        // SAFETY: the call above has made this handle, which nothing else uses.
        unsafe { (t.errhandler_free)(&mut Handle::down(handler)) }
    });
    turn.outcome("free_errhandler", code)?;
    result
}

/// Reads a handle.
///
/// # Safety
///
/// The address is that of a handle of the library's ABI.
pub(super) unsafe fn read(turn: &Turn, address: *const c_void) -> Raw {
    match turn.mpi.calls {
        // SAFETY: the caller's.
        Calls::Numbers(_) => Handle::up(unsafe { address.cast::<c_int>().read() }),
        // SAFETY: the caller's.
        Calls::Pointers(_) => Handle::up(unsafe { address.cast::<usize>().read() }),
    }
}

/// The value of an attribute of a communicator, if it has one.
pub(super) fn attribute(
    turn: &Turn,
    operation: &'static str,
    raw: Raw,
    key: c_int,
) -> Result<Option<*mut c_void>> {
    let (mut value, mut found) = (ptr::null_mut::<c_void>(), 0);
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the communicator is valid; MPI writes a pointer to `value`.
    let code = call!(turn.mpi, t => unsafe {
        (t.comm_get_attr)(Handle::down(raw), key, place, &mut found)
    });
    turn.outcome(operation, code)?;
    Ok((found != 0 && !value.is_null()).then_some(value))
}

/// A request without a buffer, such as a barrier.
pub(crate) struct Pending {
    request: Raw,
    operation: &'static str,
}

impl Pending {
    /// A barrier that all ranks enter without blocking.
    pub(crate) fn barrier(turn: &Turn, on: &Comm) -> Result<Self> {
        const OPERATION: &str = "run";
        let raw = on.raw(OPERATION)?;
        let (request, code) = call!(turn.mpi, t => {
            let mut request = Handle::down(turn.mpi.constants.request_null);
            // SAFETY: the communicator is valid, and MPI is running.
            let code = unsafe { (t.ibarrier)(Handle::down(raw), &mut request) };
            (Handle::up(request), code)
        });
        turn.outcome(OPERATION, code)?;
        Ok(Self { request, operation: OPERATION })
    }

    /// Whether it is complete.
    pub(crate) fn test(&mut self, turn: &Turn) -> Result<bool> {
        test(turn, self.operation, &mut self.request)
    }
}

/// Whether a request is complete. It is null then.
pub(crate) fn test(turn: &Turn, operation: &'static str, request: &mut Raw) -> Result<bool> {
    let mut done = 0;
    let ignore = ptr::without_provenance_mut(turn.mpi.constants.status_ignore);
    let code = call!(turn.mpi, t => {
        let mut handle = Handle::down(*request);
        // SAFETY: the request was started, or is null because it was found complete.
        let code = unsafe { (t.test)(&mut handle, &mut done, ignore) };
        *request = Handle::up(handle);
        code
    });
    turn.outcome(operation, code)?;
    Ok(done != 0)
}
