//! Weakens each memory order of the lock-free mirror of arrays, and checks that its tests fail under Miri.
//!
//! The mirror uses only the crate `coherence`, and this only the standard library. So a small package has the mirror,
//! and each mutant is one build of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::protocol::copy;
use crate::cargo::root;
use crate::install::NIGHTLY;

/// Orders, and the next weaker ones. The mirror needs nothing stronger.
const WEAKER: &[(&str, &[&str])] =
    &[("AcqRel", &["Acquire", "Release"]), ("Acquire", &["Relaxed"]), ("Release", &["Relaxed"])];
/// The most seeds for a mutant. Miri ends at the first one that fails, which is an early one if the tests are good.
const SEEDS: u32 = 1000;
/// The number of seeds without a mutant. `cargo xtask sanitize miri` tries more.
const HEALTHY_SEEDS: u32 = 4;
const MANIFEST: &str = "\
[workspace]
[package]
name = \"mirror\"
edition = \"2024\"
[dependencies]
coherence = { path = \"../../../crates/coherence\" }
";
const LIBRARY: &str = "\
#[cfg(test)]
mod interleavings {
    mod on_threads;
}
";

/// Runs the mutants whose description contains one of `only`; an empty `only` runs all.
pub(super) fn mutants(only: &[String]) -> Result<()> {
    let source = root().join("crates/array-buffer/src");
    let folder = root().join("target/mutants/orders");
    let target = folder.join("src");
    copy(&source.join("interleavings"), &target.join("interleavings"))?;
    fs::write(folder.join("Cargo.toml"), MANIFEST)?;
    fs::write(target.join("lib.rs"), LIBRARY)?;
    let text = fs::read_to_string(source.join("mirror.rs"))?;
    ensure!(!text.contains("SeqCst"), "no weaker order is known for SeqCst");
    ensure!(passes(&folder, &text, HEALTHY_SEEDS)?, "the tests fail without a mutant");

    let (mut killed, mut survived) = (0, 0);
    for (at, prefix) in text.match_indices("Ordering::") {
        let (before, after) = text.split_at(at + prefix.len());
        let Some((order, weaker)) = WEAKER.iter().find(|(order, _)| after.starts_with(order))
        else {
            continue;
        };
        let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
        let number = before.lines().count();
        for other in *weaker {
            let what = format!("mirror.rs:{number}: {other} in `{line}{order}`");
            if !only.is_empty() && !only.iter().any(|words| what.contains(words)) {
                continue;
            }
            let start = Instant::now();
            let mutant = format!("{before}{other}{}", &after[order.len()..]);
            let has_survived = passes(&folder, &mutant, SEEDS)?;
            let (fate, count) =
                if has_survived { ("SURVIVED", &mut survived) } else { ("killed  ", &mut killed) };
            *count += 1;
            println!("{fate}  {what} ({:.0?})", start.elapsed());
        }
    }
    println!("{killed} orders killed, {survived} survived");
    ensure!(killed + survived > 0, "no order is weakened");
    ensure!(survived == 0, "{survived} weaker orders survived");
    Ok(())
}

/// Whether the tests pass with this text of the mirror, which must compile, for each of the first `seeds`.
fn passes(folder: &Path, mirror: &str, seeds: u32) -> Result<bool> {
    fs::write(folder.join("src/mirror.rs"), mirror)?;
    let run = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.arg(format!("+{NIGHTLY}")).args(["miri", "test", "--lib"]).args(words);
        command.current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
        command
            .env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().context("cannot start Miri")
    };
    ensure!(run(&["--no-run"])?.success(), "{} does not compile", folder.display());
    Ok(run(&["on_threads"])?.success())
}
