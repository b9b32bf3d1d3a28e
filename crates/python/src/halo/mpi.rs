//! Ranks of an mpi4py communicator. Messages are calls of its Python methods, so this package does not link MPI.
//!
//! As in `halo-mpi`, a receive is passed to MPI only when its message has arrived and has the right length. MPI
//! libraries may write beyond a buffer that is too short before they report it.
#![expect(unsafe_code, reason = "shows the bytes of buffers to Python as memoryviews")]

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use runtime::halo::communicator::{
    Buffer, Collectives, Communicator, Direct, Envelope, Request, Way,
};
use runtime::{Device, DeviceKind, Error, ErrorKind, Result};

use crate::error::raise;

/// A rank of an mpi4py communicator.
pub(super) struct MpiCommunicator {
    shared: Arc<Shared>,
    collectives: Collectives,
}

/// State that outlives the communicator, together with its requests.
struct Shared {
    comm: Py<PyAny>,
    mpi: Py<PyModule>,
    rank: usize,
    size: usize,
    max_tag: u32,
    // Must be locked before attaching to the interpreter, never after.
    open: Mutex<Open>,
    /// The number of waits of this rank since a request was last complete.
    idle: AtomicU32,
}

/// Unfinished receives and messages.
#[derive(Default)]
struct Open {
    /// Receives without a message yet, in order, by peer and tag.
    lines: HashMap<(usize, u32), VecDeque<Arc<Mutex<Stage>>>>,
    /// Messages that MPI still works on and no request waits for.
    abandoned: Vec<Message>,
}

/// The stage of a receive.
enum Stage {
    /// No message yet. Without a buffer, the request was dropped.
    Waiting(Envelope, Option<Buffer>),
    /// MPI receives a message of this length.
    Arriving(Message, usize),
    Over,
}

/// A message that MPI still works on.
struct Message {
    request: Py<PyAny>,
    // The object that MPI uses; dropped before the memory that it exposes.
    _view: Py<PyAny>,
    buffer: Buffer,
}

impl MpiCommunicator {
    /// # Errors
    ///
    /// `PeerLostError` if MPI is not running. The Python exception if `comm` is not an mpi4py communicator.
    pub(super) fn new(comm: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mpi = comm.py().import("mpi4py.MPI")?;
        if !is_running(&mpi)? {
            return Err(raise(comm.py(), &not_running("communicator")));
        }
        let largest = comm.call_method1("Get_attr", (mpi.getattr("TAG_UB")?,))?;
        let shared = Shared {
            comm: comm.clone().unbind(),
            rank: comm.call_method0("Get_rank")?.extract()?,
            size: comm.call_method0("Get_size")?.extract()?,
            max_tag: largest.extract()?,
            mpi: mpi.unbind(),
            open: Mutex::default(),
            idle: AtomicU32::new(0),
        };
        Ok(Self { shared: Arc::new(shared), collectives: Collectives::default() })
    }
}

/// Converts an exception of mpi4py.
fn raised(operation: &'static str, error: &PyErr) -> Error {
    Error::new(ErrorKind::Driver, operation, format!("mpi4py: {error}"))
}

/// Whether MPI may be called: at any other time, a call ends the process.
fn is_running(mpi: &Bound<'_, PyModule>) -> PyResult<bool> {
    let ask = |name| mpi.call_method0(name)?.extract::<bool>();
    Ok(ask(intern!(mpi.py(), "Is_initialized"))? && !ask(intern!(mpi.py(), "Is_finalized"))?)
}

/// The error for calls at another time.
#[cold]
fn not_running(operation: &'static str) -> Error {
    Error::new(ErrorKind::PeerLost, operation, "MPI is not running")
}

/// CPython's `PyBUF_WRITE`, which the bindings of its older stable interfaces do not contain.
const WRITABLE: c_int = 0x200;

impl Message {
    /// Passes a buffer's bytes to `start`, which hands them to MPI.
    fn start(
        operation: &'static str,
        mut buffer: Buffer,
        start: impl for<'py> FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) -> Result<Self> {
        let storage = format!("{:?}", buffer.storage());
        let Some(bytes) = buffer.as_mut_slice()? else {
            let message = format!("{storage}, which mpi4py is not given");
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        };
        let (first, len) = (bytes.as_mut_ptr().cast(), bytes.len().cast_signed());
        let started = Python::attach(|py| {
            // SAFETY: bytes of the buffer, which is kept until MPI has finished with them, and longer than the view.
            let view = unsafe { ffi::PyMemoryView_FromMemory(first, len, WRITABLE) };
            // SAFETY: a new reference, or null with an exception.
            let view = unsafe { Bound::from_owned_ptr_or_err(py, view) }?;
            Ok((start(view.clone())?.unbind(), view.unbind()))
        });
        let (request, view) = started.map_err(|error: PyErr| raised(operation, &error))?;
        Ok(Self { request, _view: view, buffer })
    }

