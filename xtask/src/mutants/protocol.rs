//! Breaks the transition function of the crate `coherence` in every way that compiles, and checks that the crate's tests
//! notice. Each mutant swaps two neighbouring statements, or drops a statement that has an effect.
//!
//! The protocol uses only the standard library, so each mutant is one call of `rustc`. These mutants are not switched
//! at run time as those of `instrument` are: a swap of `let` statements does not fit into an `if`, and a switch in each
//! statement would slow the enumeration of all states.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ImplItemFn, ItemFn, Stmt};

use crate::cargo::root;

/// Swaps that change nothing, each with a reason. A statement is named by its beginning.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("self.check_", "", REFUSED),
    ("self.drop_pending(", "", REFUSED),
    ("mark_read(", "mark_added(", BYTES),
    ("mark_read(self.bytes(part, from)", "mark_written(self.bytes(part, at)", BYTES),
    ("self.use_to_read(", "self.use_to_write(", BYTES),
    ("self.use_to_write(", "self.use_to_read(", BYTES),
    ("self.use_to_change(", "self.use_to_read(", BYTES),
    ("self.use_to_change(", "self.use_to_write(", BYTES),
    ("if matches!(state.health, Health::Writing", "state.valid.remove(at)", "both only take away"),
    ("state.valid.remove(at)", "mark_added(", FIELDS),
    ("state.valid.remove(at)", "*state.bytes_mut(at)", FIELDS),
    ("self.part(part).valid = Set::EMPTY;", "if op != Reduce::Replace", FIELDS),
    ("state.health = Health::Good;", "state.valid = if outdated", FIELDS),
    ("state.health = Health::Good;", "state.pending = None;", FIELDS),
    ("state.pending = None;", "state.valid = ", FIELDS),
    ("state.valid = if outdated", "owned |= ", FIELDS),
    ("owned |= ", "if let (Role::Ghost", FIELDS),
    ("reduced |= ", "state.health = ", FIELDS),
    ("state.valid = Set::one(at);", "state.pending = Some(op);", FIELDS),
    ("state.health = Health::Poisoned;", "state.valid = Set::EMPTY;", FIELDS),
    ("*health = Health::Good;", "state.valid = Set::EMPTY;", FIELDS),
    ("if outdated", "let needed", FIELDS),
    ("let gone", "state.health = Health::Good;", FIELDS),
    ("self.outdate_ghosts();", "self.committed = true;", FIELDS),
    ("self.use_to_write(", "self.exchange(", FIELDS),
    ("self.use_to_read(", "self.exchange(", FIELDS),
    ("self.combine(", "self.exchange(", FIELDS),
    ("self.use_to_read(", "self.combine(", "a wait of the host removes the lane from all origins"),
    ("self.steps.push(", "mark_read(", FIELDS),
    ("mark_written(", "self.part(part).valid.insert(", FIELDS),
    ("mark_added(", "forget_origins(", FIELDS),
    ("bytes.readers.remove(lane);", "bytes.origins.remove(lane);", FIELDS),
    ("bytes.origins.remove(lane);", "if bytes.writer == ", FIELDS),
    ("bytes.readers.remove(lane);", "if bytes.writer == ", FIELDS),
    ("bytes.writer = Some(lane);", "bytes.readers.remove(lane);", FIELDS),
    ("self.wait(who, writer)", "if who.is_none()", FIELDS),
    ("if valid.contains(at)", "let peers", VALUE),
    ("let peers", "let direct", VALUE),
    ("let direct", "let host", VALUE),
    ("let wait", "let uses", VALUE),
    ("mark_read(", "let mut origins", VALUE),
    ("self.wait_to_write(", "let origins", VALUE),
    ("if by.is_none()", "self.wait_to_write(", "both only wait"),
    ("if reads.is_some()", "self.wait_to_write(", "both only wait"),
    ("self.steps.push(", "*self.bytes(part, at)", FIELDS),
    ("if !fresh", "if who.is_none()", FIELDS),
    ("for part in moved", "for state in &mut self.parts", BYTES),
    ("if !self.of(Role::Owned)", "let held", VALUE),
    ("if let Some(other) = pending", "for part in set.iter()", REFUSED),
];
/// A refusal discards the draft with all changes made so far.
const REFUSED: &str = "a refusal discards the draft";
/// The statements change marks of different replicas or of different parts.
const BYTES: &str = "different bytes";
/// Neither statement reads the fields that the other one writes.
const FIELDS: &str = "different fields";

