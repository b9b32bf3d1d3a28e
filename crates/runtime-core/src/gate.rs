//! Gates, as programs use them: points at which streams wait for the host.

use std::fmt;
use std::sync::Arc;

use crate::contract::DeviceGate;
use crate::{Device, Result, Stream};

/// A point at which streams wait until the host lets them continue: see [`Device::gate`]. Cheap to clone; clones are
/// the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Core>);

struct Core {
    // Dropped before the device.
    raw: Box<dyn DeviceGate>,
    device: Device,
}

/// Opens a [`Gate`]. If it is dropped instead, also by a panic, the gate opens as *failed*.
#[must_use = "a gate whose opener is dropped fails the streams that wait"]
pub struct Opener {
    gate: Gate,
    is_done: bool,
}

impl Device {
    /// Creates a closed gate, and what opens it.
    ///
    /// Work that is enqueued on a stream behind [`Stream::hold_until`] does not run before the gate opens. It sees what
    /// the host wrote before. So a thread can prepare host memory for copies that are already enqueued:
    ///
    /// ```
    /// # fn example(device: &runtime_core::Device) -> runtime_core::Result<()> {
    /// let stream = device.default_stream();
    /// let mut memory = device.memory_allocate::<f32>(1000)?;
    /// let pinned = device.pinned_allocate::<f32>(1000)?;
    ///
    /// let (gate, opener) = device.gate()?;
    /// stream.hold_until(&gate)?;
    /// // SAFETY: the elements are written before the gate opens, and read after that.
    /// let part = unsafe { pinned.slice_unordered(0..1000) }?;
    /// memory.view_mut().copy_from_pinned(&stream, part)?; // does not run yet
    ///
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let first = pinned.host_ptr().as_ptr();
    ///         // SAFETY: the pinned memory has 1000 elements, and the copy from it has not begun.
    ///         unsafe { std::slice::from_raw_parts_mut(first, 1000) }.fill(7.0);
    ///         opener.open(); // the copy may begin
    ///     });
    /// });
    /// assert_eq!(memory.to_vec(&stream)?, [7.0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The waits of a program must not form a circle. While a gate is closed, some devices also hold back work of other
    /// streams. So the thread that is to open a gate may wait for work that was enqueued before the stream was held up,
    /// and must not wait for later work of any stream of the device. It must not make calls either that wait for all
    /// work of the device. On CUDA, HIP and OpenCL devices, these are allocations that find no room. On CUDA and HIP
    /// devices, they are also page-locking, its end ([`Pinned::into_vec`](crate::Pinned::into_vec)), and the drop of the
    /// last handle of any instance of the device.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no gates. Errors of the driver.
    pub fn gate(&self) -> Result<(Gate, Opener)> {
        let Some(ability) = self.abilities().gates() else {
            return Err(self.unsupported("gate", "gates"));
        };
        let raw = ability.create().map_err(|e| self.place(e))?;
        let gate = Gate(Arc::new(Core { raw, device: self.clone() }));
        Ok((gate.clone(), Opener { gate, is_done: false }))
    }
}

impl Stream {
    /// Makes work enqueued from now on wait, on the device, until the gate opens. Does not block the host. A gate that
    /// is open holds nothing up.
    ///
    /// If the gate has failed or fails later, this stream has failed: [`synchronize`](Self::synchronize) returns a
    /// `DeviceFault`, once, also if the stream waited for the closed gate several times. The work behind the gate ends, and it may or may not have run. Some devices know the failure
    /// before the stream has reached the gate; a call that waits for earlier work may then return it.
    ///
    /// # Errors
    ///
    /// `WrongDevice` if the gate belongs to another device. `InvalidArgument` on the stream of a capture. Errors of the
    /// driver.
    pub fn hold_until(&self, gate: &Gate) -> Result<()> {
        const OPERATION: &str = "hold_until";
        self.device().check_same(OPERATION, gate.device())?;
        let held = match &self.core.capture {
            Some(capture) => Err(capture.refuse(OPERATION)),
            None => gate.0.raw.hold_up(&*self.core.raw),
        };
        held.map_err(|e| self.device().place(e))
    }
}

impl Gate {
    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

impl Opener {
    /// Opens the gate, for all streams and for good. Does not block, unless this is the last handle of the device, which
    /// is closed then.
    pub fn open(mut self) {
        self.is_done = true;
        self.gate.0.raw.open();
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if !self.is_done {
            self.gate.0.raw.fail();
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({})", self.device().id())
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener({})", self.gate.device().id())
    }
}