    /// Ends a message that MPI has finished with.
    fn into_buffer(mut self) -> Buffer {
        mem::take(&mut self.buffer)
    }

    /// Whether MPI has finished with the message.
    fn test(&self, operation: &'static str) -> Result<bool> {
        let done = Python::attach(|py| {
            self.request.bind(py).call_method0(intern!(py, "Test"))?.extract::<bool>()
        });
        done.map_err(|error| raised(operation, &error))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // MPI may still use the bytes. A finished message has none: see `into_buffer`.
        mem::forget(mem::take(&mut self.buffer));
    }
}

impl Shared {
    /// Checks that MPI may be called.
    fn check_running(&self, operation: &'static str) -> Result<()> {
        match Python::attach(|py| is_running(self.mpi.bind(py))) {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_running(operation)),
            Err(error) => Err(raised(operation, &error)),
        }
    }

    /// Matches messages that have arrived with the receives of a line.
    fn meet(&self, open: &mut Open, (peer, tag): (usize, u32)) -> Result<()> {
        const OPERATION: &str = "receive";
        let Open { lines, abandoned } = open;
        let Some(line) = lines.get_mut(&(peer, tag)) else { return Ok(()) };
        while let Some(first) = line.front() {
            let found = Python::attach(|py| {
                let status = self.mpi.bind(py).call_method0(intern!(py, "Status"))?;
                let probe = (peer, tag, &status);
                let found = self.comm.bind(py).call_method1(intern!(py, "Improbe"), probe)?;
                if found.is_none() {
                    return Ok(None);
                }
                let len: usize = status.call_method0(intern!(py, "Get_count"))?.extract()?;
                Ok(Some((found.unbind(), len)))
            });
            let found = found.map_err(|error: PyErr| raised(OPERATION, &error))?;
            let Some((message, len)) = found else { break };
            let mut stage = crate::lock(first);
            let (envelope, buffer) = match mem::replace(&mut *stage, Stage::Over) {
                Stage::Waiting(envelope, buffer) => (Some(envelope), buffer),
                Stage::Arriving(..) | Stage::Over => (None, None),
            };
            let is_wanted = buffer.is_some() && envelope.is_some();
            let fitting = buffer.filter(|buffer| buffer.len() == len);
            let buffer = fitting.unwrap_or_else(|| Buffer::host(vec![0; len]));
            let message = Message::start(OPERATION, buffer, |view| {
                message.bind(view.py()).call_method1(intern!(view.py(), "Irecv"), (view.clone(),))
            })?;
            if is_wanted {
                *stage = Stage::Arriving(message, len);
            } else {
                abandoned.push(message);
            }
            drop(stage);
            line.pop_front();
        }
        Ok(())
    }

    /// Receives messages that no request waits for, and ends those that MPI has finished.
    fn sweep(&self, operation: &'static str) -> Result<()> {
        self.check_running(operation)?;
        let mut open = crate::lock(&self.open);
        let nobody =
            |stage: &Arc<Mutex<Stage>>| matches!(*crate::lock(stage), Stage::Waiting(_, None));
        let unwanted = open.lines.iter().filter(|(_, line)| line.iter().any(nobody));
        let lines: Vec<(usize, u32)> = unwanted.map(|(line, _)| *line).collect();
        for line in lines {
            self.meet(&mut open, line)?;
        }
        for message in mem::take(&mut open.abandoned) {
            match message.test("wait") {
                Ok(true) => drop(message.into_buffer()),
                Ok(false) => open.abandoned.push(message),
                // Nothing says that MPI has finished with the bytes, so they stay allocated.
                Err(_) => drop(message),
            }
        }
        Ok(())
    }
}

/// The number of waits before a rank sleeps between checks, and before it sleeps longer.
const YIELDS: u32 = 200;
const NAPS: u32 = YIELDS + 1000;

