//! Repeated polling of a driver that does not report the progress of its work.

use std::thread;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How long to poll a driver that reports no progress before leaking the resources its work may still use.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Polls, with pauses, until work is finished. `ask` returns `None` if the driver does not report whether it is.
/// Returns `false` if the driver has not reported it for as long as `patience`.
#[must_use]
pub fn outlast(patience: Duration, mut ask: impl FnMut() -> Option<bool>) -> bool {
    let mut told = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match ask() {
            Some(true) => return true,
            Some(false) => told = Instant::now(),
            None if told.elapsed() >= patience => return false,
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
    fn who_does_not_tell_is_asked_again_for_a_while() {
        let mut answers = [None, Some(false), None, Some(true)].into_iter();
        assert!(outlast(PATIENCE, || answers.next().unwrap()));
        assert!(answers.next().is_none());
        assert!(!outlast(Duration::from_millis(2), || None));
        let began = Instant::now();
        let done = || Some(began.elapsed() > Duration::from_millis(5));
        assert!(outlast(Duration::ZERO, done), "work that takes its time is waited for");
    }
}
