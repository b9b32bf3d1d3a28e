//! The measured exchanges: on one rank, on ranks that are threads, and over any communicator.

use std::cell::RefCell;
use std::sync::Arc;

use benches::team::Team;
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
