//! Owners of an array's memory, and what happens when a consumer has finished.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use runtime_core::{Device, Result};

/// The receiver of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// A device of this runtime, which drops the owner once all work on the memory has finished.
    Device,
    /// Foreign code, whose work this runtime cannot see and which may continue when the owner is dropped.
    Consumer,
}

/// An owner that keeps memory alive while it is shared.
pub(crate) trait Hold: Send + Sync {
    /// Records that the memory is handed over now.
    fn lend(&self, to: To);
}

/// The owner of a capsule's memory. It is dropped once, after everything else.
pub(crate) type Owner = Arc<dyn Hold>;

/// An owner that only needs to be dropped.
pub(crate) struct Plain<O: Any + Send + Sync>(runtime_core::Owner<O>);

impl<O: Any + Send + Sync> Plain<O> {
    pub(crate) fn new(owner: O) -> Self {
        Self(runtime_core::Owner::new(owner))
    }
}

impl<O: Any + Send + Sync> Hold for Plain<O> {
    fn lend(&self, _to: To) {}
}

/// Device memory that may be reused only once foreign work on it has finished.
pub(crate) struct Fenced<O: Any + Send + Sync> {
    fence: Fence,
    _owner: Plain<O>,
}

impl<O: Any + Send + Sync> Fenced<O> {
    pub(crate) fn new(owner: O, device: &Device) -> Self {
        Self {
            fence: Fence { device: device.clone(), strange: AtomicBool::new(false) },
            _owner: Plain::new(owner),
        }
    }
}

impl<O: Any + Send + Sync> Hold for Fenced<O> {
    fn lend(&self, to: To) {
        self.fence.strange.fetch_or(to == To::Consumer, Ordering::AcqRel);
    }
}

/// Dropped before the owner. Waits for the device if the memory went to foreign code.
struct Fence {
    device: Device,
    strange: AtomicBool,
}

impl Drop for Fence {
    fn drop(&mut self) {
        if self.strange.load(Ordering::Acquire)
            && let Err(error) = finish(&self.device)
        {
            // The device's streams report this failure too.
            tracing::warn!(%error, "a consumer's work failed, or earlier work");
        }
    }
}

/// A function that calls a release function of another library.
type Releaser = fn(&mut dyn FnMut());

static RELEASER: OnceLock<Releaser> = OnceLock::new();

/// Makes `around` run the calls by which imported arrays return to their libraries: DLPack's deleters and Arrow's
/// `release`. If `around` does not call its argument, the array is never released. This is for programs whose libraries
/// can be used only for a time, such as those of an interpreter.
///
/// Only the first call in a program has an effect.
pub fn release_within(around: fn(&mut dyn FnMut())) {
    RELEASER.get_or_init(|| around);
}

/// Calls a release function of another library, at most once.
pub(crate) fn release(call: impl FnOnce()) {
    let Some(around) = RELEASER.get() else { return call() };
    let mut call = Some(call);
    around(&mut || {
        if let Some(call) = call.take() {
            call();
        }
    });
}

/// A function that runs a wait.
type Wrapper = fn(&mut (dyn FnMut() + Send));

static WRAPPER: OnceLock<Wrapper> = OnceLock::new();

/// Makes `around` run the waits for a device's work that happen when memory is returned. `around` must call its
/// argument. This is for programs whose threads hold a lock that other threads need, such as an interpreter's lock,
/// when a consumer returns memory.
///
/// Only the first call in a program has an effect.
pub fn wait_within(around: fn(&mut (dyn FnMut() + Send))) {
    WRAPPER.get_or_init(|| around);
}

/// Waits until all work of the device has finished.
pub(crate) fn finish(device: &Device) -> Result<()> {
    let mut done = None;
    if let Some(around) = WRAPPER.get() {
        around(&mut || done = Some(device.synchronize()));
    }
    done.unwrap_or_else(|| device.synchronize())
}

