//! Each call of MPI in turn fails, in a library that is made for this. What the library may still use is not freed.
#![cfg(all(unix, target_endian = "little"))]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]
#![expect(unsafe_code, reason = "calls the library as a program in C does")]

use std::env;
use std::ffi::{c_int, c_void};
use std::process::Command;
use std::ptr;
use std::time::Duration;

use halo::communicator::{Buffer, Communicator};
use halo::{ErrorKind, Result};
use halo_mpi::MpiCommunicator;
use libloading::os::unix::Library;
use tempfile::TempDir;

const SHORT: Duration = Duration::from_millis(200);

/// More than a program below makes.
const MOST: c_int = 400;

/// Messages to itself: one that arrives, one of another length, and one whose receive was dropped.
fn work(ranks: &MpiCommunicator) -> Result<()> {
    let buffer = |value: u8, len: usize| Buffer::host(vec![value; len]);
    let received = ranks.receive(0, 1, buffer(0, 5000))?;
    let sent = ranks.send(0, 1, buffer(7, 5000))?;
    assert_eq!(ranks.wait(received, SHORT)?.to_vec()?, [7; 5000]);
    ranks.wait(sent, SHORT)?;
    let other = ranks.receive(0, 2, buffer(0, 100))?;
    let sent = ranks.send(0, 2, buffer(8, 200))?;
    let error = ranks.wait(other, SHORT).unwrap_err();
    if error.kind() != ErrorKind::InvalidArgument {
        return Err(error);
    }
    ranks.wait(sent, SHORT)?;
    drop(ranks.receive(0, 3, buffer(0, 3000))?);
    let sent = ranks.send(0, 3, buffer(9, 3000))?;
    ranks.discard(3..4)?;
    ranks.send(0, 4, buffer(9, 0))?.test()?;
    ranks.wait(sent, SHORT).map(drop)
}

/// In a process whose library fails once: adopts, works and frees. Returns how many results were errors.
fn program(library: &Library) -> usize {
    type Start = unsafe extern "C" fn(usize, usize, c_int, *mut c_int) -> c_int;
    type Call = unsafe extern "C" fn();
    // SAFETY: the type is that of the C file.
    let start = *unsafe { library.get::<Start>("MPI_Init_thread") }.unwrap();
    // SAFETY: as above.
    let [goes_on, free] = ["failing_goes_on", "failing_free"]
        .map(|name| *unsafe { library.get::<Call>(name) }.unwrap());
    let mut provided = 0;
    // SAFETY: as in C.
    assert_eq!(unsafe { start(0, 0, 3, &raw mut provided) }, 0);
    let mut errors = 0;
    let mut note = |result: Result<()>| {
        let Err(error) = result else { return };
        errors += 1;
        let kinds = [ErrorKind::Driver, ErrorKind::PeerLost, ErrorKind::Timeout];
        assert!(kinds.contains(&error.kind()), "{error}");
        if error.kind() == ErrorKind::Driver {
            assert!(error.message().contains("one call of this library fails"), "{error}");
        }
    };
    let world: c_int = 0x4400_0000;
    for _ in 0..3 {
        // SAFETY: it is the handle of this library's communicator, which is freed below.
        match unsafe { MpiCommunicator::adopt((&raw const world).cast::<c_void>(), SHORT) } {
            Ok(ranks) => note(work(&ranks)),
            Err(error) => note(Err(error)),
        }
    }
    // Memory that was freed meanwhile is used again, and found broken.
    // SAFETY: it has no arguments.
    unsafe { goes_on() };
    let _others: Vec<Vec<u8>> = (1..200).map(|len| vec![1; 64 * len]).collect();
    // SAFETY: as above; nothing uses the communicator.
    unsafe { free() };
    // SAFETY: a null address.
    let null = unsafe { MpiCommunicator::adopt(ptr::null(), SHORT) };
    note(null.map(drop).or_else(|error| match error.kind() {
        ErrorKind::InvalidArgument => Ok(()),
        _ => Err(error),
    }));
    errors
}

#[test]
fn whichever_call_fails_the_error_is_typed_and_memory_stays() {
    const NAME: &str = "whichever_call_fails_the_error_is_typed_and_memory_stays";
    if let Ok(path) = env::var("HALO_MPI_TEST") {
        // SAFETY: it was compiled below.
        let library = unsafe { Library::new(path) }.unwrap();
        let errors = program(&library);
        // SAFETY: as in the C file.
        let calls = unsafe { library.get::<unsafe extern "C" fn() -> c_int>("failing_calls") };
        // SAFETY: it has no arguments.
        println!("done: {} {errors}", unsafe { calls.unwrap()() });
        std::mem::forget(library);
        std::process::exit(0);
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("libmpi.so.12");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&path);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/failing.c");
    assert!(compiler.arg(source).status().unwrap().success());
    let run = |failing: c_int| -> (c_int, usize) {
        let mut program = Command::new(env::current_exe().unwrap());
        program.args(["--exact", NAME, "--nocapture", "--test-threads", "1"]);
        program.env("HALO_MPI_TEST", &path).env("FAILING_CALL", failing.to_string());
        program.env_remove("HALO_MPI_LIBRARY");
        let output = program.output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text);
        let done = text.lines().find_map(|line| line.split_once("done: "));
        let done = done.unwrap_or_else(|| panic!("call {failing}: {}: {text}", output.status)).1;
        let (calls, errors) = done.split_once(' ').unwrap();
        (calls.parse().unwrap(), errors.parse().unwrap())
    };
    let (calls, errors) = run(-1);
    assert!(errors == 0 && (50..MOST).contains(&calls), "{calls} calls, {errors} errors");
    let failed = (0..calls).filter(|call| run(*call).1 > 0).count();
    // A failure of a message whose request was dropped is no error of any call.
    let calls = usize::try_from(calls).unwrap();
    assert!(failed * 100 > calls * 85, "{failed} of {calls}");
}
