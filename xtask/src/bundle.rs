//! A folder of tests, the demo and benchmarks for a machine that has a device and its driver, but neither Rust nor a
//! network: making it, and running it there.

use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::conformance::read;
use crate::run::{cargo, programs, root};
use crate::test::Counts;

/// What is built: a title, cargo's words, and the arguments on the machine, in full and to see briefly that it works.
struct Item {
    title: &'static str,
    build: &'static [&'static str],
    args: &'static [&'static str],
    quick: &'static [&'static str],
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A program of cargo's test runner; a package may have several.
    Tests,
    Program,
    Benchmark,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Tests => "tests",
            Self::Program => "program",
            Self::Benchmark => "benchmark",
        }
    }
}

const CUDA: &[Item] = &[
    Item {
        title: "devices",
        build: &["build", "--package", "runtime", "--features", "cuda", "--example", "devices"],
        args: &[],
        quick: &[],
        kind: Kind::Program,
    },
    Item {
        title: "backend-cuda",
        build: &["test", "--no-run", "--package", "backend-cuda", "--features", "cuda", "--tests"],
        args: &[],
        quick: &[],
        kind: Kind::Tests,
    },
    Item {
        title: "array-buffer",
        build: &["test", "--no-run", "--package", "array-buffer", "--test", "regressions"],
        args: &["cuda::"],
        quick: &["cuda::"],
        kind: Kind::Tests,
    },
    Item {
        title: "halo",
        build: &[
            "test",
            "--no-run",
            "--package",
            "halo",
            "--test",
            "geometry",
            "--test",
            "reverse",
        ],
        args: &["cuda::"],
        quick: &["cuda::"],
        kind: Kind::Tests,
    },
    Item {
        title: "demo",
        build: &["build", "--package", "runtime", "--features", "cuda", "--example", "terrain"],
        args: &["--device", "cuda:0", "--steps", "2000", "--scale", "4", "--output", "report/demo"],
        quick: &["--device", "cuda:0", "--steps", "3", "--output", "report/demo"],
        kind: Kind::Program,
    },
    Item {
        title: "benchmark cuda",
        build: &[
            "bench",
            "--no-run",
            "--package",
            "benches",
            "--features",
            "cuda",
            "--bench",
            "cuda",
        ],
        args: &["--check", "--verbose"],
        quick: &["--quick", "--verbose"],
        kind: Kind::Benchmark,
    },
];

const HIP: &[Item] = &[
    Item {
        title: "devices",
        build: &["build", "--package", "runtime", "--features", "hip", "--example", "devices"],
        args: &[],
        quick: &[],
        kind: Kind::Program,
    },
    Item {
        title: "backend-hip",
        build: &["test", "--no-run", "--package", "backend-hip", "--features", "hip", "--tests"],
        args: &[],
        quick: &[],
        kind: Kind::Tests,
    },
    Item {
        title: "array-buffer",
        build: &["test", "--no-run", "--package", "array-buffer", "--test", "regressions"],
        args: &["hip::"],
        quick: &["hip::"],
        kind: Kind::Tests,
    },
    Item {
        title: "halo",
        build: &[
            "test",
            "--no-run",
            "--package",
            "halo",
            "--test",
            "geometry",
            "--test",
            "reverse",
        ],
        args: &["hip::"],
        quick: &["hip::"],
        kind: Kind::Tests,
    },
    Item {
        title: "demo",
        build: &["build", "--package", "runtime", "--features", "hip", "--example", "terrain"],
        args: &["--device", "hip:0", "--steps", "2000", "--scale", "4", "--output", "report/demo"],
        quick: &["--device", "hip:0", "--steps", "3", "--output", "report/demo"],
        kind: Kind::Program,
    },
];

/// The rival of the benchmark's packed faces, for machines that have CuPy.
const CUPY: &str = "benches/benches/cuda/cupy_pack.py";
/// Most bytes of a bundle.
const LARGEST: u64 = 40 << 20;
/// What is to be run, in order.
const MANIFEST: &str = "bundle.json";
/// The longest that one program may run on the machine.
const LONGEST: Duration = Duration::from_secs(900);

