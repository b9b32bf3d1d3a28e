//! Breaks the code that finds footprints, checks launches and decides which ghosts are stale. Each mutant must fail a
//! test. `docs/mutants.md` has a table of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::copy::{Placed, Tests, build, each, lock, reached};
use super::instrument::{Mutant, find_with_conditions, replace};
use super::table;
use crate::cargo::root;

/// The files that are broken, and the functions there, by the beginning of their names.
const FILES: &[(&str, &[&str])] = &[
    ("crates/stencil-translator/src/footprint.rs", &[""]),
    ("crates/stencil-translator/src/body.rs", &[""]),
    ("crates/stencil/src/launch.rs", &[""]),
    ("crates/stencil/src/need.rs", &[""]),
    ("crates/stencil/src/column.rs", &[""]),
    ("crates/stencil/src/shape.rs", &["Need::"]),
    (
        "crates/stencil/src/field.rs",
        &["Core::has", "Core::is_", "Core::check_", "Core::set_", "Core::fresh"],
    ),
    ("crates/stencil/src/exchange.rs", &["comes_from_blocks", "refresh", "fill_all", "begin"]),
];

/// Further mutants: a file, a function, an expression that the file has once, and what replaces it.
const WRITTEN: &[(&str, &str, &str, &str)] = &[
    (FOOTPRINT, "Footprint::range", "along().min().unwrap_or(0)", "along().min().unwrap_or(0) + 1"),
    (FOOTPRINT, "Footprint::range", "along().max().unwrap_or(0)", "along().max().unwrap_or(0) - 1"),
    (FOOTPRINT, "Footprint::of", "offset[..rank].to_vec()", "vec![0; rank]"),
    (NEED, "reads", "range.start as i64 + low", "range.start as i64 + low + 1"),
    (NEED, "reads", "range.end as i64 + high", "range.end as i64 + high - 1"),
    (NEED, "reads", "if side == 0 { -(range.end as i64) } else { behind }", "behind"),
    (NEED, "reads", "if side == 0 { end } else { points - first }", "end"),
    (NEED, "reach", "[-low, high + more]", "[-low - 1, high + more]"),
    (NEED, "reach", "[-low, high + more]", "[-low, high + more - 1]"),
    (NEED, "reach", "[-low, high + more]", "[-low, high]"),
    (LAUNCH, "Launch::hash", "chain(on)", "chain(on.filter(|_| false))"),
    (
        LAUNCH,
        "Launch::split",
        "width(0).saturating_sub(range.start)",
        "width(0).saturating_sub(range.start + 1)",
    ),
    (
        LAUNCH,
        "Launch::split",
        "width(1).saturating_sub(points - range.end)",
        "width(1).saturating_sub(points - range.end + 1)",
    ),
    (
        SHAPE,
        "Need::and",
        "self.widths[axis][side].max(other.widths[axis][side])",
        "self.widths[axis][side]",
    ),
    (
        SHAPE,
        "Need::and",
        "self.widths[axis][side].max(other.widths[axis][side])",
        "other.widths[axis][side]",
    ),
];
const FOOTPRINT: &str = "crates/stencil-translator/src/footprint.rs";
const LAUNCH: &str = "crates/stencil/src/launch.rs";
const NEED: &str = "crates/stencil/src/need.rs";
const SHAPE: &str = "crates/stencil/src/shape.rs";

/// Mutants that no test can notice, by the beginnings of their functions and changes, each with a reason.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    (
        "Launch::compute",
        "without `args.extend(words",
        "only programs for embedded devices take words; `terrain` of `runtime` notices",
    ),
    (
        "Launch::compute",
        "`==` in `Some(axis) != along`",
        "the geometry matters to GPUs and OpenCL devices alone; `gallery` notices there",
    ),
    (
        "Launch::check_set",
        "without `!argument.core.is_set.get()`",
        "a field that was set remains set, so to know it only saves time",
    ),
    (
        "Launch::check_set",
        "without `argument.core.is_set.set(true)",
        "a field that was set remains set, so to know it only saves time",
    ),
    (
        "Launch::pair_components",
        "without `second.need = first.need;`",
        "the ghosts that are read are the same, and equal needs let more launches share an exchange",
    ),
    (
        "Launch::split",
        "never `if !grid.has_others()`",
        "without other ranks there is nothing to wait for, so a split only costs time",
    ),
    (
        "Launch::split",
        "never `if step.interior.iter().any(Range::is_empty)`",
        "a box without points is no launch",
    ),
    (
        "reads",
        "`>=` in `beyond[side] > 0`",
        "a read that is not beyond the end is farther within, so one beside it is a diagonal",
    ),
    ("reads", "without `axes > 1` in", "ghosts along one axis have no corners"),
    ("reads", "`>=` in `axes > 1`", "ghosts along one axis have no corners"),
];

/// The programs, quick ones first.
const TESTS: &[Tests] = &[
    Tests { package: "stencil-translator", program: "footprint" },
    Tests { package: "stencil", program: "stencil" },
    Tests { package: "stencil", program: "misuse" },
    Tests { package: "stencil", program: "heat" },
    Tests { package: "stencil", program: "boxes" },
    Tests { package: "stencil", program: "ghosts" },
    Tests { package: "stencil", program: "sweep" },
    Tests { package: "stencil", program: "columns" },
    Tests { package: "stencil", program: "reductions" },
    Tests { package: "stencil", program: "sphere" },
    Tests { package: "stencil", program: "gallery" },
];

