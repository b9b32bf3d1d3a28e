//! What two threads do with one array. The parent module chooses the threads, locks and atomics, and whether a thread
//! waits until the other one is done (`wait_unordered`).

use std::panic::Location;

use coherence::{
    Access, Action, HOST, Health, LANES, Lane, PartSet, PartState, Paths, Reduce, Role, Set, Who,
    plan,
};

use super::atomic::{AtomicBool, Ordering};
use super::mirror::Mirror;
use super::{Arc, Mutex, MutexGuard, thread, wait_unordered};

/// The state of an array and its mirror, used as the core does.
struct Array {
    mirror: Mirror,
    parts: Mutex<Vec<PartState>>,
}

/// A part that is valid on the host, where `by` has written it last.
fn owned(by: Who) -> PartState {
    let mut part = PartState::new(Role::Owned);
    (part.valid, part.health) = (Set::one(HOST), Health::Good);
    part.bytes_mut(HOST).writer = by;
    part
}

/// A ghost part that waits for an exchange.
fn stale_ghost() -> PartState {
    let mut part = PartState::new(Role::Ghost);
    part.health = Health::Good;
    part
}

impl Array {
    fn new(parts: [PartState; 2], call_site: &'static Location<'static>) -> Arc<Self> {
        let mirror = Mirror::new(parts.len());
        mirror.publish(&parts);
        (0..2).for_each(|part| mirror.set_site(part, call_site));
        Arc::new(Self { mirror, parts: Mutex::new(parts.to_vec()) })
    }

    /// Locks the state. It then includes every guard that was taken in the mirror.
    fn lock(&self) -> MutexGuard<'_, Vec<PartState>> {
        let mut parts = self.parts.lock().unwrap();
        if self.mirror.take_up(&mut parts) {
            self.mirror.show(&mut parts);
        }
        parts
    }

    /// Changes the state under the lock. Returns whether the change was possible.
    fn act(&self, part: u8, action: Action) -> bool {
        let mut parts = self.lock();
        let planned = plan(&parts, PartSet::one(part), action, &paths());
        let is_possible = planned.is_ok();
        if let Ok(planned) = planned {
            *parts = planned.next;
        }
        self.mirror.show(&mut parts);
        is_possible
    }

    /// Writes a part, whose only user this thread is, and calls `during` meanwhile. Returns whether the write was
    /// committed.
    fn write(
        &self,
        part: u8,
        by: Who,
        call_site: &'static Location<'static>,
        during: impl FnOnce(),
    ) -> bool {
        let access = Access::ReadWrite;
        let quick = self.mirror.write(&PartSet::one(part), HOST, by, access, call_site, false);
        if !quick && !self.act(part, Action::Acquire { at: HOST, by, access }) {
            return false;
        }
        during();
        quick && self.mirror.release(part, false) || self.act(part, Action::Commit)
    }

    /// Fills part 1, a ghost part.
    fn fill_ghost(&self) {
        let access = Access::Write;
        assert!(self.act(1, Action::Acquire { at: HOST, by: None, access }), "the ghost is free");
        assert!(self.act(1, Action::Commit), "the ghost was written");
    }

    /// Gives the lane of an idle stream to another stream.
    fn replace_stream(&self, lane: Lane, stream: u64) {
        let mut parts = self.parts.lock().unwrap();
        let forgotten = plan(&parts, PartSet::below(2), Action::Forget { lane }, &paths());
        *parts = forgotten.unwrap().next;
        self.mirror.clear_lane(lane);
        self.mirror.publish(&parts);
        self.mirror.set_lane(lane, stream, HOST);
    }

    fn health(&self, part: u8) -> Health {
        let mut parts = self.parts.lock().unwrap();
        assert!(!self.mirror.take_up(&mut parts), "a write that nobody ended");
        parts[usize::from(part)].health
    }
}

fn paths() -> Paths {
    Paths {
        host: Set::one(HOST),
        peers: Default::default(),
        lanes: Default::default(),
        locked: None,
        direct: PartSet::EMPTY,
        workers: Set::EMPTY,
        relays: Set::EMPTY,
        places: [HOST; LANES],
    }
}

/// Runs `later` in another thread, beside `first` or after it, but without being ordered after it. Returns the result.
fn beside<R: Send + 'static>(
    first: impl FnOnce(),
    later: impl FnOnce() -> R + Send + 'static,
) -> R {
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let other = thread::spawn(move || {
        wait_unordered(&seen);
        later()
    });
    first();
    done.store(true, Ordering::Relaxed);
    other.join().unwrap()
}

/// Each write ends once: in the mirror, or in the state if another thread has moved it there.
pub(super) fn writes_beside_an_action_on_another_part() {
    let call_site = Location::caller();
    let array = Array::new([owned(None), owned(None)], call_site);
    let other = Arc::clone(&array);
    let writer = thread::spawn(move || {
        for _ in 0..2 {
            assert!(other.write(0, None, call_site, || ()), "a write that cannot be ended");
        }
    });
    for _ in 0..2 {
        let access = Access::Accumulate(Reduce::Sum);
        let acquired = array.act(1, Action::Acquire { at: HOST, by: None, access });
        assert!(acquired && array.act(1, Action::Commit), "an action on the other part");
    }
    writer.join().unwrap();
    assert_eq!([array.health(0), array.health(1)], [Health::Good; 2]);
}

/// Another thread reports that the stream that wrote the values has failed. No write of that stream makes them good.
pub(super) fn a_failure_is_reported_during_a_write() {
    let call_site = Location::caller();
    let array = Array::new([owned(Some(0)), owned(Some(0))], call_site);
    let other = Arc::clone(&array);
    let lose = || assert!(array.act(1, Action::Lost { lane: 0 }), "a loss is always possible");
    beside(lose, move || other.write(0, Some(0), call_site, || ()));
    assert_eq!([array.health(0), array.health(1)], [Health::Poisoned; 2]);
}

