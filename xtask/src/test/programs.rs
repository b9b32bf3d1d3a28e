//! Test programs: built once for the whole workspace, run in parallel, and counted.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{cargo, messages};
use crate::conformance;

/// The number of test programs that run at once: most of them spend part of their time waiting.
const AT_ONCE: usize = 2;

/// A cargo test program.
#[derive(Debug)]
struct Program {
    /// The package, by the name of its folder.
    package: String,
    /// The package's folder, in which cargo runs the program.
    folder: PathBuf,
    /// The name of the test, example or library.
    name: String,
    file: PathBuf,
}

/// All test programs, examples and benchmarks of the workspace, built for tests.
///
/// All are built with the same features. When cargo tests a single package, it chooses other features
/// for the dependencies and builds them again.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    programs: Vec<Program>,
    benchmarks: Vec<Program>,
    /// The files of the workspace's libraries.
    libraries: Vec<PathBuf>,
    /// The files of the examples.
    examples: Vec<PathBuf>,
}

impl Programs {
    /// Builds the programs.
    pub(crate) fn build() -> Result<Self> {
        let mut built = Self::default();
        // Together, examples would be built as tests.
        for targets in [&[][..], &["--benches"]] {
            let mut build = cargo(&["test", "--no-run", "--workspace"]);
            build.arg("--all-features").args(targets);
            build.args(["--message-format", "json-render-diagnostics"]);
            for message in messages(&mut build)? {
                built.add(&message, targets.is_empty())?;
            }
        }
        ensure!(!built.programs.is_empty(), "cargo built no test program");
        Ok(built)
    }

    /// Adds what cargo reports in a message: a benchmark, or anything else `but_benchmarks`.
    fn add(&mut self, message: &Value, but_benchmarks: bool) -> Result<()> {
        let is = |kind: &str| message["target"]["kind"][0] == kind;
        if is("bench") == but_benchmarks {
            return Ok(());
        }
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let files = message["filenames"].as_array().into_iter().flatten();
        self.libraries.extend(files.filter_map(word).map(PathBuf::from));
        let (Some(file), Some(manifest), Some(name)) = (
            word(&message["executable"]),
            word(&message["manifest_path"]),
            word(&message["target"]["name"]),
        ) else {
            return Ok(());
        };
        let file = PathBuf::from(file);
        if is("example") {
            self.examples.push(file);
        } else if message["profile"]["test"] == true {
            let folder = Path::new(&manifest).parent().context("a manifest without a folder")?;
            let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let program = Program { package, folder: folder.to_owned(), name, file };
            if is("bench") { &mut self.benchmarks } else { &mut self.programs }.push(program);
        }
        Ok(())
    }

    /// Returns the file of the library with this name from the same build.
    pub(crate) fn library(&self, name: &str) -> Result<&Path> {
        let found = self.libraries.iter().find(|file| file.file_name() == Some(name.as_ref()));
        found.map(PathBuf::as_path).with_context(|| format!("cargo built no {name}"))
    }

    /// Returns the file of the example with this name from the same build.
    pub(crate) fn example(&self, name: &str) -> Result<&Path> {
        let found = self.examples.iter().find(|file| file.file_name() == Some(name.as_ref()));
        found.map(PathBuf::as_path).with_context(|| format!("cargo built no example {name}"))
    }

    /// The commands that start the benchmarks, as `cargo bench` does, each with its name.
    pub(crate) fn benchmarks(&self) -> impl Iterator<Item = (&str, Command)> {
        self.benchmarks.iter().map(|program| {
            let mut command = program.command();
            command.arg("--bench");
            (&*program.name, command)
        })
    }

    /// A run of all programs.
    pub(crate) fn all(&self) -> TestRun {
        TestRun::of(self.programs.iter().map(Program::command))
    }

