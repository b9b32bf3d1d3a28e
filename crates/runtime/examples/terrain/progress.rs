//! Progress of the slow parts, with rate and remaining time.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows progress on standard error: as a bar on a terminal, otherwise as occasional lines. Disappears when dropped.
pub(crate) struct Progress {
    label: &'static str,
    steps: u64,
    cells_per_step: usize,
    done: u64,
    began: Instant,
    shown: Instant,
    target: Target,
}

enum Target {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Target {
    fn new(label: &'static str, steps: u64, quiet: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !stderr().is_terminal() {
            return Self::Lines;
        }
        let style = ProgressStyle::with_template("{prefix} {bar:40.cyan/dim} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─");
        let target = ProgressDrawTarget::stderr();
        Self::Bar(
            ProgressBar::with_draw_target(Some(steps), target).with_style(style).with_prefix(label),
        )
    }

    fn interval(&self) -> Duration {
        match self {
            Self::Bar(_) => Duration::from_millis(100),
            Self::Lines => Duration::from_secs(2),
            Self::Nothing => Duration::MAX,
        }
    }
}

impl Progress {
    /// Progress of `steps` steps that update this many cells each.
    pub(crate) fn new(label: &'static str, steps: u64, cells_per_step: usize, quiet: bool) -> Self {
        let now = Instant::now();
        let target = Target::new(label, steps, quiet);
        Self { label, steps, cells_per_step, done: 0, began: now, shown: now, target }
    }

    /// Starts the clock. Steps done before do not count for the rate.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Adds this many completed steps.
    pub(crate) fn advance(&mut self, steps: u64) {
        self.done += steps;
        if self.shown.elapsed() < self.target.interval() {
            return;
        }
        self.shown = Instant::now();
        let passed = self.began.elapsed().as_secs_f64();
        let share = self.done as f64 / self.steps as f64;
        let rate = self.done as f64 * self.cells_per_step as f64 / passed;
        let left = passed * (1.0 / share - 1.0);
        let state =
            format!("{:3.0} %  {:.0} Mcells/s  {left:.0} s left", 100.0 * share, rate / 1e6);
        match &self.target {
            Target::Bar(bar) => {
                bar.set_message(state);
                bar.set_position(self.done);
            }
            Target::Lines => eprintln!("{} {state}", self.label),
            Target::Nothing => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Target::Bar(bar) = &self.target {
            bar.finish_and_clear();
        }
    }
}
