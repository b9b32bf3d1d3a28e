//! `cargo xtask bench`.

use anyhow::Result;

use crate::cargo::{cargo, must};
use crate::python;

/// Runs all comparisons. `cargo bench` measures absolute times.
pub(crate) fn bench(check: bool, quick: bool) -> Result<()> {
    let mut command = cargo(&["bench"]);
    command.args(["--package", "benches", "--all-features"]);
    let flags = || check.then_some("--check").into_iter().chain(quick.then_some("--quick"));
    command.args(["--", "--compare"]).args(flags());
    must(&mut command)?;
    if let Some(why) = python::absence() {
        println!("handing arrays over from Python: {why}");
        return Ok(());
    }
    python::install_package()?;
    must(python::speed().args(flags()))
}
