//! Objects and their handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The objects of one kind, by handle. Handles are never used twice, and are in a range for each kind; none is a valid
/// address.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: &'static str,
    first: u64,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    next: u64,
    alive: BTreeMap<u64, Arc<T>>,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: &'static str, range: u64) -> Self {
        let first = 0x5a00_0000_0000_0000 + (range << 40);
        Self { kind, first, state: Mutex::new(State { next: first, alive: BTreeMap::new() }) }
    }

    pub(crate) fn insert(&self, object: impl Into<Arc<T>>) -> u64 {
        self.insert_with(|_| object).0
    }

    /// Inserts an object that contains its handle.
    pub(crate) fn insert_with<O: Into<Arc<T>>>(
        &self,
        make: impl FnOnce(u64) -> O,
    ) -> (u64, Arc<T>) {
        let mut state = self.state.lock();
        let handle = state.next;
        state.next += 1;
        let object: Arc<T> = make(handle).into();
        state.alive.insert(handle, Arc::clone(&object));
        (handle, object)
    }

    /// The object, or the reason why there is none.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, String> {
        let state = self.state.lock();
        state.alive.get(&handle).cloned().ok_or_else(|| self.absence(handle, state.next))
    }

    /// Removes the object.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, String> {
        let mut state = self.state.lock();
        let next = state.next;
        state.alive.remove(&handle).ok_or_else(|| self.absence(handle, next))
    }

    /// Removes the objects that meet the condition.
    pub(crate) fn take(&self, mut condition: impl FnMut(&T) -> bool) {
        let mut taken = Vec::new();
        self.state.lock().alive.retain(|_, object| {
            let is_taken = condition(object);
            taken.extend(is_taken.then(|| Arc::clone(object)));
            !is_taken
        });
        // Dropped without the lock: an object may contain others.
        drop(taken);
    }

    /// The number of objects that meet the condition.
    pub(crate) fn count(&self, condition: impl Fn(&T) -> bool) -> usize {
        self.state.lock().alive.values().filter(|object| condition(object)).count()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.state.lock().alive.values().cloned().collect()
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    fn absence(&self, handle: u64, next: u64) -> String {
        let was =
            if (self.first..next).contains(&handle) { "destroyed before" } else { "never created" };
        format!("{} {handle:#x} was {was}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destroyed_objects_and_unknown_handles_have_different_errors() {
        let table = Table::new("stream", 3);
        let handle = table.insert(7);
        assert_eq!(*table.get(handle).unwrap(), 7);
        table.remove(handle).unwrap();
        assert!(table.get(handle).unwrap_err().ends_with("destroyed before"));
        assert!(table.remove(handle + 1).unwrap_err().ends_with("never created"));
    }
}
