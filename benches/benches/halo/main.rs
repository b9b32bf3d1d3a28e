//! The halo exchange against Open MPI's datatypes, packing by hand and plain loops, and its promises of rotated edges and
//! of plans.
//!
//! What needs MPI runs in jobs that this program starts of itself with `mpiexec`: in each, all contestants take turns in the
//! same processes and on the same fields. Without MPI those are left out, and the reason told.

mod allocator;
mod case;
mod direct_loop;
mod job;
mod measured;
#[cfg(feature = "mpi")]
mod mpi;
mod ours;
mod rotations;
mod sphere;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use benches::Bench;
use halo::Result;

use crate::case::{Case, Fields};
use crate::measured::Measured;
use crate::ours::in_process;

/// Rank threads need a while until each has its core.
const SAMPLE: Duration = Duration::from_millis(5);

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    bench.set_sample_time(SAMPLE);
    if job::is_rank() {
        #[cfg(feature = "mpi")]
        mpi::run(&bench)?;
        return Ok(ExitCode::SUCCESS);
    }
    boxes(&mut bench, "one rank", 1)?;
    boxes(&mut bench, "two ranks", 2)?;
    rotations::rotations(&mut bench)?;
    sphere::exchanges(&mut bench)?;
    sphere::plans(&mut bench)?;
    Ok(bench.finish())
}

/// Periodic boxes.
fn boxes(bench: &mut Bench, title: &str, ranks: usize) -> Result<()> {
    if !bench.group(title) {
        return Ok(());
    }
    let results = match job::results(ranks) {
        Ok(results) => results,
        Err(why) => {
            println!("{title}: left out: rivals over MPI: {why}");
            if ranks > 1 {
                return Ok(());
            }
            let cases = Case::all(ranks, bench.is_quick()).into_iter().map(|case| {
                let fields = RefCell::new(Fields::new(case, 0)?);
                Ok(Measured::new(case, bench, in_process(case, &fields)?))
            });
            cases.collect::<Result<_>>()?
        }
    };
    results.iter().for_each(|measured| measured.note(bench));
    Ok(())
}
