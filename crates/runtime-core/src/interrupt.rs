//! Waits that end early because the program has to do something else, such as to answer Ctrl-C.
//!
//! An interpreter, for example, runs its signal handlers only when it is asked to. It calls [`set`] once. From then on,
//! every wait with a timeout asks it at least every [`INTERVAL`], and ends early if it gets an error.
//!
//! ```standalone_crate
//! use std::time::{Duration, Instant};
//! use runtime_core::{Error, ErrorKind, interrupt};
//!
//! interrupt::set(|| Err(Error::new(ErrorKind::Timeout, "wait", "Ctrl-C")));
//! let start = Instant::now();
//! let waited = interrupt::in_steps(Duration::from_secs(60), |step| {
//!     std::thread::sleep(step); // a wait for something that does not happen
//!     None::<()>
//! });
//! assert_eq!(waited.unwrap_err().message(), "Ctrl-C");
//! assert!(start.elapsed() < Duration::from_secs(10));
//! ```

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::Result;

/// The longest time between two checks of a wait.
pub const INTERVAL: Duration = Duration::from_millis(20);

static CHECK: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Makes the waits of this process that have a timeout call `check`. If it returns an error, the wait ends with that
/// error, and leaves what a timeout leaves. `check` is called often, on any thread, and while locks of this runtime are
/// held: it must be cheap, and use no object of this runtime that the wait uses.
///
/// Waits without a timeout, which block in a driver, are not interrupted. Only the first call in a program has an
/// effect.
pub fn set(check: fn() -> Result<()>) {
    CHECK.get_or_init(|| check);
}

/// Whether the wait that calls it has to end. A wait calls it at least every [`INTERVAL`]. `Ok` if no check is
/// [set].
///
/// # Errors
///
/// Those of the check.
#[inline]
pub fn check() -> Result<()> {
    CHECK.get().map_or(Ok(()), |check| check())
}

/// The time until which a wait may sleep before its next [`check`]: `deadline`, or earlier.
#[inline]
pub fn limit(deadline: Instant) -> Instant {
    match CHECK.get() {
        Some(_) => deadline.min(Instant::now() + INTERVAL),
        None => deadline,
    }
}

/// Calls `step` with parts of `timeout`, for each of which it may block, until it returns a value. Returns `None` after
/// the timeout.
///
/// # Errors
///
/// Those of the [`check`].
pub fn in_steps<R>(
    timeout: Duration,
    mut step: impl FnMut(Duration) -> Option<R>,
) -> Result<Option<R>> {
    if CHECK.get().is_none() {
        return Ok(step(timeout));
    }
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        if let Some(done) = step(left.min(INTERVAL)) {
            return Ok(Some(done));
        }
        check()?;
        if left <= INTERVAL {
            return Ok(None);
        }
    }
}
