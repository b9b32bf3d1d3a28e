//! Giving back what must wait for streams, or what the driver frees only by waiting for the device: in a thread of its
//! own, so that nobody who drops something is held up.
#![expect(unsafe_code, reason = "gives memory and modules back to the driver")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use backend_support::{Failures, guarded};
use cudarc::driver::sys::{CUdeviceptr, CUmodule};
use runtime_core::DeviceId;

use crate::codes;
use crate::context::{Context, Mark, ok};
use crate::lock;

/// What is given back.
pub(crate) enum Object {
    /// Memory that is not of a pool of the driver: plain or managed.
    Memory(CUdeviceptr),
    /// The address of page-locked host memory.
    Pinned(usize),
    /// The handle of a module.
    Module(usize),
    /// The owner of adopted memory.
    Owner(Box<dyn Any + Send + Sync>),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(address) => write!(f, "memory at {address:#x}"),
            Self::Pinned(address) => write!(f, "pinned memory at {address:#x}"),
            Self::Module(handle) => write!(f, "module {handle:#x}"),
            Self::Owner(_) => f.write_str("an owner"),
        }
    }
}

/// Something to give back, once the work before the marks is over.
type Retired = (Object, Vec<Mark>);

/// Gives objects of one device back, in the order in which they were retired.
#[derive(Debug)]
pub(crate) struct Reaper {
    work: Arc<Work>,
    thread: OnceLock<Option<(Sender<Retired>, JoinHandle<()>)>>,
}

/// What the thread needs, which must not keep the device open.
#[derive(Debug)]
struct Work {
    id: DeviceId,
    context: Arc<Context>,
    failures: Arc<Failures>,
    waiting: Mutex<usize>,
    done: Condvar,
}

impl Reaper {
    pub(crate) fn new(id: &DeviceId, context: &Arc<Context>, failures: &Arc<Failures>) -> Self {
        let (context, failures) = (Arc::clone(context), Arc::clone(failures));
        let (waiting, done) = Default::default();
        let work = Work { id: id.clone(), context, failures, waiting, done };
        Self { work: Arc::new(work), thread: OnceLock::new() }
    }

    /// Gives an object back when the work before the marks is over.
    pub(crate) fn retire(&self, object: Object, after: Vec<Mark>) {
        // Owners may hold whatever the program has, which it expects back at once where nothing is in the way.
        if matches!(object, Object::Owner(_)) && after.iter().all(Mark::is_over) {
            return self.work.give_back(object);
        }
        let thread = self.thread.get_or_init(|| {
            let (sender, receiver) = channel();
            let work = Arc::clone(&self.work);
            let run = move || work.run(&receiver);
            let thread = thread::Builder::new().name("cuda reaper".to_owned()).spawn(run).ok()?;
            Some((sender, thread))
        });
        *lock(&self.work.waiting) += 1;
        let refused = match thread {
            Some((sender, _)) => sender.send((object, after)).err().map(|refused| refused.0),
            None => Some((object, after)),
        };
        if let Some(retired) = refused {
            self.work.finish(retired);
        }
    }

    /// Blocks until everything retired so far is given back.
    pub(crate) fn drain(&self) {
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

impl Drop for Reaper {
    fn drop(&mut self) {
        let is_current = self.is_current();
        let Some(Some((sender, thread))) = self.thread.take() else { return };
        drop(sender);
        // The last owner may have held the device, and then this is the thread; it ends when it has done the rest.
        if !is_current && thread.join().is_err() {
            tracing::error!(device = %self.work.id, "the thread that gives memory back panicked");
        }
    }
}

impl Work {
    fn run(&self, retired: &Receiver<Retired>) {
        retired.iter().for_each(|retired| self.finish(retired));
    }

    fn finish(&self, (object, after): Retired) {
        after.iter().for_each(Mark::wait);
        drop(after);
        self.give_back(object);
        *lock(&self.waiting) -= 1;
        self.done.notify_all();
    }

    fn give_back(&self, object: Object) {
        if let Object::Owner(owner) = object {
            let dropped = guarded("memory_free", || {
                drop(owner);
                Ok(())
            });
            if let Err(error) = dropped {
                self.failures.keep(error.on(&self.id));
            }
            return;
        }
        if self.context.fault().is_some() {
            // It goes with the context.
            return;
        }
        if let Err(code) = self.free(&object) {
            self.context.note(code);
            let what = format_args!("{object:?} could not be given back");
            let error = codes::error(self.context.driver, "free", code, what);
            self.failures.keep(error.on(&self.id));
        }
    }

    fn free(&self, object: &Object) -> Result<(), u32> {
        self.context.bind()?;
        let driver = self.context.driver;
        ok(match *object {
            // SAFETY: the memory is of this context, and the work that used it is over.
            Object::Memory(address) => unsafe { (driver.cuMemFree_v2)(address) },
            Object::Pinned(address) => {
                let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
                // SAFETY: as above.
                unsafe { (driver.cuMemFreeHost)(pointer) }
            }
            Object::Module(handle) => {
                let module: CUmodule = ptr::with_exposed_provenance_mut(handle);
                // SAFETY: as above, and its kernels are dropped.
                unsafe { (driver.cuModuleUnload)(module) }
            }
            Object::Owner(_) => 0,
        })
    }
}
