//! Communicators that the program made. An attribute marks them, so that each has one duplicate, which ends with it.
#![expect(unsafe_code, reason = "calls MPI, which calls back")]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtime_core::{Error, ErrorKind, Result};

use super::abi::Handle;
use super::comm::{Comm, attribute, read};
use super::mpi::call;
use super::setup::{Place, Setup};
use super::turn::{OPEN, State, Turn};

const OPERATION: &str = "adopt";

/// What belongs to the duplicate of a communicator.
type Shared = Arc<dyn Any + Send + Sync>;

/// The attribute of an adopted communicator.
enum Mark {
    /// Not all ranks have adopted it.
    Begun(Setup),
    Adopted(Comm, Shared),
}

/// Held by the thread that adopts a communicator.
static ADOPTING: Mutex<()> = Mutex::new(());

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
    make: impl FnOnce(Comm, Place) -> Result<Shared>,
) -> Result<Shared> {
    let invalid =
        |message: &'static str| Error::new(ErrorKind::InvalidArgument, OPERATION, message);
    let deadline = Instant::now() + timeout;
    let Some(_adopting) = ADOPTING.try_lock_for(timeout) else {
        let message = format!("another thread has adopted a communicator for {timeout:?}");
        return Err(Error::new(ErrorKind::Timeout, OPERATION, message));
    };
    let turn = Turn::open()?;
    if turn.state() != State::Running {
        return Err(Error::new(ErrorKind::PeerLost, OPERATION, "MPI is not running"));
    }
    turn.check_threads()?;
    if address.is_null() {
        return Err(invalid("the address of the communicator is null"));
    }
    // SAFETY: the caller's.
    let raw = unsafe { read(&turn, address) };
    if raw == turn.mpi.constants.comm_null {
        return Err(invalid("MPI_COMM_NULL"));
    }
    let mut is_between = 0;
    let code = call!(turn.mpi, t => {
        // SAFETY: the communicator is valid, as the caller says.
        unsafe { (t.comm_test_inter)(Handle::down(raw), &mut is_between) }
    });
    turn.outcome(OPERATION, code)?;
    if is_between != 0 {
        return Err(invalid("a communicator between two groups; one within a group is needed"));
    }
    let key = key(&turn)?;
    let mark = match attribute(&turn, OPERATION, raw, key)? {
        Some(mark) => mark.cast::<Mark>(),
        None => {
            let mark = Mark::Begun(Setup::begin(&turn, OPERATION, raw)?);
            let mark = Box::into_raw(Box::new(mark));
            let code = call!(turn.mpi, t => {
                // SAFETY: the communicator is valid, and the mark lives until `deleted` frees it.
                unsafe { (t.comm_set_attr)(Handle::down(raw), key, mark.cast()) }
            });
            turn.outcome(OPERATION, code)?;
            mark
        }
    };
    drop(turn);
    // SAFETY: it lives as long as the communicator, which no other thread frees. Only this thread adopts.
    let mark = unsafe { &mut *mark };
    match mark {
        Mark::Adopted(_, shared) => Ok(Arc::clone(shared)),
        Mark::Begun(setup) => {
            let (comm, place) = setup.finish(deadline.saturating_duration_since(Instant::now()))?;
            let shared = make(comm.clone(), place)?;
            *mark = Mark::Adopted(comm, Arc::clone(&shared));
            Ok(shared)
        }
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
