//! Objects that native handles can refer to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use backend_support::lock;

/// Live objects, by address.
pub(crate) struct Alive<T>(Mutex<BTreeMap<usize, Weak<T>>>);

impl<T> Alive<T> {
    /// Registers an object at an address.
    pub(crate) fn note(&self, address: usize, object: &Arc<T>) {
        let mut alive = self.lock();
        if alive.len().is_power_of_two() {
            alive.retain(|_, object| object.strong_count() > 0);
        }
        alive.insert(address, Arc::downgrade(object));
    }

    /// The object that begins at an address.
    pub(crate) fn at(&self, address: usize) -> Option<Arc<T>> {
        self.lock().get(&address)?.upgrade()
    }

    /// The last object that begins at or before an address.
    pub(crate) fn before(&self, address: usize) -> Option<(usize, Arc<T>)> {
        let alive = self.lock();
        let before = alive.range(..=address).rev();
        before.map(|(base, object)| (*base, object.upgrade())).find_map(|(b, o)| Some((b, o?)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<T>>> {
        lock(&self.0)
    }
}

impl<T> Default for Alive<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Alive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_not_found() {
        let alive = Alive::default();
        let objects: Vec<Arc<usize>> = (0..100).map(Arc::new).collect();
        for object in &objects {
            alive.note(**object * 10, object);
        }
        assert_eq!(alive.at(70).as_deref(), Some(&7));
        assert_eq!(alive.at(71), None);
        assert_eq!(alive.before(79), Some((70, Arc::new(7))));
        let large = Arc::new(1);
        alive.note(5, &large);
        drop(objects);
        assert_eq!(alive.before(79), Some((5, large)), "what is gone hides nothing");
        assert_eq!(alive.at(70), None);
        (0..200).for_each(|address| alive.note(address, &Arc::new(0)));
        assert!(alive.lock().len() < 130, "{alive:?} are kept");
    }
}
