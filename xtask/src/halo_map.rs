//! `cargo xtask halo-map`.

use anyhow::Result;

use crate::cargo::cargo_here;
use crate::examples::pass;

pub(crate) fn halo_map(options: &[String]) -> Result<()> {
    let map = ["run", "--package", "halo", "--example", "map"];
    pass(cargo_here(&map).arg("--").args(options))
}
