//! The check that the contract cannot be half-implemented and that the conformance suite detects errors: every broken
//! version of the foreign device must fail to compile, or must fail a named rule.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use syn::spanned::Spanned;
use syn::{File, ImplItem, ImplItemFn, Item, ReturnType};

use crate::cargo::{cargo, root};
use crate::conformance::{read, report_file, report_to};

/// The traits of the contract that the foreign device implements.
const TRAITS: &[&str] = &[
    "AcceleratorDevice",
    "DeviceMemory",
    "DevicePinned",
    "DeviceModule",
    "DeviceKernel",
    "DeviceStream",
    "DeviceEvent",
];

/// The minimum number of mutants for a valid check.
const LEAST: usize = 10;

/// One way to break the device.
struct Mutant {
    file: PathBuf,
    method: String,
    /// The byte range of the file that is replaced.
    bytes: Range<usize>,
    change: Change,
}

enum Change {
    /// Removes the method.
    Delete,
    /// Replaces its body by one that does nothing.
    Nothing(&'static str),
}

/// Runs every mutant. The error names the mutants that survived.
pub(super) fn mutants() -> Result<()> {
    let source = root().join("docs/foreign-device");
    let copy = root().join("target/mutants/foreign-device");
    let mutants = find(&source)?;
    let silent =
        mutants.iter().filter(|mutant| matches!(mutant.change, Change::Nothing(_))).count();
    if silent < LEAST {
        bail!("{silent} mutants that compile; at least {LEAST} are wanted");
    }
    lay_out(&source, &copy)?;
    let (failing, which) = fails_a_rule(&copy)?;
    if failing {
        bail!("the device fails without a mutation: {which}");
    }
    let mut survivors = Vec::new();
    for mutant in &mutants {
        place(&source, &copy, mutant)?;
        let (killed, how) = match mutant.change {
            Change::Delete => is_refused(&copy, mutant)?,
            Change::Nothing(_) => fails_a_rule(&copy)?,
        };
        let done = match mutant.change {
            Change::Delete => "deleted".to_owned(),
            Change::Nothing(body) => format!("body {body}"),
        };
        println!(
            "{} {}: {done}: {how}",
            if killed { "killed  " } else { "SURVIVED" },
            mutant.method
        );
        if !killed {
            survivors.push(mutant.method.clone());
        }
    }
    if !survivors.is_empty() {
        bail!("mutants survived: {}", survivors.join(", "));
    }
    Ok(())
}

/// Finds every method of the contract in the device's source. Each is removed; if its result can be faked, it is also
/// replaced by an empty body.
fn find(source: &Path) -> Result<Vec<Mutant>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(source.join("src"))? {
        let path = entry?.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: File =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let relative = path.strip_prefix(source)?;
        for (name, method) in methods(&file) {
            let mut add = |bytes, change| {
                let method = format!("{name}::{}", method.sig.ident);
                found.push(Mutant { file: relative.to_owned(), method, bytes, change });
            };
            add(method.span().byte_range(), Change::Delete);
            if let Some(body) = nothing(&method.sig.output) {
                add(method.block.span().byte_range(), Change::Nothing(body));
            }
        }
    }
    found.sort_by(|a, b| (&a.method, &a.bytes.start).cmp(&(&b.method, &b.bytes.start)));
    Ok(found)
}

/// The methods in implementations of the contract's traits.
fn methods(file: &File) -> impl Iterator<Item = (String, &ImplItemFn)> {
    let blocks = file.items.iter().filter_map(|item| match item {
        Item::Impl(block) => {
            Some((block.trait_.as_ref()?.1.segments.last()?.ident.to_string(), block))
        }
        _ => None,
    });
    let ours = blocks.filter(|(name, _)| TRAITS.contains(&name.as_str()));
    ours.flat_map(|(name, block)| {
        block.items.iter().filter_map(move |item| match item {
            ImplItem::Fn(method) => Some((name.clone(), method)),
            _ => None,
        })
    })
}

/// A body that reports success and does nothing. Methods without a result are left out: they release something by
/// dropping it, and an empty body drops it as well.
fn nothing(output: &ReturnType) -> Option<&'static str> {
    let ReturnType::Type(_, kind) = output else { return None };
    match quote(kind).as_str() {
        "Result<()>" => Some("{ Ok(()) }"),
        "Result<bool>" => Some("{ Ok(true) }"),
        "Result<Duration>" => Some("{ Ok(Duration::ZERO) }"),
        _ => None,
    }
}

fn quote(kind: &syn::Type) -> String {
    kind.span().source_text().unwrap_or_default()
}

/// Copies the device, and breaks the copy.
fn place(source: &Path, copy: &Path, mutant: &Mutant) -> Result<()> {
    lay_out(source, copy)?;
    let file = copy.join(&mutant.file);
    let mut text = fs::read_to_string(&file)?;
    let body = match mutant.change {
        Change::Delete => "",
        Change::Nothing(body) => body,
    };
    text.replace_range(mutant.bytes.clone(), body);
    Ok(fs::write(file, text)?)
}

/// Copies the device to a place one folder deeper, and adapts its paths to the crates.
fn lay_out(source: &Path, copy: &Path) -> Result<()> {
    fs::create_dir_all(copy)?;
    for file in ["Cargo.toml", "Cargo.lock", "src", "tests"] {
        let from = source.join(file);
        if from.is_dir() {
            fs::create_dir_all(copy.join(file))?;
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                write_changed(&copy.join(file).join(entry.file_name()), fs::read(entry.path())?)?;
            }
        } else {
            let text = fs::read_to_string(&from)?.replace("\"../../crates", "\"../../../crates");
            write_changed(&copy.join(file), text.into_bytes())?;
        }
    }
    Ok(())
}

/// Does not touch a file that already has these bytes, so that cargo does not rebuild it.
fn write_changed(file: &Path, bytes: Vec<u8>) -> Result<()> {
    if fs::read(file).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn at(copy: &Path, args: &[&str]) -> Command {
    let mut command = cargo(args);
    command.current_dir(copy).env("CARGO_TARGET_DIR", root().join("target/foreign"));
    command
}

/// Whether the compiler rejects the device because of the missing method.
fn is_refused(copy: &Path, mutant: &Mutant) -> Result<(bool, String)> {
    let output = at(copy, &["check", "--quiet"]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let name = mutant.method.rsplit("::").next().unwrap_or_default();
    let missing = errors.contains("error[E0046]") && errors.contains(&format!("`{name}`"));
    Ok((missing, if missing { "E0046".into() } else { format!("ended with {}", output.status) }))
}

/// Whether a rule fails.
fn fails_a_rule(copy: &Path) -> Result<(bool, String)> {
    let report = report_file("mutant")?;
    let mut command = at(copy, &["test", "--quiet", "--test", "conformance"]);
    let output = report_to(&mut command, &report).output()?;
    let tallies = read(&report)?;
    let failed: Vec<&str> = tallies
        .values()
        .flat_map(|tally| &tally.failed)
        .map(|problem| problem.split(':').next().unwrap_or(problem))
        .collect();
    if failed.is_empty() && !output.status.success() {
        bail!("the mutant does not run:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let more = failed.len().saturating_sub(3);
    let named = failed.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    let how = if more > 0 { format!("{named} and {more} more") } else { named };
    Ok((!failed.is_empty(), how))
}
