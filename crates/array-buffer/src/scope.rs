//! The current device of a thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;

use runtime_core::Stream;

/// Numbers of scopes, and what is current in them.
type Scopes = Vec<(u64, Option<Stream>)>;

thread_local! {
    static SCOPES: RefCell<Scopes> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Makes `stream`, and so its device, the current one of this thread until the result is dropped.
///
/// `read_here` and similar calls use the current stream; without one they use the host. Scopes nest: when a scope ends,
/// the previous one is current again, also after a panic. Entering and leaving a scope moves no data and frees no
/// memory. Each thread has its own scopes; this includes the threads of a pool. While a thread that ends drops its
/// thread-local values, the host is current.
///
/// ```
/// use array_buffer::{ArrayBuffer, here, offload, on_host};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let array = ArrayBuffer::from_vec(vec![1, 2, 3], 3)?;
/// {
///     let _on = offload(&device.default_stream());
///     assert!(array.read_here()?.is_device());
///     assert!(on_host(|| array.read_here().map(|guard| guard.is_host()))?);
/// }
/// assert!(here().is_none() && array.read_here()?.is_host());
/// # Ok::<(), array_buffer::Error>(())
/// ```
pub fn offload(stream: &Stream) -> Offload {
    enter(Some(stream.clone()))
}

/// Runs `f` with the host as the current device of this thread.
pub fn on_host<R>(f: impl FnOnce() -> R) -> R {
    let _on = enter(None);
    f()
}

/// The current stream of this thread; `None` for the host.
pub fn here() -> Option<Stream> {
    let last = |scopes: &RefCell<Scopes>| scopes.borrow().last().and_then(|(_, on)| on.clone());
    // A thread that is ending may have dropped its scopes already.
    SCOPES.try_with(last).unwrap_or(None)
}

fn enter(stream: Option<Stream>) -> Offload {
    let id = NEXT.replace(NEXT.get() + 1);
    let _gone = SCOPES.try_with(|scopes| scopes.borrow_mut().push((id, stream)));
    Offload { id, _thread: PhantomData }
}

/// A scope that sets the current device: see [`offload`].
#[must_use = "the device is current until this is dropped"]
pub struct Offload {
    id: u64,
    // It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Offload {
    fn drop(&mut self) {
        // Removes its own entry, so the order of drops does not matter. The stream is dropped after the borrow: it may
        // be the last one of its device, whose destructor may use the scopes.
        let _stream = SCOPES.try_with(|scopes| {
            let mut scopes = scopes.borrow_mut();
            let own = scopes.iter().position(|(id, _)| *id == self.id)?;
            Some(scopes.remove(own))
        });
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offload({})", self.id)
    }
}
