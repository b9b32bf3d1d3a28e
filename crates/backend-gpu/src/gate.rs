//! Gates: numbers in host memory for which streams wait.
#![expect(
    unsafe_code,
    reason = "writes memory that the device reads, and implements the contract's unsafe trait of gates"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use backend_support::{GateState, lock};
use runtime_core::Result;
use runtime_core::contract::{DeviceGate, DeviceStream, Gates, own};

use crate::api::Api;
use crate::context::Context;
use crate::device::Device;
use crate::handle::pointer;
use crate::open_device::OpenDevice;
use crate::stream::Stream;
use crate::vendor::Vendor;

/// A number in host memory that grows by one for each gate. Devices read its lower half.
#[derive(Debug)]
pub(crate) struct Signal {
    address: u64,
    value: u32,
}

/// The signals of a device, each used by one gate at a time. Streams that still wait for a gate of the past may continue
/// when the number is higher.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<Vec<Signal>>);

impl Signal {
    fn new<V: Vendor>(context: &Context<V>) -> Result<Self, u32> {
        let address = context.outside_captures(V::Api::allocate_signal)?;
        let signal = Self { address, value: 0 };
        signal.set(0);
        Ok(signal)
    }

    fn set(&self, value: u32) {
        // SAFETY: the library allocated 8 aligned bytes there, and only this signal writes them.
        let number = unsafe { AtomicU64::from_ptr(pointer(self.address)) };
        // Releases what the host wrote before.
        number.store(value.into(), Ordering::Release);
    }
}

impl Signals {
    /// Frees all signals, when no gate is left and all streams are done.
    pub(crate) fn free<V: Vendor>(&self, context: &Context<V>) {
        for signal in lock(&self.0).drain(..) {
            if context.fault().is_none() {
                // SAFETY: nothing uses the memory any more.
                let freed = |api: &V::Api| unsafe { api.free_signal(signal.address) };
                context.note(context.outside_captures(freed));
            }
        }
    }
}

#[derive(Debug)]
struct Gate<V: Vendor> {
    /// Open when its number is at least the signal's value.
    signal: Signal,
    state: GateState,
    shared: Arc<OpenDevice<V>>,
}

// SAFETY: the library lets a stream continue only when the number that it waits for has been written, and the number is
// written after everything that the host wrote before.
unsafe impl<V: Vendor> Gates for Device<V> {
    fn create(&self) -> Result<Box<dyn DeviceGate>> {
        const OPERATION: &str = "gate";
        let shared = &self.shared;
        shared.check(OPERATION)?;
        let kept = lock(&shared.signals.0).pop();
        let made = || Signal::new(&shared.context);
        let mut signal = kept
            .map_or_else(made, Ok)
            .map_err(|code| shared.error(OPERATION, code, "no memory for a gate"))?;
        signal.value += 1;
        Ok(Box::new(Gate { signal, state: GateState::new(), shared: Arc::clone(shared) }))
    }
}

impl<V: Vendor> DeviceGate for Gate<V> {
    fn hold_up(&self, stream: &dyn DeviceStream) -> Result<()> {
        const OPERATION: &str = "hold_until";
        let stream = own::<Stream<V>>(stream, OPERATION)?;
        let Signal { address, value } = self.signal;
        self.state.hold_up(stream.raw().failures(), || {
            stream.enqueue(OPERATION, "a gate", |api, stream| {
                // SAFETY: both are alive. The memory of signals stays until all streams are done.
                unsafe { api.stream_wait_value(stream, address, value) }
            })
        })
    }

    fn open(&self) {
        self.state.open(|| self.signal.set(self.signal.value));
    }

    fn fail(&self) {
        self.state.fail(|| self.signal.set(self.signal.value));
    }
}

impl<V: Vendor> Drop for Gate<V> {
    fn drop(&mut self) {
        // It is open.
        let Signal { address, value } = self.signal;
        lock(&self.shared.signals.0).push(Signal { address, value });
    }
}
