//! Absolute times by criterion: statistics, saved baselines and plots.

use std::env;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput};

use crate::turns::Contestant;

/// A run that measures absolute times. Its options are those of criterion.
pub struct Statistics {
    criterion: Criterion,
    area: String,
}

impl fmt::Debug for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statistics").field("area", &self.area).finish_non_exhaustive()
    }
}

impl Statistics {
    /// The run that the command line asks for, unless it asks for comparisons: by `--check`, `--compare` or `--quick`.
    pub fn from_args() -> Option<Self> {
        let compares = |arg: String| matches!(&*arg, "--check" | "--compare" | "--quick");
        if env::args().any(compares) {
            return None;
        }
        let criterion = Criterion::default()
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500))
            .sample_size(20)
            .nresamples(10_000)
            .configure_from_args();
        // The program's name ends with a hash.
        let program = env::args().next().unwrap_or_default();
        let stem = Path::new(&program).file_stem().unwrap_or_default().to_string_lossy();
        let area = stem.rsplit_once('-').map_or(&*stem, |(area, _)| area).to_owned();
        Some(Self { criterion, area })
    }

    /// Measures the contestants of one case. `bytes` is the payload of one call, or 0 if that has no meaning.
    pub fn case(
        &mut self,
        case: &str,
        bytes: u64,
        contestants: &mut [(&str, &mut Contestant<'_>)],
    ) {
        let mut group = self.criterion.benchmark_group(format!("{}/{case}", self.area));
        if bytes > 0 {
            group.throughput(Throughput::Bytes(bytes));
        }
        for (name, run) in contestants {
            group.bench_function(*name, |bencher| {
                bencher.iter_custom(|calls| {
                    let calls = u32::try_from(calls).unwrap_or(u32::MAX);
                    Duration::from_secs_f64(run(calls) * f64::from(calls))
                });
            });
        }
        group.finish();
    }

    /// Ends the run.
    pub fn finish(&self) {
        self.criterion.final_summary();
    }
}
