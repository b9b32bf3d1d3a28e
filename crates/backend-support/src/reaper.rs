//! Giving back what must wait for streams, or what a driver frees only by waiting for the device: in a thread of its own,
//! so that nobody who drops something is held up.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use runtime_core::{DeviceId, Error, ErrorKind, Result};

use crate::{Failures, guarded, lock};

/// A place in a stream.
pub trait Mark: Send + 'static {
    /// Blocks until the work before the mark is over: done, or never to be. `false` where the driver does not tell, for as
    /// long as [`PATIENCE`](crate::PATIENCE).
    #[must_use]
    fn wait(&self) -> bool;
    /// Whether the driver tells that the work before the mark is over.
    fn is_over(&self) -> bool;
}

/// The side of a driver that takes objects back.
pub trait Reclaim: fmt::Debug + Send + Sync + 'static {
    /// What is given back.
    type Object: Send + 'static;
    /// A place in one of the driver's streams.
    type Mark: Mark;

    /// Gives an object back, which nothing uses any more.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    fn reclaim(&self, object: Self::Object) -> Result<()>;
}

/// Gives objects of one device back, in the order in which they were retired.
#[derive(Debug)]
pub struct Reaper<R: Reclaim> {
    work: Arc<Work<R>>,
    #[expect(clippy::type_complexity, reason = "a sender and its thread")]
    thread: OnceLock<Option<(Sender<Retired<R>>, JoinHandle<()>)>>,
}

/// Something to give back, once the work before the marks is over.
#[derive(Debug)]
struct Retired<R: Reclaim> {
    what: What<R::Object>,
    after: Vec<R::Mark>,
}

#[derive(Debug)]
enum What<O> {
    Object(O),
    /// Somebody else's, which goes by being dropped.
    Owner(Box<dyn Any + Send + Sync>),
}

/// What the thread needs, which must not keep the device open.
#[derive(Debug)]
struct Work<R> {
    id: DeviceId,
    driver: Arc<R>,
    failures: Arc<Failures>,
    waiting: Mutex<usize>,
    done: Condvar,
}

impl<R: Reclaim> Reaper<R> {
    /// A reaper whose thread starts when it is first needed. What goes wrong in it is kept in `failures`.
    pub fn new(id: &DeviceId, driver: &Arc<R>, failures: &Arc<Failures>) -> Self {
        let (driver, failures) = (Arc::clone(driver), Arc::clone(failures));
        let (waiting, done) = Default::default();
        let work = Work { id: id.clone(), driver, failures, waiting, done };
        Self { work: Arc::new(work), thread: OnceLock::new() }
    }

    /// Gives an object back when the work before the marks is over. Does not block.
    pub fn retire(&self, object: R::Object, after: Vec<R::Mark>) {
        self.send(Retired { what: What::Object(object), after });
    }

    /// Drops the owner of adopted memory when the work before the marks is over: at once where nothing is in the way, since
    /// it may hold whatever the program has.
    pub fn retire_owner(&self, owner: Box<dyn Any + Send + Sync>, after: Vec<R::Mark>) {
        if after.iter().all(Mark::is_over) {
            self.work.give_back(What::Owner(owner));
        } else {
            self.send(Retired { what: What::Owner(owner), after });
        }
    }

    fn send(&self, retired: Retired<R>) {
        let thread = self.thread.get_or_init(|| {
            let (sender, receiver) = channel();
            let work = Arc::clone(&self.work);
            let run = move || work.run(&receiver);
            let name = format!("{} reaper", self.work.id);
            Some((sender, thread::Builder::new().name(name).spawn(run).ok()?))
        });
        *lock(&self.work.waiting) += 1;
        let refused = match thread {
            Some((sender, _)) => sender.send(retired).err().map(|refused| refused.0),
            None => Some(retired),
        };
        if let Some(retired) = refused {
            self.work.finish(retired);
        }
    }

    /// Blocks until everything retired so far is given back.
    pub fn drain(&self) {
        if self.is_current() {
            // An owner that uses its device is what the thread is busy with.
            return;
        }
        let mut waiting = lock(&self.work.waiting);
        while *waiting > 0 {
            waiting = self.work.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_current(&self) -> bool {
        let thread = self.thread.get().and_then(Option::as_ref);
        thread.is_some_and(|(_, thread)| thread.thread().id() == thread::current().id())
    }
}

impl<R: Reclaim> Drop for Reaper<R> {
    fn drop(&mut self) {
        let is_current = self.is_current();
        let Some(Some((sender, thread))) = self.thread.take() else { return };
        drop(sender);
        // The last owner may have held the device, and then this is the thread; it ends when it has done the rest.
        if !is_current && thread.join().is_err() {
            let message = "the thread that gives memory back panicked";
            let error = Error::new(ErrorKind::Driver, "memory_free", message);
            self.work.failures.keep(error.on(&self.work.id));
        }
    }
}

impl<R: Reclaim> Work<R> {
    fn run(&self, retired: &Receiver<Retired<R>>) {
        retired.iter().for_each(|retired| self.finish(retired));
    }

    fn finish(&self, Retired { what, after }: Retired<R>) {
        if after.iter().all(Mark::wait) {
            self.give_back(what);
        } else {
            // Work may still use it, so it stays for ever.
            mem::forget(what);
            let message =
                "what used an object did not come to its end, and so it was not given back";
            let error = Error::new(ErrorKind::Driver, "memory_free", message);
            self.failures.keep(error.on(&self.id));
        }
        drop(after);
        *lock(&self.waiting) -= 1;
        self.done.notify_all();
    }

    fn give_back(&self, what: What<R::Object>) {
        let given = match what {
            What::Object(object) => self.driver.reclaim(object),
            What::Owner(owner) => guarded("memory_free", || {
                drop(owner);
                Ok(())
            }),
        };
        if let Err(error) = given {
            self.failures.keep(error.on(&self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    /// A mark that is waited for in vain, or not.
    struct Told(bool);

    impl Mark for Told {
        fn wait(&self) -> bool {
            self.0
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    #[derive(Debug, Default)]
    struct Driver(Mutex<Vec<u32>>);

    impl Reclaim for Driver {
        type Object = u32;
        type Mark = Told;

        fn reclaim(&self, object: u32) -> Result<()> {
            lock(&self.0).push(object);
            Ok(())
        }
    }

    #[test]
    fn what_may_still_be_used_is_not_given_back() {
        let (driver, failures) = <(Arc<Driver>, Arc<Failures>)>::default();
        let reaper = Reaper::new(&DeviceId::new("test", 0), &driver, &failures);
        let owner = |after| -> Weak<()> {
            let owner = Arc::new(());
            let weak = Arc::downgrade(&owner);
            reaper.retire_owner(Box::new(owner), after);
            weak
        };
        let owners = [owner(vec![Told(true), Told(false)]), owner(vec![Told(true)])];
        reaper.retire(1, vec![Told(false)]);
        reaper.retire(2, vec![]);
        reaper.drain();
        assert_eq!(*lock(&driver.0), [2]);
        assert_eq!(owners.map(|owner| owner.strong_count()), [1, 0]);
        assert_eq!(failures.report().unwrap_err().kind(), ErrorKind::Driver);
    }
}
