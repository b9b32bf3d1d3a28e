//! The MPI library: one call at a time, and its error codes.
#![expect(unsafe_code, reason = "calls MPI")]

mod abi;
mod adopted;
mod find;
mod functions;
mod setup;

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

use backend_support::libloading::Library;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};
use runtime_core::{Error, ErrorKind, Result};

use self::abi::{Constants, Kind};
pub(crate) use self::abi::{Handle, Raw, Status};
pub(crate) use self::adopted::adopt;
use self::find::{Found, Launcher, OPERATION, find};
use self::functions::Table;
pub(crate) use self::setup::{Place, Setup};

/// A library, which stays loaded until the process ends.
pub(crate) struct Mpi {
    pub(crate) calls: Calls,
    pub(crate) constants: Constants,
    kind: Kind,
    path: PathBuf,
    /// As the library describes itself.
    version: String,
    /// The key of the attribute with which adopted communicators are marked.
    keyval: Mutex<Option<c_int>>,
}

/// The functions, with handles of one size.
pub(crate) enum Calls {
    Numbers(Table<c_int>),
    Pointers(Table<usize>),
}

/// Evaluates an expression with the functions of a library.
macro_rules! call {
    ($mpi:expr, $table:ident => $result:expr) => {
        match &$mpi.calls {
            $crate::library::Calls::Numbers($table) => $result,
            $crate::library::Calls::Pointers($table) => $result,
        }
    };
}
pub(crate) use call;

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, with {}", self.path.display(), self.version, self.kind)
    }
}

impl Mpi {
    /// Binds the functions of a library.
    ///
    /// # Errors
    ///
    /// `Unavailable` for an unknown ABI, and for a library that lacks a function.
    fn bind(Found { library, path }: Found) -> Result<Self> {
        let about = |error: Error| error.about(path.display());
        let unavailable =
            |message: String| about(Error::new(ErrorKind::Unavailable, OPERATION, message));
        let version = version(&library).map_err(about)?;
        let Some(kind) = kind(&library, &version) else {
            return Err(unavailable(format!(
                "its ABI is none of Open MPI's, MPICH's and the standard one: {version}"
            )));
        };
        let constants = Constants::of(kind, &library).map_err(about)?;
        let lacks = |name| unavailable(format!("{version} lacks the function {name}"));
        let calls = match kind {
            Kind::Mpich => Calls::Numbers(Table::bind(&library).map_err(lacks)?),
            Kind::OpenMpi | Kind::Standard => {
                Calls::Pointers(Table::bind(&library).map_err(lacks)?)
            }
        };
        // MPI may run until the process ends.
        std::mem::forget(library);
        Ok(Self { calls, constants, kind, path, version, keyval: Mutex::new(None) })
    }

    /// Whether the library says that it takes addresses of the device memory of this interface.
    pub(crate) fn takes_memory_of(&self, api: &str) -> bool {
        let asked = call!(self, t => match api {
            "cuda" => [t.cuda_support, None],
            "hip" => [t.hip_support, t.rocm_support],
            _ => [None, None],
        });
        // SAFETY: it has no arguments, and may be called at any time.
        asked.into_iter().flatten().any(|ask| unsafe { ask() } == 1)
    }
}

/// As the library describes itself, on one line.
fn version(library: &Library) -> Result<String> {
    type Ask = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // That of MPICH, which has the longest.
    const ROOM: usize = 8192;
    // SAFETY: the declaration is that of the standard, the same in all ABIs.
    let ask = unsafe { library.get::<Ask>("MPI_Get_library_version") }.map_err(|_| {
        let message = "it lacks the function MPI_Get_library_version";
        Error::new(ErrorKind::Unavailable, OPERATION, message)
    })?;
    let mut text = vec![0; ROOM];
    let mut length = 0;
    // SAFETY: may be called before MPI is started. The text has the size that MPI requires.
    unsafe { ask(text.as_mut_ptr(), &mut length) };
    let text = to_text(&text, length);
    // MPICH describes its build on further lines.
    let words = text.split(['\n', '\r', '\t', '\0']).map(str::trim).filter(|word| !word.is_empty());
    Ok(words.take(2).collect::<Vec<_>>().join(" "))
}

