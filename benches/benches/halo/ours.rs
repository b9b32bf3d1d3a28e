//! The measured exchanges: on one rank, on ranks that are threads, and over any communicator.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

use benches::turns::{Contestant, time};
use halo::communicator::{Communicator, ThreadCommunicator};
use halo::{Field, HaloExchange, Result};

use crate::case::{Case, Fields, device};
use crate::direct_loop;
use crate::measured::{DIRECT_LOOP, IN_PROCESS};

/// Exchanges the fields of one rank of a case.
pub(crate) struct Ours(HaloExchange);

impl Ours {
    pub(crate) fn new(ranks: Arc<dyn Communicator>, fields: &Fields) -> Result<Self> {
        let (topology, device) = (fields.case.topology()?, fields.stream.device());
        HaloExchange::new(ranks, &topology, fields.quantities(), device, &Default::default())
            .map(Self)
    }

    /// Runs one exchange to completion.
    pub(crate) fn exchange(&mut self, fields: &mut Fields) {
        let stream = fields.stream.clone();
        let mut views: Vec<Field<'_>> = fields.views().map(Field::from).collect();
        self.0.exchange(&stream, &mut views).expect("an exchange");
        stream.synchronize().expect("an exchange");
    }
}

/// The communicator of a single rank.
pub(crate) fn alone() -> Result<Arc<dyn Communicator>> {
    let ranks = ThreadCommunicator::group(1)?.pop().expect("one rank");
    Ok(Arc::new(ranks))
}

/// Ranks that are threads and wait until they are called to run their part.
pub(crate) struct Team {
    orders: Vec<Sender<u32>>,
    times: Receiver<f64>,
}

impl Team {
    /// `rank` makes the part of each rank, in the rank's thread.
    pub(crate) fn new<R: FnMut()>(
        size: usize,
        rank: impl Fn(ThreadCommunicator) -> R + Clone + Send + 'static,
    ) -> Result<Self> {
        let (reported, times) = channel();
        let together = Arc::new(Barrier::new(size));
        let orders = ThreadCommunicator::group(size)?.into_iter().map(|communicator| {
            let (order, orders) = channel();
            let (reported, together, rank) =
                (reported.clone(), Arc::clone(&together), rank.clone());
            thread::spawn(move || {
                let mut part = rank(communicator);
                for calls in orders {
                    together.wait();
                    if reported.send(time(calls, &mut part)).is_err() {
                        return;
                    }
                }
            });
            order
        });
        Ok(Self { orders: orders.collect(), times })
    }

    /// Makes every rank run its part this number of times. Returns the seconds per run on the slowest rank.
    pub(crate) fn run(&self, calls: u32) -> f64 {
        self.orders.iter().for_each(|order| order.send(calls).expect("a rank"));
        // If a rank panics, the others fail too, and their ends of the channel close.
        let slowest = |slowest: f64, _| slowest.max(self.times.recv().expect("a rank"));
        self.orders.iter().fold(0.0, slowest)
    }
}

/// The ranks of a case, with fields on one device.
fn threads(case: Case) -> Result<Team> {
    let device = device()?;
    Team::new(case.ranks, move |ranks| {
        let mut fields = Fields::new(case, ranks.rank(), &device).expect("fields");
        let mut ours = Ours::new(Arc::new(ranks), &fields).expect("an exchange");
        fields.prove("threads", |fields| ours.exchange(fields));
        move || ours.exchange(&mut fields)
    })
}

/// The contestants in this process: ours and, if a rank exchanges with itself, the loop.
pub(crate) fn in_process<'a>(
    case: Case,
    fields: &'a RefCell<Fields>,
) -> Result<Vec<(&'static str, Box<Contestant<'a>>)>> {
    if case.ranks > 1 {
        let team = threads(case)?;
        return Ok(vec![(IN_PROCESS, Box::new(move |calls| team.run(calls)))]);
    }
    let regions = case.regions(0);
    let direct = move |fields: &mut Fields| direct_loop::exchange(&case, &regions, fields.slices());
    fields.borrow_mut().prove(DIRECT_LOOP, &direct);
    let mut ours = Ours::new(alone()?, &fields.borrow())?;
    fields.borrow_mut().prove(IN_PROCESS, |fields| ours.exchange(fields));
    let ours = move || ours.exchange(&mut fields.borrow_mut());
    let direct = move || direct(&mut fields.borrow_mut());
    Ok(vec![(IN_PROCESS, timed(ours)), (DIRECT_LOOP, timed(direct))])
}

fn timed<'a>(mut run: impl FnMut() + 'a) -> Box<Contestant<'a>> {
    Box::new(move |calls| time(calls, &mut run))
}
