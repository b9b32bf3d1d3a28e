//! The MPI calls of the rivals, a C program that is compiled for the MPI of the job.
#![expect(unsafe_code, reason = "calls C")]

use std::env;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

/// The variable with the compiled program, for the ranks of a job.
pub(crate) const VARIABLE: &str = "HALO_BENCH_CALLS";

/// Compiles the program with `mpicc`, or returns why not.
pub(crate) fn compile(to: &Path) -> Result<(), String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/halo/mpi/calls.c");
    let mut command = Command::new("mpicc");
    command.args(["-O2", "-shared", "-fPIC", "-o"]).arg(to).arg(source);
    let output = command.output().map_err(|error| format!("mpicc: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("mpicc: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The functions of the program.
struct Calls {
    barrier: unsafe extern "C" fn(),
    subarray: unsafe extern "C" fn(*const c_int, *const c_int, *const c_int) -> *mut c_void,
    double: unsafe extern "C" fn() -> *mut c_void,
    requests: unsafe extern "C" fn() -> *mut c_void,
    send: Post,
    receive: Post,
    wait_any: unsafe extern "C" fn(*mut c_void) -> c_int,
    wait_all: unsafe extern "C" fn(*mut c_void),
    ping_pong: PingPong,
    persistent: PingPong,
}

type Post = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void, c_int, c_int);
type PingPong = unsafe extern "C" fn(*mut c_char, c_int, c_int, c_int);

/// Those of this rank, which has started MPI.
fn calls() -> &'static Calls {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    CALLS.get_or_init(|| {
        let path = env::var_os(VARIABLE).expect("the compiled program");
        // SAFETY: it was compiled from the C file beside this one.
        let library = unsafe { Library::new(path) }.expect("the compiled program");
        let library = Box::leak(Box::new(library));
        macro_rules! bind {
            ($($name:ident: $symbol:literal),*) => {
                // SAFETY: the types are those of the C file.
                Calls { $($name: *unsafe { library.get($symbol) }.expect($symbol)),* }
            };
        }
        bind!(
            barrier: "calls_barrier",
            subarray: "calls_subarray",
            double: "calls_double",
            requests: "calls_requests",
            send: "calls_send",
            receive: "calls_receive",
            wait_any: "calls_wait_any",
            wait_all: "calls_wait_all",
            ping_pong: "calls_ping_pong",
            persistent: "calls_persistent"
        )
    })
}

/// An MPI datatype of elements. It is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Datatype(*mut c_void);

impl Datatype {
    /// f64.
    pub(crate) fn double() -> Self {
        // SAFETY: MPI is running.
        Self(unsafe { (calls().double)() })
    }

    /// A box in an array of `f64`.
    pub(crate) fn subarray(sizes: [usize; 3], extents: [usize; 3], starts: [usize; 3]) -> Self {
        let [sizes, extents, starts] = [sizes, extents, starts].map(|dims| dims.map(int));
        // SAFETY: there are as many sizes, extents and starts as dimensions.
        Self(unsafe { (calls().subarray)(sizes.as_ptr(), extents.as_ptr(), starts.as_ptr()) })
    }
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("a number that MPI takes")
}

/// One end of a message.
pub(crate) struct End {
    pub(crate) address: *mut f64,
    pub(crate) count: usize,
    pub(crate) datatype: Datatype,
    pub(crate) peer: usize,
    pub(crate) tag: usize,
}

/// Messages in transit between the ranks of the job: at most 1024.
pub(crate) struct Requests(*mut c_void);

impl Default for Requests {
    fn default() -> Self {
        // SAFETY: it only allocates.
        Self(unsafe { (calls().requests)() })
    }
}

impl Requests {
    /// # Safety
    ///
    /// The elements are valid, and no code changes them, until the request is complete.
    pub(crate) unsafe fn send(&mut self, end: &End) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.post(calls().send, end) };
    }

    /// # Safety
    ///
    /// The elements are valid, and no code uses them, until the request is complete.
    pub(crate) unsafe fn receive(&mut self, end: &End) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.post(calls().receive, end) };
    }

    /// # Safety
    ///
    /// As that of `post`.
    unsafe fn post(&mut self, post: Post, end: &End) {
        let (count, peer, tag) = (int(end.count), int(end.peer), int(end.tag));
        // SAFETY: guaranteed by the caller.
        unsafe { post(self.0, end.address.cast(), count, end.datatype.0, peer, tag) };
    }

    /// Blocks until one request is complete. Returns its number, or `None` if all were complete before.
    pub(crate) fn wait_any(&mut self) -> Option<usize> {
        // SAFETY: every request was started, or is null because it was found complete.
        let index = unsafe { (calls().wait_any)(self.0) };
        // MPI_UNDEFINED is negative.
        usize::try_from(index).ok()
    }

    /// Blocks until all requests are complete, and removes them.
    pub(crate) fn wait_all(&mut self) {
        // SAFETY: as in `wait_any`.
        unsafe { (calls().wait_all)(self.0) };
    }
}

/// Blocks until all ranks of the job have called it.
pub(crate) fn barrier() {
    // SAFETY: MPI is running.
    unsafe { (calls().barrier)() };
}

/// Sends the bytes to the other of two ranks and back, so many times: with requests that are made once, or each time.
pub(crate) fn ping_pong(bytes: &mut [u8], rank: usize, times: u32, is_persistent: bool) {
    let calls = calls();
    let run = if is_persistent { calls.persistent } else { calls.ping_pong };
    let times = c_int::try_from(times).expect("few");
    // SAFETY: the bytes are valid for the call, which completes all its requests.
    unsafe { run(bytes.as_mut_ptr().cast(), int(bytes.len()), int(rank), times) };
}