/// The ABI of a library. Symbols mislead: MPICH 5 has the functions of the standard ABI also in the library with its
/// own.
fn kind(library: &Library, version: &str) -> Option<Kind> {
    type Ask = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: the declaration is that of the standard, the same in all ABIs.
    if let Ok(ask) = unsafe { library.get::<Ask>("MPI_Abi_get_version") } {
        // SAFETY: may be called before MPI is started.
        unsafe { ask(&mut major, &mut minor) };
    }
    // SAFETY: the object is not used.
    let is_open_mpi = unsafe { library.get::<*const u8>(abi::OPEN_MPI_OBJECTS[0]) }.is_ok();
    if major >= 1 {
        Some(Kind::Standard)
    } else if is_open_mpi {
        Some(Kind::OpenMpi)
    } else if ["MPICH", "Intel(R) MPI", "MVAPICH"].iter().any(|name| version.contains(name)) {
        Some(Kind::Mpich)
    } else {
        None
    }
}

/// A text of this length, or the whole array.
fn to_text(text: &[c_char], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text: Vec<u8> = text[..length].iter().map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&text).into_owned()
}

/// Held during every call: MPI may be started for threads that call it one at a time. MPI calls back when a communicator
/// is freed, also in a call of ours.
static TURN: ReentrantMutex<()> = ReentrantMutex::new(());
/// The library, once it is open.
static OPEN: OnceLock<&'static Mpi> = OnceLock::new();
/// Whether MPI was found running. If the program has started it, it may have ended since.
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// Whether this crate has started it.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The right to call MPI, which is running.
pub(crate) struct Turn {
    pub(crate) mpi: &'static Mpi,
    _guard: ReentrantMutexGuard<'static, ()>,
}

/// How far MPI has come in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    fn open() -> Result<Self> {
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

    fn state(&self) -> State {
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
        if IS_OURS.load(Ordering::Relaxed) || turn.state() == State::Ended {
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
    fn check_threads(&self) -> Result<()> {
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
        if !IS_OURS.load(Ordering::Relaxed) || self.state() != State::Running {
            return Ok(());
        }
        IS_STARTED.store(false, Ordering::Relaxed);
        let code = call!(self.mpi, t => {
            // SAFETY: MPI is running, and was started here.
            unsafe { (t.finalize)() }
        });
        self.outcome("run", code)
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
        // For example `MPI_ERR_RANK: invalid rank`.
        let (name, words) = text.split_once(": ").unwrap_or(("MPI", &text));
        Error::new(ErrorKind::Driver, operation, words).with_driver(name.to_owned(), code.into())
    }
}

const SUCCESS: c_int = 0;

/// A communicator of MPI.
#[derive(Clone)]
pub(crate) struct Comm {
    raw: Raw,
    /// Whether it was freed, together with the communicator that it was made from.
    is_freed: Arc<AtomicBool>,
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
    fn return_errors(&self, turn: &Turn) -> Result<()> {
        let (raw, handler) = (self.raw, turn.mpi.constants.errors_return);
        // SAFETY: the communicator is valid, and MPI is running.
        let code = call!(turn.mpi, t => unsafe {
            (t.comm_set_errhandler)(Handle::down(raw), Handle::down(handler))
        });
        turn.outcome("set_errhandler", code)
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

/// Reads a handle.
///
/// # Safety
///
/// The address is that of a handle of the library's ABI.
unsafe fn read(turn: &Turn, address: *const c_void) -> Raw {
    match turn.mpi.calls {
        // SAFETY: the caller's.
        Calls::Numbers(_) => Handle::up(unsafe { address.cast::<c_int>().read() }),
        // SAFETY: the caller's.
        Calls::Pointers(_) => Handle::up(unsafe { address.cast::<usize>().read() }),
    }
}

/// The value of an attribute of a communicator, if it has one.
fn attribute(
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
