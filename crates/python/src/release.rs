//! Releases of imported arrays, on any thread, while the interpreter can still be used.
//!
//! A release runs Python code, and the last user of an array may be a thread of a backend. Before Python 3.14, an
//! interpreter that ends unwinds the stack of any other thread that enters it, which aborts the process. Therefore the
//! end of the program waits for the releases in progress. Arrays that other threads drop later are not released.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The longest time that the end of a program waits for releases.
const LIMIT: Duration = Duration::from_secs(60);

/// Set once the program ends.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The number of releases in progress.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of releases in progress on this thread.
    static OWN: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread ends the program. The interpreter never unwinds it.
    static IS_LAST: Cell<bool> = const { Cell::new(false) };
}

/// A release in progress.
struct Running;

impl Running {
    fn start() -> Self {
        RUNNING.fetch_add(1, SeqCst);
        OWN.set(OWN.get() + 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        RUNNING.fetch_sub(1, SeqCst);
    }
}

/// Releases an array, unless the program ends.
fn run(release: &mut dyn FnMut()) {
    // Counted before the check, so that `close` waits for every release that it does not prevent.
    let _running = Running::start();
    if !CLOSED.load(SeqCst) || IS_LAST.get() {
        release();
    }
}

/// Waits for the releases of other threads, and prevents later ones.
#[pyfunction]
fn close(py: Python<'_>) {
    IS_LAST.set(true);
    CLOSED.store(true, SeqCst);
    let end = Instant::now() + LIMIT;
    // The releases need the interpreter.
    py.detach(|| {
        while RUNNING.load(SeqCst) > OWN.get() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A fork has only the thread that made it.
#[pyfunction]
fn forget_other_threads() {
    RUNNING.store(OWN.get(), SeqCst);
}

/// Makes all releases run here, until the program ends.
pub(crate) fn set_up(py: Python<'_>) -> PyResult<()> {
    runtime::interchange::release_within(run);
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(close, py)?,))?;
    // Only Unix has forks.
    if let Some(register) = py.import("os")?.getattr_opt("register_at_fork")? {
        let after = PyDict::new(py);
        after.set_item("after_in_child", wrap_pyfunction!(forget_other_threads, py)?)?;
        register.call((), Some(&after))?;
    }
    Ok(())
}
