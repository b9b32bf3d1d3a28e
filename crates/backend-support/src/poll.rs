//! Repeated polling of a driver that does not report the progress of its work.

use std::thread;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long to poll a driver that reports no progress before leaking the resources its work may still use.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// Polls, with pauses, until work is finished. `ask` returns `None` if the driver does not report whether it is.
/// Returns `false` if the driver has not reported it for as long as `timeout`.
#[must_use]
pub fn poll_until_finished(timeout: Duration, mut ask: impl FnMut() -> Option<bool>) -> bool {
    let mut progress = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match ask() {
            Some(true) => return true,
            Some(false) => progress = Instant::now(),
            None if progress.elapsed() >= timeout => return false,
            None => {}
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_continues_until_the_driver_answers() {
        let mut answers = [None, Some(false), None, Some(true)].into_iter();
        assert!(poll_until_finished(POLL_TIMEOUT, || answers.next().unwrap()));
        assert!(answers.next().is_none());
        assert!(!poll_until_finished(Duration::from_millis(2), || None));
        let began = Instant::now();
        let done = || Some(began.elapsed() > Duration::from_millis(5));
        assert!(
            poll_until_finished(Duration::ZERO, done),
            "work that takes its time is waited for"
        );
    }
}
