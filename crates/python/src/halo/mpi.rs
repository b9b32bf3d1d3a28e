//! Ranks of an mpi4py communicator. Messages are calls of its Python methods, so this package does not link MPI.
//!
//! As in `halo-mpi`, a receive is passed to MPI only when its message has arrived and has the right length. MPI
//! libraries may write beyond a buffer that is too short before they report it.
//!
//! A method of the communicator may be Python code, which may keep what it is given and call this package. Therefore no
//! lock is held while it runs, except for that of the unmatched receives.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};
use runtime::halo::communicator::{
    Buffer, Collectives, Communicator, Direct, Envelope, Request, Storage, Way,
};
use runtime::{DType, Device, DeviceKind, Error, ErrorKind, Layout, Result};

use crate::dtype;
use crate::error::{is_exit, python_cause, raise};
use crate::mutex::CallbackMutex;

/// The largest tag that every communicator must have.
const MAX_TAG: u32 = 32767;

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
    /// The number that stands for all ranks.
    any_rank: i32,
    // Must be locked before attaching to the interpreter, never after.
    lines: CallbackMutex<Lines>,
    /// Messages that MPI still works on and no request waits for.
    abandoned: Mutex<Vec<Message>>,
    /// An exception that ends programs, which no call has reported yet.
    exit: Mutex<Option<Error>>,
    /// The number of waits of this rank since a request was last complete.
    idle: AtomicU32,
    /// The number of tests that found their request incomplete.
    incomplete: AtomicU32,
}

/// Receives without a message yet, in order, by peer and tag.
type Lines = HashMap<(usize, u32), VecDeque<Arc<Mutex<Stage>>>>;

/// The stage of a receive.
enum Stage {
    /// No message yet. Without a buffer, the message is being passed to MPI.
    Waiting(Option<Buffer>),
    /// MPI receives a message of this length.
    Arriving(Message, usize),
    /// The message was not passed to MPI.
    Failed(Error),
    /// No request waits for the message any more.
    Over,
}

/// A message that MPI still works on.
struct Message {
    request: Py<PyAny>,
    view: Py<PyMemoryView>,
    // MPI may still use the bytes of a message that is dropped. Those of a finished message are dropped: see `end`.
    buffer: ManuallyDrop<Arc<Buffer>>,
}

/// The bytes of a message, which NumPy shows to Python code. They exist while a view of them exists.
#[pyclass(frozen, module = "device_runtime.halo")]
struct MessageBytes {
    address: usize,
    layout: Layout,
    _buffer: Arc<Buffer>,
}

#[pymethods]
impl MessageBytes {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dtype::array_interface(py, &self.layout, self.address, false)
    }
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
        // Some libraries attach the largest tag only to the communicator of all processes.
        let key = mpi.getattr("TAG_UB")?;
        let mut largest = comm.call_method1("Get_attr", (&key,))?;
        if largest.is_none() {
            largest = mpi.getattr("COMM_WORLD")?.call_method1("Get_attr", (key,))?;
        }
        let max_tag = largest.extract()?;
        if max_tag < MAX_TAG {
            let message =
                format!("the largest tag of the communicator is {max_tag}, less than {MAX_TAG}");
            let error = Error::new(ErrorKind::InvalidArgument, "communicator", message);
            return Err(raise(comm.py(), &error));
        }
        let shared = Shared {
            comm: comm.clone().unbind(),
            rank: comm.call_method0("Get_rank")?.extract()?,
            size: comm.call_method0("Get_size")?.extract()?,
            max_tag,
            any_rank: mpi.getattr("ANY_SOURCE")?.extract()?,
            mpi: mpi.unbind(),
            lines: CallbackMutex::default(),
            abandoned: Mutex::default(),
            exit: Mutex::default(),
            idle: AtomicU32::new(0),
            incomplete: AtomicU32::new(0),
        };
        Ok(Self { shared: Arc::new(shared), collectives: Collectives::default() })
    }
}