/// The statement names a value that nothing between the two statements changes.
const VALUE: &str = "a value under a name";

/// The minimum number of mutants for a meaningful run.
const LEAST: usize = 50;
/// The time after which a mutant counts as hanging, which its tests then have noticed.
const LONGEST: Duration = Duration::from_secs(180);
/// Optimisation levels and tests, quick ones first, so most mutants end soon: an unoptimised mutant compiles in a third
/// of the time.
const STAGES: &[(&str, &[&str])] = &[
    ("0", &["one_part"]),
    ("1", &["programs", "host_memory", "two_owned_parts_on_devices", "ghost_part", ""]),
];

struct Mutant {
    what: String,
    text: String,
    /// The reason why the tests cannot notice the mutant.
    equivalent: Option<&'static str>,
}

struct Finder<'a> {
    text: &'a str,
    function: String,
    found: Vec<Mutant>,
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function = item.sig.ident.to_string();
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function = item.sig.ident.to_string();
        visit::visit_item_fn(self, item);
    }

    fn visit_block(&mut self, block: &'a Block) {
        for pair in block.stmts.windows(2) {
            self.swap(&pair[0], &pair[1]);
        }
        for statement in &block.stmts {
            if matches!(
                statement,
                Stmt::Expr(
                    Expr::MethodCall(_)
                        | Expr::Call(_)
                        | Expr::Assign(_)
                        | Expr::Binary(_)
                        | Expr::If(_)
                        | Expr::ForLoop(_),
                    _
                )
            ) && !matches!(
                statement,
                Stmt::Expr(
                    Expr::MethodCall(_) | Expr::Call(_) | Expr::If(_) | Expr::Binary(_),
                    None
                )
            ) {
                self.drop(statement);
            }
        }
        visit::visit_block(self, block);
    }
}

impl Finder<'_> {
    fn swap(&mut self, first: &Stmt, second: &Stmt) {
        let (a, b) = (first.span().byte_range(), second.span().byte_range());
        let (one, other) = (&self.text[a.clone()], &self.text[b.clone()]);
        let text = format!(
            "{}{other}{}{one}{}",
            &self.text[..a.start],
            &self.text[a.end..b.start],
            &self.text[b.end..]
        );
        let same = |(x, y, _): &&(&str, &str, &str)| one.starts_with(x) && other.starts_with(y);
        let equivalent = EQUIVALENT.iter().find(same).map(|(_, _, why)| *why);
        let what = format!("{}: swap `{}` and `{}`", self.function, line(one), line(other));
        self.found.push(Mutant { what, text, equivalent });
    }

    fn drop(&mut self, statement: &Stmt) {
        let range = statement.span().byte_range();
        let what = format!("{}: drop `{}`", self.function, line(&self.text[range.clone()]));
        let text = format!("{}{}", &self.text[..range.start], &self.text[range.end..]);
        self.found.push(Mutant { what, text, equivalent: None });
    }
}

fn line(statement: &str) -> &str {
    statement.lines().next().unwrap_or_default()
}

/// The result of running a mutant.
enum Fate {
    DoesNotCompile,
    Killed(String),
    Survived,
}

