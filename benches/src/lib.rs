//! Shared code of the benchmarks: it times our code against rivals in one run, and fails if a target is missed.
//!
//! Without options, a benchmark measures absolute times with criterion and accepts criterion's options. With one of the
//! following options it compares: samples of all contestants are taken in turns, so slowdowns of the machine affect all
//! of them, and medians are compared.
//!
//! - `--compare`: print the comparisons;
//! - `--check`: the same, and exit with 1 if a target is missed;
//! - `--quick`: a few short samples per case, to check that it runs; targets are not checked;
//! - `--verbose`: print every case, not only the worst of each group;
//! - any other word: only groups whose title contains it.

pub mod overhead;
pub mod statistics;
pub mod team;
pub mod turns;

use std::process::ExitCode;
use std::time::Duration;

use statistics::Statistics;
use turns::{Contestant, median, middle, samples, spread, time};

/// Another implementation of the same task.
pub struct Rival<'a> {
    /// The name of the rival.
    pub name: &'a str,
    /// The required speed of ours relative to the rival: 0.95 means at most about 5 % slower.
    pub target: f64,
    /// Runs the task once, to completion.
    pub run: &'a mut dyn FnMut(),
}

impl std::fmt::Debug for Rival<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (target {})", self.name, self.target)
    }
}

/// One comparison.
#[derive(Clone, Debug)]
struct Row {
    case: String,
    rival: String,
    ours: f64,
    theirs: f64,
    /// The spreads of ours and theirs, if samples were taken here.
    spreads: Option<[f64; 2]>,
    ratio: f64,
    target: f64,
    bytes: u64,
}

impl Row {
    fn missed(&self) -> bool {
        self.ratio < self.target
    }

    fn print(&self, judged: bool) {
        let rate = |seconds: f64| match self.bytes {
            0 => String::new(),
            bytes => format!(" {:6.1} GB/s", bytes as f64 / seconds / 1e9),
        };
        let spread = |side: usize| match self.spreads {
            Some(spreads) => format!(" ±{:.1} %", spreads[side] * 100.0),
            None => String::new(),
        };
        println!(
            "  {:<44} {:>10.3} us{}{}  {:<10} {:>10.3} us{}{}  ratio {:5.2}  target {:4.2}  {}",
            self.case,
            self.ours * 1e6,
            spread(0),
            rate(self.ours),
            self.rival,
            self.theirs * 1e6,
            spread(1),
            rate(self.theirs),
            self.ratio,
            self.target,
            match self.missed() {
                _ if !judged || self.target == 0.0 => "",
                true => "MISSED",
                false => "ok",
            }
        );
    }
}

/// The run of one benchmark.
#[derive(Debug)]
pub struct Bench {
    check: bool,
    quick: bool,
    verbose: bool,
    filter: Option<String>,
    title: String,
    rows: Vec<Row>,
    missed: Vec<String>,
    sample: Duration,
    statistics: Option<Statistics>,
}

impl Bench {
    /// A run with the options of the command line.
    pub fn from_args() -> Self {
        let mut bench = Self {
            check: false,
            quick: false,
            verbose: false,
            filter: None,
            title: String::new(),
            rows: Vec::new(),
            missed: Vec::new(),
            sample: Duration::from_micros(200),
            statistics: Statistics::from_args(),
        };
        // Then the options are those of criterion.
        if bench.statistics.is_some() {
            return bench;
        }
        for arg in std::env::args().skip(1) {
            match &*arg {
                "--check" => bench.check = true,
                "--compare" => {}
                "--quick" => bench.quick = true,
                "--verbose" => bench.verbose = true,
                // Cargo passes this argument to every benchmark.
                "--bench" => {}
                _ => bench.filter = Some(arg),
            }
        }
        bench
    }

