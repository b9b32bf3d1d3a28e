//! Mutation tests: code is broken on purpose, and its tests must fail.

mod instrument;
mod protocol;
mod rules;

use anyhow::Result;

/// The code that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// The checked types and two devices, which the conformance rules test.
    Rules,
    /// The protocol of coherence, which its own tests enumerate.
    Protocol,
}

/// Runs the mutants of `target`, for the rules or mutants whose description contains one of `words`. With `all`, runs
/// those of all targets. The error names the rules that no mutant fails, and the mutants of the protocol that survive.
pub(crate) fn mutants(target: Target, words: &[String], all: bool) -> Result<()> {
    if all {
        rules::rules(&[])?;
        return protocol::mutants(&[]);
    }
    match target {
        Target::Rules => rules::rules(words),
        Target::Protocol => protocol::mutants(words),
    }
}