/// Runs the mutants whose description contains one of `only`; an empty `only` runs all. The description starts with the
/// function, as in `bring: drop …`.
pub(super) fn mutants(only: &[String]) -> Result<()> {
    let source = root().join("crates/coherence/src");
    let text = fs::read_to_string(source.join("plan.rs"))?;
    let file = syn::parse_file(&text)?;
    let mut finder = Finder { text: &text, function: String::new(), found: Vec::new() };
    finder.visit_file(&file);
    let root = env::temp_dir().join(format!("coherence-mutants-{}", std::process::id()));
    let workers = thread::available_parallelism()?.get();
    let folders: Vec<PathBuf> = (0..workers).map(|worker| root.join(worker.to_string())).collect();
    folders.iter().try_for_each(|folder| copy(&source, folder))?;
    let healthy = Mutant { what: "as it is".into(), text: text.clone(), equivalent: None };
    ensure!(
        matches!(try_out(&folders[0], &healthy)?, Fate::Survived),
        "the tests fail without a mutant"
    );

    let wanted =
        |mutant: &&Mutant| only.is_empty() || only.iter().any(|words| mutant.what.contains(words));
    let todo = Mutex::new(finder.found.iter().filter(wanted));
    let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |folder: &Path| -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some(mutant) = next() {
            tally.count(mutant, folder)?;
        }
        Ok(tally)
    };
    let mut all = Tally::default();
    thread::scope(|scope| -> Result<()> {
        let started: Vec<_> = folders.iter().map(|folder| scope.spawn(|| work(folder))).collect();
        for worker in started {
            let tally = worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            all.add(&tally);
        }
        Ok(())
    })?;
    fs::remove_dir_all(&root)?;
    let Tally { killed, survived, same, invalid } = all;
    println!(
        "{killed} mutants killed, {survived} survived; {same} are the same program, {invalid} do not compile"
    );
    ensure!(!only.is_empty() || killed >= LEAST, "{killed} mutants; at least {LEAST} are wanted");
    ensure!(survived == 0, "{survived} mutants survived");
    Ok(())
}

/// The number of mutants for each result.
#[derive(Default)]
struct Tally {
    killed: usize,
    survived: usize,
    same: usize,
    invalid: usize,
}

impl Tally {
    fn count(&mut self, mutant: &Mutant, folder: &Path) -> Result<()> {
        let what = &mutant.what;
        if let Some(why) = mutant.equivalent {
            println!("the same  {what}: {why}");
            self.same += 1;
            return Ok(());
        }
        match try_out(folder, mutant)? {
            Fate::DoesNotCompile => self.invalid += 1,
            Fate::Killed(how) => {
                println!("killed    {what}: {how}");
                self.killed += 1;
            }
            Fate::Survived => {
                println!("SURVIVED  {what}");
                self.survived += 1;
            }
        }
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.killed += other.killed;
        self.survived += other.survived;
        self.same += other.same;
        self.invalid += other.invalid;
    }
}

/// Copies the files of a folder.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().context("a file without a name")?);
        if path.is_dir() { copy(&path, &target)? } else { fs::copy(&path, &target).map(drop)? }
    }
    Ok(())
}

fn try_out(folder: &Path, mutant: &Mutant) -> Result<Fate> {
    fs::write(folder.join("plan.rs"), &mutant.text)?;
    for (level, tests) in STAGES {
        let program = folder.join("program");
        if !compile(folder, &program, level)? {
            return Ok(Fate::DoesNotCompile);
        }
        for filter in *tests {
            match run(&program, filter)? {
                None => return Ok(Fate::Killed(format!("{filter} hangs"))),
                Some(false) => return Ok(Fate::Killed(filter.to_string())),
                Some(true) => {}
            }
        }
    }
    Ok(Fate::Survived)
}

fn compile(folder: &Path, program: &Path, level: &str) -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition", "2024", "--test", "--crate-name", "coherence"])
        .args(["-Cdebug-assertions=on", "-Cpanic=unwind", "--cap-lints", "allow"])
        .arg(format!("-Copt-level={level}"))
        .arg("-o")
        .arg(program)
        .arg(folder.join("lib.rs"))
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// Whether the tests with this word in their name pass; `None` if they do not end.
fn run(program: &Path, filter: &str) -> Result<Option<bool>> {
    let mut run = Command::new(program)
        .args([filter, "--quiet"])
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        if let Some(status) = run.try_wait()? {
            return Ok(Some(status.success()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    run.kill()?;
    run.wait()?;
    Ok(None)
}
