//! Waits that react to signals: Python runs its handlers, such as that of Ctrl-C, only when the main thread asks.
//!
//! The main thread polls, and asks every few milliseconds. Other threads wait as the driver does, because Python runs
//! no
//! handlers there.

use std::cell::Cell;
use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use runtime::{Device, Error, ErrorKind, Event, Result, Stream, interrupt};

use crate::detach;

/// The exception of a signal handler, which ended a wait. It is raised once, as it is.
pub(crate) struct Interrupted(Mutex<Option<PyErr>>);

impl Interrupted {
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupted")
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a signal handler raised an exception")
    }
}

impl std::error::Error for Interrupted {}

/// Makes all waits of the runtime that have a timeout react to signals.
pub(crate) fn set_up() {
    interrupt::set(check);
}

/// Whether this is the thread in which Python runs signal handlers.
fn is_main() -> bool {
    thread_local! {
        static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    }
    IS_MAIN.get().unwrap_or_else(|| {
        // A thread that Python does not know yet may become known later.
        if !detach::is_known() {
            return false;
        }
        let asked = Python::try_attach(|py| {
            let threading = py.import("threading")?;
            let main = threading.call_method0("main_thread")?.getattr("ident")?;
            main.eq(threading.call_method0("get_ident")?)
        });
        let is_main = asked.is_some_and(|answer| answer.unwrap_or(false));
        IS_MAIN.set(Some(is_main));
        is_main
    })
}

/// Runs the handlers of signals that have arrived, at most every 5 ms.
fn check() -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(5);
    thread_local! {
        static LATEST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if !is_main() || LATEST.get().is_some_and(|latest| latest.elapsed() < PAUSE) {
        return Ok(());
    }
    let checked = Python::try_attach(|py| py.check_signals());
    LATEST.set(Some(Instant::now()));
    match checked {
        Some(Err(raised)) => {
            let raised = Interrupted(Mutex::new(Some(raised)));
            let message = "a signal handler raised an exception";
            Err(Error::new(ErrorKind::Timeout, "wait", message).with_source(raised))
        }
        _ => Ok(()),
    }
}

/// Blocks until all work on the stream is done, as [`Stream::synchronize`].
pub(crate) fn stream(stream: &Stream) -> Result<()> {
    if is_main() { stream.synchronize_for(Duration::MAX) } else { stream.synchronize() }
}

/// Blocks until the event is reached, as [`Event::wait`].
pub(crate) fn event(event: &Event) -> Result<()> {
    if is_main() { event.wait_for(Duration::MAX) } else { event.wait() }
}

/// In the main thread, blocks until the events are reached. Then a wait that cannot be interrupted is short.
pub(crate) fn ahead(events: impl IntoIterator<Item = Result<Event>>) -> Result<()> {
    if is_main() { events.into_iter().try_for_each(|reached| event(&reached?)) } else { Ok(()) }
}

/// As [`ahead`], for the work on a stream.
pub(crate) fn ahead_of(stream: &Stream) -> Result<()> {
    match stream.is_done() {
        Ok(true) => Ok(()),
        _ => ahead([stream.record_event()]),
    }
}

/// Waits for devices that were interrupted. The next wait for the device gets their outcome.
static LEFT: Mutex<Vec<(Device, Receiver<Result<()>>)>> = Mutex::new(Vec::new());

/// Blocks until all work on the device is done, as [`Device::synchronize`]. No driver has such a wait with a timeout,
/// so
/// another thread waits for the main thread.
pub(crate) fn device(device: &Device) -> Result<()> {
    let left = {
        let mut all = crate::lock(&LEFT);
        let place = all.iter().position(|(of, _)| of.is_same(device));
        place.map(|place| all.swap_remove(place).1)
    };
    let outcome = match left {
        Some(left) => received(device, left)?,
        None => Ok(()),
    };
    if !is_main() {
        return outcome.and(device.synchronize());
    }
    let (sender, receiver) = mpsc::channel();
    let waited = device.clone();
    let wait = move || drop(sender.send(waited.synchronize()));
    if thread::Builder::new().name("device-wait".to_owned()).spawn(wait).is_err() {
        return outcome.and(device.synchronize());
    }
    outcome.and(received(device, receiver)?)
}

/// What another thread's wait has given, unless a signal handler raises an exception.
fn received(device: &Device, from: Receiver<Result<()>>) -> Result<Result<()>> {
    loop {
        match from.recv_timeout(interrupt::INTERVAL) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => return Ok(device.synchronize()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(raised) = check() {
            match from.try_recv() {
                Ok(Ok(())) | Err(TryRecvError::Disconnected) => {}
                Ok(failed) => {
                    let (sender, again) = mpsc::channel();
                    drop(sender.send(failed));
                    crate::lock(&LEFT).push((device.clone(), again));
                }
                Err(TryRecvError::Empty) => crate::lock(&LEFT).push((device.clone(), from)),
            }
            return Err(raised);
        }
    }
}