/// A thread that finds the failures processed does not find the values that they have made invalid.
pub(super) fn a_failure_is_processed() {
    let array = Array::new([owned(None), owned(None)], Location::caller());
    let other = Arc::clone(&array);
    let lose = || {
        let mut parts = array.lock();
        parts.fill(PartState { health: Health::Poisoned, ..PartState::new(Role::Owned) });
        array.mirror.show(&mut parts);
        array.mirror.include(1);
    };
    let reads = move || other.mirror.includes(1) && other.mirror.read_host(&PartSet::one(0));
    assert!(!beside(lose, reads), "values of failed work");
}

/// Another thread fills a ghost part during a write, which makes the ghost stale again.
pub(super) fn a_ghost_is_filled_during_a_write() {
    let call_site = Location::caller();
    let array = Array::new([owned(None), stale_ghost()], call_site);
    let other = Arc::clone(&array);
    let filler = thread::spawn(move || other.fill_ghost());
    thread::yield_now();
    let wrote = array.write(0, None, call_site, || filler.join().unwrap());
    assert!(wrote, "a write that cannot be ended");
    assert!(array.parts.lock().unwrap()[1].valid.is_empty(), "an old ghost is valid");
}

/// Another thread has filled a ghost part. A write makes it stale.
pub(super) fn a_ghost_is_filled_before_a_write() {
    let call_site = Location::caller();
    let array = Array::new([owned(None), stale_ghost()], call_site);
    let other = Arc::clone(&array);
    // The ghost may be filled after the write.
    let is_after = Arc::new(AtomicBool::new(false));
    let filled = Arc::clone(&is_after);
    let fill = || {
        array.fill_ghost();
        filled.store(true, Ordering::Relaxed);
    };
    let is_stale = beside(fill, move || {
        let is_filled = is_after.load(Ordering::Relaxed);
        assert!(other.write(0, None, call_site, || ()), "a write that cannot be ended");
        is_filled
    });
    assert!(!is_stale || array.lock()[1].valid.is_empty(), "an old ghost is valid");
}

/// A write guard was forgotten. Its part is not readable, also while another thread moves the write to the state.
pub(super) fn a_forgotten_write_moves_to_the_state() {
    let call_site = Location::caller();
    let array = Array::new([owned(None), owned(None)], call_site);
    let set = PartSet::one(0);
    assert!(array.mirror.write(&set, HOST, None, Access::ReadWrite, call_site, false), "a hit");
    let other = Arc::clone(&array);
    beside(
        || drop(array.lock()),
        move || {
            assert!(!other.mirror.read_host(&set), "values of a forgotten write");
            assert!(!other.write(0, None, call_site, || ()), "a write on top of a forgotten one");
        },
    );
}

/// Another thread brings the values to the host. A thread that may read them there sees them.
pub(super) fn values_arrive() {
    let array = Array::new([owned(Some(0)), owned(Some(0))], Location::caller());
    let values = Arc::new(AtomicBool::new(false));
    let (other, arrived) = (Arc::clone(&array), Arc::clone(&values));
    let bring = || {
        values.store(true, Ordering::Relaxed);
        assert!(array.act(0, Action::Read { at: HOST, by: None }), "the values are good");
    };
    beside(bring, move || {
        if other.mirror.read_host(&PartSet::one(0)) {
            assert!(arrived.load(Ordering::Relaxed), "values that have not arrived");
        }
    });
}

const EARLIER: u64 = 1;
const LATER: u64 = 2;

/// An array whose only lane is that of the stream `EARLIER`.
fn with_a_lane() -> (Arc<Array>, Arc<Array>) {
    let array = Array::new([owned(None), owned(None)], Location::caller());
    array.mirror.set_lane(0, EARLIER, HOST);
    (Arc::clone(&array), array)
}

impl Array {
    /// The stream of the lane waits for the values.
    fn wait_for_values(&self) {
        assert!(self.act(0, Action::Read { at: HOST, by: Some(0) }), "the values are good");
    }
}

/// A stream gets the lane of another one. It may not read what only the other one has waited for.
pub(super) fn a_lane_is_taken_over() {
    let (array, other) = with_a_lane();
    array.wait_for_values();
    let read = beside(
        || array.replace_stream(0, LATER),
        move || other.mirror.read(&PartSet::one(0), LATER),
    );
    assert_eq!(read, None, "a wait of the earlier stream");
}

/// A stream has lost its lane to another one. It may not read what only the other one has waited for.
pub(super) fn a_lane_is_given_away() {
    let (array, other) = with_a_lane();
    let give_away = || {
        array.replace_stream(0, LATER);
        array.wait_for_values();
    };
    let read = beside(give_away, move || other.mirror.read(&PartSet::one(0), EARLIER));
    assert_eq!(read, None, "a wait of the later stream");
    assert_eq!(array.mirror.read(&PartSet::one(0), LATER), Some(HOST), "a hit");
}

/// A stream has lost its lane to another one, and gets it back. It may not read what only the other one has waited for.
pub(super) fn a_lane_comes_back() {
    let (array, other) = with_a_lane();
    let give_away = || {
        array.replace_stream(0, LATER);
        array.wait_for_values();
        array.replace_stream(0, EARLIER);
    };
    let read = beside(give_away, move || other.mirror.read(&PartSet::one(0), EARLIER));
    assert_eq!(read, None, "a wait of the other stream");
}
