//! Owners that may own one another, dropped without recursion.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Keeps a value alive and drops it without recursion.
///
/// Memory may be owned by an array that is itself made of adopted memory, and so on without limit. If an owner is
/// dropped while its thread drops another owner, it is dropped after that owner and not inside its destructor. Such a
/// chain therefore needs no more stack than two owners. All owners of the chain are dropped when the outermost drop
/// returns. So a destructor must not wait for something that another owner, which it has just dropped, holds: a lock,
/// for instance, or a lease of an array.
///
/// [Adopted](crate::Device::memory_adopt) memory keeps its owner in this type.
pub struct Owner<O: Send + 'static>(Option<O>);

thread_local! {
    /// The values to drop after the owner that this thread is dropping. `None` while the thread drops no owner.
    static PENDING: RefCell<Option<VecDeque<Box<dyn Any>>>> = const { RefCell::new(None) };
}

impl<O: Send + 'static> Owner<O> {
    /// Keeps `owner`.
    pub fn new(owner: O) -> Self {
        Self(Some(owner))
    }
}

impl<O: Send + 'static> Drop for Owner<O> {
    fn drop(&mut self) {
        let Some(owner) = self.0.take() else { return };
        let outermost = PENDING.try_with(|pending| match &mut *pending.borrow_mut() {
            Some(pending) => {
                pending.push_back(Box::new(owner));
                None
            }
            none => {
                *none = Some(VecDeque::new());
                Some(owner)
            }
        });
        // In a thread that is terminating, the owner was dropped with the closure.
        let Ok(Some(owner)) = outermost else { return };
        let mut panic = caught(owner);
        while let Some(owner) = PENDING.with_borrow_mut(|pending| pending.as_mut()?.pop_front()) {
            let another = caught(owner);
            match panic {
                None => panic = another,
                // Only one panic can continue, and dropping the payload of another one may panic.
                Some(_) => mem::forget(another),
            }
        }
        PENDING.set(None);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Drops an owner. Returns the payload if its destructor panicked.
fn caught<O>(owner: O) -> Option<Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| drop(owner))).err()
}

impl<O: Send + 'static> fmt::Debug for Owner<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Node {
        number: usize,
        log: Arc<Mutex<Vec<usize>>>,
        panics: bool,
        _owned: Vec<Owner<Self>>,
    }

    impl Drop for Node {
        fn drop(&mut self) {
            self.log.lock().unwrap().push(self.number);
            assert!(!self.panics, "a destructor that panics");
        }
    }

    #[test]
    fn a_long_chain_takes_little_stack() {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        let node = |number, owned| Node { number, log: log.clone(), panics: false, _owned: owned };
        let mut last = Owner::new(node(0, Vec::new()));
        for number in 1..100_000 {
            last = Owner::new(node(number, vec![last]));
        }
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(|| drop(last)).unwrap().join().unwrap();
        assert!(log.lock().unwrap().iter().rev().copied().eq(0..100_000));
    }

    #[test]
    fn a_panicking_owner_does_not_keep_others_from_being_dropped() {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        for panics in 1..=3 {
            let node = |number, owned| {
                let panics = number == panics;
                Owner::new(Node { number, log: log.clone(), panics, _owned: owned })
            };
            let all = node(1, vec![node(2, vec![]), node(3, vec![node(4, vec![])])]);
            assert!(catch_unwind(AssertUnwindSafe(|| drop(all))).is_err());
            assert_eq!(mem::take(&mut *log.lock().unwrap()), [1, 2, 3, 4]);
            drop(node(5, vec![]));
            assert_eq!(mem::take(&mut *log.lock().unwrap()), [5]);
        }
    }

    /// Where each panics, the first panic comes out, and none ends the process.
    #[test]
    fn all_panics_of_a_chain_are_reported_as_one() {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        let node = |number, owned| {
            Owner::new(Node { number, log: log.clone(), panics: true, _owned: owned })
        };
        let all = node(1, vec![node(2, vec![node(3, vec![])]), node(4, vec![])]);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(all))).is_err());
        assert_eq!(mem::take(&mut *log.lock().unwrap()), [1, 2, 4, 3]);
    }
}
