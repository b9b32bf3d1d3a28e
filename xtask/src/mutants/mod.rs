//! Mutation tests: code is broken on purpose, and its tests must fail.

mod device;
mod protocol;

use anyhow::Result;

/// The code that is broken.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Target {
    /// The foreign device, which the conformance rules test.
    Device,
    /// The protocol of coherence, which its own tests enumerate.
    Protocol,
}

/// Runs every mutant, of the protocol those whose description contains one of `words`. The error names the mutants that
/// survive.
pub(crate) fn mutants(target: Target, words: &[String]) -> Result<()> {
    match target {
        Target::Device => device::mutants(),
        Target::Protocol => protocol::mutants(words),
    }
}
