//! `cargo xtask layers`: which crates may depend on each other, that no files of a crate import each other in a circle,
//! and that the contract has no default bodies.

mod circles;
mod contract;
mod crates;
mod imports;

use anyhow::{Result, ensure};

/// Returns an error that lists all violations.
pub(crate) fn layers() -> Result<()> {
    let found =
        [crates::violations(&crates::metadata()?), circles::violations()?, contract::violations()?]
            .concat();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    println!(
        "the crates keep their layers, no unlisted circle of imports was found, and the contract has no default bodies"
    );
    Ok(())
}