/// Converts an exception of mpi4py.
fn raised(operation: &'static str, error: PyErr) -> Error {
    Error::new(ErrorKind::Driver, operation, "mpi4py raised an exception").with_source(error)
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

/// Bytes for a message of a length that the transport says.
fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, "receive", format!("a message of {len} bytes"))
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// A copy of a buffer that the host can address, in memory of the same kind.
fn copy_of(buffer: &Buffer) -> Result<Buffer> {
    let storage = match buffer.storage() {
        Storage::Host(bytes) => Storage::Host(zeros(bytes.len())?),
        Storage::Pinned(pinned) => Storage::Pinned(pinned.device().pinned_allocate(pinned.len())?),
        Storage::Device(memory) => Storage::Device(memory.device().memory_allocate(memory.len())?),
    };
    let mut copy = Buffer::from(storage);
    copy.copy_from_slice(buffer.as_slice()?.unwrap_or_default())?;
    Ok(copy)
}

impl Message {
    /// Passes a buffer's bytes to `start`, which hands them to MPI.
    fn start(
        operation: &'static str,
        mut buffer: Buffer,
        start: impl for<'py> FnOnce(&Bound<'py, PyMemoryView>) -> PyResult<Bound<'py, PyAny>>,
    ) -> Result<Self> {
        let storage = format!("{:?}", buffer.storage());
        let Some(bytes) = buffer.as_mut_slice()? else {
            let message = format!("{storage}, which mpi4py is not given");
            return Err(Error::new(ErrorKind::InvalidArgument, operation, message));
        };
        let (address, layout) =
            (bytes.as_mut_ptr().expose_provenance(), Layout::row(DType::U8, bytes.len())?);
        // Kept if `start` fails: Python code may fail after it has called MPI.
        let buffer = ManuallyDrop::new(Arc::new(buffer));
        let started = Python::attach(|py| {
            let bytes = MessageBytes { address, layout, _buffer: Arc::clone(&buffer) };
            let array = dtype::numpy(py)?.call_method1(intern!(py, "asarray"), (bytes,))?;
            let view = PyMemoryView::from(&array)?;
            Ok((start(&view)?.unbind(), view.unbind()))
        });
        let (request, view) = started.map_err(|error| raised(operation, error))?;
        Ok(Self { request, view, buffer })
    }

    /// Ends a message that MPI has finished with. The bytes have other owners if Python code has kept a view of them.
    fn end(self) -> Arc<Buffer> {
        let Self { request, view, buffer } = self;
        Python::attach(|py| {
            drop(request);
            // Fails if Python code uses the view.
            let _released = view.call_method0(py, intern!(py, "release"));
            drop(view);
        });
        ManuallyDrop::into_inner(buffer)
    }

    /// Ends a message that MPI has finished with, and returns its buffer, or a copy if Python code uses the bytes.
    fn into_buffer(self) -> Result<Buffer> {
        Arc::try_unwrap(self.end()).or_else(|shared| copy_of(&shared))
    }

    /// Whether MPI has finished with the message.
    fn test(&self, operation: &'static str) -> Result<bool> {
        let done = Python::attach(|py| {
            self.request.bind(py).call_method0(intern!(py, "Test"))?.extract::<bool>()
        });
        done.map_err(|error| raised(operation, error))
    }
}

impl Shared {
    /// Checks that MPI may be called.
    fn check_running(&self, operation: &'static str) -> Result<()> {
        if let Some(exit) = crate::lock(&self.exit).take() {
            return Err(exit);
        }
        // A communicator that was freed is false.
        let state = Python::attach(|py| {
            Ok((is_running(self.mpi.bind(py))?, self.comm.bind(py).is_truthy()?))
        });
        match state {
            Ok((true, true)) => Ok(()),
            Ok((true, false)) => {
                Err(Error::new(ErrorKind::PeerLost, operation, "the communicator was freed"))
            }
            Ok((false, _)) => Err(not_running(operation)),
            Err(error) => Err(raised(operation, error)),
        }
    }