/// The most time for a program without a mutant.
const LONGEST: Duration = Duration::from_secs(600);
/// A program that takes this many times longer than without a mutant hangs: its tests have noticed the mutant.
const SLOWER: u32 = 5;
/// It may always take this long.
const SHORTEST: Duration = Duration::from_secs(20);

/// Runs the mutants whose row contains one of `words`, or all, and writes their rows in the table.
pub(super) fn mutants(words: &[String]) -> Result<()> {
    let mutants = placed()?;
    let built = build("stencils", &mutants, TESTS)?;
    println!("{} mutants, {} more do not compile", mutants.len(), built.out.len());
    let healthy = healthy(&built.programs)?;
    let is_wanted = |id: &usize| {
        let row = mutants[*id].row();
        let is_named = words.is_empty() || words.iter().any(|word| row.contains(word));
        is_named && !built.out.contains(id)
    };
    let wanted: Vec<usize> = (0..mutants.len()).filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "no mutant contains one of {words:?}");
    let found = Mutex::new(BTreeMap::new());
    each(&wanted, |id, _| {
        let placed = &mutants[*id];
        let row = placed.row();
        let by = match reason(&placed.mutant) {
            Some(why) => Some(why.to_owned()),
            None => noticed(*id, &built.programs, &healthy)?.map(|program| format!("`{program}`")),
        };
        match &by {
            Some(by) => println!("{row}: {by}"),
            None => println!("SURVIVED {row}"),
        }
        Ok(lock(&found).insert(*id, (row, by)))
    })?;
    let found = found.into_inner().unwrap_or_default();
    let survived: Vec<&str> =
        found.values().filter(|(_, by)| by.is_none()).map(|(row, _)| &**row).collect();
    println!("{} mutants, {} survived", found.len(), survived.len());
    ensure!(survived.is_empty(), "no test notices {}", survived.join(", "));
    let mut table: HashMap<String, String> = table::read(table::STENCILS)
        .into_iter()
        .filter_map(|line| line.rsplit_once(" | ").map(|(row, by)| (row.to_owned(), by.to_owned())))
        .collect();
    table.extend(found.into_values().filter_map(|(row, by)| Some((row, by?))));
    let rows = mutants.iter().map(Placed::row);
    let rows = rows.filter_map(|row| table.get(&row).map(|by| format!("{row} | {by}")));
    table::write(table::STENCILS, &rows.collect::<Vec<_>>())
}

/// All mutants.
fn placed() -> Result<Vec<Placed>> {
    let mut all = Vec::new();
    for (file, functions) in FILES {
        let text = fs::read_to_string(root().join(file)).context(*file)?;
        let mut mutants = find_with_conditions(&text).context(*file)?;
        mutants.retain(|mutant| functions.iter().any(|start| mutant.function.starts_with(start)));
        for (_, function, from, to) in WRITTEN.iter().filter(|(of, ..)| of == file) {
            let mutant = replace(&text, function, from, to);
            mutants.push(mutant.with_context(|| format!("{file} does not have `{from}` once"))?);
        }
        all.extend(Placed::all(file, mutants));
    }
    Ok(all)
}

fn reason(mutant: &Mutant) -> Option<&'static str> {
    let is_it = |(function, change, _): &&(&str, &str, &str)| {
        mutant.function == *function && mutant.change.starts_with(change)
    };
    EQUIVALENT.iter().find(is_it).map(|(.., why)| *why)
}

/// A run of a program without a mutant.
struct Healthy {
    reached: HashSet<usize>,
    limit: Duration,
}

/// Runs the programs without a mutant. All pass.
fn healthy(programs: &[PathBuf]) -> Result<Vec<Healthy>> {
    let found = Mutex::new(BTreeMap::new());
    let numbers: Vec<usize> = (0..programs.len()).collect();
    each(&numbers, |number, place| {
        let log = place.with_extension("log");
        fs::write(&log, "")?;
        let start = Instant::now();
        let environment = ("MUTANT_LOG", log.display().to_string());
        let passes = passes(&programs[*number], environment, LONGEST)?;
        ensure!(passes, "{} fails without a mutant", TESTS[*number].program);
        let limit = (SLOWER * start.elapsed()).max(SHORTEST);
        let reached = reached(&log)?.into_iter().collect();
        Ok(lock(&found).insert(*number, Healthy { reached, limit }))
    })?;
    Ok(found.into_inner().unwrap_or_default().into_values().collect())
}

/// The first program that a mutant fails.
fn noticed(
    mutant: usize,
    programs: &[PathBuf],
    healthy: &[Healthy],
) -> Result<Option<&'static str>> {
    for ((program, healthy), tests) in programs.iter().zip(healthy).zip(TESTS) {
        let environment = ("MUTANT", mutant.to_string());
        if healthy.reached.contains(&mutant) && !passes(program, environment, healthy.limit)? {
            return Ok(Some(tests.program));
        }
    }
    Ok(None)
}

/// Whether the tests of a program pass on devices that every machine has.
fn passes(program: &Path, (variable, value): (&str, String), limit: Duration) -> Result<bool> {
    let mut command = Command::new(program);
    command.arg("--quiet").env(variable, value).env("OCL_ICD_VENDORS", "/dev/null");
    command.env("RUST_BACKTRACE", "0");
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut child = command.spawn().with_context(|| program.display().to_string())?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
}