/// `cargo xtask bundle NAME`.
pub(crate) fn bundle(name: &str) -> Result<()> {
    let items = match name {
        "cuda" => CUDA,
        "hip" => HIP,
        _ => bail!("no bundle of {name:?}; there are those of cuda and hip"),
    };
    let folder = root().join("target/bundles").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("bin"))?;
    let mut entries = Vec::new();
    for item in items {
        for (target, program) in build(item.build)? {
            let file = format!("bin/{}-{target}", item.title.replace(' ', "-"));
            fs::copy(&program, folder.join(&file))?;
            let title = match item.kind {
                Kind::Tests => format!("{}: {target}", item.title),
                _ => item.title.to_owned(),
            };
            entries.push(json!({
                "title": title, "kind": item.kind.name(), "program": file,
                "args": item.args, "quick": item.quick,
            }));
        }
    }
    if name == "cuda" {
        fs::copy(root().join(CUPY), folder.join("bin/cupy_pack.py"))
            .with_context(|| format!("cannot copy {CUPY}"))?;
        let cupy = [
            "-c",
            "if command -v python3 >/dev/null; then python3 bin/cupy_pack.py; else echo 'left out: no Python'; fi",
        ];
        entries.push(json!({
            "title": "the same faces by CuPy", "kind": Kind::Program.name(), "program": "/bin/sh",
            "args": cupy, "quick": cupy,
        }));
    }
    let runner = build(&["build", "--package", "xtask"])?;
    let (_, runner) = runner.first().context("cargo built no runner")?;
    fs::copy(runner, folder.join("bin/xtask"))?;
    let manifest = json!({ "name": name, "revision": revision(), "entries": entries });
    fs::write(folder.join(MANIFEST), serde_json::to_string_pretty(&manifest)?)?;
    let script = folder.join("run");
    fs::write(
        &script,
        "#!/bin/sh\n# Runs everything here, and writes report/report.md and report/report.json. With --quick, only to see\n\
         # that it runs: benchmarks take few samples then, and prove nothing.\n\
         cd \"$(dirname \"$0\")\" && exec bin/xtask run-bundle \"$@\" .\n",
    )?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let bytes = size(&folder)?;
    ensure!(bytes <= LARGEST, "{} has {bytes} bytes, of at most {LARGEST}", folder.display());
    println!(
        "{}: {:.1} MiB; start its script `run`",
        folder.display(),
        bytes as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The programs that cargo builds, small ones: the name of each target, and its file.
fn build(words: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let mut command = cargo(words);
    programs(command.args(["--profile", "bundle", "--message-format", "json-render-diagnostics"]))
}

/// What the bundle was made from, as far as git can tell.
fn revision() -> String {
    let git =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()).output();
    let text = git.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { size(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

/// How one program ended.
struct Outcome {
    title: String,
    kind: String,
    seconds: f64,
    /// The exit code; `None` if it was ended by a signal or took too long.
    code: Option<i32>,
    counts: Counts,
    output: String,
}

impl Outcome {
    fn passed(&self) -> bool {
        self.code == Some(0)
    }

    fn json(&self) -> Value {
        json!({
            "title": self.title, "kind": self.kind, "seconds": self.seconds, "exit_code": self.code,
            "passed": self.counts.passed, "failed": self.counts.failed, "ignored": self.counts.ignored,
            "output": self.output,
        })
    }
}

/// Runs a bundle in its folder. A failed program does not keep the next from running.
pub(crate) fn run(folder: &Path, quick: bool) -> Result<()> {
    let text = fs::read_to_string(folder.join(MANIFEST))
        .with_context(|| format!("no bundle in {}", folder.display()))?;
    let manifest: Value = serde_json::from_str(&text).context(MANIFEST)?;
    let reports = folder.join("report");
    fs::create_dir_all(&reports).with_context(|| format!("cannot write {}", reports.display()))?;
    let rules = fs::canonicalize(&reports)?.join("rules.jsonl");
    fs::write(&rules, "")?;
    let entries = manifest["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(!entries.is_empty(), "{MANIFEST} lists no program");
    let mut outcomes = Vec::new();
    for entry in entries {
        let outcome = start(folder, entry, quick, &rules)?;
        let verdict = if outcome.passed() { "passed" } else { "FAILED" };
        println!("{:40} {verdict} in {:.1} s", outcome.title, outcome.seconds);
        outcomes.push(outcome);
    }
    write_reports(&reports, &manifest, &outcomes, &rules)?;
    println!("see {}", reports.join("report.md").display());
    ensure!(outcomes.iter().all(Outcome::passed), "not everything passed");
    Ok(())
}

fn start(folder: &Path, entry: &Value, quick: bool, rules: &Path) -> Result<Outcome> {
    let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let args = entry[if quick { "quick" } else { "args" }]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let program = fs::canonicalize(folder.join(word("program")))
        .with_context(|| format!("no program {}", word("program")))?;
    let log = folder.join("report").join(format!("{}.log", word("title").replace([' ', ':'], "-")));
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env("CONFORMANCE_REPORT", rules)
        .env("CONFORMANCE_STRICT", "1")
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start {}", word("program")))?;
    let begun = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait()? {
            break status.code();
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let mut counts = Counts::default();
    output.lines().for_each(|line| counts.add(line));
    let (title, kind) = (word("title"), word("kind"));
    Ok(Outcome { title, kind, seconds: begun.elapsed().as_secs_f64(), code, counts, output })
}

fn write_reports(
    folder: &Path,
    manifest: &Value,
    outcomes: &[Outcome],
    rules: &Path,
) -> Result<()> {
    let tallies = read(rules)?;
    let mut text = format!(
        "# {} at {}\n\n| program | passed | failed | ended | seconds |\n|---|---|---|---|---|\n",
        manifest["name"].as_str().unwrap_or("bundle"),
        manifest["revision"].as_str().unwrap_or("unknown")
    );
    for outcome in outcomes {
        let ended = match outcome.code {
            Some(code) => format!("with {code}"),
            None => "by force".to_owned(),
        };
        let Counts { passed, failed, .. } = outcome.counts;
        writeln!(
            text,
            "| {} | {passed} | {failed} | {ended} | {:.1} |",
            outcome.title, outcome.seconds
        )?;
    }
    for (device, tally) in &tallies {
        let (failed, skipped) = (tally.failed.len(), tally.skipped.len());
        writeln!(
            text,
            "\nconformance of {device}: {} passed, {failed} failed, {skipped} skipped of {} rules",
            tally.passed,
            tally.rules()
        )?;
        for line in tally.failed.iter().chain(&tally.skipped) {
            writeln!(text, "- {line}")?;
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.kind != "tests" || !outcome.passed()) {
        writeln!(text, "\n## {}\n\n```text\n{}\n```", outcome.title, outcome.output.trim_end())?;
    }
    fs::write(folder.join("report.md"), text)?;
    let all: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
    let report = json!({
        "name": manifest["name"], "revision": manifest["revision"], "programs": all,
        "rules": fs::read_to_string(rules)?.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Value>>(),
    });
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(&report)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle whose programs are the machine's own.
    fn bundle_of(name: &str, entries: &Value) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bundle-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let manifest = json!({ "name": name, "revision": "test", "entries": entries });
        fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
        folder
    }

    #[test]
    fn every_program_runs_and_is_reported() {
        let shell = |title: &str, kind: &str, line: &str| json!({ "title": title, "kind": kind, "program": "/bin/sh", "args": ["-c", line] });
        let counted = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 3";
        let rule = r#"echo '{"device":"d","rule":"r","outcome":"failed","reason":"why"}' >> "$CONFORMANCE_REPORT""#;
        let entries = json!([shell("one", "tests", counted), shell("two", "program", rule)]);
        let folder = bundle_of("reported", &entries);
        assert!(run(&folder, false).is_err());
        let text = fs::read_to_string(folder.join("report/report.md")).unwrap();
        for part in ["| one | 3 | 0 | with 3 |", "| two | 0 | 0 | with 0 |", "- r: why"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let report: Value =
            serde_json::from_str(&fs::read_to_string(folder.join("report/report.json")).unwrap())
                .unwrap();
        assert_eq!(report["programs"][0]["exit_code"], 3);
        assert_eq!(report["rules"][0]["reason"], "why");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_without_a_bundle_is_refused() {
        let error = run(Path::new("/nowhere"), false).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
        let folder = bundle_of("empty", &json!([]));
        assert!(run(&folder, true).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