    /// Ignores an error, but leaves an exception that ends programs to the next call.
    fn ignore(&self, error: Error) {
        let ends = |cause| Python::attach(|py| is_exit(py, cause));
        if python_cause(&error).is_some_and(ends) {
            *crate::lock(&self.exit) = Some(error);
        }
    }

    /// The next message with a tag that has arrived from a rank, with its source and its length.
    fn arrived(
        &self,
        from: impl for<'py> IntoPyObject<'py>,
        tag: u32,
    ) -> Result<Option<(Py<PyAny>, usize, usize)>> {
        let found = Python::attach(|py| {
            let status = self.mpi.bind(py).call_method0(intern!(py, "Status"))?;
            let probe = (from, tag, &status);
            let found = self.comm.bind(py).call_method1(intern!(py, "Improbe"), probe)?;
            if found.is_none() {
                return Ok(None);
            }
            let source: usize = status.call_method0(intern!(py, "Get_source"))?.extract()?;
            let len: usize = status.call_method0(intern!(py, "Get_count"))?.extract()?;
            Ok(Some((found.unbind(), source, len)))
        });
        found.map_err(|error| raised("receive", error))
    }

    /// Counts a test that found its request incomplete. One of several matches the receives that this rank does not
    /// test: a peer may need that its message is taken. They are rarely what delays it.
    fn tested(&self) -> Result<()> {
        const PERIOD: u32 = 16;
        if !self.incomplete.fetch_add(1, Ordering::Relaxed).is_multiple_of(PERIOD) {
            return Ok(());
        }
        self.meet_lines(&mut *self.lines.lock("receive")?, |_| true)
    }

    /// Matches messages that have arrived with the receives of the lines that are `chosen`.
    fn meet_lines(
        &self,
        lines: &mut Lines,
        chosen: impl Fn(&VecDeque<Arc<Mutex<Stage>>>) -> bool,
    ) -> Result<()> {
        let chosen = lines.iter().filter(|(_, line)| !line.is_empty() && chosen(line));
        let chosen: Vec<(usize, u32)> = chosen.map(|(line, _)| *line).collect();
        chosen.into_iter().try_for_each(|line| self.meet(lines, line))
    }

    /// Matches messages that have arrived with the receives of a line.
    fn meet(&self, lines: &mut Lines, (peer, tag): (usize, u32)) -> Result<()> {
        let Some(line) = lines.get_mut(&(peer, tag)) else { return Ok(()) };
        while !line.is_empty()
            && let Some((message, _, len)) = self.arrived(peer, tag)?
            && let Some(receive) = line.pop_front()
        {
            self.take(&message, len, &receive)?;
        }
        Ok(())
    }

