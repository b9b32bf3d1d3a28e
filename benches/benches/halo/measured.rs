//! The measurements of a case, from here or from an MPI job, and their targets.

use benches::Bench;
use benches::turns::Contestant;
use serde::{Deserialize, Serialize};

use crate::case::Case;

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

/// The seconds of one exchange of each contestant.
#[derive(Serialize, Deserialize)]
pub(crate) struct Measured {
    case: Case,
    seconds: Vec<(String, f64)>,
}

impl Measured {
    /// Measures the contestants. `None` if the run measures absolute times.
    pub(crate) fn new(
        case: Case,
        bench: &mut Bench,
        mut contestants: Vec<(&str, Box<Contestant<'_>>)>,
    ) -> Option<Self> {
        let names: Vec<String> = contestants.iter().map(|(name, _)| (*name).to_owned()).collect();
        let named = |seconds: &[f64]| Self {
            case,
            seconds: names.iter().cloned().zip(seconds.iter().copied()).collect(),
        };
        let mut runs: Vec<(&str, &mut Contestant<'_>)> =
            contestants.iter_mut().map(|(name, run)| (*name, &mut **run)).collect();
        let seconds = bench.medians(&case.name(), &mut runs, |seconds| {
            named(seconds).pairs().iter().all(|pair| pair.theirs / pair.ours >= pair.target)
        });
        seconds.map(|seconds| named(&seconds))
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
        for Pair { name, rival, ours, theirs, target } in self.pairs() {
            let case = format!("{}, {name}", self.case.name());
            bench.measured(case, self.case.bytes(), ours, (rival, theirs), target);
        }
    }

    fn pairs(&self) -> Vec<Pair> {
        let seconds = |wanted: &str| {
            let found = self.seconds.iter().find(|(name, _)| name == wanted);
            found.map(|(_, seconds)| *seconds)
        };
        let mut pairs = Vec::new();
        for name in [IN_PROCESS, OVER_MPI] {
            for rival in [DIRECT_LOOP, DATATYPES, BY_HAND] {
                if let (Some(ours), Some(theirs)) = (seconds(name), seconds(rival)) {
                    let target = target(&self.case, name, rival);
                    pairs.push(Pair { name, rival, ours, theirs, target });
                }
            }
        }
        pairs
    }
}

/// One of our contestants and a rival, in seconds.
struct Pair {
    name: &'static str,
    rival: &'static str,
    ours: f64,
    theirs: f64,
    target: f64,
}

/// The required speed of ours relative to the rival; 0 if there is no requirement.
fn target(case: &Case, ours: &str, rival: &str) -> f64 {
    match (ours, rival) {
        _ if case.cells != 128 => 0.0,
        (IN_PROCESS, DIRECT_LOOP) => 1.0 / 1.25,
        (IN_PROCESS, DATATYPES) if case.ranks == 1 && case.fields == 1 => 1.3,
        (IN_PROCESS, DATATYPES) => 1.5,
        (OVER_MPI, DATATYPES) if case.ranks > 1 => 1.0,
        _ => 0.0,
    }
}
