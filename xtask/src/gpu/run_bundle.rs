//! Runs a bundle on its target machine. Every program has a time limit, and the report is up to date at any moment.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::conformance::count;
use crate::test::programs::Counts;

/// The list of programs to run, in order.
pub(crate) const MANIFEST: &str = "bundle.json";

/// How long to wait for the end of a program that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Options {
    /// The folder of the bundle.
    #[arg(long, hide = true)]
    folder: PathBuf,
    /// The folder for results: report.md, report.json, rules.jsonl, log.txt and the demo's three files. Except for
    /// temporary files, nothing is written elsewhere. By default, the folder `report` of the bundle.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Only checks that everything runs: benchmarks take few samples, and their results mean nothing.
    #[arg(long)]
    quick: bool,
    /// The time limit for the whole run. At the limit, the current program is stopped and the rest is skipped.
    #[arg(long, value_name = "SECONDS", default_value_t = 540)]
    limit: u64,
    /// Runs only programs whose title contains one of these words.
    #[arg(value_name = "WORD")]
    only: Vec<String>,
}

/// The result of one program.
enum Ended {
    NotRun(&'static str),
    Running,
    NotStarted(String),
    Code(i32),
    Signal(i32),
    /// Stopped at its time limit.
    Stopped,
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Code(code),
            None => Self::Signal(status.signal().unwrap_or(0)),
        }
    }
}

impl Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun(why) => write!(f, "not run: {why}"),
            Self::Running => f.write_str("still running"),
            Self::NotStarted(why) => f.write_str(why),
            Self::Code(code) => write!(f, "with {code}"),
            Self::Signal(signal) => write!(f, "by signal {signal}"),
            Self::Stopped => f.write_str("stopped: out of time"),
        }
    }
}

/// One program of a bundle.
struct Part {
    title: String,
    kind: String,
    program: PathBuf,
    args: Vec<String>,
    limit: Duration,
    ended: Ended,
    seconds: f64,
    counts: Counts,
    output: String,
}

impl Part {
    fn new(folder: &Path, entry: &Value, quick: bool) -> Self {
        let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let args = entry[if quick { "quick" } else { "args" }].as_array().into_iter().flatten();
        Self {
            title: word("title"),
            kind: word("kind"),
            program: folder.join(word("program")),
            args: args.filter_map(Value::as_str).map(str::to_owned).collect(),
            limit: Duration::from_secs(entry["limit"].as_u64().unwrap_or(60)),
            ended: Ended::NotRun("its turn has not come"),
            seconds: 0.0,
            counts: Counts::default(),
            output: String::new(),
        }
    }

    fn passed(&self) -> bool {
        matches!(self.ended, Ended::Code(0))
    }

    fn json(&self) -> Value {
        let code = if let Ended::Code(code) = self.ended { Some(code) } else { None };
        json!({
            "title": self.title, "kind": self.kind, "seconds": self.seconds, "exit_code": code,
            "ended": self.ended.to_string(), "output": self.output,
            "passed": self.counts.passed, "failed": self.counts.failed, "ignored": self.counts.ignored,
        })
    }
}

/// The files that a run writes.
struct Places {
    results: PathBuf,
    /// The lines of the conformance suite.
    rules: PathBuf,
    /// The output of the programs.
    log: PathBuf,
    /// The folder for temporary files and caches. It is removed when this is dropped.
    scratch: PathBuf,
}

