//! What the benchmarks share: timing ours against rivals in one run, and failing when a target is missed.
//!
//! Samples of all contestants are taken in turns, so that what slows the machine slows all of them, and medians are
//! compared. Every benchmark takes
//!
//! - `--check`: exit with 1 if a target is missed;
//! - `--quick`: a few short samples per case, to see that it runs; targets are not looked at;
//! - `--verbose`: print every case, not only the worst of each group;
//! - any other word: only groups whose title contains it.

pub mod null;
pub mod overhead;

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Somebody else's way of doing what ours does.
pub struct Rival<'a> {
    /// What to call it.
    pub name: &'a str,
    /// How many times as fast ours has to be at least: 0.95 is at most about 5 % slower.
    pub target: f64,
    /// Does it once, to the end.
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
        println!(
            "  {:<44} {:>10.2} us{}  {:<10} {:>10.2} us{}  ratio {:5.2}  target {:4.2}  {}",
            self.case,
            self.ours * 1e6,
            rate(self.ours),
            self.rival,
            self.theirs * 1e6,
            rate(self.theirs),
            self.ratio,
            self.target,
            match self.missed() {
                _ if !judged => "",
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
        };
        for arg in std::env::args().skip(1) {
            match &*arg {
                "--check" => bench.check = true,
                "--quick" => bench.quick = true,
                "--verbose" => bench.verbose = true,
                // Cargo passes it to every benchmark.
                "--bench" => {}
                _ => bench.filter = Some(arg),
            }
        }
        bench
    }

    /// Whether this is only a smoke run.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Begins a group of cases. `false` if the command line leaves it out.
    pub fn group(&mut self, title: impl Into<String>) -> bool {
        self.end_group();
        self.title = title.into();
        self.filter.as_ref().is_none_or(|filter| self.title.contains(filter.as_str()))
    }

    /// Times `ours` against each rival and notes the ratio of the medians, theirs to ours. `bytes` is the payload of one
    /// call, 0 where that means nothing.
    ///
    /// A case that misses its target is measured once more, with more samples, and that counts.
    pub fn compare(
        &mut self,
        case: impl Into<String>,
        bytes: u64,
        ours: &mut dyn FnMut(),
        rivals: &mut [Rival<'_>],
    ) {
        let case = case.into();
        for rival in rivals {
            self.judge(&case, bytes, 0.0, ours, rival);
        }
    }

    /// As [`compare`](Self::compare), where ours may take so many seconds more than the rival.
    pub fn compare_within(
        &mut self,
        case: impl Into<String>,
        seconds: f64,
        ours: &mut dyn FnMut(),
        mut rival: Rival<'_>,
    ) {
        self.judge(&case.into(), 0, seconds, ours, &mut rival);
    }

    fn judge(
        &mut self,
        case: &str,
        bytes: u64,
        allowed: f64,
        ours: &mut dyn FnMut(),
        rival: &mut Rival<'_>,
    ) {
        let mut samples = if self.quick { 3 } else { 15 };
        loop {
            let (ours, theirs) = medians(samples, self.sample_time(), ours, rival.run);
            let row = Row {
                case: case.to_owned(),
                rival: rival.name.to_owned(),
                ours,
                theirs,
                ratio: (theirs + allowed) / ours,
                target: rival.target,
                bytes,
            };
            if row.missed() && !self.quick && samples < 60 {
                samples = 61;
                continue;
            }
            if self.verbose || (row.missed() && !self.quick) {
                row.print(!self.quick);
            }
            self.rows.push(row);
            return;
        }
    }

    /// Lets samples from now on take at least this long, instead of 200 µs. Threads that have to be woken need a few
    /// milliseconds until each has its core.
    pub fn set_sample_time(&mut self, at_least: Duration) {
        self.sample = at_least;
    }

    /// The least time that one sample takes.
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

    /// Ends the run: the exit code says whether targets were missed, if that was asked for.
    pub fn finish(mut self) -> ExitCode {
        self.end_group();
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

/// Median seconds per call of two contestants, sampled in turns.
fn medians(
    samples: usize,
    at_least: Duration,
    a: &mut dyn FnMut(),
    b: &mut dyn FnMut(),
) -> (f64, f64) {
    // Also warms what they touch.
    let (calls_a, calls_b) = (calls(at_least, a), calls(at_least, b));
    let (mut times_a, mut times_b) = (Vec::new(), Vec::new());
    for sample in 0..samples {
        if sample % 2 == 0 {
            times_a.push(time(calls_a, a));
            times_b.push(time(calls_b, b));
        } else {
            times_b.push(time(calls_b, b));
            times_a.push(time(calls_a, a));
        }
    }
    (median(&mut times_a), median(&mut times_b))
}

/// How many calls take that long.
fn calls(at_least: Duration, run: &mut dyn FnMut()) -> u32 {
    let mut calls = 1;
    run();
    loop {
        let start = Instant::now();
        for _ in 0..calls {
            run();
        }
        let elapsed = start.elapsed();
        if elapsed >= at_least {
            return calls;
        }
        let factor = at_least.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        calls = if factor > 8.0 { calls * 8 } else { scaled(calls, factor) };
    }
}

/// More than `calls` times `factor`, which is at most 8.
fn scaled(calls: u32, factor: f64) -> u32 {
    let scaled = f64::from(calls) * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and calls stay far below u32::MAX / 8"
    )]
    let whole = scaled.ceil() as u32;
    whole + 1
}

/// Seconds per call.
fn time(calls: u32, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        run();
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
