//! Star forests of two ranks, against loops by hand and PETSc.

mod by_hand;
mod case;
pub(crate) mod petsc;

use std::cell::RefCell;
use std::sync::Arc;

use benches::Bench;
use benches::team::Team;
use benches::turns::Contestant;
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{Combine, Forest, ForestOptions, Result};
use halo_mpi::MpiCommunicator;

use self::by_hand::ByHand;
use self::case::{Case, Values, Way};
use self::petsc::Petsc;
use crate::case::device;
use crate::job::{self, Work};
use crate::measured::{BY_HAND, IN_PROCESS, Measured, OVER_MPI, PETSC};
use crate::mpi::Turns;

/// An exchange in which all ranks take part.
type Named<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Compares forests with this number of leaves on each of two ranks.
pub(crate) fn forests(bench: &mut Bench, leaves: usize) -> Result<()> {
    let title = format!("forest, {leaves} leaves");
    if !bench.group(&title) {
        return Ok(());
    }
    let said = if bench.has_statistics() {
        Err("absolute times are measured in one process".to_owned())
    } else {
        job::run(2, Work::Forest(leaves))
    };
    let results: Vec<Measured> = match said {
        Ok(said) => {
            said.lines().filter_map(petsc::why_left_out).for_each(|why| println!("{title}: {why}"));
            said.lines().filter_map(Measured::parse).collect()
        }
        Err(why) => {
            println!("{title}: rivals over MPI left out: {why}");
            let cases = Case::all(leaves).into_iter();
            let measured = cases.map(|case| Ok(case.measured(bench, in_process(case)?)));
            measured.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()
        }
    };
    results.iter().for_each(|measured| measured.note(bench));
    Ok(())
}

/// As a rank of a job. Rank 0 prints the results.
pub(crate) fn run(bench: &mut Bench, ranks: &Arc<MpiCommunicator>, leaves: usize) -> Result<()> {
    let petsc = Petsc::start();
    if let (0, Err(why)) = (ranks.rank(), &petsc) {
        petsc::leave_out(why);
    }
    let petsc = petsc.ok();
    for case in Case::all(leaves) {
        let values = RefCell::new(Values::new(case, ranks.rank(), &device()?)?);
        let mut ours = Ours::new(Arc::clone(ranks) as Arc<dyn Communicator>, &values.borrow())?;
        values.borrow_mut().prove(OVER_MPI, |values| ours.exchange(values));
        let theirs = petsc.as_ref().map(|petsc| petsc.forest(&values.borrow()));
        if let Some(theirs) = &theirs {
            values.borrow_mut().prove(PETSC, |values| theirs.exchange(values));
        }
        let mut all_ranks: Vec<Named<'_>> =
            vec![(OVER_MPI, Box::new(|| ours.exchange(&mut values.borrow_mut())))];
        if let Some(theirs) = &theirs {
            all_ranks.push((PETSC, Box::new(|| theirs.exchange(&mut values.borrow_mut()))));
        }
        let turns = Turns(ranks);
        if ranks.rank() > 0 {
            turns.follow(&mut all_ranks)?;
            continue;
        }
        let mut contestants = in_process(case)?;
        for (number, (name, exchange)) in all_ranks.iter_mut().enumerate() {
            contestants.push((name, turns.contestant(number, exchange)));
        }
        case.measured(bench, contestants).iter().for_each(Measured::print);
        turns.end();
    }
    Ok(())
}

/// Ranks that are threads: ours and by hand.
fn in_process(case: Case) -> Result<Vec<(&'static str, Box<Contestant<'static>>)>> {
    let ours = team(case, IN_PROCESS, |ranks, values| {
        let mut ours = Ours::new(Arc::new(ranks), values).expect("a forest");
        move |values: &mut Values| ours.exchange(values)
    })?;
    let by_hand = team(case, BY_HAND, |ranks, values| {
        let mut by_hand = ByHand::new(ranks, values);
        move |values: &mut Values| by_hand.exchange(values)
    })?;
    Ok(vec![
        (IN_PROCESS, Box::new(move |calls| ours.run(calls))),
        (BY_HAND, Box::new(move |calls| by_hand.run(calls))),
    ])
}

/// Two ranks that are threads. `make` makes what exchanges the values of a rank.
fn team<E: FnMut(&mut Values) + 'static>(
    case: Case,
    name: &'static str,
    make: impl Fn(ThreadCommunicator, &Values) -> E + Clone + Send + 'static,
) -> Result<Team> {
    let device = device()?;
    Team::new(2, move |ranks| {
        let mut values = Values::new(case, ranks.rank(), &device).expect("values");
        let mut exchange = make(ranks, &values);
        values.prove(name, &mut exchange);
        move || exchange(&mut values)
    })
}

/// A forest of one rank.
struct Ours(Forest);

impl Ours {
    fn new(ranks: Arc<dyn Communicator>, values: &Values) -> Result<Self> {
        let options = ForestOptions { reductions: vec![Combine::Sum], ..Default::default() };
        let (size, leaves, fields) = (values.size(), values.leaves(), [Values::spec()?]);
        Forest::new(ranks, size, &leaves, &fields, values.device(), &options).map(Self)
    }

    /// Runs one broadcast or reduction to completion.
    fn exchange(&mut self, values: &mut Values) {
        let (stream, way) = (values.stream.clone(), values.case.way);
        let fields = &mut [values.fields().expect("fields")];
        let done = match way {
            Way::Broadcast => self.0.broadcast(&stream, fields),
            Way::Sum => self.0.reduce(&stream, fields, Combine::Sum),
        };
        done.and_then(|()| stream.synchronize()).expect("an exchange");
    }
}