    /// Whether this is only a quick run.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Whether the run measures absolute times, and compares nothing.
    pub fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// Measures absolute times. Returns `false` if the run compares.
    fn times(
        &mut self,
        case: &str,
        bytes: u64,
        contestants: &mut [(&str, &mut Contestant<'_>)],
    ) -> bool {
        let Some(statistics) = &mut self.statistics else { return false };
        statistics.case(&format!("{}/{case}", self.title), bytes, contestants);
        true
    }

    /// Starts a group of cases. Returns `false` if the command line excludes it.
    pub fn group(&mut self, title: impl Into<String>) -> bool {
        self.end_group();
        self.title = title.into();
        self.filter.as_ref().is_none_or(|filter| self.title.contains(filter.as_str()))
    }

    /// Times `ours` against each rival and records the ratio of the medians, theirs to ours. `bytes` is the payload of
    /// one call, or 0 if that has no meaning.
    ///
    /// A case that misses its target is measured again with more samples; the second result counts.
    pub fn compare(
        &mut self,
        case: impl Into<String>,
        bytes: u64,
        ours: &mut dyn FnMut(),
        rivals: &mut [Rival<'_>],
    ) {
        let case = case.into();
        if self.statistics.is_some() {
            self.times(&case, bytes, &mut [("ours", &mut |calls| time(calls, ours))]);
            for Rival { name, run, .. } in rivals {
                self.times(&case, bytes, &mut [(name, &mut |calls| time(calls, run))]);
            }
            return;
        }
        for Rival { name, target, run } in rivals {
            let (ours, theirs) = (&mut |calls| time(calls, ours), &mut |calls| time(calls, run));
            self.judge(&case, bytes, 0.0, ours, (name, *target, theirs));
        }
    }

    /// As [`compare_within`](Self::compare_within), for contestants that time themselves because a part of their work
    /// does not count.
    pub fn compare_timed(
        &mut self,
        case: impl Into<String>,
        seconds: f64,
        ours: &mut Contestant<'_>,
        (rival, target, theirs): (&str, f64, &mut Contestant<'_>),
    ) {
        self.judge(&case.into(), 0, seconds, ours, (rival, target, theirs));
    }

    /// As [`compare`](Self::compare), but ours may take this many seconds more than the rival.
    pub fn compare_within(
        &mut self,
        case: impl Into<String>,
        seconds: f64,
        ours: &mut dyn FnMut(),
        Rival { name, target, run }: Rival<'_>,
    ) {
        let (ours, theirs) = (&mut |calls| time(calls, ours), &mut |calls| time(calls, run));
        self.compare_timed(case, seconds, ours, (name, target, theirs));
    }

    fn judge(
        &mut self,
        case: &str,
        bytes: u64,
        allowed: f64,
        ours: &mut Contestant<'_>,
        (rival, target, theirs): (&str, f64, &mut Contestant<'_>),
    ) {
        if self.times(case, bytes, &mut [("ours", &mut *ours), (rival, &mut *theirs)]) {
            return;
        }
        let mut count = if self.quick { 3 } else { 15 };
        loop {
            let times = samples(count, self.sample_time(), &mut [ours, theirs]);
            let (our_time, their_time) = (middle(&times[0]), middle(&times[1]));
            let row = Row {
                case: case.to_owned(),
                rival: rival.to_owned(),
                ours: our_time,
                theirs: their_time,
                spreads: Some([spread(&times[0]), spread(&times[1])]),
                ratio: (their_time + allowed) / our_time,
                target,
                bytes,
            };
            if row.missed() && !self.quick && count < 60 {
                count = 61;
                continue;
            }
            return self.note(row);
        }
    }

    /// The median seconds of each contestant, or `None` if the run measures absolute times. If the contestants do not
    /// pass, they are measured again with more samples; the second result counts.
    pub fn medians(
        &mut self,
        case: &str,
        contestants: &mut [(&str, &mut Contestant<'_>)],
        will_do: impl Fn(&[f64]) -> bool,
    ) -> Option<Vec<f64>> {
        self.seconds(case, contestants, middle, will_do)
    }

    /// As [`medians`](Self::medians), but the least seconds of each contestant. Threads that wait for each other lose
    /// more to other programs than a thread alone, so medians would compare how busy the machine is.
    pub fn least(
        &mut self,
        case: &str,
        contestants: &mut [(&str, &mut Contestant<'_>)],
        will_do: impl Fn(&[f64]) -> bool,
    ) -> Option<Vec<f64>> {
        self.seconds(case, contestants, |sorted| sorted[0], will_do)
    }

    /// `choose` gets the samples of a contestant in ascending order.
    fn seconds(
        &mut self,
        case: &str,
        contestants: &mut [(&str, &mut Contestant<'_>)],
        choose: impl Fn(&[f64]) -> f64,
        will_do: impl Fn(&[f64]) -> bool,
    ) -> Option<Vec<f64>> {
        if self.times(case, 0, contestants) {
            return None;
        }
        let mut runs: Vec<&mut Contestant<'_>> =
            contestants.iter_mut().map(|(_, run)| &mut **run).collect();
        let at_least = self.sample_time();
        let mut measure = |count| -> Vec<f64> {
            samples(count, at_least, &mut runs).iter().map(|sorted| choose(sorted)).collect()
        };
        let count = if self.quick { 3 } else { 31 };
        let seconds = measure(count);
        if self.quick || will_do(&seconds) {
            return Some(seconds);
        }
        Some(measure(2 * count - 1))
    }

    /// Records results of [`medians`](Self::medians), from here or from another process: seconds of ours and of a
    /// rival, as [`compare`](Self::compare) does. A target of 0 means no target.
    pub fn measured(
        &mut self,
        case: impl Into<String>,
        bytes: u64,
        ours: f64,
        (rival, theirs): (&str, f64),
        target: f64,
    ) {
        let (case, rival, ratio) = (case.into(), rival.to_owned(), theirs / ours);
        self.note(Row { case, rival, ours, theirs, spreads: None, ratio, target, bytes });
    }

    /// Records a quantity that must not exceed a limit.
    pub fn limited(&mut self, case: &str, unit: &str, value: f64, limit: f64) {
        let missed = value > limit && !self.quick;
        let verdict = if missed { "  MISSED" } else { "" };
        println!("{}: {case}: {value:.1} {unit}, at most {limit:.0}{verdict}", self.title);
        if missed {
            self.missed.push(format!("{}: {case}", self.title));
        }
    }

    fn note(&mut self, row: Row) {
        if self.verbose || (row.missed() && !self.quick) {
            row.print(!self.quick);
        }
        self.rows.push(row);
    }

    /// Sets the minimum duration of later samples, instead of 200 µs. Threads that have to be woken need a few
    /// milliseconds until each has its core.
    pub fn set_sample_time(&mut self, at_least: Duration) {
        self.sample = at_least;
    }

    /// The minimum duration of one sample.
    fn sample_time(&self) -> Duration {
        if self.quick { Duration::from_micros(10) } else { self.sample }
    }

    fn end_group(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let margin = |row: &Row| row.ratio / row.target;
        let Some(worst) = rows.iter().min_by(|a, b| margin(a).total_cmp(&margin(b))) else {
            return;
        };
        let mut ratios: Vec<f64> = rows.iter().map(|row| row.ratio).collect();
        let middle = median(&mut ratios);
        println!("{}: {} cases, median ratio {middle:.2}, worst:", self.title, rows.len());
        worst.print(!self.quick);
        let missed = rows.iter().filter(|row| row.missed());
        self.missed.extend(missed.map(|row| format!("{}: {}", self.title, row.case)));
    }

    /// Ends the run. The exit code says whether targets were missed, if `--check` was given.
    pub fn finish(mut self) -> ExitCode {
        self.end_group();
        if let Some(statistics) = &self.statistics {
            statistics.finish();
            return ExitCode::SUCCESS;
        }
        if self.quick {
            return ExitCode::SUCCESS;
        }
        println!("{} targets missed", self.missed.len());
        for case in &self.missed {
            println!("  {case}");
        }
        if self.check && !self.missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
