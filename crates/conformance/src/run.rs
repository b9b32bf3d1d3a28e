//! Runs one rule as one test, with a watchdog, exceptions and a report.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::{Ability, Fixture, Outcome, Stop, Subject, report};

/// If `1`, a rule that skips itself fails.
const STRICT: &str = "CONFORMANCE_STRICT";
/// A file to which one line is appended for each rule.
const REPORT: &str = "CONFORMANCE_REPORT";
/// The timeout of a rule, in seconds.
const TIMEOUT: &str = "CONFORMANCE_TIMEOUT";
/// Set in a process that runs a single rule for another process: the file for the outcome.
const ISOLATED: &str = "CONFORMANCE_ISOLATED";
/// The content of the file before the device stops the rule's program.
const FAULTING: &str = "faulting";

/// The timeout of a rule if [`TIMEOUT`] is not set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A rule: a function that checks one requirement on a device.
pub type Rule = fn(&Fixture) -> Outcome;

/// A test that [`accelerator!`](crate::accelerator) or [`embedded!`](crate::embedded!) made.
#[derive(Debug)]
pub struct Test<F: 'static = Fixture> {
    /// The rule's name.
    pub rule: &'static str,
    /// The rule.
    pub check: fn(&F) -> Outcome,
    /// The test's path, including the crate's name.
    pub path: &'static str,
    /// Whether the rule may break the process or the driver for other rules. If so, it gets its own process.
    pub isolated: bool,
}

impl<F> Clone for Test<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Test<F> {}

/// Runs a test: the rule in its own thread, with a timeout, and in its own process if it is isolated.
///
/// # Panics
///
/// If the rule failed, or passed although it was expected to fail. The message contains the rule, the device and the
/// reason.
pub fn run<F: Subject>(fixture: &'static F, test: Test<F>) {
    if let Some(file) = env::var_os(ISOLATED) {
        let outcome = run_here(fixture, test, timeout());
        // The parent process treats a missing file as a crash, which reports the problem as well as any other failure.
        let _ = fs::write(file, encode(&outcome));
        return;
    }
    let strict = env::var_os(STRICT).is_some_and(|value| value == "1");
    let verdict = judge(fixture, test, strict);
    let lacks = match &verdict {
        Err(Stop::NotApplicable(ability)) => format!("needs {ability}"),
        _ => String::new(),
    };
    let (word, reason) = match &verdict {
        Ok(note) => ("passed", note.as_deref().unwrap_or_default()),
        Err(Stop::NotApplicable(_)) => ("not applicable", lacks.as_str()),
        Err(Stop::Skipped(reason)) => ("skipped", reason.as_str()),
        Err(Stop::Failed(reason)) => ("failed", reason.as_str()),
    };
    let (rule, device) = (test.rule, fixture.expectations().name);
    if let Some(file) = env::var_os(REPORT) {
        let written = report::append(Path::new(&file), device, rule, word, reason);
        assert!(written.is_ok(), "{REPORT}={}: {written:?}", file.display());
    }
    match word {
        "failed" => panic!("{device} breaks the rule {rule}: {reason}"),
        _ if reason.is_empty() => {}
        // Not by `eprintln!`, which the test harness hides when the test passes.
        _ => drop(writeln!(io::stderr(), "{device}: {rule} {word}: {reason}")),
    }
}

/// Announces that the device is about to stop the program, which may end this process.
pub(crate) fn announce_fault() {
    if let Some(file) = env::var_os(ISOLATED) {
        // Without the file, the end of the process counts as an ordinary crash.
        let _ = fs::write(file, FAULTING);
    }
}

