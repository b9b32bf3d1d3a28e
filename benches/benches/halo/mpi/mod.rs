//! A rank of an MPI job: ours and the rivals between processes, in turns.

mod by_hand;
pub(crate) mod calls;
mod datatypes;
pub(crate) mod messages;

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use benches::Bench;
use benches::turns::{Contestant, time};
use halo::Result;
use halo::communicator::{Buffer, Communicator};
use halo_mpi::MpiCommunicator;

use self::by_hand::ByHand;
use self::datatypes::Datatypes;
use crate::case::{Case, Fields, device};
use crate::forest;
use crate::job::Work;
use crate::many::{self, Boxes, PAIRS, Pairs};
use crate::measured::{BY_HAND, DATATYPES, IN_PROCESS, Measured, OVER_MPI};
use crate::ours::{Ours, in_process};

/// Does the work of a job. Rank 0 prints the results.
pub(crate) fn run(bench: &mut Bench, work: Work) -> Result<()> {
    halo_mpi::run(|ranks| {
        let ranks = Arc::new(ranks);
        match work {
            Work::Boxes(cells) => {
                let mut cases = Case::all(ranks.size(), cells).into_iter();
                cases.try_for_each(|case| measure(case, bench, &ranks))
            }
            Work::ManyBoxes => many_boxes(bench, &ranks),
            Work::Forest(leaves) => forest::run(bench, &ranks, leaves),
            Work::Messages => {
                messages::run(&ranks, bench.is_quick());
                Ok(())
            }
        }
    })
}

fn many_boxes(bench: &mut Bench, ranks: &Arc<MpiCommunicator>) -> Result<()> {
    let boxes = RefCell::new(Boxes::of_two(ranks.rank(), &device()?)?);
    let mut pairs = Pairs::new(&boxes.borrow(), ranks.rank())?;
    boxes.borrow_mut().prove(PAIRS, |boxes| pairs.exchange(boxes));
    let over_mpi = Arc::clone(ranks) as Arc<dyn Communicator>;
    let mut ours = many::Ours::new(over_mpi, &boxes.borrow(), &Default::default())?;
    boxes.borrow_mut().prove(OVER_MPI, |boxes| ours.exchange(boxes));
    let mut all_ranks: [(&str, &mut dyn FnMut()); 2] = [
        (PAIRS, &mut || pairs.exchange(&mut boxes.borrow_mut())),
        (OVER_MPI, &mut || ours.exchange(&mut boxes.borrow_mut())),
    ];
    let turns = Turns(ranks);
    if ranks.rank() > 0 {
        return turns.follow(&mut all_ranks);
    }
    let team = many::in_process()?;
    let mut contestants: Vec<(&str, Box<Contestant<'_>>)> =
        vec![(IN_PROCESS, Box::new(move |calls| team.run(calls)))];
    for (number, (name, exchange)) in all_ranks.iter_mut().enumerate() {
        contestants.push((name, turns.contestant(number, exchange)));
    }
    let names: Vec<&str> = contestants.iter().map(|(name, _)| *name).collect();
    let mut runs: Vec<(&str, &mut Contestant<'_>)> =
        contestants.iter_mut().map(|(name, run)| (*name, &mut **run)).collect();
    let passes = |seconds: &[f64]| seconds[0].max(seconds[2]) <= seconds[1];
    if let Some(seconds) = bench.medians("64 boxes", &mut runs, passes) {
        let named: Vec<(&str, f64)> = names.into_iter().zip(seconds).collect();
        println!("{}", serde_json::to_string(&named).expect("names and numbers"));
    }
    turns.end();
    Ok(())
}

fn measure(case: Case, bench: &mut Bench, ranks: &Arc<MpiCommunicator>) -> Result<()> {
    let fields = RefCell::new(Fields::new(case, ranks.rank(), &device()?)?);
    let mut datatypes = Datatypes::new(&fields.borrow());
    fields.borrow_mut().prove(DATATYPES, |fields| datatypes.exchange(fields));
    let mut by_hand = ByHand::new(&fields.borrow());
    fields.borrow_mut().prove(BY_HAND, |fields| by_hand.exchange(fields));
    let mut ours = Ours::new(Arc::clone(ranks) as Arc<dyn Communicator>, &fields.borrow())?;
    fields.borrow_mut().prove(OVER_MPI, |fields| ours.exchange(fields));
    let mut all_ranks: [(&str, &mut dyn FnMut()); 3] = [
        (DATATYPES, &mut || datatypes.exchange(&mut fields.borrow_mut())),
        (BY_HAND, &mut || by_hand.exchange(&mut fields.borrow_mut())),
        (OVER_MPI, &mut || ours.exchange(&mut fields.borrow_mut())),
    ];
    let turns = Turns(ranks);
    if ranks.rank() > 0 {
        return turns.follow(&mut all_ranks);
    }
    let mut contestants = in_process(case, &fields)?;
    // A single rank sends nothing, so its exchange over MPI is the one in process.
    let jointly = if case.ranks > 1 { 3 } else { 2 };
    for (number, (name, exchange)) in all_ranks[..jointly].iter_mut().enumerate() {
        contestants.push((name, turns.contestant(number, exchange)));
    }
    case.measured(bench, contestants).iter().for_each(Measured::print);
    turns.end();
    Ok(())
}

/// Rank 0 calls the other ranks to take part; they sleep until then.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a>(pub(crate) &'a MpiCommunicator);

impl<'a> Turns<'a> {
    /// Not a tag of an exchange, which are low.
    const TAG: u32 = 32_000;
    const NAP: Duration = Duration::from_millis(1);

    /// Calls the other ranks to run a contestant, and runs it here.
    pub(crate) fn contestant(
        self,
        number: usize,
        exchange: &'a mut dyn FnMut(),
    ) -> Box<Contestant<'a>> {
        Box::new(move |calls| {
            self.call(number, calls);
            self.run(calls, exchange)
        })
    }

    /// Ends the turns of the other ranks.
    pub(crate) fn end(self) {
        self.call(0, 0);
    }

    /// Runs the contestants that rank 0 calls, until it ends.
    pub(crate) fn follow(self, all_ranks: &mut [(&'static str, impl FnMut())]) -> Result<()> {
        while let Some((contestant, calls)) = self.next()? {
            self.run(calls, &mut all_ranks[contestant].1);
        }
        Ok(())
    }

    /// Calls the other ranks to run a contestant this number of times; 0 times ends them.
    fn call(self, contestant: usize, calls: u32) {
        let call = serde_json::to_vec(&(contestant, calls)).expect("numbers");
        let mut padded = [b' '; 40];
        padded[..call.len()].copy_from_slice(&call);
        for rank in 1..self.0.size() {
            let sent = self.0.send(rank, Self::TAG, Buffer::host(padded.to_vec()));
            self.0.wait(sent.expect("a call"), Duration::MAX).expect("a call");
        }
    }

    /// Returns the next call of rank 0.
    fn next(self) -> Result<Option<(usize, u32)>> {
        let mut called = self.0.receive(0, Self::TAG, Buffer::host(vec![0; 40]))?;
        let call = loop {
            match called.test()? {
                Some(call) => break call.to_vec()?,
                None => thread::sleep(Self::NAP),
            }
        };
        let (contestant, calls) = serde_json::from_slice(&call).expect("a call");
        Ok((calls > 0).then_some((contestant, calls)))
    }

    /// Runs a contestant together with the other ranks. Returns the seconds per run.
    pub(crate) fn run(self, calls: u32, exchange: &mut dyn FnMut()) -> f64 {
        calls::barrier();
        time(calls, exchange)
    }
}