    /// Passes a message that has arrived to MPI, for a receive.
    fn take(&self, message: &Py<PyAny>, len: usize, receive: &Mutex<Stage>) -> Result<()> {
        let given = match &mut *crate::lock(receive) {
            Stage::Waiting(buffer) => buffer.take(),
            _ => None,
        };
        let fitting = given.filter(|buffer| buffer.len() == len);
        let buffer = fitting.map_or_else(|| zeros(len).map(Buffer::host), Ok);
        let started = buffer.and_then(|buffer| {
            Message::start("receive", buffer, |view| {
                message.bind(view.py()).call_method1(intern!(view.py(), "Irecv"), (view,))
            })
        });
        let mut stage = crate::lock(receive);
        match started {
            Ok(message) if matches!(*stage, Stage::Over) => {
                crate::lock(&self.abandoned).push(message);
            }
            Ok(message) => *stage = Stage::Arriving(message, len),
            Err(error) => {
                *stage = Stage::Failed(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends dropped receives with these tags, and takes messages that have arrived and that no receive waits for.
    fn discard(&self, tags: Range<u32>) -> Result<()> {
        const OPERATION: &str = "discard";
        self.check_running(OPERATION)?;
        let mut lines = self.lines.lock(OPERATION)?;
        for tag in tags.clone() {
            while let Some((message, source, len)) = self.arrived(self.any_rank, tag)? {
                let receive = lines.get_mut(&(source, tag)).and_then(VecDeque::pop_front);
                let receive = receive.unwrap_or_else(|| Arc::new(Mutex::new(Stage::Over)));
                self.take(&message, len, &receive)?;
            }
        }
        lines.retain(|(_, tag), line| {
            if tags.contains(tag) {
                line.retain(|receive| !matches!(*crate::lock(receive), Stage::Over));
            }
            !line.is_empty()
        });
        Ok(())
    }

    /// Receives messages that no request waits for, and ends those that MPI has finished.
    fn sweep(&self, operation: &'static str) -> Result<()> {
        self.check_running(operation)?;
        let mut lines = self.lines.lock(operation)?;
        let is_over = |stage: &Arc<Mutex<Stage>>| matches!(*crate::lock(stage), Stage::Over);
        self.meet_lines(&mut lines, |line| line.iter().any(is_over))?;
        drop(lines);
        let abandoned = mem::take(&mut *crate::lock(&self.abandoned));
        for message in abandoned {
            match message.test("wait") {
                Ok(true) => drop(message.end()),
                Ok(false) => crate::lock(&self.abandoned).push(message),
                // Nothing says that MPI has finished with the bytes, so they stay allocated.
                Err(error) => self.ignore(error),
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
            comm.call_method1(intern!(view.py(), "Isend"), (view, to, tag))
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
        let stage = Arc::new(Mutex::new(Stage::Waiting(Some(buffer))));
        let mut lines = self.shared.lines.lock("receive")?;
        lines.entry((from, tag)).or_default().push_back(Arc::clone(&stage));
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MpiRequest { shared, envelope, kind: Kind::Receive(stage) }))
    }

    fn discard(&self, tags: Range<u32>) -> Result<()> {
        self.shared.discard(tags)
    }

    /// Always 0: MPI reports nothing without being polled.
    fn progress(&self) -> u64 {
        0
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        // A failure is reported by the requests.
        if let Err(error) = self.shared.sweep("wait") {
            self.shared.ignore(error);
        }
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
                true => message.into_buffer().map(Some),
                false => {
                    self.kind = Kind::Send(message);
                    Ok(None)
                }
            },
            Kind::Receive(receive) => {
                // Also if this fails: the message must be received.
                self.kind = Kind::Receive(Arc::clone(&receive));
                let mut lines = self.shared.lines.lock("receive")?;
                self.shared.meet(&mut lines, (envelope.peer, envelope.tag))?;
                drop(lines);
                let mut stage = crate::lock(&receive);
                if matches!(*stage, Stage::Waiting(_)) {
                    return Ok(None);
                }
                let found = mem::replace(&mut *stage, Stage::Over);
                drop(stage);
                match found {
                    Stage::Arriving(message, len) if !message.test("receive")? => {
                        *crate::lock(&receive) = Stage::Arriving(message, len);
                        Ok(None)
                    }
                    Stage::Arriving(message, len) if len == envelope.len => {
                        message.into_buffer().map(Some)
                    }
                    Stage::Arriving(message, len) => {
                        drop(message.end());
                        Err(envelope.wrong_length(len))
                    }
                    Stage::Failed(error) => Err(error),
                    Stage::Waiting(_) | Stage::Over => Err(envelope.over()),
                }
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
        } else if let Err(error) = self.shared.tested() {
            // The requests of these receives report it.
            self.shared.ignore(error);
        }
        tested
    }
}

impl Drop for MpiRequest {
    fn drop(&mut self) {
        let message = match mem::replace(&mut self.kind, Kind::Over) {
            Kind::Over => return,
            Kind::Send(message) => message,
            Kind::Receive(receive) => {
                let found = mem::replace(&mut *crate::lock(&receive), Stage::Over);
                let Stage::Arriving(message, _) = found else { return };
                message
            }
        };
        crate::lock(&self.shared.abandoned).push(message);
    }
}
