//! The check that every conformance rule detects something: for each rule there is a mutant of the checked types or of
//! a device that fails it. `docs/mutants.md` has the table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::instrument::{Mutant, find, insert};
use crate::cargo::root;
use crate::conformance::{Tally, read, report_to};

/// The files and folders of the workspace.
const SOURCES: &[&str] = &["Cargo.toml", "Cargo.lock", "README.md", "crates", "xtask", "benches"];

/// The crates that are mutated.
const CRATES: &[&str] = &["runtime-core", "backend-support", "backend-sim", "backend-host"];

/// The devices whose rules run, with the module of their tests. A rule runs on the first device to which it applies.
const DEVICES: &[(&str, &str)] = &[("backend-sim", "plain::"), ("backend-host", "")];

/// Rules that apply to no device of [`DEVICES`], and the test that proves them.
const ELSEWHERE: &[(&str, &str)] = &[(
    "blocks_of_a_cooperative_launch_run_at_once",
    "`conformance`: the planted defect `BlocksDoNotMeet`",
)];

/// The most mutants that are tried for a rule.
const TRIES: usize = 150;
/// The time after which a run is ended. Rules that hang fail before.
const LONGEST: Duration = Duration::from_secs(30);
/// The attempts to fail a rule by the mutant of the table. A race may spare it.
const ATTEMPTS: usize = 3;

const TABLE: &str = "docs/mutants.md";
const HEAD: &str = "\
# Mutants

Each conformance rule, with a change of the code that makes the rule fail. `cargo xtask mutants` checks this table, and
writes it anew where the code has changed.

| rule | file | function | change |
|---|---|---|---|
";

/// Where the switch of the mutants is in the copy of `runtime-core`.
const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(missing_docs)]
pub mod mutation {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::LazyLock;

    static ENABLED: LazyLock<Option<usize>> =
        LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()));
    static LOG: LazyLock<Option<std::path::PathBuf>> =
        LazyLock::new(|| std::env::var_os("MUTANT_LOG").map(Into::into));
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    /// Whether the mutant is enabled.
    #[inline]
    pub fn on(id: usize) -> bool {
        if let Some(log) = &*LOG
            && !REACHED[id].swap(true, Relaxed)
            && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(log)
        {
            let _ = file.write_all(format!("{id}\n").as_bytes());
        }
        *ENABLED == Some(id)
    }
}
"#;

/// Checks the rules, or those whose names contain one of `words`. If the mutant of the table no longer fails its rule,
/// another one is searched, and the table is written.
pub(super) fn rules(words: &[String]) -> Result<()> {
    let copy = Mutated::build()?;
    let mut table = read_table()?;
    table.retain(|rule, _| copy.tests.contains_key(rule));
    let is_chosen =
        |name: &&String| words.is_empty() || words.iter().any(|word| name.contains(word));
    let chosen: Vec<&String> = copy.tests.keys().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "no rule contains one of {words:?}");
    let rows = search(&copy, &chosen, &table)?;
    let (found, lacking): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, row)| row.is_some());
    println!("{} of {} rules are failed by a mutant", found.len(), chosen.len());
    table.extend(found.into_iter().filter_map(|(rule, row)| Some((rule, row?))));
    write_table(&table)?;
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

/// A mutant of a file.
struct Placed {
    file: String,
    mutant: Mutant,
    /// The number of earlier mutants with the same row.
    same: usize,
}

impl Placed {
    fn row(&self) -> String {
        let Mutant { function, change, .. } = &self.mutant;
        let again =
            if self.same > 0 { format!(", place {}", self.same + 1) } else { String::new() };
        let change = change.replace('|', "\\|");
        format!("`{}` | `{function}` | {change}{again}", self.file)
    }
}

impl Mutated {
    fn build() -> Result<Self> {
        let folder = root().join("target/mutants/workspace");
        let files = sources(&root())?;
        remove_others(&folder, &files)?;
        let mut mutants = Vec::new();
        for file in files.iter().filter(|file| is_mutated(file)) {
            let text = fs::read_to_string(root().join(file))?;
            for mutant in find(&text).with_context(|| format!("cannot parse {file}"))? {
                mutants.push(Placed { file: file.clone(), mutant, same: 0 });
            }
        }
        let mut rows: HashMap<String, usize> = HashMap::new();
        for placed in &mut mutants {
            let same = rows.entry(placed.row()).or_default();
            placed.same = *same;
            *same += 1;
        }
        // A few mutants do not compile. They are left out.
        let mut out: HashSet<usize> = HashSet::new();
        for _ in 0..8 {
            lay_out(&folder, &files, &mutants, &out)?;
            match compile(&folder)? {
                Ok(programs) => {
                    println!("{} mutants, {} more do not compile", mutants.len(), out.len());
                    return Ok(Self { tests: list(&programs)?, mutants });
                }
                Err(broken) => {
                    let known = out.len();
                    out.extend(broken);
                    ensure!(out.len() > known, "the mutants do not compile");
                }
            }
        }
        bail!("the mutants do not compile")
    }

