//! Frees objects once their streams finish, in a separate thread. Also for objects whose release makes a driver wait
//! for the whole device. Dropping an object therefore does not block.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use runtime_core::{DeviceId, Error, ErrorKind, Owner, Result};

use crate::{Failures, guarded, lock};

/// A place in a stream.
pub trait Mark: Send + 'static {
    /// Blocks until the work before the mark is finished: done, or certain never to run. Returns `false` if the driver
    /// reports no progress for as long as [`POLL_TIMEOUT`](crate::POLL_TIMEOUT).
    #[must_use]
    fn wait(&self) -> bool;
    /// Whether the driver reports that the work before the mark is finished.
    fn is_over(&self) -> bool;
}

/// The part of a driver that releases objects.
pub trait Reclaim: fmt::Debug + Send + Sync + 'static {
    /// The objects that are released.
    type Object: Send + 'static;
    /// A place in one of the driver's streams.
    type Mark: Mark;

    /// Releases an object that is no longer used.
    ///
    /// # Errors
    ///
    /// Errors of the driver. A panic is kept as a failure, like an error.
    fn reclaim(&self, object: Self::Object) -> Result<()>;
}

/// Releases objects of one device in the order in which they were retired.
#[derive(Debug)]
pub struct Reaper<R: Reclaim> {
    work: Arc<Work<R>>,
    #[expect(clippy::type_complexity, reason = "a sender and its thread")]
    thread: OnceLock<Option<(Sender<Retired<R>>, JoinHandle<()>)>>,
}

/// An object to release once the work before the marks is finished.
#[derive(Debug)]
struct Retired<R: Reclaim> {
    item: Item<R::Object>,
    after: Vec<R::Mark>,
}

#[derive(Debug)]
enum Item<O> {
    Object(O),
    /// An object with another owner, released by dropping it.
    Owner(Box<dyn Any + Send + Sync>),
}

/// The data of the thread. It must not keep the device open.
#[derive(Debug)]
struct Work<R> {
    id: DeviceId,
    driver: Arc<R>,
    failures: Arc<Failures>,
    waiting: Mutex<usize>,
    done: Condvar,
}

impl<R: Reclaim> Reaper<R> {
    /// Creates a reaper. Its thread starts when it is first needed. Its errors are kept in `failures`.
    pub fn new(id: &DeviceId, driver: &Arc<R>, failures: &Arc<Failures>) -> Self {
        let (driver, failures) = (Arc::clone(driver), Arc::clone(failures));
        let (waiting, done) = Default::default();
        let work = Work { id: id.clone(), driver, failures, waiting, done };
        Self { work: Arc::new(work), thread: OnceLock::new() }
    }

    /// Releases an object when the work before the marks is finished. Does not block.
    pub fn retire(&self, object: R::Object, after: Vec<R::Mark>) {
        self.send(Retired { item: Item::Object(object), after });
    }

    /// Drops the owner of adopted memory when the work before the marks is finished. If it already is, drops the owner
    /// at once, because the owner may hold any resource of the program. A panic of its destructor is logged.
    pub fn retire_owner(&self, owner: Box<dyn Any + Send + Sync>, after: Vec<R::Mark>) {
        if after.iter().all(Mark::is_over) {
            self.work.give_back(Item::Owner(owner));
        } else {
            self.send(Retired { item: Item::Owner(owner), after });
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

    /// Blocks until everything retired so far is released. Does nothing in the thread of any device's reaper: such a
    /// thread may be running the destructor of an owner that waits for a device, and two such threads could wait for
    /// each other.
    pub fn drain(&self) {
        if REAPS.get() {
            return;
        }
        let mut waiting = lock(&self.work.waiting);
        while *waiting > 0 {
            waiting = self.work.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the thread end on its own once it has released everything, instead of joining it when this reaper is
    /// dropped.
    pub(crate) fn detach(&mut self) {
        drop(self.thread.take());
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
        // The last owner may have held the device, so this may be the reaper's own thread. It ends after releasing the
        // rest.
        if !is_current && thread.join().is_err() {
            let message = "the thread that gives memory back panicked";
            let error = Error::new(ErrorKind::Driver, "release", message);
            self.work.failures.keep(error.on(&self.work.id));
        }
    }
}

thread_local! {
    /// Whether this thread is a reaper's thread.
    static REAPS: Cell<bool> = const { Cell::new(false) };
}

impl<R: Reclaim> Work<R> {
    fn run(&self, retired: &Receiver<Retired<R>>) {
        REAPS.set(true);
        retired.iter().for_each(|retired| self.finish(retired));
    }

    fn finish(&self, Retired { item, after }: Retired<R>) {
        let mut waiting = Some(item);
        let kept = &mut waiting;
        self.guard(move || {
            if !after.iter().all(Mark::wait) {
                let message = "work that used an object did not finish, so the object is leaked";
                return Err(Error::new(ErrorKind::Driver, "release", message));
            }
            kept.take().map_or(Ok(()), |item| self.reclaim(item))
        });
        // Work may still use what was not released, so it is leaked.
        mem::forget(waiting);
        *lock(&self.waiting) -= 1;
        self.done.notify_all();
    }

    fn give_back(&self, item: Item<R::Object>) {
        self.guard(|| self.reclaim(item));
    }

    fn reclaim(&self, item: Item<R::Object>) -> Result<()> {
        match item {
            Item::Object(object) => self.driver.reclaim(object),
            Item::Owner(owner) => {
                // What its destructor does is no failure of the device.
                drop(Owner::new(owner));
                Ok(())
            }
        }
    }

    /// Keeps errors, including panics of drivers.
    fn guard(&self, f: impl FnOnce() -> Result<()>) {
        if let Err(error) = guarded("release", f) {
            self.failures.keep(error.on(&self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    /// A mark whose end is or is not reported.
    struct Told(bool);

    impl Mark for Told {
        fn wait(&self) -> bool {
            self.0
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    /// An object for which the driver panics.
    const PANICS: u32 = 13;

    #[derive(Debug, Default)]
    struct Driver(Mutex<Vec<u32>>);

    impl Reclaim for Driver {
        type Object = u32;
        type Mark = Told;

        fn reclaim(&self, object: u32) -> Result<()> {
            assert!(object != PANICS, "object {object} cannot be given back");
            lock(&self.0).push(object);
            Ok(())
        }
    }

    #[test]
    fn objects_in_flight_are_not_released() {
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
        assert_eq!(failures.take().unwrap().kind(), ErrorKind::Driver);
    }

    #[test]
    fn a_panic_of_an_owner_is_no_failure() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("owner refuses");
            }
        }
        let (driver, failures) = <(Arc<Driver>, Arc<Failures>)>::default();
        let reaper = Reaper::new(&DeviceId::new("test", 0), &driver, &failures);
        reaper.retire_owner(Box::new(Panics), vec![]);
        reaper.retire_owner(Box::new(Panics), vec![Told(true)]);
        reaper.drain();
        assert!(failures.take().is_none());
    }

    #[test]
    fn a_panic_in_a_driver_is_kept_and_the_reaper_goes_on() {
        let (driver, failures) = <(Arc<Driver>, Arc<Failures>)>::default();
        let reaper = Reaper::new(&DeviceId::new("test", 0), &driver, &failures);
        for object in [1, PANICS, 2] {
            reaper.retire(object, vec![Told(true)]);
        }
        reaper.drain();
        assert_eq!(*lock(&driver.0), [1, 2]);
        let error = failures.take().unwrap();
        assert!(error.message().contains("object 13 cannot be given back"), "{error}");
    }
}
