//! Makes a folder of tests, the demo and benchmarks for a machine that has a device and its driver, but neither Rust
//! nor a network. `run_bundle` runs it there.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::backends::{Backend, gpus};
use crate::cargo::{cargo, programs, root};
use crate::gpu::run_bundle::MANIFEST;
use crate::gpu::suites::{self, Suite};

/// Programs that one cargo call builds. `NAME` stands for the backend.
struct Item {
    title: &'static str,
    kind: Kind,
    build: Cow<'static, str>,
    /// Arguments on the target machine, for a full run and for a brief check that the program works.
    args: &'static str,
    quick: &'static str,
    /// If there are several runs, the last argument of each run.
    parts: &'static [&'static str],
    /// The time limit of a run in seconds.
    limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Lists devices. If there are none, nothing else can run.
    Devices,
    /// A cargo test program. A package may have several.
    Tests,
    Program,
    Benchmark,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Tests => "tests",
            Self::Program => "program",
            Self::Benchmark => "benchmark",
        }
    }
}

const DEVICES: Item = Item {
    title: "devices",
    kind: Kind::Devices,
    build: Cow::Borrowed("build --package runtime --features NAME --example devices"),
    args: "--require NAME",
    quick: "--require NAME",
    parts: &[],
    limit: 30,
};

const CONFORMANCE: Item = Item {
    title: "conformance",
    kind: Kind::Tests,
    build: Cow::Borrowed("test --no-run --package backend-NAME --features NAME --test conformance"),
    // Rules that measure waits disturb each other: a driver loads code under a lock, and may wait for kernels meanwhile.
    args: "--test-threads=1",
    quick: "--test-threads=1",
    parts: &[],
    limit: 180,
};

/// One group for each run: if a group is stopped, the others still run.
const BENCHMARK: Item = Item {
    title: "benchmark",
    kind: Kind::Benchmark,
    build: Cow::Borrowed("bench --no-run --package benches --features NAME --bench NAME"),
    args: "--check --verbose",
    quick: "--quick --verbose",
    parts: &[
        "pinned",
        "allocations",
        "launches",
        "contiguous",
        "faces",
        "halos",
        "arrays",
        "diffusion",
        "stencils",
    ],
    limit: 60,
};

const BACKEND: Item = Item {
    title: "backend",
    kind: Kind::Tests,
    build: Cow::Borrowed("test --no-run --package backend-NAME --features NAME --lib --test NAME"),
    args: "",
    quick: "",
    parts: &[],
    limit: 120,
};

const DEMO: Item = Item {
    title: "demo",
    kind: Kind::Program,
    build: Cow::Borrowed("build --package runtime --features NAME,npy,picture --example terrain"),
    args: "--device NAME:0 --steps 2000 --scale 3 --output demo --quiet",
    quick: "--device NAME:0 --steps 3 --output demo --quiet",
    parts: &[],
    limit: 60,
};

/// The rival for packed faces, for machines with CuPy.
const CUPY: &str = "benches/benches/cuda/cupy_pack.py";
/// The largest size of a bundle in bytes.
const LARGEST: u64 = 160 << 20;

/// `cargo xtask bundle NAME`.
pub(crate) fn bundle(name: &str) -> Result<()> {
    let names: Vec<_> = gpus().map(|(backend, _)| backend.name).collect();
    let gpu = Backend::named(name)?.gpu.as_ref();
    let gpu = gpu.with_context(|| format!("no bundle of {name}; there are those of {names:?}"))?;
    let folder = root().join("target/bundles").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("bin"))?;
    let mut entries = add(&folder, &DEVICES, name)?;
    entries.extend(add(&folder, &CONFORMANCE, name)?);
    if gpu.has_benchmarks {
        entries.extend(add(&folder, &BENCHMARK, name)?);
        entries.push(add_cupy(&folder)?);
    }
    entries.extend(add(&folder, &DEMO, name)?);
    entries.extend(add(&folder, &BACKEND, name)?);
    for suite in &suites::ALL {
        entries.extend(add(&folder, &above(suite), name)?);
    }
    let runner = build("build --package xtask")?;
    let (_, runner) = runner.first().context("cargo built no runner")?;
    fs::copy(runner, folder.join("bin/xtask"))?;
    let manifest = json!({ "name": name, "revision": revision(), "entries": entries });
    fs::write(folder.join(MANIFEST), serde_json::to_string_pretty(&manifest)?)?;
    let script = folder.join("run");
    fs::write(&script, include_str!("run.sh"))?;
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

/// The tests of a package above the backends.
fn above(suite: &Suite) -> Item {
    Item {
        title: suite.package,
        kind: Kind::Tests,
        build: format!("test --no-run {}", suite.selection().join(" ")).into(),
        args: "NAME::",
        quick: "NAME::",
        parts: &[],
        limit: 120,
    }
}

/// Builds an item's programs into the folder. Returns the manifest entries for their runs.
fn add(folder: &Path, item: &Item, name: &str) -> Result<Vec<Value>> {
    let words = |text: &str| -> Vec<String> {
        text.replace("NAME", name).split_whitespace().map(str::to_owned).collect()
    };
    let programs = build(&item.build.replace("NAME", name))?;
    let several = programs.len() > 1;
    let mut entries = Vec::new();
    for (target, program) in programs {
        let file = format!("bin/{}-{target}", item.title);
        fs::copy(&program, folder.join(&file))?;
        let title = if several { format!("{}: {target}", item.title) } else { item.title.into() };
        let entry = |title: &str, part: Option<&str>| {
            let of = |text| words(text).into_iter().chain(part.map(str::to_owned));
            json!({
                "title": title, "kind": item.kind.name(), "program": file, "limit": item.limit,
                "args": of(item.args).collect::<Vec<_>>(), "quick": of(item.quick).collect::<Vec<_>>(),
            })
        };
        match item.parts {
            [] => entries.push(entry(&title, None)),
            parts => {
                let titled = |part: &&str| entry(&format!("{title}: {part}"), Some(part));
                entries.extend(parts.iter().map(titled));
            }
        }
    }
    Ok(entries)
}

/// Adds the rival that is a Python program.
fn add_cupy(folder: &Path) -> Result<Value> {
    fs::copy(root().join(CUPY), folder.join("bin/cupy_pack.py"))
        .with_context(|| format!("cannot copy {CUPY}"))?;
    let run = |options: &str| {
        let script = format!(
            "command -v python3 >/dev/null || {{ echo 'left out: no Python'; exit; }}; exec python3 \"$BUNDLE/bin/cupy_pack.py\" {options}"
        );
        json!(["-c", script])
    };
    Ok(json!({
        "title": "faces by CuPy", "kind": Kind::Program.name(), "program": "/bin/sh", "limit": 60,
        "args": run(""), "quick": run("--quick"),
    }))
}

/// Builds programs with cargo, optimized for size. Returns the name and the file of each target.
fn build(words: &str) -> Result<Vec<(String, PathBuf)>> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut command = cargo(&words);
    programs(command.args(["--profile", "bundle", "--message-format", "json-render-diagnostics"]))
}

/// The git revision that the bundle was made from, if git can determine it.
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