    /// A run of a package's programs with these names, or of all programs of the package if there are no names. A name
    /// that does not exist is an error.
    pub(crate) fn of(&self, package: &str, names: &[&str]) -> Result<TestRun> {
        let find = |name: Option<&str>| {
            let found = self.programs.iter().filter(move |program| {
                program.package == package && name.is_none_or(|name| program.name == name)
            });
            let commands: Vec<_> = found.map(Program::command).collect();
            ensure!(!commands.is_empty(), "{package} has no test program {}", name.unwrap_or(""));
            Ok(commands)
        };
        if names.is_empty() {
            return Ok(TestRun::of(find(None)?));
        }
        let commands: Result<Vec<_>> = names.iter().map(|name| find(Some(name))).collect();
        Ok(TestRun::of(commands?.into_iter().flatten()))
    }
}

impl Program {
    /// The command that starts the program, as cargo does.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package);
        if env::var_os("CARGO").is_none() {
            command.env("CARGO", "cargo");
        }
        command
    }
}

/// Programs with the output format of cargo's test runner, which are run and counted together.
#[derive(Debug)]
pub(crate) struct TestRun {
    commands: Vec<Command>,
    /// Whether a run without tests is a success.
    may_be_empty: bool,
}

impl TestRun {
    pub(crate) fn of(commands: impl IntoIterator<Item = Command>) -> Self {
        Self { commands: commands.into_iter().collect(), may_be_empty: false }
    }

    /// The commands that start the programs.
    pub(crate) fn commands(self) -> Vec<Command> {
        self.commands
    }

    /// The same run, in which a run without tests is a success.
    pub(crate) fn allow_no_tests(self) -> Self {
        Self { may_be_empty: true, ..self }
    }

    /// Changes how each program is started.
    pub(crate) fn each(mut self, change: impl Fn(&mut Command) -> &mut Command) -> Self {
        for command in &mut self.commands {
            change(command);
        }
        self
    }

    /// Makes rules of the conformance suite report to `file`.
    pub(crate) fn report_to(self, file: &Path) -> Self {
        self.each(|command| conformance::report_to(command, file))
    }

    /// Runs the programs and counts their tests. A single program shows its output immediately; several programs show
    /// their output when they end.
    pub(crate) fn run(self) -> Result<Counts> {
        let may_be_empty = self.may_be_empty;
        let counts = self.run_all()?;
        let none = counts.passed + counts.failed + counts.ignored == 0;
        ensure!(!none || may_be_empty, "no test ran");
        Ok(counts)
    }

    fn run_all(self) -> Result<Counts> {
        let mut commands = self.commands;
        if let [command] = &mut commands[..] {
            return run_and_count(command, true, SILENCE);
        }
        let counts = Mutex::new(Counts { clean: true, ..Counts::default() });
        commands.reverse();
        let waiting = Mutex::new(commands);
        let work = || -> Result<()> {
            loop {
                let next = waiting.lock().expect("no panic under it").pop();
                let Some(mut command) = next else { return Ok(()) };
                let counted = run_and_count(&mut command, false, SILENCE)?;
                counts.lock().expect("no panic under it").join(counted);
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic in it"))
        })?;
        Ok(counts.into_inner().expect("no panic under it"))
    }
}

/// How long a program may be silent before a line reports that it still runs, and how long to wait for a process that
/// it left behind.
const SILENCE: Duration = Duration::from_secs(60);

fn run_and_count(command: &mut Command, live: bool, silence: Duration) -> Result<Counts> {
    let start = Instant::now();
    let (output, writer) = io::pipe()?;
    if !live {
        command.stderr(writer.try_clone()?);
    }
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    // Closes this side's ends of the pipe: reading ends when all ends are closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let name = Path::new(&program).file_name().unwrap_or_default().display();
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(io::Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    let mut counts = Counts::default();
    let mut text = String::new();
    let (mut ended, mut left_process) = (None, false);
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => {
                counts.add(&line);
                if live {
                    println!("{line}");
                }
                text += &line;
                text.push('\n');
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // A process that the program left behind holds the pipe.
        left_process = ended.is_some();
        if left_process {
            break;
        }
        ended = child.try_wait()?;
        if !live {
            let last = text.lines().last().unwrap_or("nothing");
            println!("-- {name} still runs; it last said: {last}");
        }
    }
    let status = child.wait()?;
    let mut how = if status.success() { String::new() } else { format!(", {status}") };
    if left_process {
        how += ", left a process behind that holds its output";
    }
    counts.clean = status.success() && !left_process;
    if !counts.clean && counts.failed == 0 {
        // The program failed, although none of its tests did.
        counts.failed = 1;
    }
    if !live {
        let time = start.elapsed().as_secs_f64();
        println!("\n-- {name}: {time:.1} s{how}\n{}", text.trim_matches('\n'));
    } else if !how.is_empty() {
        println!("-- {name}{how}");
    }
    if !counts.clean {
        counts.failures.push(format!("-- {name}{how}\n{}", report(&text)));
    }
    Ok(counts)
}

/// The test runner's report of its failures: at most its last lines.
fn report(text: &str) -> String {
    const LAST: usize = 60;
    let lines: Vec<_> = text.trim_matches('\n').lines().collect();
    let failures = lines.iter().position(|line| *line == "failures:").unwrap_or(0);
    lines[failures.max(lines.len().saturating_sub(LAST))..].join("\n")
}

/// The counts of cargo's test runner.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// Whether every program exited with success.
    pub(crate) clean: bool,
    /// The last output of each program that failed.
    pub(crate) failures: Vec<String>,
}

