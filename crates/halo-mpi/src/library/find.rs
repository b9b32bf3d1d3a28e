//! Finds the MPI library of the job: one that is loaded already, that of the launcher, or one with a usual name.
#![expect(unsafe_code, reason = "loads libraries and so runs their initialisers")]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use backend_support::libloading::Library;
use backend_support::libloading::os::unix;
use backend_support::{file_of, named, reason};
use runtime_core::{Error, ErrorKind, Result};

/// What fails if there is no library.
pub(super) const OPERATION: &str = "open MPI";

/// The variable that names a library, which is then used unless another one is loaded already.
const VARIABLE: &str = "HALO_MPI_LIBRARY";

/// Every MPI library has it. Tools that intercept calls of MPI define no functions with this prefix.
const OF_MPI: &str = "PMPI_Init_thread";

/// An MPI library that is loaded.
pub(super) struct Found {
    pub(super) library: Library,
    /// The file, as far as the system reports it.
    pub(super) path: PathBuf,
}

impl Found {
    fn of(library: impl Into<Library>, name: &Path) -> Option<Self> {
        let library = library.into();
        // SAFETY: the function is not called.
        unsafe { library.get::<unsafe extern "C" fn()>(OF_MPI) }.ok()?;
        let path = file_of(&library, OF_MPI).unwrap_or_else(|| name.to_owned());
        Some(Self { library, path })
    }

    /// Loads a library. Open MPI's components need its symbols.
    fn load(name: &Path) -> Result<Self, String> {
        // SAFETY: the name is that of an MPI library, or was chosen by the user; its initialisers may run.
        let loaded = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_GLOBAL) };
        let library = loaded.map_err(|error| reason(&error))?;
        Self::of(library, name)
            .ok_or_else(|| format!("{}: no MPI library: it lacks {OF_MPI}", name.display()))
    }
}

/// Finds the library.
///
/// # Errors
///
/// `Unavailable` with what was tried. `Conflict` if two MPI libraries are loaded, or if another one is loaded than the
/// variable names.
pub(super) fn find() -> Result<Found> {
    let mut loaded = loaded();
    if loaded.len() > 1 {
        let paths: Vec<_> = loaded.iter().map(|found| found.path.display().to_string()).collect();
        let message = format!("several MPI libraries are loaded: {}", paths.join(", "));
        return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
    }
    let chosen = named(VARIABLE);
    if let (Some(found), Some(chosen)) = (loaded.first(), &chosen)
        && loaded_as(Path::new(chosen)).is_none_or(|named| !is_same(&found.path, &named.path))
    {
        let path = found.path.display();
        let message = format!("{VARIABLE} is {chosen}, and {path} is loaded already: unset it");
        return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
    }
    if let Some(found) = loaded.pop() {
        return Ok(found);
    }
    if let Some(chosen) = chosen {
        return Found::load(Path::new(&chosen)).map_err(|why| {
            Error::new(ErrorKind::Unavailable, OPERATION, format!("{VARIABLE}={chosen}: {why}"))
        });
    }
    let mut tried = Vec::new();
    for name in candidates() {
        match Found::load(&name) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push(why),
        }
    }
    let message = format!(
        "no MPI library: install Open MPI, MPICH or Intel MPI, or let {VARIABLE} name the file: {}",
        tried.join("; ")
    );
    Err(Error::new(ErrorKind::Unavailable, OPERATION, message))
}

/// Whether two paths are of one file.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// The MPI libraries of this process, each once: that of the program, and those of modules such as mpi4py.
fn loaded() -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    let program = Found::of(unix::Library::this(), Path::new("the program"));
    let modules = objects().into_iter().filter_map(|path| loaded_as(&path));
    for found in program.into_iter().chain(modules) {
        if !all.iter().any(|known| is_same(&known.path, &found.path)) {
            all.push(found);
        }
    }
    all
}

