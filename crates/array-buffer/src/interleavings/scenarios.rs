//! What two threads do with one array. The parent module chooses the threads, locks and atomics.

use std::panic::Location;

use super::mirror::Mirror;
use super::{Arc, Mutex, thread};
use crate::coherence::{
    Access, Action, HOST, Health, PartState, Paths, Reduce, Role, Set, Who, plan,
};

/// The state of an array and its mirror, used as the core does.
struct Array {
    mirror: Mirror,
    parts: Mutex<Vec<PartState>>,
}

/// The lane of the stream that wrote the values.
const LANE: Who = Some(0);

impl Array {
    /// An array of two owned parts, valid on the host, and on `by` written last.
    fn new(by: Who, call_site: &'static Location<'static>) -> Arc<Self> {
        let mut part = PartState::new(Role::Owned);
        (part.valid, part.health) = (Set::one(HOST), Health::Good);
        part.bytes_mut(HOST).writer = by;
        let parts = vec![part; 2];
        let mirror = Mirror::new(parts.len());
        mirror.publish(&parts);
        (0..2).for_each(|part| mirror.set_site(part, call_site));
        Arc::new(Self { mirror, parts: Mutex::new(parts) })
    }

    /// Changes the state under the lock. Returns whether the change was possible.
    fn act(&self, part: u8, action: Action) -> bool {
        let mut parts = self.parts.lock().unwrap();
        if self.mirror.take_up(&mut parts) {
            self.mirror.show(&mut parts);
        }
        let planned = plan(&parts, Set::one(part), action, &paths());
        let is_possible = planned.is_ok();
        if let Ok(planned) = planned {
            *parts = planned.next;
        }
        self.mirror.show(&mut parts);
        is_possible
    }

    /// Writes a part, whose only user this thread is. Returns whether the write was committed.
    fn write(&self, part: u8, by: Who, call_site: &'static Location<'static>) -> bool {
        let access = Access::ReadWrite;
        let quick = self.mirror.write(Set::one(part), HOST, by, access, call_site, false);
        if !quick && !self.act(part, Action::Acquire { at: HOST, by, access }) {
            return false;
        }
        quick && self.mirror.release(part, false) || self.act(part, Action::Commit)
    }

    fn health(&self, part: u8) -> Health {
        let mut parts = self.parts.lock().unwrap();
        assert!(!self.mirror.take_up(&mut parts), "a write that nobody ended");
        parts[usize::from(part)].health
    }
}

fn paths() -> Paths {
    Paths { host: Set::one(HOST), peers: Default::default(), lanes: Default::default() }
}

/// Each write ends once: in the mirror, or in the state if another thread has moved it there.
pub(super) fn writes_beside_an_action_on_another_part() {
    let call_site = Location::caller();
    let array = Array::new(None, call_site);
    let other = Arc::clone(&array);
    let writer = thread::spawn(move || {
        for _ in 0..2 {
            assert!(other.write(0, None, call_site), "a write that cannot be ended");
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
    let array = Array::new(LANE, call_site);
    let other = Arc::clone(&array);
    let writer = thread::spawn(move || other.write(0, LANE, call_site));
    assert!(array.act(1, Action::Lost { lane: 0 }), "a loss is always possible");
    writer.join().unwrap();
    assert_eq!([array.health(0), array.health(1)], [Health::Poisoned; 2]);
}
