//! A copy of the workspace that contains many mutants. One build serves all: the environment variable `MUTANT` enables
//! one of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::instrument::{Mutant, insert};
use crate::cargo::root;

/// The files and folders of the workspace.
const SOURCES: &[&str] = &["Cargo.toml", "Cargo.lock", "README.md", "crates", "xtask", "benches"];

/// The switch of the mutants, in the copy of each crate that has any. `MUTANT_LOG` names a file for the numbers of the
/// mutants that a program reaches.
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

/// A mutant of a file.
pub(super) struct Placed {
    file: String,
    pub(super) mutant: Mutant,
    /// The number of earlier mutants with the same row.
    same: usize,
}

impl Placed {
    /// The mutants of a file.
    pub(super) fn all(file: &str, mutants: impl IntoIterator<Item = Mutant>) -> Vec<Self> {
        let placed = |mutant| Self { file: file.to_owned(), mutant, same: 0 };
        let mut all: Vec<Self> = mutants.into_iter().map(placed).collect();
        let mut rows: HashMap<String, usize> = HashMap::new();
        for placed in &mut all {
            let same = rows.entry(placed.row()).or_default();
            placed.same = *same;
            *same += 1;
        }
        all
    }

    /// The cells of a table that identify it: file, function and change.
    pub(super) fn row(&self) -> String {
        let Mutant { function, change, .. } = &self.mutant;
        let again =
            if self.same > 0 { format!(", place {}", self.same + 1) } else { String::new() };
        let change = change.replace('|', "\\|");
        format!("`{}` | `{function}` | {change}{again}", self.file)
    }

    fn package(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }
}

/// A program of tests. That of the unit tests has the name of its package.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tests {
    pub(super) package: &'static str,
    pub(super) program: &'static str,
}

/// A built copy.
pub(super) struct Built {
    /// The programs, in the order of their tests.
    pub(super) programs: Vec<PathBuf>,
    /// The mutants that were left out, because they do not compile.
    pub(super) out: HashSet<usize>,
}

/// Makes the copy with this name and all mutants, and builds programs of tests.
pub(super) fn build(name: &str, mutants: &[Placed], tests: &[Tests]) -> Result<Built> {
    let folder = root().join("target/mutants").join(name);
    let files = sources(&root())?;
    remove_others(&folder, &files)?;
    let mut out: HashSet<usize> = HashSet::new();
    for _ in 0..8 {
        lay_out(&folder, &files, mutants, &out)?;
        match compile(&folder, tests)? {
            Ok(programs) => return Ok(Built { programs, out }),
            Err(broken) => {
                let known = out.len();
                out.extend(broken);
                ensure!(out.len() > known, "the mutants do not compile");
            }
        }
    }
    bail!("the mutants do not compile")
}

/// Source files of the workspace, relative to its folder.
pub(super) fn sources(root: &Path) -> Result<Vec<String>> {
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
    let mutated: HashSet<&str> = mutants.iter().map(Placed::package).collect();
    let roots: HashSet<String> =
        mutated.iter().map(|package| format!("crates/{package}/src/lib.rs")).collect();
    for file in files {
        let mut bytes = fs::read(root().join(file))?;
        let here: Vec<(&Mutant, String)> = mutants
            .iter()
            .enumerate()
            .filter(|(id, placed)| placed.file == *file && !out.contains(id))
            .map(|(id, placed)| (&placed.mutant, format!("crate::mutation::on({id})")))
            .collect();
        if !here.is_empty() {
            bytes = insert(&String::from_utf8(bytes)?, &here).into_bytes();
        }
        if roots.contains(file) {
            bytes.extend(SWITCH.replace("COUNT", &mutants.len().to_string()).bytes());
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

/// Builds the tests. If that fails, returns the mutants in the lines of the errors.
fn compile(folder: &Path, tests: &[Tests]) -> Result<Result<Vec<PathBuf>, HashSet<usize>>> {
    let mut command = crate::cargo::cargo(&["test", "--no-run", "--quiet"]);
    let unique = |words: Vec<&'static str>| words.into_iter().collect::<BTreeSet<_>>();
    for package in unique(tests.iter().map(|tests| tests.package).collect()) {
        command.args(["--package", package]);
    }
    let (unit, others): (Vec<&Tests>, Vec<_>) =
        tests.iter().partition(|tests| tests.program == tests.package);
    command.args((!unit.is_empty()).then_some("--lib"));
    for program in unique(others.iter().map(|tests| tests.program).collect()) {
        command.args(["--test", program]);
    }
    command.args(["--message-format", "json"]);
    command.current_dir(folder).env("CARGO_TARGET_DIR", root().join("target/mutants/target"));
    // Some lints deny what mutants do.
    command.env("RUSTFLAGS", "--cap-lints=allow").stderr(Stdio::null());
    let output = command.output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.success() {
        let program = |Tests { package, program }: &Tests| {
            let found = messages.iter().find_map(|message| {
                let is_it = message["manifest_path"].as_str()?.contains(&format!("/{package}/"))
                    && message["target"]["name"] == *program;
                message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
            });
            found.with_context(|| format!("cargo built no {program} of {package}"))
        };
        return Ok(Ok(tests.iter().map(program).collect::<Result<_>>()?));
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

/// Calls `work` for each item, on all cores. Each thread passes a file path of its own.
pub(super) fn each<T: Sync, R>(
    items: &[T],
    work: impl Fn(&T, &Path) -> Result<R> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let folder = root().join("target/mutants/reports");
    fs::create_dir_all(&folder)?;
    let worker = |number: usize| -> Result<()> {
        let place = folder.join(number.to_string());
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item, &place)?;
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The numbers in a log of reached mutants, in order.
pub(super) fn reached(log: &Path) -> Result<Vec<usize>> {
    let text = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut ids: Vec<usize> = text.lines().filter_map(|id| id.parse().ok()).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
