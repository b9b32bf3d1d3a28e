//! Owners that may own one another, dropped without recursion.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Keeps a value alive and drops it without recursion.
///
/// Memory may be owned by an array that is itself made of adopted memory, and so on without limit. If an owner is
/// dropped while its thread drops another owner, it is dropped after that owner and not inside its destructor. Such a
/// chain therefore needs no more stack than two owners. All owners of the chain are dropped when the outermost drop
/// returns. So a destructor must not wait for something that another owner, which it has just dropped, holds: a lock,
/// for instance, or a lease of an array.
///
/// If a destructor panics, this is logged as a warning of `tracing`, and goes no further: it is no failure of work on a
/// device. The panic hook runs as usual.
///
/// [Adopted](crate::Device::memory_adopt) memory keeps its owner in this type, and a
/// [`HostModule`](crate::HostModule) its kernels.
pub struct Owner<O: Send + 'static>(Option<O>);

type Values = VecDeque<Box<dyn Any>>;

thread_local! {
    /// The values to drop after the owner that this thread is dropping. `None` while the thread drops no owner. It has
    /// no destructor, so that it is still there for other values of the thread when the thread ends.
    static PENDING: RefCell<ManuallyDrop<Option<Values>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
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
        let outermost = PENDING.with_borrow_mut(|pending| match &mut **pending {
            Some(pending) => {
                pending.push_back(Box::new(owner));
                None
            }
            none => {
                *none = Some(Values::new());
                Some(owner)
            }
        });
        let Some(owner) = outermost else { return };
        drop_caught(owner);
        while let Some(owner) = PENDING.with_borrow_mut(|pending| pending.as_mut()?.pop_front()) {
            drop_caught(owner);
        }
        PENDING.with_borrow_mut(|pending| **pending = None);
    }
}

/// Drops an owner. Logs a panic of its destructor.
fn drop_caught<O>(owner: O) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owner))) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    // A log subscriber may panic too.
    let logged = catch_unwind(|| tracing::warn!(panic = text, "a destructor panicked"));
    // Dropping what was thrown may panic again.
    mem::forget((panic, logged));
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

    /// A chain of 100 000 owners, whose last one owns all others.
    fn long_chain(log: &Arc<Mutex<Vec<usize>>>) -> Owner<Node> {
        let node = |number, owned| Node { number, log: log.clone(), panics: false, _owned: owned };
        let first = Owner::new(node(0, Vec::new()));
        (1..100_000).fold(first, |last, number| Owner::new(node(number, vec![last])))
    }

    #[test]
    fn a_long_chain_takes_little_stack() {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        let last = long_chain(&log);
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(|| drop(last)).unwrap().join().unwrap();
        assert!(log.lock().unwrap().iter().rev().copied().eq(0..100_000));
    }

    thread_local! {
        static AT_THE_END: RefCell<Option<Owner<Node>>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_long_chain_that_ends_with_its_thread_takes_little_stack() {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        let last = long_chain(&log);
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let keep = move || {
            AT_THE_END.set(Some(last));
            // Values of a thread that were used later are dropped earlier.
            drop(Owner::new(0));
        };
        small.spawn(keep).unwrap().join().unwrap();
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
            drop(all);
            assert_eq!(mem::take(&mut *log.lock().unwrap()), [1, 2, 3, 4]);
            drop(node(5, vec![]));
            assert_eq!(mem::take(&mut *log.lock().unwrap()), [5]);
        }
    }

    /// Counts warnings, and panics when it gets one.
    struct Subscriber(Arc<Mutex<Vec<String>>>);

    impl tracing::Subscriber for Subscriber {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            struct Text(String);
            impl tracing::field::Visit for Text {
                fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                    self.0 += &format!("{field}: {value:?} ");
                }
            }
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
            panic!("a subscriber panics");
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn each_panic_of_a_chain_is_logged_and_goes_no_further() {
        let (log, events) = <(Arc<Mutex<Vec<usize>>>, Arc<Mutex<Vec<String>>>)>::default();
        let node = |number, owned| {
            Owner::new(Node { number, log: log.clone(), panics: true, _owned: owned })
        };
        let all = node(1, vec![node(2, vec![node(3, vec![])]), node(4, vec![])]);
        // With a single subscriber, `tracing` disables events that a thread without a subscriber emits first.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        tracing::subscriber::with_default(Subscriber(events.clone()), || drop(all));
        assert_eq!(mem::take(&mut *log.lock().unwrap()), [1, 2, 4, 3]);
        let events = events.lock().unwrap();
        assert_eq!(events.len(), 4);
        for event in &*events {
            let what = ["WARN", "a destructor panicked", "a destructor that panics"];
            assert!(what.iter().all(|what| event.contains(what)), "{event}");
        }
    }
}
