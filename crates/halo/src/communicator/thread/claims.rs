//! The memory that ranks of one process use in an exchange, if other memory may have the same elements.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use runtime_core::{Error, ErrorKind, Footprint, Result};

use super::group::Group;

/// What the ranks of a group use in the exchanges of one object, as seen from one of the ranks.
pub(crate) struct Claims {
    group: Arc<Group>,
    rank: usize,
    table: Arc<ClaimTable>,
}

/// The claims of all ranks on memory. The numbers of exchanges start at 1.
pub(super) struct ClaimTable {
    /// Whether a rank ever claimed memory. Until then no rank takes the lock.
    is_used: AtomicBool,
    /// The number of the latest exchange that failed because of a claim, or `NONE`.
    failed: AtomicU64,
    state: Mutex<State>,
}

const NONE: u64 = u64::MAX;

struct State {
    /// The claims for each exchange. If a rank is late, there are many exchanges.
    claims: BTreeMap<u64, Vec<Claim>>,
    /// The number of the latest exchange of each rank whose claims it can no longer take back.
    started: Vec<u64>,
    error: Option<Error>,
}

struct Claim {
    rank: usize,
    field: usize,
    elements: Footprint,
}

impl ClaimTable {
    pub(super) fn new(ranks: usize) -> Self {
        let state = State { claims: BTreeMap::new(), started: vec![0; ranks], error: None };
        Self {
            is_used: AtomicBool::new(false),
            failed: AtomicU64::new(NONE),
            state: Mutex::new(state),
        }
    }
}

impl Claims {
    /// The claims of `rank` on memory for the exchanges of the object with this number.
    pub(in crate::communicator) fn new(group: &Arc<Group>, rank: usize, object: u64) -> Self {
        Self { group: Arc::clone(group), rank, table: group.claim_table(object) }
    }

    /// Declares the elements of fields that this rank uses in an exchange, before it uses them. The name of a field is
    /// `name` of its number. `reset` is the number of the latest exchange before the latest reset.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the elements of a field are also those of another rank, now and in later calls of
    /// [`check`](Self::check) on every rank.
    pub(crate) fn claim<'n>(
        &self,
        reset: u64,
        exchange: u64,
        fields: Vec<(usize, Footprint)>,
        name: impl Fn(usize) -> &'n str,
    ) -> Result<()> {
        self.check(reset, exchange)?;
        let Self { group, rank, table } = self;
        if fields.is_empty() && !table.is_used.load(Ordering::Relaxed) {
            return Ok(());
        }
        table.is_used.store(true, Ordering::Relaxed);
        let mut state = table.state.lock();
        let State { claims, started, error } = &mut *state;
        let claimed = claims.entry(exchange).or_default();
        let of_others = || claimed.iter().filter(|claim| claim.rank != *rank);
        let shared = fields.iter().find_map(|(field, elements)| {
            of_others().find(|other| other.elements.overlaps(elements)).map(|other| (*field, other))
        });
        if let Some((field, other)) = shared {
            let message = format!(
                "field {} of rank {rank} and field {} of rank {} share elements",
                name(field),
                name(other.field),
                other.rank
            );
            let found = Error::new(ErrorKind::InvalidArgument, "exchange", message);
            *error = Some(found.clone());
            table.failed.store(exchange, Ordering::Release);
            drop(state);
            (0..group.size()).for_each(|rank| group.raise(rank));
            return Err(found);
        }
        let claim = |(field, elements)| Claim { rank: *rank, field, elements };
        claimed.extend(fields.into_iter().map(claim));
        started[*rank] = exchange - 1;
        // All ranks have compared their final claims with these.
        let all = started.iter().copied().min().unwrap_or(0);
        while let Some(oldest) = claims.first_entry().filter(|oldest| *oldest.key() <= all) {
            oldest.remove();
        }
        Ok(())
    }

    /// Takes back the claims for an exchange, which this rank has not started.
    pub(crate) fn withdraw(&self, exchange: u64) {
        if self.table.is_used.load(Ordering::Relaxed) {
            let mut state = self.table.state.lock();
            let claimed = state.claims.get_mut(&exchange);
            claimed.into_iter().for_each(|claims| claims.retain(|claim| claim.rank != self.rank));
        }
    }

    /// Returns the error of [`claim`](Self::claim) on any rank for this exchange, or for an earlier one since the
    /// reset.
    pub(crate) fn check(&self, reset: u64, exchange: u64) -> Result<()> {
        let failed = self.table.failed.load(Ordering::Acquire);
        if failed <= reset || failed > exchange {
            return Ok(());
        }
        self.table.state.lock().error.clone().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claims(rank {} of {})", self.rank, self.group.size())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use backend_host::HostDevice;
    use runtime_core::Device;

    use super::*;

    /// The claims of two ranks of three.
    fn claims() -> (Arc<Group>, [Claims; 2]) {
        let group = Arc::new(Group::new(3));
        let ranks = [0, 1].map(|rank| Claims::new(&group, rank, 7));
        (group, ranks)
    }

    #[test]
    fn memory_that_nobody_else_knows_is_not_listed() {
        let (_group, [rank, _]) = claims();
        for exchange in 1..5 {
            rank.claim(0, exchange, Vec::new(), |_| "f").unwrap();
        }
        assert_eq!(rank.table.state.lock().started, [0; 3]);
    }

    /// Of the exchanges that a rank has not started, as long as it has not.
    #[test]
    fn claims_are_kept_until_all_ranks_have_compared_theirs() {
        let (group, ranks) = claims();
        let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
        let memories = [0, 1].map(|_| device.memory_allocate::<u8>(8).unwrap());
        assert!(memories.iter().all(|memory| memory.native().is_some()), "handles were given out");
        let fields = |rank: usize| vec![(0, memories[rank].view().footprint().unwrap())];
        for exchange in 1..=3 {
            for rank in [0, 1] {
                ranks[rank].claim(0, exchange, fields(rank), |_| "f").unwrap();
            }
        }
        let last = Claims::new(&group, 2, 7);
        let listed = || last.table.state.lock().claims.values().map(Vec::len).sum::<usize>();
        for (exchange, left) in [(1, 6), (2, 4), (3, 2)] {
            last.claim(0, exchange, Vec::new(), |_| "f").unwrap();
            assert_eq!(listed(), left);
        }
    }

    /// The time of many exchanges of two ranks, with the third and without it.
    #[test]
    fn claims_that_are_kept_for_a_late_rank_slow_down_no_later_ones() {
        let device = Device::new(HostDevice::with_threads(0, 1).unwrap()).unwrap();
        let memory = device.memory_allocate::<u8>(8).unwrap();
        assert!(memory.native().is_some(), "its handle was given out");
        let time = |is_late: bool| {
            let (group, ranks) = claims();
            let last = Claims::new(&group, 2, 7);
            let start = Instant::now();
            for exchange in 1..=5000 {
                let fields = vec![(0, memory.view().footprint().unwrap())];
                ranks[0].claim(0, exchange, fields, |_| "f").unwrap();
                for rank in [&ranks[1], &last].into_iter().take(if is_late { 1 } else { 2 }) {
                    rank.claim(0, exchange, Vec::new(), |_| "f").unwrap();
                }
            }
            start.elapsed()
        };
        let best = |is_late| (0..3).map(|_| time(is_late)).min().unwrap();
        let (late, punctual) = (best(true), best(false));
        assert!(late < 10 * punctual, "{late:?}, but {punctual:?} if no rank is late");
    }
}
