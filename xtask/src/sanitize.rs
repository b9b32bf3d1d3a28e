//! `cargo xtask sanitize`: tests under Miri and the compiler's sanitizers. These detect undefined behaviour and data
//! races even if the result of a test happens to be right.

use std::env::consts::ARCH;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::cargo::root;
use crate::install::NIGHTLY;
use crate::test::programs::TestRun;
use crate::test::totals::Totals;

/// The tools under which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Detects undefined behaviour and data races in small cases, which it interprets.
    Miri,
    /// Detects data races.
    Thread,
    /// Detects the use of memory that is not allocated, or no longer allocated.
    Address,
}

/// Tests that run in one cargo call.
struct Set {
    title: &'static str,
    /// The arguments of `cargo test`.
    words: &'static str,
    /// Flags of Miri.
    flags: &'static str,
    /// Whether `cargo xtask test` runs it, too.
    always: bool,
}

/// Tests leak guards on purpose, so leaks are not failures.
const LEAKS: &str = "-Zmiri-disable-isolation -Zmiri-ignore-leaks";

const MIRI: &[Set] = &[
    Set {
        title: "arrays on the host",
        words: "--package array-buffer --test regressions -- host::many host::pinned host::retained host::subrange host::wo_",
        flags: LEAKS,
        always: true,
    },
    Set {
        title: "arrays on the host, the other tests",
        // Miri refuses the system call by which `parking_lot` waits with a time limit.
        words: "--package array-buffer --test regressions -- host:: --skip conflict_names_the_holder --skip many --skip pinned --skip retained --skip subrange --skip wo_",
        flags: LEAKS,
        always: false,
    },
    Set {
        title: "arrays in page-locked memory",
        words: "--package array-buffer --test page_locked -- an_access a_write failures another_owner_stays",
        flags: LEAKS,
        always: true,
    },
    Set {
        title: "arrays with a memory budget",
        words: "--package array-buffer --test memory_budget -- parts_in_use leases views_of memory_of_a memory_is_given",
        flags: LEAKS,
        always: true,
    },
    Set {
        title: "stencils on the host",
        words: "--package stencil --test ghosts --test misuse -- host:: boxes arguments",
        flags: LEAKS,
        always: true,
    },
    Set {
        title: "capsules",
        words: "--package interchange --test release --test fuzz",
        // Protocols pass addresses as integers.
        flags: "-Zmiri-permissive-provenance -Zmiri-ignore-leaks",
        always: true,
    },
    Set {
        title: "pinned memory, which no device locks",
        words: "--manifest-path docs/foreign-device/Cargo.toml --test pinned",
        flags: LEAKS,
        always: true,
    },
    Set {
        title: "arrays on simulated devices",
        words: "--package array-buffer --test attacks --test poisoned",
        flags: LEAKS,
        always: false,
    },
    Set {
        title: "columns on the host",
        // Others take too long, or wait for ranks with a time limit, which Miri refuses.
        words: "--package stencil --test columns -- a_column_ only_what",
        flags: LEAKS,
        always: false,
    },
    Set {
        title: "the mirror of an array, with 1000 seeds",
        words: "--package array-buffer --lib interleavings::on_threads",
        flags: "-Zmiri-many-seeds=0..1000",
        always: false,
    },
    Set {
        title: "marks of memory, with 100 seeds",
        words: "--package conformance --test marks -- by_threads",
        flags: "-Zmiri-ignore-leaks -Zmiri-many-seeds=0..100",
        always: false,
    },
    Set {
        title: "the foreign device",
        // Fault tests run in their own processes, which Miri cannot start. Tests of megabytes take hours.
        words: "--manifest-path docs/foreign-device/Cargo.toml --test conformance -- --skip faults:: --skip large_",
        flags: LEAKS,
        always: false,
    },
];

