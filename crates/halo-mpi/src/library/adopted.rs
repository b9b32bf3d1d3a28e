//! Communicators that the program made. An attribute marks them, so that each has one duplicate, which ends with it.
#![expect(unsafe_code, reason = "calls MPI, which calls back")]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runtime_core::{Error, ErrorKind, Result};

use super::abi::{Handle, Raw};
use super::comm::{Comm, attribute, read, returning_errors};
use super::mpi::call;
use super::setup::{Place, Setup, wait};
use super::turn::{OPEN, State, Turn};

const OPERATION: &str = "adopt";

/// What belongs to the duplicate of a communicator.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

/// The attribute of an adopted communicator.
enum Mark {
    New,
    /// Not all ranks have adopted it.
    Begun(Setup),
    Adopted(Comm, Shared),
}

/// What belongs to a communicator of the program: what `make` made of its duplicate when it was adopted first.
/// Collective. After a timeout, another call continues.
///
/// # Errors
///
/// `PeerLost` if MPI is not running. `Unavailable` if several threads may not call it. `InvalidArgument` for no
/// communicator, or one between two groups. `Timeout`. The errors of MPI and of `make`.
///
/// # Safety
///
/// The address is null or that of a valid handle of a communicator. The communicator is not freed while another thread
/// uses what belongs to it.
pub(crate) unsafe fn adopt(
    address: *const c_void,
    timeout: Duration,
    make: impl Fn(Comm, Place) -> Result<Shared>,
) -> Result<Shared> {
    let turn = running()?;
    if address.is_null() {
        return Err(invalid("the address of the communicator is null"));
    }
    // SAFETY: the caller's.
    let raw = unsafe { read(&turn, address) };
    adopt_handle(turn, raw, timeout, make)
}

/// The same for the communicator of all processes, which the program has started.
pub(crate) fn adopt_world(
    timeout: Duration,
    make: impl Fn(Comm, Place) -> Result<Shared>,
) -> Result<Shared> {
    let turn = running()?;
    let world = turn.mpi.constants.comm_world;
    adopt_handle(turn, world, timeout, make)
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, OPERATION, message)
}

/// Opens the library of an MPI that the program has started for several threads.
fn running() -> Result<Turn> {
    let turn = Turn::open()?;
    let message = match turn.state() {
        State::Running => {
            turn.check_threads(OPERATION)?;
            turn.check_launcher(OPERATION)?;
            return Ok(turn);
        }
        State::New => "MPI is not running: the program has not started it",
        State::Ended => "MPI is not running: it has ended",
    };
    Err(Error::new(ErrorKind::PeerLost, OPERATION, message))
}

/// As [`adopt`]; the handle is valid.
fn adopt_handle(
    turn: Turn,
    raw: Raw,
    timeout: Duration,
    make: impl Fn(Comm, Place) -> Result<Shared>,
) -> Result<Shared> {
    if raw == turn.mpi.constants.comm_null {
        return Err(invalid("MPI_COMM_NULL"));
    }
    drop(turn);
    wait(OPERATION, timeout, || {
        // Other threads adopt this one or others in between.
        let turn = Turn::take(OPERATION)?;
        returning_errors(&turn, raw, || look(&turn, raw, &make))
    })
}

/// Goes on with the adoption of a communicator as far as the other ranks have come.
fn look(
    turn: &Turn,
    raw: Raw,
    make: impl Fn(Comm, Place) -> Result<Shared>,
) -> Result<Option<Shared>> {
    let key = key(turn)?;
    let mark = match attribute(turn, OPERATION, raw, key)? {
        Some(mark) => mark.cast::<Mark>(),
        None => {
            check_group(turn, raw)?;
            let mark = Box::into_raw(Box::new(Mark::New));
            let code = call!(turn.mpi, t => {
                // SAFETY: the communicator is valid, and the mark lives until `deleted` frees it.
                unsafe { (t.comm_set_attr)(Handle::down(raw), key, mark.cast()) }
            });
            turn.outcome(OPERATION, code)?;
            mark
        }
    };
    // SAFETY: it lives as long as the communicator, which no other thread frees. Only this thread has the turn.
    let mark = unsafe { &mut *mark };
    if let Mark::New = mark {
        *mark = Mark::Begun(Setup::begin(turn, OPERATION, raw)?);
    }
    if let Mark::Begun(setup) = mark {
        let Some((comm, place)) = setup.poll(turn)? else { return Ok(None) };
        let shared = make(comm.clone(), place)?;
        *mark = Mark::Adopted(comm, shared);
    }
    Ok(match mark {
        Mark::Adopted(_, shared) => Some(Arc::clone(shared)),
        Mark::New | Mark::Begun(_) => None,
    })
}

/// Refuses a communicator between two groups.
fn check_group(turn: &Turn, raw: Raw) -> Result<()> {
    let mut is_between = 0;
    let code = call!(turn.mpi, t => {
        // SAFETY: the communicator is valid.
        unsafe { (t.comm_test_inter)(Handle::down(raw), &mut is_between) }
    });
    turn.outcome(OPERATION, code)?;
    match is_between {
        0 => Ok(()),
        _ => Err(invalid("a communicator between two groups; one within a group is needed")),
    }
}

/// The key of marks.
fn key(turn: &Turn) -> Result<c_int> {
    let mut known = turn.mpi.keyval.lock();
    if let Some(key) = *known {
        return Ok(key);
    }
    let mut key = turn.mpi.constants.keyval_invalid;
    let state = ptr::null_mut();
    let code = call!(turn.mpi, t => {
        // SAFETY: both functions are those of the standard, for handles of the library's ABI.
        unsafe { (t.comm_create_keyval)(not_copied, deleted, &mut key, state) }
    });
    turn.outcome(OPERATION, code)?;
    Ok(*known.insert(key))
}

/// A duplicate that the program makes has no mark.
unsafe extern "C" fn not_copied<H: Handle>(
    _comm: H,
    _key: c_int,
    _state: *mut c_void,
    _mark: *mut c_void,
    _copy: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: MPI's own flag.
    unsafe { *is_copied = 0 };
    0
}

/// The owner frees a communicator: its duplicate ends with it.
unsafe extern "C" fn deleted<H: Handle>(
    _comm: H,
    _key: c_int,
    mark: *mut c_void,
    _state: *mut c_void,
) -> c_int {
    // SAFETY: the attribute with this key is a mark, and MPI no longer has it.
    let mark = unsafe { Box::from_raw(mark.cast::<Mark>()) };
    let Mark::Adopted(duplicate, _) = *mark else { return 0 };
    duplicate.is_freed.store(true, Ordering::Release);
    let Some(mpi) = OPEN.get() else { return 0 };
    call!(mpi, t => {
        // SAFETY: this crate has made it. Its messages go on until they are complete.
        unsafe { (t.comm_free)(&mut Handle::down(duplicate.raw)) }
    })
}