impl Places {
    fn create(results: &Path) -> Result<Self> {
        let create = |folder: &Path| {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))
        };
        create(results)?;
        let results = fs::canonicalize(results)?;
        let scratch = env::temp_dir().join(format!("bundle-{}", process::id()));
        create(&scratch)?;
        let (rules, log) = (results.join("rules.jsonl"), results.join("log.txt"));
        for file in [&rules, &log] {
            fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(Self { results, rules, log, scratch })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // If this fails, the system removes the temporary files later.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs a bundle. If a program fails, the next still runs, unless the failed program is the one that looks for devices.
pub(crate) fn run(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let folder = fs::canonicalize(&options.folder)
        .with_context(|| format!("no bundle in {}", options.folder.display()))?;
    let text = fs::read_to_string(folder.join(MANIFEST))
        .with_context(|| format!("no bundle in {}", folder.display()))?;
    let manifest: Value = serde_json::from_str(&text).context(MANIFEST)?;
    let entries = manifest["entries"].as_array().into_iter().flatten();
    let mut parts: Vec<Part> =
        entries.map(|entry| Part::new(&folder, entry, options.quick)).collect();
    let chosen = |part: &Part| {
        options.only.is_empty() || options.only.iter().any(|word| part.title.contains(word))
    };
    ensure!(parts.iter().any(chosen), "no program of {MANIFEST} has such a title");
    parts.retain(chosen);

    let places = Places::create(options.output.as_deref().unwrap_or(&folder.join("report")))?;
    let limit = Duration::from_secs(options.limit);
    let mut has_device = true;
    for index in 0..parts.len() {
        parts[index].ended = Ended::Running;
        write_reports(&places, &manifest, &parts)?;
        let remaining = limit.saturating_sub(begun.elapsed());
        let part = &mut parts[index];
        if !has_device {
            part.ended = Ended::NotRun("no device");
        } else if remaining.is_zero() {
            part.ended = Ended::NotRun("out of time");
        } else {
            start(part, &folder, &places, remaining)?;
        }
        has_device &= part.kind != "devices" || part.passed();
        println!("{:32} {:>6.1} s  ended {}", part.title, part.seconds, part.ended);
        if part.kind == "benchmark" && !part.output.is_empty() {
            println!("{}", part.output.trim_end());
        }
    }
    write_reports(&places, &manifest, &parts)?;
    println!("see {}", places.results.join("report.md").display());
    ensure!(parts.iter().all(Part::passed), "not everything passed");
    Ok(())
}

/// Runs one program within its time limit.
fn start(part: &mut Part, folder: &Path, places: &Places, remaining: Duration) -> Result<()> {
    let mut log = File::options().append(true).open(&places.log)?;
    writeln!(log, "\n=== {}", part.title)?;
    let from = log.metadata()?.len();
    let begun = Instant::now();
    let started = Command::new(&part.program)
        .args(&part.args)
        .current_dir(&places.results)
        .env("BUNDLE", folder)
        .env("CONFORMANCE_REPORT", &places.rules)
        .env("CONFORMANCE_STRICT", "1")
        .env("TMPDIR", &places.scratch)
        .env("XDG_CACHE_HOME", &places.scratch)
        .env("CUDA_CACHE_PATH", places.scratch.join("driver"))
        .env("CUPY_CACHE_DIR", places.scratch.join("cupy"))
        // The log then has all output even if the program is stopped.
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // The programs that it starts can then be stopped with it.
        .process_group(0)
        .spawn();
    part.ended = match started {
        Ok(child) => wait(child, begun + remaining.min(part.limit))?,
        Err(error) => {
            Ended::NotStarted(format!("cannot start {}: {error}", part.program.display()))
        }
    };
    part.seconds = begun.elapsed().as_secs_f64();
    let mut output = Vec::new();
    let mut log = File::open(&places.log)?;
    log.seek(SeekFrom::Start(from))?;
    log.read_to_end(&mut output)?;
    part.output = String::from_utf8_lossy(&output).into_owned();
    // Results of tests that ran in their own processes come before the last line.
    let last = part.output.lines().rfind(|line| line.starts_with("test result: "));
    last.into_iter().for_each(|line| part.counts.add(line));
    Ok(())
}

/// Waits for the end of a program. At `end` it is stopped, with all programs that it started.
fn wait(mut child: Child, end: Instant) -> Result<Ended> {
    let until = |child: &mut Child, end: Instant| -> Result<Option<ExitStatus>> {
        loop {
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                return Ok(ended);
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    if let Some(status) = until(&mut child, end)? {
        return Ok(status.into());
    }
    let group = format!("kill -s KILL -- -{}", child.id());
    if !Command::new("/bin/sh").args(["-c", &group]).status().is_ok_and(|status| status.success()) {
        child.kill()?;
    }
    // A program that is stuck in the driver does not end, and is left behind.
    until(&mut child, Instant::now() + KILL_TIMEOUT)?;
    Ok(Ended::Stopped)
}

fn write_reports(places: &Places, manifest: &Value, parts: &[Part]) -> Result<()> {
    // A program that was stopped may have written an incomplete line.
    let lines = fs::read(&places.rules)?;
    let lines = String::from_utf8_lossy(&lines);
    let rules: Vec<Value> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let text = markdown(manifest, parts, &rules)?;
    fs::write(places.results.join("report.md"), text)?;
    let programs: Vec<Value> = parts.iter().map(Part::json).collect();
    let report = json!({
        "name": manifest["name"], "revision": manifest["revision"], "programs": programs, "rules": rules,
    });
    fs::write(places.results.join("report.json"), serde_json::to_string_pretty(&report)?)?;
    Ok(())
}

fn markdown(manifest: &Value, parts: &[Part], rules: &[Value]) -> Result<String> {
    let mut text = format!(
        "# {} at {}\n\n| program | passed | failed | ended | seconds |\n|---|---|---|---|---|\n",
        manifest["name"].as_str().unwrap_or("bundle"),
        manifest["revision"].as_str().unwrap_or("unknown")
    );
    for Part { title, counts, ended, seconds, .. } in parts {
        let Counts { passed, failed, .. } = counts;
        writeln!(text, "| {title} | {passed} | {failed} | {ended} | {seconds:.1} |")?;
    }
    let mut tallies = BTreeMap::new();
    for rule in rules {
        if let Err(error) = count(&mut tallies, rule) {
            writeln!(text, "\n{error}")?;
        }
    }
    for (device, tally) in &tallies {
        writeln!(text, "\nconformance of {device}: {tally}")?;
        for line in tally.problems() {
            writeln!(text, "- {line}")?;
        }
    }
    let is_shown = |part: &&Part| part.kind != "tests" || !part.passed();
    for part in parts.iter().filter(is_shown).filter(|part| !part.output.is_empty()) {
        writeln!(text, "\n## {}\n\n```text\n{}\n```", part.title, part.output.trim_end())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a bundle whose programs are shell commands. Returns its report, and whether everything passed.
    fn run_lines(name: &str, lines: &[(&str, &str)], limit: u64) -> (bool, String, Value) {
        let folder = env::temp_dir().join(format!("bundle-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let entry = |(kind, line): &(&str, &str)| json!({ "title": format!("{kind} {line}"), "kind": kind, "program": "/bin/sh", "args": ["-c", line], "limit": 60 });
        let entries: Vec<Value> = lines.iter().map(entry).collect();
        let manifest = json!({ "name": name, "revision": "test", "entries": entries });
        fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
        let output = Some(folder.join("results"));
        let options =
            Options { folder: folder.clone(), output, quick: false, limit, only: Vec::new() };
        let passed = run(&options).is_ok();
        let read = |file: &str| fs::read_to_string(folder.join("results").join(file)).unwrap();
        let (text, report) = (read("report.md"), read("report.json"));
        fs::remove_dir_all(folder).unwrap();
        (passed, text, serde_json::from_str(&report).unwrap())
    }

    #[test]
    fn every_program_runs_and_is_reported() {
        let result = "test result: ok. 3 passed; 0 failed; 0 ignored";
        let counted = format!("echo '{result}'; echo '{result}'; exit 3");
        let rule = r#"echo '{"device":"d","rule":"r","outcome":"failed","reason":"why"}' >> "$CONFORMANCE_REPORT"; printf '{"dev' >> "$CONFORMANCE_REPORT""#;
        let lines = [("tests", counted.as_str()), ("program", rule), ("program", "kill -9 $$")];
        let (passed, text, report) = run_lines("reported", &lines, 60);
        assert!(!passed);
        for part in ["| 3 | 0 | with 3 |", "| 0 | 0 | with 0 |", "by signal 9", "- r: why"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(report["programs"][0]["exit_code"], 3);
        assert_eq!(report["rules"][0]["reason"], "why");
        assert_eq!(report["rules"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_program_that_takes_too_long_is_stopped_with_its_children_and_the_others_do_not_run() {
        let begun = Instant::now();
        let lines = [("program", "sleep 50 & echo $!; sleep 50"), ("program", "echo late")];
        let (passed, text, report) = run_lines("slow", &lines, 1);
        assert!(!passed && begun.elapsed() < Duration::from_secs(20));
        assert!(text.contains("stopped: out of time"), "{text}");
        assert!(text.contains("not run: out of time"), "{text}");
        let started = report["programs"][0]["output"].as_str().unwrap().trim();
        let state = || fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
        let runs = || !state().is_empty() && !state().contains(") Z");
        // A killed process ends when it is next scheduled.
        while runs() && begun.elapsed() < Duration::from_secs(40) {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!runs(), "{}", state());
    }

    #[test]
    fn without_a_device_nothing_else_runs() {
        let lines = [("devices", "echo none; exit 1"), ("program", "echo run")];
        let (passed, text, _) = run_lines("nothing", &lines, 60);
        assert!(!passed && text.contains("not run: no device"), "{text}");
        let (passed, ..) = run_lines("something", &[("devices", "exit 0")], 60);
        assert!(passed);
    }

    /// If a run is killed from outside, the results so far remain.
    #[test]
    fn the_report_is_up_to_date_while_programs_run() {
        let lines = [("program", "echo first"), ("program", "cat report.md")];
        let (_, _, report) = run_lines("early", &lines, 60);
        let early = report["programs"][1]["output"].as_str().unwrap();
        assert!(early.contains("| with 0 |") && early.contains("| still running |"), "{early}");
    }

    #[test]
    fn a_folder_without_a_bundle_is_refused() {
        let options = |folder: &str| Options {
            folder: folder.into(),
            output: None,
            quick: true,
            limit: 1,
            only: Vec::new(),
        };
        let error = run(&options("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
        let error = run(&options("/usr")).unwrap_err().to_string();
        assert!(error.contains("no bundle in /usr"), "{error}");
    }
}
