//! Progress of the slow parts on standard error: one line on a terminal, otherwise occasional lines.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

pub(crate) struct Progress {
    label: &'static str,
    steps: u64,
    cells: usize,
    done: u64,
    began: Instant,
    shown: Instant,
    interval: Duration,
    around: [&'static str; 2],
}

impl Progress {
    pub(crate) fn new(label: &'static str, steps: u64, cells: usize, quiet: bool) -> Self {
        let is_terminal = stderr().is_terminal();
        let around = if is_terminal { ["\r", "\x1b[K"] } else { ["", "\n"] };
        let interval = Duration::from_millis(if is_terminal { 100 } else { 2000 });
        let interval = if quiet { Duration::MAX } else { interval };
        let now = Instant::now();
        Self { label, steps, cells, done: 0, began: now, shown: now, interval, around }
    }

    /// Adds completed steps. A line on a terminal disappears after the last one.
    pub(crate) fn advance(&mut self, steps: u64) {
        self.done += steps;
        let [before, after] = self.around;
        if self.done == self.steps && self.interval < Duration::from_secs(1) {
            eprint!("{before}{after}");
        } else if self.shown.elapsed() >= self.interval {
            self.shown = Instant::now();
            let (passed, done) = (self.began.elapsed().as_secs_f64(), self.done as f64);
            let (rate, share) = (done * self.cells as f64 / passed / 1e6, done / self.steps as f64);
            let left = passed * (1.0 / share - 1.0);
            let state = format!("{:3.0} %  {rate:.0} Mcells/s  {left:.0} s left", 100.0 * share);
            eprint!("{before}{} {state}{after}", self.label);
        }
    }
}
