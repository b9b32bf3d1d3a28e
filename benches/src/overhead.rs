//! A table of small calls and their rivals. Limits are multiples of a unit that is measured in the same run, because
//! machines differ by a factor of two.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::statistics::Statistics;
use crate::turns::{Contestant, median, time};

/// The most time that a call may take, in the units of the table.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// No limit.
    None,
    /// The time of the rival, and this many units.
    Adds(f64),
    /// This many units.
    Takes(f64),
}

/// A unit of time, measured together with each row.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// A call that locks a mutex, searches 16 numbers and clones an `Arc`. Of two machines, one may have the faster
    /// atomic operations and the other the faster loads, so the call has both.
    ReferenceCall,
    /// An atomic addition to a number that only this thread uses.
    Atomic,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::ReferenceCall => "reference calls",
            Self::Atomic => "atomics",
        }
    }
}

/// The rows of the table, and whether each kept its limit.
#[derive(Debug)]
pub struct Table {
    batch: u32,
    rounds: usize,
    check: bool,
    quick: bool,
    missed: bool,
    unit: Unit,
    statistics: Option<Statistics>,
}

impl Table {
    /// A table with the options of the command line. Each row has `rounds` samples of `batch` calls.
    pub fn from_args(batch: u32, rounds: usize, unit: Unit) -> Self {
        let has = |flag: &str| std::env::args().any(|arg| arg == flag);
        let (quick, check) = (has("--quick"), has("--check"));
        let (batch, rounds) = if quick { (100, 3) } else { (batch, rounds) };
        let statistics = Statistics::from_args();
        Self { batch, rounds, check, quick, missed: false, unit, statistics }
    }

    /// Whether this is only a quick run.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Measures a call and its rival in turns.
    pub fn row(
        &mut self,
        name: &str,
        rival: &str,
        limit: Limit,
        mut ours: impl FnMut(),
        mut theirs: impl FnMut(),
    ) {
        if self.statistics.is_some() {
            return self.times(
                name,
                &mut [
                    ("ours", &mut |calls| time(calls, &mut ours)),
                    (rival, &mut |calls| time(calls, &mut theirs)),
                ],
            );
        }
        let (reference, counter) = (Reference::new(), AtomicU64::new(0));
        let count = || _ = black_box(&counter).fetch_add(1, Ordering::Relaxed);
        let [ours, theirs, unit] = nanoseconds(
            self.batch,
            self.rounds,
            &mut [
                &mut |calls| (0..calls).for_each(|_| ours()),
                &mut |calls| (0..calls).for_each(|_| theirs()),
                &mut |calls| match self.unit {
                    Unit::ReferenceCall => (0..calls).for_each(|_| reference.call()),
                    Unit::Atomic => (0..calls).for_each(|_| count()),
                },
            ],
        );
        let name_of_unit = self.unit.name();
        let (value, most, text) = match limit {
            Limit::None => (ours, f64::INFINITY, String::new()),
            Limit::Adds(most) => {
                let adds = (ours - theirs) / unit;
                (adds, most, format!("adds {adds:.2} {name_of_unit}, at most {most}"))
            }
            Limit::Takes(most) => {
                let takes = ours / unit;
                (takes, most, format!("takes {takes:.2} {name_of_unit}, at most {most}"))
            }
        };
        let verdict = if value <= most || self.quick { "" } else { "  MISSED" };
        self.missed |= value > most;
        println!(
            "{name:32} {ours:8.1} ns  {rival:20} {theirs:8.1} ns  unit {unit:4.1} ns  {text}{verdict}"
        );
    }

    /// Measures absolute times alone, if that is what the run does.
    pub fn times(&mut self, name: &str, contestants: &mut [(&str, &mut Contestant<'_>)]) {
        if let Some(statistics) = &mut self.statistics {
            statistics.case(name, 0, contestants);
        }
    }

    /// Whether the run measures absolute times, and compares nothing.
    pub fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// Notes a ratio that must not be below a limit.
    pub fn ratio(&mut self, name: &str, ratio: f64, least: f64) {
        let verdict = if ratio >= least || self.quick { "" } else { "  MISSED" };
        self.missed |= ratio < least;
        println!("{name:32} {ratio:8.2}, at least {least}{verdict}");
    }

    /// Ends the run. The exit code says whether limits were missed, if `--check` was given.
    pub fn finish(self) -> ExitCode {
        self.statistics.iter().for_each(Statistics::finish);
        ExitCode::from(u8::from(self.check && self.missed))
    }
}

/// What a small checked call does, with the standard library alone.
struct Reference(Arc<Mutex<Vec<u64>>>);

impl Reference {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((0..16).collect())))
    }

    fn call(&self) {
        let list = Arc::clone(black_box(&self.0));
        let found = list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .position(|value| black_box(*value) == 15);
        black_box(found);
    }
}

/// The median nanoseconds of each call, in turns in batches.
fn nanoseconds<const N: usize>(
    batch: u32,
    rounds: usize,
    batches: &mut [&mut dyn FnMut(u32); N],
) -> [f64; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (run, times) in batches.iter_mut().zip(&mut times) {
            let start = Instant::now();
            run(batch);
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
        }
    }
    times.map(|mut times| median(&mut times))
}
