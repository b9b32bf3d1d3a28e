//! `cargo xtask sanitize`: tests under Miri and the compiler's sanitizers, which see undefined behaviour and data races
//! where the result of a test is right by chance.

use std::env::consts::ARCH;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::install::NIGHTLY;
use crate::programs::TestRun;
use crate::run::root;
use crate::totals::Totals;

/// What watches the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watcher {
    /// Undefined behaviour and data races, in small cases that it interprets.
    Miri,
    /// Data races.
    Thread,
    /// Use of memory that is not allocated, or not any more.
    Address,
}

/// Tests that run together.
struct Set {
    title: &'static str,
    watchers: &'static [Watcher],
    /// What `cargo test` is called with.
    words: &'static str,
    /// Flags of Miri.
    miri: &'static str,
    /// The watchers with which `cargo xtask test` has them, too.
    always: &'static [Watcher],
}
