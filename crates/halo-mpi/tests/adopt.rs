//! Communicators that the program made, in jobs whose ranks start MPI themselves.
//!
//! Each test is also the program of its ranks, as in `mpi.rs`.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "calls MPI as a program in C does")]

mod launcher;

use std::env;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use halo::communicator::{Buffer, Communicator};
use halo::{Error, ErrorKind, Result};
use halo_mpi::MpiCommunicator;
use launcher::{mpiexec, output};
use libloading::os::unix::Library;

const LONG: Duration = Duration::from_secs(30);

/// In a rank, runs `program`. Otherwise starts a job of two ranks.
fn on_two_ranks(name: &str, program: impl FnOnce()) {
    if env::var_os("HALO_MPI_TEST").is_some_and(|test| test == name) {
        program();
        println!("this rank is done");
        std::process::exit(0);
    }
    let mut job = mpiexec(2);
    job.arg(env::current_exe().unwrap());
    job.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    let Some(output) = output(job.env("HALO_MPI_TEST", name), name) else { return };
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(text.matches("this rank is done").count(), 2, "{text}");
}

/// MPI as a program in C has it. A handle is a number or a pointer, which has the size of a register either way.
struct Program {
    library: Library,
    has_standard_abi: bool,
}

impl Program {
    /// The library that is loaded when a communicator is adopted.
    fn new() -> Self {
        let error = adopt(ptr::null()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        let library = Library::this();
        let mut version = [0; 2];
        // SAFETY: it is that of the standard.
        let ask = unsafe {
            library
                .get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>("MPI_Abi_get_version")
        };
        if let Ok(ask) = ask {
            let [major, minor] = &mut version;
            // SAFETY: may be called before MPI is started.
            unsafe { ask(major, minor) };
        }
        Self { library, has_standard_abi: version[0] >= 1 }
    }

    fn call(&self, name: &str, arguments: [usize; 4]) {
        type Function = unsafe extern "C" fn(usize, usize, usize, usize) -> c_int;
        // SAFETY: the type is that of the function, as far as a call goes: each argument has the size of a register,
        // and C functions ignore those that they do not have.
        let function = unsafe { self.library.get::<Function>(name) }.unwrap();
        let [a, b, c, d] = arguments;
        // SAFETY: the arguments are those of the function.
        let code = unsafe { function(a, b, c, d) };
        assert_eq!(code, 0, "{name}");
    }

    /// Starts MPI for several threads, or for one.
    fn start(&self, is_for_threads: bool) {
        let level = match (is_for_threads, self.has_standard_abi) {
            (true, true) => 4096,
            (true, false) => 3,
            (false, _) => 0,
        };
        let mut provided: c_int = 0;
        self.call("MPI_Init_thread", [0, 0, level, (&raw mut provided).addr()]);
    }

    fn world(&self) -> usize {
        // SAFETY: only the address is used.
        match unsafe { self.library.get::<*const u8>("ompi_mpi_comm_world") } {
            _ if self.has_standard_abi => 0x101,
            Ok(world) => world.as_raw_ptr().addr(),
            Err(_) => 0x4400_0000,
        }
    }

    fn duplicate(&self, of: usize) -> usize {
        let mut made = 0_usize;
        self.call("MPI_Comm_dup", [of, (&raw mut made).addr(), 0, 0]);
        made
    }

    fn free(&self, mut communicator: usize) {
        self.call("MPI_Comm_free", [(&raw mut communicator).addr(), 0, 0, 0]);
    }

    fn end(&self) {
        self.call("MPI_Finalize", [0; 4]);
    }
}

fn adopt(handle: *const usize) -> Result<MpiCommunicator> {
    // SAFETY: it is null, or the address of a communicator, which is freed after its last use.
    unsafe { MpiCommunicator::adopt(handle.cast::<c_void>(), LONG) }
}

fn gathers(ranks: &MpiCommunicator) {
    let all = ranks.all_gather(&[u8::try_from(ranks.rank()).unwrap()], LONG).unwrap();
    assert_eq!(all, [0, 1]);
}

#[test]
fn a_program_that_started_mpi_lends_its_communicators() {
    on_two_ranks("a_program_that_started_mpi_lends_its_communicators", || {
        let program = Program::new();
        program.start(true);
        let (world, other) = (program.world(), program.duplicate(program.world()));
        let ranks = [adopt(&world).unwrap(), adopt(&other).unwrap(), adopt(&other).unwrap()];
        assert_eq!(ranks[0].local_size(), 2);
        ranks.iter().for_each(gathers);
        assert_eq!(adopt(ptr::null()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        // A receive of one object gets the message of another: both are the same rank.
        let received = ranks[1].receive(1 - ranks[1].rank(), 5, Buffer::host(vec![0; 3])).unwrap();
        let sent = ranks[2].send(1 - ranks[2].rank(), 5, Buffer::host(vec![7; 3])).unwrap();
        assert_eq!(ranks[1].wait(received, LONG).unwrap().to_vec().unwrap(), [7; 3]);
        ranks[2].wait(sent, LONG).unwrap();
        halo_mpi::run(|all| {
            gathers(&all);
            Ok::<(), Error>(())
        })
        .unwrap();
        // Its owner frees one. The other one stays.
        let late = ranks[1].receive(0, 6, Buffer::host(vec![0])).unwrap();
        program.free(other);
        assert_eq!(ranks[1].barrier(LONG).unwrap_err().kind(), ErrorKind::PeerLost);
        assert!(ranks[2].wait(late, LONG).unwrap_err().message().contains("freed by its owner"));
        gathers(&ranks[0]);
        program.end();
        assert_eq!(ranks[0].barrier(LONG).unwrap_err().kind(), ErrorKind::PeerLost);
        let again = halo_mpi::run(|_| Ok::<(), Error>(())).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Conflict, "{again}");
    });
}

/// MPI allows it: the calls are on different communicators.
#[test]
fn threads_adopt_in_any_order() {
    on_two_ranks("threads_adopt_in_any_order", || {
        let program = Program::new();
        program.start(true);
        let (world, others) =
            (program.world(), [(); 2].map(|()| program.duplicate(program.world())));
        let is_first = adopt(&world).unwrap().rank() == 0;
        std::thread::scope(|scope| {
            for (number, other) in others.iter().enumerate() {
                scope.spawn(move || {
                    if is_first == (number == 0) {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    let handle = ptr::from_ref(other).cast::<c_void>();
                    // SAFETY: it is the address of a communicator, which is freed with the process.
                    gathers(&unsafe { MpiCommunicator::adopt(handle, Duration::MAX) }.unwrap());
                });
            }
        });
        program.end();
    });
}

#[test]
fn mpi_for_a_single_thread_is_refused() {
    on_two_ranks("mpi_for_a_single_thread_is_refused", || {
        let program = Program::new();
        program.start(false);
        let world = program.world();
        let run = || halo_mpi::run(|_| Ok::<(), Error>(())).map(drop);
        // Some libraries give more than they are asked for.
        for result in [adopt(&world).map(drop), run()] {
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.message().contains("MPI_THREAD_MULTIPLE"), "{error}");
            }
        }
        program.end();
    });
}