impl Communicator for MpiCommunicator {
    fn rank(&self) -> usize {
        self.shared.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn max_tag(&self) -> u32 {
        self.shared.max_tag
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        device.info().kind == DeviceKind::Host
    }

    fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    fn direct(&self) -> Option<Direct<'_>> {
        None
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Send, to, tag, &buffer)?;
        self.shared.sweep("send")?;
        let message = Message::start("send", buffer, |view| {
            let comm = self.shared.comm.bind(view.py());
            comm.call_method1(intern!(view.py(), "Isend"), (view.clone(), to, tag))
        })?;
        Ok(Box::new(MpiRequest {
            shared: Arc::clone(&self.shared),
            envelope,
            kind: Kind::Send(message),
        }))
    }

    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Receive, from, tag, &buffer)?;
        self.shared.sweep("receive")?;
        let stage = Arc::new(Mutex::new(Stage::Waiting(envelope, Some(buffer))));
        let mut open = crate::lock(&self.shared.open);
        open.lines.entry((from, tag)).or_default().push_back(Arc::clone(&stage));
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MpiRequest { shared, envelope, kind: Kind::Receive(stage) }))
    }

    /// Always 0: MPI reports nothing without being polled.
    fn progress(&self) -> u64 {
        0
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        // A failure is reported by the requests.
        let _swept = self.shared.sweep("wait");
        // MPI has no wait with a timeout. The longer nothing arrives, the longer this rank sleeps between checks.
        let left = deadline.saturating_duration_since(Instant::now());
        match self.shared.idle.fetch_add(1, Ordering::Relaxed) {
            0..YIELDS => thread::yield_now(),
            YIELDS..NAPS => thread::sleep(Duration::from_micros(20).min(left)),
            _ => thread::sleep(Duration::from_millis(1).min(left)),
        }
    }
}

impl fmt::Debug for MpiCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiCommunicator(rank {} of {})", self.shared.rank, self.shared.size)
    }
}

struct MpiRequest {
    shared: Arc<Shared>,
    envelope: Envelope,
    kind: Kind,
}

enum Kind {
    Send(Message),
    Receive(Arc<Mutex<Stage>>),
    Over,
}

impl MpiRequest {
    /// Returns the buffer if the request is complete.
    fn complete(&mut self) -> Result<Option<Buffer>> {
        let envelope = self.envelope;
        self.shared.check_running("wait")?;
        match mem::replace(&mut self.kind, Kind::Over) {
            Kind::Over => Err(envelope.over()),
            Kind::Send(message) => match message.test("send")? {
                true => Ok(Some(message.into_buffer())),
                false => {
                    self.kind = Kind::Send(message);
                    Ok(None)
                }
            },
            Kind::Receive(receive) => {
                let mut open = crate::lock(&self.shared.open);
                self.shared.meet(&mut open, (envelope.peer, envelope.tag))?;
                let mut stage = crate::lock(&receive);
                match mem::replace(&mut *stage, Stage::Over) {
                    Stage::Over => return Err(envelope.over()),
                    Stage::Arriving(message, len) if message.test("receive")? => {
                        return match len == envelope.len {
                            true => Ok(Some(message.into_buffer())),
                            false => Err(envelope.wrong_length(len)),
                        };
                    }
                    other => *stage = other,
                }
                drop(stage);
                self.kind = Kind::Receive(receive);
                Ok(None)
            }
        }
    }
}

impl Request for MpiRequest {
    fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        let tested = self.complete();
        if !matches!(tested, Ok(None)) {
            self.shared.idle.store(0, Ordering::Relaxed);
        }
        tested
    }
}

impl Drop for MpiRequest {
    fn drop(&mut self) {
        let abandon = || {
            let mut open = crate::lock(&self.shared.open);
            match mem::replace(&mut self.kind, Kind::Over) {
                Kind::Over => {}
                Kind::Send(message) => open.abandoned.push(message),
                Kind::Receive(receive) => {
                    let mut stage = crate::lock(&receive);
                    match mem::replace(&mut *stage, Stage::Over) {
                        Stage::Over => {}
                        Stage::Arriving(message, _) => open.abandoned.push(message),
                        Stage::Waiting(envelope, _) => *stage = Stage::Waiting(envelope, None),
                    }
                }
            }
        };
        // The thread that drops it may be attached to the interpreter, and the lock must be taken first.
        crate::detached(abandon);
    }
}
