//! The check that every conformance rule detects something: for each rule there is a mutant of the checked types or of
//! a device that fails it. `docs/mutants.md` has the table.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::copy::{Placed, Tests, build, each, lock, reached, sources};
use super::instrument::find;
use super::table;
use crate::cargo::root;
use crate::conformance::{Tally, read, report_to};

/// The crates that are mutated.
const CRATES: &[&str] = &["runtime-core", "backend-support", "backend-sim", "backend-host"];

/// The devices whose rules run, with the module of their tests. A rule runs on the first device to which it applies.
const DEVICES: [(&str, &str); 2] = [("backend-sim", "plain::"), ("backend-host", "")];

/// Rules that apply to no device of [`DEVICES`], and the test that proves them.
const ELSEWHERE: &[(&str, &str)] = &[(
    "blocks_of_a_cooperative_launch_run_at_once",
    "`conformance`: the planted defect `BlocksDoNotMeet`",
)];

/// The most mutants that are tried for a rule.
const TRIES: usize = 150;
/// The time after which a rule with a mutant hangs, in seconds.
const HANGS: &str = "8";
/// The same without a mutant: a machine that is busy only slows the rule down.
const HANGS_UNMUTATED: &str = "25";
/// The time after which a run is ended. Rules that hang fail before.
const LONGEST: Duration = Duration::from_secs(30);
/// The attempts to fail a rule by the mutant of the table. A race may spare it.
const ATTEMPTS: usize = 3;

/// Checks the rules, or those whose names contain one of `words`. If the mutant of the table no longer fails its rule,
/// another one is searched, and the table is written.
pub(super) fn rules(words: &[String]) -> Result<()> {
    let copy = Mutated::build()?;
    let mut table = read_table();
    table.retain(|rule, _| copy.tests.contains_key(rule));
    let is_chosen =
        |name: &&String| words.is_empty() || words.iter().any(|word| name.contains(word));
    let chosen: Vec<&String> = copy.tests.keys().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "no rule contains one of {words:?}");
    let rows = search(&copy, &chosen, &table)?;
    let (found, lacking): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, row)| row.is_some());
    println!("{} of {} rules are failed by a mutant", found.len(), chosen.len());
    table.extend(found.into_iter().filter_map(|(rule, row)| Some((rule, row?))));
    let rows = table.iter().map(|(rule, row)| format!("`{rule}` | {row}"));
    table::write(table::RULES, &rows.collect::<Vec<_>>())?;
    let lacking: Vec<String> = lacking.into_iter().map(|(rule, _)| rule).collect();
    ensure!(lacking.is_empty(), "no mutant fails {}", lacking.join(", "));
    Ok(())
}

/// The workspace with all mutants, built.
struct Mutated {
    mutants: Vec<Placed>,
    /// For each rule its tests: the program and the name there.
    tests: BTreeMap<String, Vec<(PathBuf, String)>>,
}

impl Mutated {
    fn build() -> Result<Self> {
        let mut mutants = Vec::new();
        for file in sources(&root())?.iter().filter(|file| is_mutated(file)) {
            let text = fs::read_to_string(root().join(file))?;
            let found = find(&text).with_context(|| format!("cannot parse {file}"))?;
            mutants.extend(Placed::all(file, found));
        }
        let tests = DEVICES.map(|(package, _)| Tests { package, program: "conformance" });
        let built = build("workspace", &mutants, &tests)?;
        println!("{} mutants, {} more do not compile", mutants.len(), built.out.len());
        Ok(Self { tests: list(&built.programs)?, mutants })
    }

    /// Runs a test with a mutant. Returns how the rule failed, or `None`.
    fn failure(&self, rule: &str, mutant: usize, place: &Path) -> Result<Option<String>> {
        for (program, test) in &self.tests[rule] {
            let environment =
                [("MUTANT", mutant.to_string()), ("CONFORMANCE_TIMEOUT", HANGS.to_owned())];
            let Some(tally) = run(program, test, &environment, place)? else { return Ok(None) };
            if tally.not_applicable.is_empty() {
                // A device that lacks an ability fails every rule about it.
                let mut failed = tally.failed.into_iter();
                return Ok(failed.find(|reason| !reason.contains("the device lacks")));
            }
        }
        Ok(None)
    }

    /// The mutants that the rule's test reaches. `None` if the rule applies to no device.
    fn reached(&self, rule: &str, place: &Path) -> Result<Option<Vec<usize>>> {
        for (program, test) in &self.tests[rule] {
            let log = place.with_extension("log");
            fs::write(&log, "")?;
            let environment = [
                ("MUTANT_LOG", log.display().to_string()),
                ("CONFORMANCE_TIMEOUT", HANGS_UNMUTATED.to_owned()),
            ];
            let tally = run(program, test, &environment, place)?
                .ok_or_else(|| anyhow!("{test} did not end"))?;
            ensure!(tally.failed.is_empty(), "without a mutant: {:?}", tally.failed);
            if tally.not_applicable.is_empty() {
                return reached(&log).map(Some);
            }
        }
        Ok(None)
    }
}

