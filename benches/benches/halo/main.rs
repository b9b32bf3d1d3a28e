//! Measures the halo exchange against MPI datatypes, packing by hand and plain loops, and star forests against loops by
//! hand and PETSc. Checks limits for rotated edges and for plans.
//!
//! Cases that need MPI run in jobs, for which this program starts itself with `mpiexec`. In each job, all contestants
//! take turns in the same processes and on the same fields. Without MPI these cases are left out, and the reason is
//! printed.

mod allocator;
mod case;
mod direct_loop;
mod forest;
mod job;
mod many;
mod measured;
mod mpi;
mod ours;
mod rotations;
mod sphere;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use benches::Bench;
use halo::Result;

use crate::case::{Case, Fields, device};
use crate::job::Work;
use crate::measured::Measured;
use crate::mpi::messages::Message;
use crate::ours::in_process;

/// Rank threads need some time until each has its core.
const SAMPLE: Duration = Duration::from_millis(5);

fn main() -> Result<ExitCode> {
    let mut bench = Bench::from_args();
    bench.set_sample_time(SAMPLE);
    if let Some(work) = job::role() {
        mpi::run(&mut bench, work)?;
        return Ok(ExitCode::SUCCESS);
    }
    messages(&mut bench);
    let sizes = if bench.is_quick() { &[32][..] } else { &[32, 64, 128, 256] };
    for (title, ranks) in [("one rank", 1), ("two ranks", 2)] {
        for &cells in sizes {
            boxes(&mut bench, title, ranks, cells)?;
        }
    }
    for &leaves in if bench.is_quick() { &[1000][..] } else { &[100_000, 1_000_000] } {
        forest::forests(&mut bench, leaves)?;
    }
    many::pairs(&mut bench);
    many::by_axis(&mut bench)?;
    rotations::rotations(&mut bench)?;
    sphere::exchanges(&mut bench)?;
    sphere::plans(&mut bench)?;
    Ok(bench.finish())
}

/// Messages between two ranks.
fn messages(bench: &mut Bench) {
    if !bench.group("messages over MPI") || bench.has_statistics() {
        return;
    }
    match job::run(2, Work::Messages) {
        Ok(said) => said.lines().filter_map(Message::parse).for_each(|each| each.note(bench)),
        Err(why) => println!("messages over MPI: left out: {why}"),
    }
}

/// Periodic boxes with this number of cells along each axis of each rank.
fn boxes(bench: &mut Bench, title: &str, ranks: usize, cells: usize) -> Result<()> {
    if !bench.group(format!("{title}, {cells}³")) {
        return Ok(());
    }
    let jobs = if bench.has_statistics() {
        Err("absolute times are measured in one process".to_owned())
    } else {
        let said = job::run(ranks, Work::Boxes(cells));
        said.map(|said| said.lines().filter_map(Measured::parse).collect::<Vec<_>>())
    };
    let results = match jobs {
        Ok(results) => results,
        Err(why) if ranks > 1 => {
            println!("{title}, {cells}³: left out: {why}");
            return Ok(());
        }
        Err(why) => {
            println!("{title}, {cells}³: rivals over MPI left out: {why}");
            let mut results = Vec::new();
            for case in Case::all(ranks, cells) {
                let fields = RefCell::new(Fields::new(case, 0, &device()?)?);
                results.extend(case.measured(bench, in_process(case, &fields)?));
            }
            results
        }
    };
    results.iter().for_each(|measured| measured.note(bench));
    Ok(())
}