/// The outcome after applying the fixture's exceptions and [`STRICT`]. `STRICT` applies only to undeclared skips. A
/// passed test may have a remark.
fn judge<F: Subject>(fixture: &'static F, test: Test<F>, strict: bool) -> Outcome<Option<String>> {
    if let Some(reason) = fixture.expectations().reason_unsupported(test.rule) {
        return Err(Stop::Skipped(format!("unsupported: {reason}")));
    }
    let outcome = if test.isolated {
        run_apart(fixture, test)
    } else {
        run_here(fixture, test, timeout()).map(|()| None)
    };
    match (fixture.expectations().reason_to_fail(test.rule), outcome) {
        (Some(reason), Ok(_)) => {
            Err(Stop::Failed(format!("it passed, but was expected to fail: {reason}")))
        }
        (Some(reason), Err(Stop::Failed(how))) => {
            Err(Stop::Skipped(format!("expected to fail: {reason}; {how}")))
        }
        (_, Err(Stop::NotApplicable(ability))) if fixture.expectations().must_have(ability) => {
            Err(Stop::Failed(format!("the device lacks {ability}, which it must have")))
        }
        (_, Err(Stop::Skipped(reason))) if strict => {
            Err(Stop::Failed(format!("skipped, which {STRICT} forbids: {reason}")))
        }
        (_, outcome) => outcome,
    }
}

/// Runs the rule in a thread, so that a hanging rule can be detected.
fn run_here<F: Subject>(fixture: &'static F, test: Test<F>, limit: Duration) -> Outcome {
    let (send, receive) = mpsc::channel();
    let work = move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| (test.check)(fixture)));
        let outcome = outcome.unwrap_or_else(|panic| {
            Err(Stop::Failed(format!("it panicked: {}", panic_message(&*panic))))
        });
        // After the timeout, the receiver is gone.
        let _ = send.send(outcome);
    };
    let thread = thread::Builder::new().name(test.rule.to_owned()).spawn(work);
    if let Err(error) = thread {
        return Err(Stop::Failed(format!("no thread to run it: {error}")));
    }
    match receive.recv_timeout(limit) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            Err(Stop::Failed(format!("it hangs: not over after {limit:?}")))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Stop::Failed("its thread ended without an outcome".to_owned()))
        }
    }
}

/// Runs the rule in another process of this test program. That process applies the timeout itself, and is killed if it
/// still does not end. If a fault may end the process on this device, the end of the process is a remark and not a
/// failure, because the process cannot report anything more.
fn run_apart<F: Subject>(fixture: &F, test: Test<F>) -> Outcome<Option<String>> {
    const GRACE: Duration = Duration::from_secs(10);
    let failed = |what: &str, error: io::Error| Stop::Failed(format!("{what}: {error}"));
    let program = env::current_exe().map_err(|e| failed("finding the test program", e))?;
    let (result, log) = (TemporaryFile::new(test.rule), TemporaryFile::new("log"));
    let log_file = fs::File::create(&log.0).map_err(|e| failed("creating a file", e))?;
    // The harness identifies tests by their path without the crate's name.
    let path = test.path.split_once("::").map_or(test.path, |(_, path)| path);
    let mut child = Command::new(program)
        .args([path, "--exact", "--nocapture", "--include-ignored"])
        .env(ISOLATED, &result.0)
        .stdout(Stdio::null())
        .stderr(log_file)
        .spawn()
        .map_err(|e| failed("starting a process for the rule", e))?;
    let deadline = Instant::now() + timeout() + GRACE;
    let (status, crashed) = loop {
        let status = child.try_wait().map_err(|e| failed("waiting for the rule's process", e))?;
        match status {
            Some(status) => break (status.to_string(), !status.success()),
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            None => {
                // It may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                break ("killed for not ending".to_owned(), false);
            }
        }
    };
    let text = fs::read_to_string(&result.0).unwrap_or_default();
    match decode(&text) {
        Some(outcome) => outcome.map(|()| None),
        None if crashed && text == FAULTING && fixture.expectations().faults_may_end_processes => {
            Ok(Some(format!("the fault ended the process, {status}")))
        }
        None => {
            let log = fs::read(&log.0).unwrap_or_default();
            let log = last_lines(&String::from_utf8_lossy(&log));
            Err(Stop::Failed(format!("its process ended without an outcome, {status}: {log}")))
        }
    }
}