/// Keeps an array's memory alive while a consumer uses it. Dropping it returns the memory. It is dropped once, on any
/// thread.
///
/// For device memory, the drop blocks until all work of that device has finished, because no protocol says when a
/// consumer's queued work has finished.
#[must_use = "the memory is given back when this is dropped"]
pub struct Keeper {
    // Objects that the protocol's handles belong to; dropped before the memory.
    pub(crate) _with: Option<Box<dyn Any + Send + Sync>>,
    pub(crate) _owner: Owner,
}

impl Keeper {
    /// Hands memory over to foreign code.
    pub(crate) fn lend(owner: Owner, with: Option<Box<dyn Any + Send + Sync>>) -> Self {
        owner.lend(To::Consumer);
        Self { _with: with, _owner: owner }
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

/// Drops a value in a function that C calls, where no panic may unwind.
pub(crate) fn drop_for_c<A>(what: A) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(what))) {
        tracing::error!("an owner panicked while it was dropped");
        // Dropping the payload of a panic may panic again.
        std::mem::forget(panic);
    }
}

/// A protocol's description of an array, and the owner of the array.
#[derive(Debug)]
pub struct Exported<I> {
    /// The value of the protocol's attribute.
    pub interface: I,
    /// The owner. The protocol has no field for it, so the user of the interface must keep it.
    pub keeper: Keeper,
}

#[cfg(test)]
#[path = "../tests/common/gate.rs"]
#[expect(unsafe_code, reason = "launches a kernel")]
pub(crate) mod gate;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use backend_sim::{SimConfig, SimDevice};
    use runtime_core::{Memory, Stream};

    use super::gate::{Gate, start};
    use super::*;

    /// Work of a foreign consumer, which only the device knows about.
    pub(crate) fn strange_work(device: &Device) -> (Memory<f64>, Stream, Gate) {
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut memory = device.memory_from_slice(&stream, &[0.0; 4]).unwrap();
        let gate = start(&mut memory, &stream);
        (memory, stream, gate)
    }

    #[test]
    fn returned_memory_waits_for_the_device() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        for (to, waits) in [(Some(To::Consumer), true), (Some(To::Device), false), (None, false)] {
            let (_memory, stream, gate) = strange_work(&device);
            let owner = Fenced::new((), &device);
            if let Some(to) = to {
                owner.lend(to);
            }
            if waits {
                gate.open_later();
            }
            drop(owner);
            assert_eq!(stream.is_done().unwrap(), waits, "{to:?}");
            gate.open();
            stream.synchronize().unwrap();
        }
    }

    #[test]
    fn release_functions_run_at_most_once_in_the_wrapper_that_the_program_sets() {
        thread_local! {
            static CALLS: Cell<Option<usize>> = const { Cell::new(None) };
        }
        release_within(|release| (0..CALLS.get().unwrap_or(1)).for_each(|_| release()));
        for (calls, released) in [(None, 1), (Some(0), 0), (Some(1), 1), (Some(2), 1)] {
            CALLS.set(calls);
            let count = Cell::new(0);
            release(|| count.set(count.get() + 1));
            assert_eq!(count.get(), released, "{calls:?}");
        }
    }

    #[test]
    fn waits_run_in_the_wrapper_that_the_program_sets() {
        thread_local! {
            static CALLS: Cell<usize> = const { Cell::new(0) };
        }
        wait_within(|wait| {
            CALLS.set(CALLS.get() + 1);
            // If `around` does not call its argument, the wait is done directly.
            if CALLS.get() != 2 {
                wait();
            }
        });
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        for calls in 1..=3 {
            let (_memory, stream, gate) = strange_work(&device);
            let owner = Fenced::new((), &device);
            owner.lend(To::Consumer);
            gate.open_later();
            drop(owner);
            assert!(stream.is_done().unwrap());
            assert_eq!(CALLS.get(), calls);
        }
    }
}
