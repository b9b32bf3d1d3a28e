//! Mutation tests: code is broken on purpose, and its tests must fail.

mod copy;
mod instrument;
mod orders;
mod protocol;
mod rules;
mod stencils;
mod table;

use anyhow::Result;

/// The code that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// The checked types and two devices, which the conformance rules test.
    Rules,
    /// The protocol of coherence, which its own tests enumerate.
    Protocol,
    /// The memory orders of the lock-free mirror of arrays, whose tests run under Miri.
    Orders,
    /// The footprints of stencils, and the checks of their launches.
    Stencils,
}

/// Runs the mutants of `target`, for the rules or mutants whose description contains one of `words`. With `all`, runs
/// those of all targets. The error names the rules that no mutant fails, or counts the mutants that survive.
pub(crate) fn mutants(target: Target, words: &[String], all: bool) -> Result<()> {
    if all {
        rules::rules(&[])?;
        protocol::mutants(&[])?;
        orders::mutants(&[])?;
        return stencils::mutants(&[]);
    }
    match target {
        Target::Rules => rules::rules(words),
        Target::Protocol => protocol::mutants(words),
        Target::Orders => orders::mutants(words),
        Target::Stencils => stencils::mutants(words),
    }
}