/// A path that only this test uses, removed at the end.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(rule: &str) -> Self {
        let name =
            format!("conformance-{}-{rule}-{:?}", std::process::id(), thread::current().id());
        Self(env::temp_dir().join(name.replace(['(', ')'], "-")))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The file does not exist if the process crashed.
        let _ = fs::remove_file(&self.0);
    }
}

fn encode(outcome: &Outcome) -> String {
    match outcome {
        Ok(()) => "passed\n".to_owned(),
        Err(Stop::NotApplicable(ability)) => format!("not applicable\n{ability}"),
        Err(Stop::Skipped(reason)) => format!("skipped\n{reason}"),
        Err(Stop::Failed(reason)) => format!("failed\n{reason}"),
    }
}

fn decode(text: &str) -> Option<Outcome> {
    let (word, reason) = text.split_once('\n')?;
    match word {
        "passed" => Some(Ok(())),
        "not applicable" => Ability::named(reason).map(|ability| Err(Stop::NotApplicable(ability))),
        "skipped" => Some(Err(Stop::Skipped(reason.to_owned()))),
        "failed" => Some(Err(Stop::Failed(reason.to_owned()))),
        _ => None,
    }
}

fn timeout() -> Duration {
    let seconds = env::var(TIMEOUT).ok().and_then(|text| text.parse().ok());
    seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs)
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use backend_sim::{SimConfig, SimDevice};
    use runtime_core::{Device, Error, ErrorKind};

    use super::*;
    use crate::{kernels, rules};

    fn fixture(kind: ErrorKind) -> Fixture {
        let open = move |_| Err(Error::new(kind, "open", "no such machine"));
        Fixture::new("absent", open, kernels::host_functions())
    }

    fn leaked(fixture: Fixture) -> &'static Fixture {
        Box::leak(Box::new(fixture))
    }

    fn test(check: Rule) -> Test {
        Test { rule: "a_rule", check, path: "tests::a_rule", isolated: false }
    }

    fn failing(_: &Fixture) -> Outcome {
        Err(Stop::failed("seven"))
    }

    fn failed<T>(outcome: Outcome<T>, reason: &str) -> bool {
        matches!(outcome, Err(Stop::Failed(why)) if why.contains(reason))
    }

    fn skipped<T>(outcome: Outcome<T>, reason: &str) -> bool {
        matches!(outcome, Err(Stop::Skipped(why)) if why.contains(reason))
    }

    #[test]
    fn an_absent_device_skips_and_a_broken_one_fails() {
        let rule = test(rules::streams_run_in_order);
        let absent = leaked(fixture(ErrorKind::Unavailable));
        assert!(skipped(judge(absent, rule, false), "no such machine"));
        assert!(failed(judge(absent, rule, true), "no such machine"));
        let broken = leaked(fixture(ErrorKind::Driver));
        assert!(failed(judge(broken, rule, false), "no such machine"));
    }

    #[test]
    fn declared_exceptions_hold_also_where_skips_are_forbidden() {
        let unsupported = fixture(ErrorKind::Driver).unsupported("a_rule", "no clock");
        assert!(skipped(judge(leaked(unsupported), test(failing), true), "no clock"));
        let expected = leaked(fixture(ErrorKind::Driver).expected_failure("a_rule", "not yet"));
        assert!(skipped(judge(expected, test(failing), true), "seven"));
        assert!(failed(judge(expected, test(|_| Ok(())), false), "not yet"));
    }

    #[test]
    fn a_rule_about_an_absent_ability_does_not_apply_unless_the_device_must_have_it() {
        let open = |_| Device::new(SimDevice::new(0, SimConfig::new().graphs(false)));
        let without = || Fixture::new("without graphs", open, kernels::host_functions());
        let rule = test(rules::graphs_do_what_was_captured);
        let lacks = Err(Stop::NotApplicable(Ability::Graphs));
        assert_eq!(judge(leaked(without()), rule, true), lacks);
        let must = leaked(without().abilities([Ability::Monitor, Ability::Graphs]));
        assert!(failed(judge(must, rule, false), "lacks graphs, which it must have"));
    }

    #[test]
    fn outcomes_pass_from_process_to_process() {
        let lacks = Ability::ALL.map(|ability| Err(Stop::NotApplicable(ability)));
        let others = [
            Ok(()),
            Err(Stop::Skipped("why\nnot".to_owned())),
            Err(Stop::Failed("how".to_owned())),
        ];
        for outcome in lacks.into_iter().chain(others) {
            assert_eq!(decode(&encode(&outcome)), Some(outcome));
        }
        assert_eq!(decode("not applicable\nwings"), None);
    }

    #[test]
    fn panics_and_hangs_are_failures() {
        let fixture = leaked(fixture(ErrorKind::Driver));
        let panics = test(|_| panic!("out of order"));
        assert!(failed(run_here(fixture, panics, DEFAULT_TIMEOUT), "out of order"));
        let hangs = test(|_| {
            loop {
                thread::park();
            }
        });
        assert!(failed(run_here(fixture, hangs, Duration::from_millis(20)), "hangs"));
    }

    /// In the rule's process, runs the rule and ends the process. In the parent, returns the two results: with and
    /// without permission for faults to end processes.
    fn end(name: &'static str, check: Rule) -> [Outcome<Option<String>>; 2] {
        let path = Box::leak(format!("conformance::run::tests::{name}").into_boxed_str());
        let test = Test { rule: "a_rule", check, path, isolated: true };
        let fixtures =
            [fixture(ErrorKind::Driver).faults_may_end_the_process(), fixture(ErrorKind::Driver)];
        let [may, may_not] = fixtures.map(leaked);
        if env::var_os(ISOLATED).is_some() {
            run(may, test);
        }
        [may, may_not].map(|fixture| judge(fixture, test, true))
    }

    #[test]
    fn a_fault_may_end_the_process_where_that_is_declared() {
        let [may, may_not] = end("a_fault_may_end_the_process_where_that_is_declared", |_| {
            announce_fault();
            std::process::abort()
        });
        assert!(may.is_ok_and(|note| note.is_some_and(|note| note.contains("ended the process"))));
        assert!(failed(may_not, "without an outcome"));
    }

    #[test]
    fn the_process_does_not_end_before_the_fault() {
        let [may, may_not] =
            end("the_process_does_not_end_before_the_fault", |_| std::process::abort());
        assert!(failed(may, "without an outcome"));
        assert!(failed(may_not, "without an outcome"));
    }

    #[test]
    fn outcomes_are_sent_between_processes() {
        for outcome in [
            Ok(()),
            Err(Stop::Skipped("two\nlines".to_owned())),
            Err(Stop::Failed("why: \"x\"".to_owned())),
        ] {
            assert_eq!(decode(&encode(&outcome)), Some(outcome));
        }
        assert_eq!(decode(""), None);
    }

    #[test]
    fn reports_of_several_threads_are_lines_of_their_own() {
        let file = TemporaryFile::new("report");
        let path = &file.0;
        thread::scope(|scope| {
            for number in 0..8 {
                let rule = format!("rule {number}");
                let write = move || report::append(path, "a \"device\"", &rule, "failed", "a\nb");
                scope.spawn(write);
            }
        });
        let text = fs::read_to_string(path).unwrap();
        let mut rules: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| line["rule"].as_str().unwrap().to_owned())
            .collect();
        rules.sort();
        assert_eq!(rules, (0..8).map(|number| format!("rule {number}")).collect::<Vec<_>>());
    }
}
