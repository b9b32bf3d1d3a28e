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

#[derive(Debug)]
enum State {
    /// The addresses of the queues that wait, and so still exist.
    Closed(Vec<usize>),
    Open,
    Failed,
}

impl Default for State {
    fn default() -> Self {
        Self::Closed(Vec::new())
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes tasks submitted to `queue` from now on wait until the gate opens. Does not block. If the gate fails, the
    /// queue gets one failure, however often it waits.
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`].
    pub fn hold_up(&self, queue: &Queue) -> Result<()> {
        let mut state = lock(&self.0.state);
        let is_first = match &mut *state {
            State::Closed(queues) => {
                let is_first = !queues.contains(&queue.address());
                if is_first {
                    queues.push(queue.address());
                }
                is_first
            }
            State::Open => return Ok(()),
            State::Failed => true,
        };
        drop(state);
        let gate = self.clone();
        let failures = queue.failures();
        let device = queue.identity().device.clone();
        let held = queue.submit_always(move || {
            if gate.is_failed_after_wait() && is_first {
                // Not the error of the task: no kernel has failed.
                failures.keep(gate_failure().on(&device));
            }
            Ok(())
        });
        if let (Err(_), true, State::Closed(queues)) = (&held, is_first, &mut *lock(&self.0.state))
        {
            queues.retain(|known| *known != queue.address());
        }
        held
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

    /// Blocks while the gate is closed. Returns whether it has failed.
    fn is_failed_after_wait(&self) -> bool {
        let closed = |state: &mut State| matches!(state, State::Closed(_));
        let state = self.0.changed.wait_while(lock(&self.0.state), closed);
        matches!(*state.unwrap_or_else(PoisonError::into_inner), State::Failed)
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
        let is_own = |known: &Arc<Failures>| Arc::ptr_eq(known, failures);
        let is_first = match &mut *lock(&self.0) {
            Known::Closed(streams) => {
                let is_first = !streams.iter().any(is_own);
                if is_first {
                    // Before the wait, which may panic after it was enqueued.
                    streams.push(Arc::clone(failures));
                }
                is_first
            }
            Known::Open => return Ok(()),
            Known::Failed => {
                failures.keep(gate_failure());
                return Ok(());
            }
        };
        // Not under the lock: a driver whose queue is full may wait here until another thread opens the gate.
        wait().inspect_err(|_| {
            if let (true, Known::Closed(streams)) = (is_first, &mut *lock(&self.0)) {
                streams.retain(|known| !is_own(known));
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
    let message = "the opener of the gate that the stream waited for was dropped (by a panic, for instance) and did not open it";
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

    #[test]
    fn a_gate_that_fails_is_one_failure_of_a_queue_that_waits_twice() {
        let (queue, other, gate) = (queue(), queue(), Gate::new());
        let (go_on, pause) = mpsc::channel::<()>();
        gate.hold_up(&queue).unwrap();
        gate.hold_up(&other).unwrap();
        queue.submit_always(move || pause.recv().map_err(|_| gate_failure())).unwrap();
        gate.hold_up(&queue).unwrap();
        gate.fail();
        let error = loop {
            match queue.take_failure() {
                Some(error) => break error,
                None => std::thread::yield_now(),
            }
        };
        go_on.send(()).unwrap();
        queue.synchronize().unwrap();
        assert!(queue.take_failure().is_none());
        other.synchronize().unwrap();
        assert!(other.take_failure().is_some());
        // No kernel has failed.
        assert_eq!((error.kind(), error.driver()), (ErrorKind::DeviceFault, None));
        assert_eq!(error.device().unwrap(), &DeviceId::new("test", 0));
        // A wait for a gate that has failed is a failure of its own.
        gate.hold_up(&queue).unwrap();
        queue.synchronize().unwrap();
        assert!(queue.take_failure().is_some());
    }
}