/// For each rule the row of a mutant that fails it: that of the table, if it still does, or else the first of those
/// that the fewest other rules reach.
fn search(
    copy: &Mutated,
    rules: &[&String],
    table: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Option<String>>> {
    let by_row: HashMap<String, usize> =
        copy.mutants.iter().enumerate().map(|(id, placed)| (placed.row(), id)).collect();
    let found = Mutex::new(BTreeMap::new());
    each(rules, |rule, place| {
        let elsewhere = ELSEWHERE.iter().find(|(name, _)| name == rule);
        let row = match (elsewhere, table.get(*rule).and_then(|row| Some((row, by_row.get(row)?))))
        {
            (Some((_, proof)), _) => Some(format!("{proof} | |")),
            (None, Some((row, id))) => {
                let mut failures = (0..ATTEMPTS).map(|_| copy.failure(rule, *id, place));
                let failure = failures.find_map(Result::transpose).transpose()?;
                failure.map(|_| row.clone())
            }
            (None, None) => None,
        };
        Ok(lock(&found).insert((*rule).clone(), row))
    })?;
    let missing: Vec<&String> =
        rules.iter().copied().filter(|rule| lock(&found)[*rule].is_none()).collect();
    if missing.is_empty() {
        return Ok(found.into_inner().unwrap_or_default());
    }
    // All rules, as the number of rules that reach a mutant orders the search.
    let all: Vec<&String> = copy.tests.keys().collect();
    let reached = Mutex::new(BTreeMap::new());
    each(&all, |rule, place| {
        let ids = copy.reached(rule, place)?;
        Ok(lock(&reached).insert((*rule).clone(), ids.unwrap_or_default()))
    })?;
    let reached = reached.into_inner().unwrap_or_default();
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for id in reached.values().flatten() {
        *counts.entry(*id).or_default() += 1;
    }
    each(&missing, |rule, place| {
        let mut ids = reached[*rule].clone();
        // A check that is left out says more than a function that does nothing.
        ids.sort_by_key(|id| (counts[id], copy.mutants[*id].mutant.returns_at_once()));
        for id in ids.into_iter().take(TRIES) {
            if let Some(how) = copy.failure(rule, id, place)? {
                let row = copy.mutants[id].row();
                println!("{rule}: {row}: {}", how.lines().next().unwrap_or_default());
                lock(&found).insert((*rule).clone(), Some(row));
                break;
            }
        }
        Ok(())
    })?;
    Ok(found.into_inner().unwrap_or_default())
}

/// Runs one test. `None` if it did not end in time, or ended without a report.
fn run(
    program: &Path,
    test: &str,
    environment: &[(&str, String)],
    place: &Path,
) -> Result<Option<Tally>> {
    let report = place.with_extension("jsonl");
    File::create(&report)?;
    let mut command = Command::new(program);
    command.args([test, "--exact", "--quiet"]).envs(environment.iter().map(|(k, v)| (k, v)));
    command.env_remove("CONFORMANCE_STRICT");
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut child = report_to(&mut command, &report).spawn()?;
    let end = Instant::now() + LONGEST;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(read(&report)?.into_values().next())
}

/// The rows of the table by rule.
fn read_table() -> BTreeMap<String, String> {
    let row = |line: String| {
        let (rule, row) = line.strip_prefix('`')?.split_once("` | ")?;
        Some((rule.to_owned(), row.to_owned()))
    };
    table::read(table::RULES).into_iter().filter_map(row).collect()
}

/// The tests of each rule, in the order of the devices.
fn list(programs: &[PathBuf]) -> Result<BTreeMap<String, Vec<(PathBuf, String)>>> {
    let mut tests: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
    for (program, (_, module)) in programs.iter().zip(DEVICES) {
        let output = Command::new(program).args(["--list", "--format", "terse"]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        for name in names.filter(|name| name.starts_with(module)) {
            let rule = name.rsplit("::").next().unwrap_or(name).to_owned();
            tests.entry(rule).or_default().push((program.clone(), name.to_owned()));
        }
    }
    ensure!(!tests.is_empty(), "the programs have no tests");
    Ok(tests)
}

fn is_mutated(file: &str) -> bool {
    let is_in = |name: &&str| file.starts_with(&format!("crates/{name}/src/"));
    CRATES.iter().any(is_in) && file.ends_with(".rs") && !file.contains("/tests")
}
