//! Star forests by PETSc, a C program that is compiled when the benchmark runs.
#![expect(unsafe_code, reason = "calls C")]

use std::env;
use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

use super::case::{COMPONENTS, Item, Values, Way};

/// The variable with the compiled program, or with why there is none.
const VARIABLE: &str = "HALO_BENCH_PETSC";
const LEFT_OUT: &str = "PETSc left out: ";

/// Compiles the program with `mpicc` into a folder, for the ranks of a job.
pub(crate) fn prepare(folder: &Path, job: &mut Command) {
    let library = folder.join("petsc.so");
    match compile(&library) {
        Ok(()) => job.env(VARIABLE, library),
        Err(why) => job.env(VARIABLE, format!("{LEFT_OUT}{why}")),
    };
    // Rust programs handle signals themselves.
    job.env("PETSC_OPTIONS", "-no_signal_handler");
}

/// Compiles the program, or returns what is not installed.
fn compile(to: &Path) -> Result<(), String> {
    let output = |command: &mut Command| {
        let program = command.get_program().display().to_string();
        let output = command.output().map_err(|error| format!("{program}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(first_error(&String::from_utf8_lossy(&output.stderr))),
        }
    };
    let found = output(Command::new("pkg-config").args(["--cflags", "--libs", "PETSc"]))?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/halo/forest/petsc.c");
    let mut mpicc = Command::new("mpicc");
    mpicc.args(["-O2", "-shared", "-fPIC", source, "-o"]).arg(to).args(found.split_whitespace());
    output(&mut mpicc).map(drop)
}

fn first_error(stderr: &str) -> String {
    let error = stderr.lines().find(|line| line.contains("error")).or(stderr.lines().next());
    error.unwrap_or("failed").to_owned()
}

/// Prints the reason for the process that started this one.
pub(super) fn leave_out(why: &str) {
    println!("{LEFT_OUT}{why}");
}

/// Parses a line of a job's output.
pub(super) fn why_left_out(line: &str) -> Option<&str> {
    line.starts_with(LEFT_OUT).then_some(line)
}

/// PETSc, which runs until this is dropped.
pub(super) struct Petsc {
    end: unsafe extern "C" fn(),
    create: unsafe extern "C" fn(
        c_int,
        c_int,
        c_int,
        *const c_uint,
        *const c_uint,
        c_int,
    ) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    broadcast: unsafe extern "C" fn(*mut c_void, *const f64, *mut f64),
    sum: unsafe extern "C" fn(*mut c_void, *const f64, *mut f64),
    /// They are those of this library.
    _library: Library,
}

impl Petsc {
    /// Starts it on all ranks of the job, which have started MPI, or returns why not.
    pub(super) fn start() -> Result<Self, String> {
        let path = PathBuf::from(env::var_os(VARIABLE).expect("the compiled program"));
        if let Some(why) = path.to_str().and_then(|path| path.strip_prefix(LEFT_OUT)) {
            return Err(why.to_owned());
        }
        // SAFETY: it was compiled from the C file beside this one.
        let library = unsafe { Library::new(path) }.expect("the compiled program");
        macro_rules! bind {
            ($symbol:literal) => {
                // SAFETY: the types are those of the C file.
                *unsafe { library.get($symbol) }.expect($symbol)
            };
        }
        let start: unsafe extern "C" fn() = bind!("forest_start");
        // SAFETY: MPI is running.
        unsafe { start() };
        Ok(Self {
            end: bind!("forest_end"),
            create: bind!("forest_new"),
            free: bind!("forest_free"),
            broadcast: bind!("forest_broadcast"),
            sum: bind!("forest_sum"),
            _library: library,
        })
    }

    /// The forest of this rank.
    pub(super) fn forest(&self, values: &Values) -> Theirs<'_> {
        let int = |value: usize| c_int::try_from(value).expect("a number that PETSc takes");
        let (leaves, roots) = (values.case.leaves(), values.case.roots(values.rank));
        let (items, other) = (int(values.size().roots), int(1 - values.rank));
        let (at, to, count) = (leaves.as_ptr(), roots.as_ptr(), int(leaves.len()));
        // SAFETY: both lists have this length, and are copied.
        let forest = unsafe { (self.create)(items, int(COMPONENTS), count, at, to, other) };
        Theirs { petsc: self, forest }
    }
}

impl Drop for Petsc {
    fn drop(&mut self) {
        // SAFETY: it was started, and no forest is left.
        unsafe { (self.end)() };
    }
}

pub(super) struct Theirs<'a> {
    petsc: &'a Petsc,
    forest: *mut c_void,
}

impl Theirs<'_> {
    pub(super) fn exchange(&self, values: &mut Values) {
        let (way, pointer) = (values.case.way, |items: &mut [Item]| items.as_mut_ptr().cast());
        let [roots, leaves] = values.slices().map(pointer);
        match way {
            // SAFETY: the arrays have as many items as the forest, and are borrowed.
            Way::Broadcast => unsafe { (self.petsc.broadcast)(self.forest, roots, leaves) },
            // SAFETY: as above.
            Way::Sum => unsafe { (self.petsc.sum)(self.forest, leaves, roots) },
        }
    }
}

impl Drop for Theirs<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made, and is not used any more.
        unsafe { (self.petsc.free)(self.forest) };
    }
}
