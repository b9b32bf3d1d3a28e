//! Gates: points at which streams wait until the host lets them continue. [`Gate`] is for streams that are [`Queue`]s,
//! [`GateState`] for streams of a driver.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use runtime_core::{Error, ErrorKind, Result};

use crate::queue::Queue;
use crate::{Failures, lock};

/// A point at which queues wait until the host lets them continue. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open,
    Failed,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes tasks submitted to `queue` from now on wait until the gate opens. Does not block.
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`].
    pub fn hold_up(&self, queue: &Queue) -> Result<()> {
        if *lock(&self.0.state) == State::Open {
            return Ok(());
        }
        let gate = self.clone();
        queue.submit_always(move || gate.wait())
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.set(State::Open);
    }

    /// Opens the gate, and fails the queues that wait.
    pub fn fail(&self) {
        self.set(State::Failed);
    }

    fn set(&self, state: State) {
        *lock(&self.0.state) = state;
        self.0.changed.notify_all();
    }

    fn wait(&self) -> Result<()> {
        let closed = |state: &mut State| *state == State::Closed;
        let state = self.0.changed.wait_while(lock(&self.0.state), closed);
        match *state.unwrap_or_else(PoisonError::into_inner) {
            State::Failed => Err(gate_failure()),
            State::Closed | State::Open => Ok(()),
        }
    }
}

/// The state of a gate of a driver. The driver makes streams wait, but not fail.
#[derive(Debug)]
pub struct GateState(Mutex<Known>);

#[derive(Debug)]
enum Known {
    /// The failures of the streams that wait.
    Closed(Vec<Arc<Failures>>),
    Open,
    Failed,
}

impl Default for GateState {
    fn default() -> Self {
        Self(Mutex::new(Known::Closed(Vec::new())))
    }
}

impl GateState {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// If the gate is closed, makes a stream wait by `wait`. If it has failed, keeps a failure in `failures`, which are
    /// those of the stream.
    ///
    /// # Errors
    ///
    /// The error of `wait`.
    pub fn hold_up(
        &self,
        failures: &Arc<Failures>,
        wait: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match &mut *lock(&self.0) {
            // Before the wait, which may panic after it was enqueued.
            Known::Closed(streams) => streams.push(Arc::clone(failures)),
            Known::Open => return Ok(()),
            Known::Failed => {
                failures.keep(gate_failure());
                return Ok(());
            }
        }
        // Not under the lock: a driver whose queue is full may wait here until another thread opens the gate.
        wait().inspect_err(|_| {
            if let Known::Closed(streams) = &mut *lock(&self.0)
                && let Some(last) = streams.iter().rposition(|known| Arc::ptr_eq(known, failures))
            {
                streams.swap_remove(last);
            }
        })
    }

    /// Opens the gate for all streams that wait, by `open`.
    pub fn open(&self, open: impl FnOnce()) {
        *lock(&self.0) = Known::Open;
        open();
    }

    /// Keeps a failure for each stream that waits, and then opens the gate by `open`.
    pub fn fail(&self, open: impl FnOnce()) {
        if let Known::Closed(streams) = std::mem::replace(&mut *lock(&self.0), Known::Failed) {
            streams.iter().for_each(|failures| failures.keep(gate_failure()));
        }
        open();
    }
}

/// The failure of a stream that waits for a gate that fails.
#[cold]
fn gate_failure() -> Error {
    let message = "the host gave up the gate that the stream waited for";
    Error::new(ErrorKind::DeviceFault, "hold_until", message)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use runtime_core::DeviceId;

    use super::*;
    use crate::{Identity, Queues};

    fn queue() -> Queue {
        Queues::new(Identity { device: DeviceId::new("test", 0), fault: ("TEST_FAULT", 1) })
            .create()
    }

    fn submit(queue: &Queue) -> mpsc::Receiver<()> {
        let (done, result) = mpsc::channel();
        let task = move || {
            done.send(()).ok();
            Ok(())
        };
        queue.submit(task).unwrap();
        result
    }

    #[test]
    fn a_gate_holds_several_queues_up() {
        let (queues, gate) = ([queue(), queue()], Gate::new());
        queues.iter().for_each(|queue| gate.hold_up(queue).unwrap());
        let [first, second] = queues.each_ref().map(submit);
        assert!(first.recv_timeout(Duration::from_millis(20)).is_err());
        assert!(second.try_recv().is_err());
        gate.open();
        first.recv().unwrap();
        second.recv().unwrap();
        gate.hold_up(&queues[0]).unwrap();
        queues[0].synchronize().unwrap();
    }

    #[test]
    fn a_gate_is_waited_for_behind_a_failure_too() {
        let (queue, gate) = (queue(), Gate::new());
        queue.submit(|| Err(Error::new(ErrorKind::Driver, "test", "early"))).unwrap();
        gate.hold_up(&queue).unwrap();
        while queue.take_failure().is_none() {
            std::thread::yield_now();
        }
        let behind = submit(&queue);
        assert!(behind.recv_timeout(Duration::from_millis(20)).is_err());
        gate.fail();
        queue.synchronize().unwrap();
        assert!(behind.recv().is_err());
        assert_eq!(queue.take_failure().unwrap().kind(), ErrorKind::DeviceFault);
        assert!(queue.take_failure().is_none());
    }
}