impl Counts {
    /// Adds the numbers in a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            if let Some((number, word)) = part.trim().split_once(' ') {
                let number = number.parse().unwrap_or(0);
                match word {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }

    fn join(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.clean &= other.clean;
        self.failures.extend(other.failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s");
        counts
            .add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("test a ... ok");
        assert_eq!(numbers(&counts), [4, 2, 1]);
    }

    fn numbers(counts: &Counts) -> [usize; 3] {
        [counts.passed, counts.failed, counts.ignored]
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn programs_side_by_side_are_counted_together() {
        let ok = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored'";
        let broken = "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored' >&2; exit 101";
        let run = |scripts: &[&str]| TestRun::of(scripts.iter().map(|text| shell(text))).run();
        let counts = run(&[ok, ok, broken]).unwrap();
        assert_eq!((numbers(&counts), counts.clean), ([5, 1, 2], false));
        assert!(run(&[ok, ok]).unwrap().clean);
        assert!(run(&[ok]).unwrap().clean);
        assert!(TestRun::of([Command::new("/nowhere/program")]).run().is_err());
    }

    #[test]
    fn programs_that_end_early_are_failures() {
        let ok = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored'";
        let failing = "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101";
        let killed = "kill -9 $$";
        let counts = TestRun::of([ok, failing, killed].map(shell)).run().unwrap();
        assert_eq!((numbers(&counts), counts.clean), ([2, 2, 1], false));
        let alone = TestRun::of([shell(killed)]).run().unwrap();
        assert_eq!((numbers(&alone), alone.clean), ([0, 1, 0], false));
    }

    #[test]
    fn the_output_of_failed_programs_is_kept() {
        let ok = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let failing =
            "echo 'running 1 test'; echo 'failures:'; echo '---- a stdout ----'; exit 101";
        let counts = TestRun::of([ok, failing].map(shell)).run().unwrap();
        let [output] = &counts.failures[..] else { panic!("{:?}", counts.failures) };
        assert!(output.ends_with("\nfailures:\n---- a stdout ----"), "{output}");
        let long = TestRun::of([shell("seq 1000; exit 1")]).run().unwrap();
        assert_eq!(long.failures[0].lines().nth(1), Some("941"));
    }

    #[test]
    fn a_run_without_tests_is_an_error_unless_allowed() {
        let none = || TestRun::of([shell("echo 'test result: ok. 0 passed; 0 failed; 0 ignored'")]);
        assert_eq!(none().run().unwrap_err().to_string(), "no test ran");
        assert!(none().allow_no_tests().run().unwrap().clean);
    }

    #[test]
    fn a_run_does_not_wait_for_a_process_left_behind() {
        let mut leaves = shell("sleep 60 & echo 'test result: ok. 2 passed; 0 failed; 0 ignored'");
        let start = Instant::now();
        let counts = run_and_count(&mut leaves, false, Duration::from_millis(200)).unwrap();
        assert_eq!((numbers(&counts), counts.clean), ([2, 1, 0], false));
        assert!(start.elapsed() < Duration::from_secs(50));
    }
}