const COMPILED: &[Set] = &[
    Set {
        title: "the host's devices",
        words: "--package backend-host --lib --tests",
        flags: "",
        always: true,
    },
    Set {
        title: "the core and simulated devices",
        words: "--package runtime-core --package backend-support --package backend-sim --lib --tests",
        flags: "",
        always: false,
    },
    Set {
        title: "arrays",
        // All states of two parts take too long here, and touch no memory but their own. Shuttle switches stacks.
        words: "--package array-buffer --package coherence --lib --tests -- --skip two_owned_parts --skip an_owned_and_a_ghost --skip on_shuttle",
        flags: "",
        always: false,
    },
    Set { title: "halos", words: "--package halo --lib --tests", flags: "", always: false },
    Set {
        title: "the foreign device",
        words: "--manifest-path docs/foreign-device/Cargo.toml --lib --tests",
        flags: "",
        always: false,
    },
];

impl Tool {
    const ALL: [Self; 3] = [Self::Miri, Self::Thread, Self::Address];

    fn sets(self) -> &'static [Set] {
        match self {
            Self::Miri => MIRI,
            Self::Thread | Self::Address => COMPILED,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Miri => "miri",
            Self::Thread => "thread-sanitizer",
            Self::Address => "address-sanitizer",
        }
    }

    /// A run of tests under this tool.
    fn run(self, set: &Set) -> TestRun {
        let mut command = Command::new("cargo");
        command
            .arg(format!("+{NIGHTLY}"))
            .current_dir(root())
            .env("CARGO_TARGET_DIR", root().join("target/sanitize").join(self.name()))
            // Checked programs are slow, but their clocks are not.
            .env("CONFORMANCE_TIMEOUT", "600");
        let sanitizer = match self {
            Self::Miri => {
                command.args(["miri", "test"]).env("MIRIFLAGS", set.flags);
                None
            }
            Self::Thread => Some("thread"),
            Self::Address => Some("address"),
        };
        if let Some(sanitizer) = sanitizer {
            // With a target, build scripts are compiled without the sanitizer.
            command.args(["test", "--target", &format!("{ARCH}-unknown-linux-gnu")]);
            if self == Self::Thread {
                // Also the standard library is compiled with it: it orders threads.
                command.arg("-Zbuild-std");
            }
            command
                .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
                // Tests request more memory than there is.
                .env("TSAN_OPTIONS", "allocator_may_return_null=1")
                .env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0")
                // OpenCL platforms are not compiled with the sanitizer.
                .env("OCL_ICD_VENDORS", "/nowhere");
        }
        command.args(["--no-fail-fast"]).args(set.words.split(' '));
        TestRun::of([command])
    }

    fn absence(self) -> Option<String> {
        let version = |words: &[&str]| Command::new(words[0]).args(&words[1..]).output();
        let plus = format!("+{NIGHTLY}");
        let found = match self {
            Self::Miri => version(&["cargo", &plus, "miri", "--version"]),
            Self::Thread | Self::Address => version(&["rustc", &plus, "--version"]),
        };
        let there = found.is_ok_and(|output| output.status.success());
        (!there).then(|| format!("no {NIGHTLY} with it; --install installs it"))
    }
}

/// `cargo xtask sanitize`.
pub(crate) fn sanitize(tools: &[Tool]) -> Result<()> {
    let start = Instant::now();
    let chosen = if tools.is_empty() { &Tool::ALL } else { tools };
    let mut totals = Totals::default();
    for tool in chosen {
        if let Some(why) = tool.absence() {
            ensure!(tools.is_empty(), "{why}");
            totals.skip(tool.name(), &why);
            continue;
        }
        run_sets(&mut totals, *tool, tool.sets());
    }
    totals.close(start)
}

/// The part that `cargo xtask test` runs.
pub(crate) fn brief(totals: &mut Totals, tool: Tool) {
    match tool.absence() {
        Some(why) => totals.skip(tool.name(), &why),
        None => run_sets(totals, tool, tool.sets().iter().filter(|set| set.always)),
    }
}

fn run_sets<'a>(totals: &mut Totals, tool: Tool, sets: impl IntoIterator<Item = &'a Set>) {
    for set in sets {
        let name = format!("{}: {}", tool.name(), set.title);
        totals.tests(&name, || Ok(tool.run(set)), &[], &format!(" ({})", tool.name()));
    }
}
