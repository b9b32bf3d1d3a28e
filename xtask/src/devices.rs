//! `cargo xtask devices`.

use anyhow::Result;

use crate::examples::{example, pass};

pub(crate) fn devices(json: bool) -> Result<()> {
    pass(example("run", "devices").arg("--").args(json.then_some("--json")))
}
