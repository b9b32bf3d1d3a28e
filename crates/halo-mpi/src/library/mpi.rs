//! A library that is open: its functions, its constants, and what it says of itself.
#![expect(unsafe_code, reason = "calls functions that may be called before MPI is started")]

use std::ffi::{c_char, c_int};
use std::fmt;
use std::path::PathBuf;

use backend_support::libloading::Library;
use parking_lot::Mutex;
use runtime_core::{Error, ErrorKind, Result};

use super::abi::{Constants, Kind, OPEN_MPI_OBJECTS};
use super::find::{Found, OPERATION};
use super::functions::Table;

/// A library, which stays loaded until the process ends.
pub(crate) struct Mpi {
    pub(crate) calls: Calls,
    pub(crate) constants: Constants,
    kind: Kind,
    pub(super) path: PathBuf,
    /// As the library describes itself.
    pub(super) version: String,
    /// The key of the attribute with which adopted communicators are marked.
    pub(super) keyval: Mutex<Option<c_int>>,
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
    pub(super) fn bind(Found { library, path }: Found) -> Result<Self> {
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
    let is_open_mpi = unsafe { library.get::<*const u8>(OPEN_MPI_OBJECTS[0]) }.is_ok();
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
pub(super) fn to_text(text: &[c_char], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text: Vec<u8> = text[..length].iter().map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&text).into_owned()
}