    /// Runs a test with a mutant. Returns how the rule failed, or `None`.
    fn failure(&self, rule: &str, mutant: usize, place: &Path) -> Result<Option<String>> {
        for (program, test) in &self.tests[rule] {
            let environment = [("MUTANT", mutant.to_string())];
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
            let environment = [("MUTANT_LOG", log.display().to_string())];
            let tally = run(program, test, &environment, place)?
                .ok_or_else(|| anyhow!("{test} did not end"))?;
            ensure!(tally.failed.is_empty(), "without a mutant: {:?}", tally.failed);
            if tally.not_applicable.is_empty() {
                let text = fs::read_to_string(&log)?;
                let mut ids: Vec<usize> = text.lines().filter_map(|id| id.parse().ok()).collect();
                ids.sort_unstable();
                ids.dedup();
                return Ok(Some(ids));
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

/// Calls `work` for each rule, on all cores. Each thread passes a file path of its own.
fn each<T>(rules: &[&String], work: impl Fn(&&String, &Path) -> Result<T> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let folder = root().join("target/mutants/reports");
    fs::create_dir_all(&folder)?;
    let worker = |number: usize| -> Result<()> {
        let place = folder.join(number.to_string());
        while let Some(rule) = rules.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(rule, &place).with_context(|| format!("rule {rule}"))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || worker(number))).collect();
        let mut outcomes = workers.into_iter().map(|worker| worker.join());
        outcomes.try_for_each(|outcome| outcome.unwrap_or_else(|_| bail!("a worker panicked")))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
    command.env("CONFORMANCE_TIMEOUT", "8").env_remove("CONFORMANCE_STRICT");
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

/// Source files of the workspace, relative to its folder.
fn sources(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut left: Vec<PathBuf> =
        SOURCES.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect();
    while let Some(path) = left.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || matches!(&*name, "target" | "__pycache__") {
            continue;
        }
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if let Some(file) = path.strip_prefix(root)?.to_str() {
            files.push(file.to_owned());
        }
    }
    files.sort();
    Ok(files)
}

fn is_mutated(file: &str) -> bool {
    let is_in = |name: &&str| file.starts_with(&format!("crates/{name}/src/"));
    CRATES.iter().any(is_in) && file.ends_with(".rs") && !file.contains("/tests")
}

/// Removes files of an earlier copy that the workspace no longer has.
fn remove_others(folder: &Path, files: &[String]) -> Result<()> {
    let list = folder.with_extension("list");
    let earlier = fs::read_to_string(&list).unwrap_or_default();
    let present: HashSet<&str> = files.iter().map(String::as_str).collect();
    for file in earlier.lines().filter(|file| !present.contains(file)) {
        let _ = fs::remove_file(folder.join(file));
    }
    fs::create_dir_all(folder)?;
    Ok(fs::write(list, files.join("\n"))?)
}

/// Writes the copy with all mutants but `out`.
fn lay_out(
    folder: &Path,
    files: &[String],
    mutants: &[Placed],
    out: &HashSet<usize>,
) -> Result<()> {
    for file in files {
        let mut bytes = fs::read(root().join(file))?;
        if is_mutated(file) {
            let name =
                if file.starts_with("crates/runtime-core/") { "crate" } else { "runtime_core" };
            let here: Vec<(&Mutant, String)> = mutants
                .iter()
                .enumerate()
                .filter(|(id, placed)| placed.file == *file && !out.contains(id))
                .map(|(id, placed)| (&placed.mutant, format!("{name}::mutation::on({id})")))
                .collect();
            let mut text = insert(&String::from_utf8(bytes)?, &here);
            if file == "crates/runtime-core/src/lib.rs" {
                text.push_str(&SWITCH.replace("COUNT", &mutants.len().to_string()));
            }
            bytes = text.into_bytes();
        }
        write_changed(&folder.join(file), &bytes)?;
    }
    Ok(())
}

/// Does not touch a file that already has these bytes, so that cargo does not rebuild it.
fn write_changed(file: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

/// Builds the tests of all devices. If that fails, returns the mutants in the lines of the errors.
fn compile(folder: &Path) -> Result<Result<Vec<PathBuf>, HashSet<usize>>> {
    let mut command = crate::cargo::cargo(&["test", "--no-run", "--quiet"]);
    command.args(["--test", "conformance", "--message-format", "json"]);
    command.args(DEVICES.iter().flat_map(|(package, _)| ["--package", package]));
    command.current_dir(folder).env("CARGO_TARGET_DIR", root().join("target/mutants/target"));
    // Some lints deny what mutants do.
    command.env("RUSTFLAGS", "--cap-lints=allow").stderr(Stdio::null());
    let output = command.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        let program = |(package, _): &(&str, &str)| {
            messages.iter().find_map(|message| {
                let is_it = message["manifest_path"].as_str()?.contains(&format!("/{package}/"));
                message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
            })
        };
        let programs: Option<Vec<PathBuf>> = DEVICES.iter().map(program).collect();
        return Ok(Ok(programs.context("cargo built no program")?));
    }
    let mut broken = HashSet::new();
    for message in messages.iter().filter(|message| message["message"]["level"] == "error") {
        for span in message["message"]["spans"].as_array().into_iter().flatten() {
            let (Some(file), Some(first), Some(last)) = (
                span["file_name"].as_str(),
                span["line_start"].as_u64(),
                span["line_end"].as_u64(),
            ) else {
                continue;
            };
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            let (first, last) = (usize::try_from(first)?, usize::try_from(last)?);
            for line in text.lines().take(last).skip(first - 1) {
                let ids = line.split("mutation::on(").skip(1);
                broken.extend(ids.filter_map(|id| id.split(')').next()?.parse::<usize>().ok()));
            }
        }
        if broken.is_empty() {
            println!("{}", message["message"]["rendered"].as_str().unwrap_or_default());
        }
    }
    Ok(Err(broken))
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

/// The rows of the table by rule.
fn read_table() -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root().join(TABLE)).unwrap_or_default();
    let row = |line: &str| {
        let (rule, row) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((rule.to_owned(), row.strip_suffix(" |")?.to_owned()))
    };
    Ok(text.lines().filter_map(row).collect())
}

fn write_table(table: &BTreeMap<String, String>) -> Result<()> {
    let mut text = HEAD.to_owned();
    for (rule, row) in table {
        writeln!(text, "| `{rule}` | {row} |")?;
    }
    fs::write(root().join(TABLE), text).with_context(|| format!("cannot write {TABLE}"))
}
