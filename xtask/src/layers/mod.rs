//! `cargo xtask layers`: which crates may depend on each other, and that no files of a crate import each other in a
//! circle.

mod circles;
mod crates;
mod imports;

use anyhow::{Result, ensure};

/// Returns an error that lists all violations.
pub(crate) fn layers() -> Result<()> {
    let found = [crates::violations(&crates::metadata()?), circles::violations()?].concat();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    println!("the crates keep their layers, and no unlisted circle of imports was found");
    Ok(())
}