/// The MPI library of a file, if that is loaded.
fn loaded_as(name: &Path) -> Option<Found> {
    // The program itself has no name.
    if name.as_os_str().is_empty() {
        return None;
    }
    // SAFETY: the library is loaded, or nothing happens, so no initialisers run.
    let library = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | libc::RTLD_NOLOAD) };
    Found::of(library.ok()?, name)
}

/// The files of the shared objects of this process.
fn objects() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" fn add(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            paths: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader passes a valid description.
            let name = unsafe { (*info).dlpi_name };
            // SAFETY: the name ends with a NUL.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: it is the vector below, which nothing else uses during the call.
            let paths = unsafe { &mut *paths.cast::<Vec<PathBuf>>() };
            paths.push(OsStr::from_bytes(name.to_bytes()).into());
            0
        }
        // SAFETY: the function agrees with the declaration, and the vector outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
    }
    paths
}

/// A program that starts the ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    /// The variable with the number of ranks.
    pub(super) variable: &'static str,
    pub(super) ranks: usize,
}

const LAUNCHERS: [(&str, &str); 2] =
    [("Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE"), ("MPICH's or Intel's mpiexec", "PMI_SIZE")];

impl Launcher {
    /// That of this process, if its environment says so.
    pub(super) fn of_job() -> Option<Self> {
        LAUNCHERS.into_iter().find_map(|(name, variable)| {
            let ranks = env::var(variable).ok()?.parse().ok()?;
            Some(Self { name, variable, ranks })
        })
    }
}

const OPEN_MPI: &str = "libmpi.so.40";
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
const STANDARD: &str = "libmpi_abi.so.1";

/// The libraries to try, in order.
fn candidates() -> Vec<PathBuf> {
    let is_open_mpi = env::var_os(LAUNCHERS[0].1).is_some();
    let mut names = vec![STANDARD];
    names.extend(MPICH);
    if is_open_mpi || Launcher::of_job().is_none() {
        names.insert(usize::from(!is_open_mpi), OPEN_MPI);
    } else {
        names.push(OPEN_MPI);
    }
    // Beside the launcher is its own library.
    let folders = launchers().into_iter().filter_map(|launcher| {
        let prefix = launcher.parent()?.parent()?.to_owned();
        Some(["lib", "lib64"].map(|folder| prefix.join(folder)))
    });
    let root = env::var_os("I_MPI_ROOT").map(|root| [Path::new(&root).join("lib"), root.into()]);
    let folders: Vec<PathBuf> = folders.chain(root).flatten().collect();
    let beside = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let mut all: Vec<PathBuf> = beside.filter(|file| file.is_file()).collect();
    all.extend(names.iter().map(PathBuf::from));
    all
}

/// The launchers among the ancestors of this process, the nearest first.
fn launchers() -> Vec<PathBuf> {
    const NAMES: [&str; 9] = [
        "hydra_pmi_proxy",
        "mpiexec",
        "mpiexec.hydra",
        "mpirun",
        "orted",
        "orterun",
        "prte",
        "prted",
        "prterun",
    ];
    // A script or a debugger may be in between.
    const GENERATIONS: usize = 8;
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let ancestors = std::iter::successors(parent(process::id()), |pid| parent(*pid));
    let programs = ancestors
        .take(GENERATIONS)
        .filter_map(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok());
    let is_launcher = |program: &PathBuf| {
        program.file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
    };
    programs.filter(is_launcher).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_mpi_is_refused() {
        let why = Found::load(Path::new("libc.so.6")).err().unwrap();
        assert!(why.contains("libc.so.6") && why.contains(OF_MPI), "{why}");
        let why = Found::load(Path::new("libnowhere.so.3")).err().unwrap();
        assert!(why.contains("libnowhere.so.3"), "{why}");
    }

    #[test]
    fn this_program_has_shared_objects_and_no_mpi() {
        assert!(objects().iter().any(|path| path.to_string_lossy().contains("libc.so")));
        assert!(loaded().is_empty());
    }
}
