//! The measurements of a case, from here or from an MPI job.

use benches::Bench;
use benches::turns::Contestant;
use serde::{Deserialize, Serialize};

/// Our exchange between ranks of this process.
pub(crate) const IN_PROCESS: &str = "in process";
/// Our exchange between ranks that are processes.
pub(crate) const OVER_MPI: &str = "over MPI";
/// The MPI library, with a datatype for each box.
pub(crate) const DATATYPES: &str = "datatypes";
/// Loops that pack and unpack, with MPI.
pub(crate) const BY_HAND: &str = "by hand";
/// Loops from field to field.
pub(crate) const DIRECT_LOOP: &str = "direct loop";

/// The star forest of PETSc.
pub(crate) const PETSC: &str = "PETSc";

/// Ours, a rival, and the required speed of ours relative to the rival; 0 if there is no requirement.
pub(crate) type Target = (&'static str, &'static str, f64);

/// Which of several samples count.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    Medians,
    Least,
}

/// The pairs of ours and a rival in one case.
#[derive(Serialize, Deserialize)]
pub(crate) struct Measured {
    case: String,
    /// The payload of one exchange.
    bytes: u64,
    pairs: Vec<Pair>,
}

/// One of our contestants and a rival, in seconds.
#[derive(Serialize, Deserialize)]
struct Pair {
    name: String,
    rival: String,
    ours: f64,
    theirs: f64,
    target: f64,
}

impl Measured {
    /// Measures the contestants of a case with this name and payload. `None` if the run measures absolute times.
    pub(crate) fn new(
        (case, bytes): (String, u64),
        targets: &[Target],
        measure: Measure,
        bench: &mut Bench,
        mut contestants: Vec<(&str, Box<Contestant<'_>>)>,
    ) -> Option<Self> {
        let names: Vec<String> = contestants.iter().map(|(name, _)| (*name).to_owned()).collect();
        let pairs = |seconds: &[f64]| -> Vec<Pair> {
            let of = |wanted| Some(seconds[names.iter().position(|name| name == wanted)?]);
            let pair = |(name, rival, target): &Target| {
                let (ours, theirs) = (of(*name)?, of(*rival)?);
                let (name, rival) = ((*name).to_owned(), (*rival).to_owned());
                Some(Pair { name, rival, ours, theirs, target: *target })
            };
            targets.iter().filter_map(pair).collect()
        };
        let mut runs: Vec<(&str, &mut Contestant<'_>)> =
            contestants.iter_mut().map(|(name, run)| (*name, &mut **run)).collect();
        let will_do = |seconds: &[f64]| {
            pairs(seconds).iter().all(|pair| pair.theirs / pair.ours >= pair.target)
        };
        let seconds = match measure {
            Measure::Medians => bench.medians(&case, &mut runs, will_do),
            Measure::Least => bench.least(&case, &mut runs, will_do),
        }?;
        Some(Self { pairs: pairs(&seconds), case, bytes })
    }

    /// Prints the measurement for the process that started this one.
    pub(crate) fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("names and numbers"));
    }

    /// Parses a line of a job's output.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Records every pair of ours and a rival.
    pub(crate) fn note(&self, bench: &mut Bench) {
        for Pair { name, rival, ours, theirs, target } in &self.pairs {
            let case = format!("{}, {name}", self.case);
            bench.measured(case, self.bytes, *ours, (rival, *theirs), *target);
        }
    }
}
