//! Who keeps an array's memory, and what happens when a consumer is done with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use runtime_core::{Device, Result};

/// To whom memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// A device of this runtime, which drops the owner once all work on it is done.
    Device,
    /// Somebody whose work is not seen, and may go on when the owner is dropped.
    Stranger,
}

/// What keeps memory for as long as it is shared.
pub(crate) trait Hold: Send + Sync {
    /// The memory is handed over, now.
    fn lend(&self, to: To);
}

/// The owner of a capsule's memory, dropped once, after all else.
pub(crate) type Owner = Arc<dyn Hold>;

/// An owner that needs nothing but to be dropped.
pub(crate) struct Plain<O: Any + Send + Sync>(runtime_core::Owner<O>);

impl<O: Any + Send + Sync> Plain<O> {
    pub(crate) fn new(owner: O) -> Self {
        Self(runtime_core::Owner::new(owner))
    }
}

impl<O: Any + Send + Sync> Hold for Plain<O> {
    fn lend(&self, _to: To) {}
}

/// Memory of a device, which may be reused only when strangers' work on it is over.
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
        self.fence.strange.fetch_or(to == To::Stranger, Ordering::AcqRel);
    }
}

/// Dropped before the owner: waits for the device if its memory was with strangers.
struct Fence {
    device: Device,
    strange: AtomicBool,
}

impl Drop for Fence {
    fn drop(&mut self) {
        if self.strange.load(Ordering::Acquire)
            && let Err(error) = finish(&self.device)
        {
            // Whoever asks the device's streams for failures hears of it too.
            tracing::warn!(%error, "a consumer's work failed, or what came before it");
        }
    }
}

/// What a wait runs in.
type Around = fn(&mut (dyn FnMut() + Send));

static AROUND: OnceLock<Around> = OnceLock::new();

/// Has the waits for a device's work that come with giving memory back run inside `around`, which calls what it gets. For programs
/// whose threads hold, when a consumer gives memory back, what others need meanwhile: the lock of an interpreter.
///
/// The first `around` of a program stays.
pub fn wait_within(around: fn(&mut (dyn FnMut() + Send))) {
    AROUND.get_or_init(|| around);
}

/// Waits until all work of the device is done.
pub(crate) fn finish(device: &Device) -> Result<()> {
    let mut done = None;
    if let Some(around) = AROUND.get() {
        around(&mut || done = Some(device.synchronize()));
    }
    done.unwrap_or_else(|| device.synchronize())
}

/// Keeps an array's memory as long as a consumer uses it. Dropping it, once and on any thread, gives the memory back.
///
/// Memory of a device blocks then until all work of that device is done, since no protocol says when a consumer's queued
/// work is.
#[must_use = "the memory is given back when this is dropped"]
pub struct Keeper {
    // What the protocol's handles belong to, before the memory.
    pub(crate) _with: Option<Box<dyn Any + Send + Sync>>,
    pub(crate) _owner: Owner,
}

impl Keeper {
    /// Hands memory over to a stranger.
    pub(crate) fn lend(owner: Owner, with: Option<Box<dyn Any + Send + Sync>>) -> Self {
        owner.lend(To::Stranger);
        Self { _with: with, _owner: owner }
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

/// Drops something where nothing may unwind: in a function that C calls.
pub(crate) fn drop_for_c<A>(what: A) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(what))) {
        tracing::error!("an owner panicked while it was dropped");
        // Dropping what a panic carries may panic again.
        std::mem::forget(panic);
    }
}

/// A protocol's description of an array, and what keeps the array.
#[derive(Debug)]
pub struct Exported<I> {
    /// What the protocol's attribute says.
    pub interface: I,
    /// The protocol has no place for an owner: whoever uses the interface keeps this.
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

    /// A consumer's work, which nobody but the device knows of.
    pub(crate) fn strange_work(device: &Device) -> (Memory<f64>, Stream, Gate) {
        let stream = device.stream_create(&Default::default()).unwrap();
        let mut memory = device.memory_from_slice(&stream, &[0.0; 4]).unwrap();
        let gate = start(&mut memory, &stream);
        (memory, stream, gate)
    }

    #[test]
    fn memory_that_was_with_strangers_waits_for_the_device() {
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        for (to, waits) in [(Some(To::Stranger), true), (Some(To::Device), false), (None, false)] {
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
    fn waits_run_in_what_the_program_says() {
        thread_local! {
            static CALLS: Cell<usize> = const { Cell::new(0) };
        }
        wait_within(|wait| {
            CALLS.set(CALLS.get() + 1);
            // One that calls nothing is not believed.
            if CALLS.get() != 2 {
                wait();
            }
        });
        let device = Device::new(SimDevice::new(0, SimConfig::new())).unwrap();
        for calls in 1..=3 {
            let (_memory, stream, gate) = strange_work(&device);
            let owner = Fenced::new((), &device);
            owner.lend(To::Stranger);
            gate.open_later();
            drop(owner);
            assert!(stream.is_done().unwrap());
            assert_eq!(CALLS.get(), calls);
        }
    }
}
