//! `cargo xtask test`: runs everything, in two lanes, and prints one closing table.

mod first_lane;
pub(crate) mod programs;
pub(crate) mod quick;
mod second_lane;
pub(crate) mod totals;

use std::time::Instant;

use anyhow::Result;

use crate::install;
use second_lane::SecondLane;
pub(crate) use second_lane::run as run_second_lane;
use totals::Totals;

/// `cargo xtask test`.
pub(crate) fn test(with_install: bool, exhaustive: bool) -> Result<()> {
    let start = Instant::now();
    let mut totals = Totals::default();
    if with_install {
        totals.optional("install", install::install);
    }
    let second_lane = SecondLane::start()?;
    first_lane::run(&mut totals, exhaustive);
    second_lane.finish(&mut totals);
    totals.close(start)
}
