//! Copies between ordinary host memory and a device that do not hold the caller: a thread fills and empties pieces of
//! pinned memory, and the stream waits for it at gates.
//!
//! All copies are enqueued on the stream at once. Each copy to the device waits behind a gate, which the thread opens
//! when it has filled the copy's piece. The thread waits only for copies that were enqueued before the gates that it
//! still has to open. So the oldest work can always run, whatever else a device holds back meanwhile.
#![expect(unsafe_code, reason = "pieces are filled while copies from them are enqueued")]

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread;

use parking_lot::{Condvar, Mutex};
use runtime_core::{Element, Error, ErrorKind, Event, Gate, Opener, Pinned, Result, Stream};

use crate::storage::HostRows;

/// The number of pieces of a stream: the thread fills one while the device empties the other.
const PIECES: usize = 2;
/// The least and the greatest size of a piece in bytes.
const PIECE_BYTES: Range<usize> = 2 << 20..16 << 20;
/// A prefetch enqueues about as many copies, unless the pieces would be too large.
const COPIES: usize = 64;
/// The caller copies as few bytes itself, if a piece is free: that takes less time than to wake a thread.
const INLINE_BYTES: usize = 64 << 10;

/// A range of bytes of pinned memory to copy from or to.
pub(crate) struct PieceOf<'a> {
    pub(crate) pinned: &'a Pinned<u8>,
    pub(crate) bytes: usize,
}

/// The pieces of a stream and their thread, which all arrays share that use the stream. The thread starts with the first
/// job, and ends when no array has the worker any more and its jobs are done.
pub(crate) struct Worker {
    stream: u64,
    line: Mutex<Line>,
    /// The number of jobs that are not finished.
    pending: Arc<AtomicUsize>,
    doing: Arc<Doing>,
}

/// Locked while the copies of a job are enqueued, so that jobs begin in the order of the stream.
#[derive(Default)]
struct Line {
    pieces: [Option<Piece>; PIECES],
    /// The number of pieces used so far.
    used: usize,
    jobs: Option<mpsc::Sender<Job>>,
}

type Job = Box<dyn FnOnce() + Send>;

struct Piece {
    pinned: Arc<Pinned<u8>>,
    /// The end of the latest copy from or to it.
    end: Option<Event>,
}

/// What the thread does with one piece.
struct Turn {
    pinned: Arc<Pinned<u8>>,
    /// What it waits for first: the copy before it that used the piece, or the copy that fills it.
    after: Option<Event>,
    len: usize,
    /// Opened when the thread has filled or emptied the piece.
    opener: Opener,
}

/// The progress of a job in the host's memory.
pub(crate) struct Progress {
    /// How the job ended, once it needs the host's memory no longer.
    done: OnceLock<Result<()>>,
    thread: Arc<Doing>,
}

/// What a thread does at the moment. Its jobs run one after the other, so all of them wait for this.
#[derive(Default)]
struct Doing {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    /// The number of changes so far.
    step: u64,
    waits: Option<Waits>,
}

/// What a thread waits for.
#[derive(Clone)]
enum Waits {
    /// Copies of its stream.
    Until(Event),
    /// A job of another thread.
    For(Arc<Progress>),
}

impl Doing {
    fn set(&self, waits: Option<Waits>) {
        let mut now = self.now.lock();
        now.step += 1;
        // An event may have the last handle of its device.
        let before = mem::replace(&mut now.waits, waits);
        self.changed.notify_all();
        drop(now);
        drop(before);
    }
}

impl Progress {
    fn end(&self, outcome: Result<()>) {
        let _ended_before = self.done.set(outcome);
        self.thread.set(None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.done.get().is_some()
    }

    /// Blocks until the job needs the host's memory no longer. Returns an error if it has not copied everything.
    ///
    /// Waits for what the thread waits for, as long as it does. So a kernel is refused a wait that needs its own end.
    pub(crate) fn wait(&self) -> Result<()> {
        loop {
            let mut now = self.thread.now.lock();
            if let Some(outcome) = self.done.get() {
                return outcome.clone();
            }
            let step = now.step;
            if let Some(waits) = now.waits.clone() {
                drop(now);
                let waited = match waits {
                    Waits::Until(end) => end.wait(),
                    Waits::For(job) => job.wait(),
                };
                // The thread meets any other error itself.
                waited
                    .or_else(|error| if error.is_refused_wait() { Err(error) } else { Ok(()) })?;
                now = self.thread.now.lock();
            }
            while now.step == step {
                self.thread.changed.wait(&mut now);
            }
        }
    }

    /// As `wait`, for a thread that prepares copies: a wait for an event could run kernels of another stream in it.
    fn ended(&self) -> Result<()> {
        let mut now = self.thread.now.lock();
        loop {
            match self.done.get() {
                Some(outcome) => return outcome.clone(),
                None => self.thread.changed.wait(&mut now),
            }
        }
    }
}

/// A job of the thread. The fields are dropped in this order: gates open, and the end is known, when the job no longer
/// uses the host's memory.
struct Rows<T: Element> {
    host: Option<HostRows<T>>,
    /// What writes the host's memory first.
    before: Vec<Arc<Progress>>,
    turns: VecDeque<Turn>,
    progress: Ended,
    _pending: Pending,
}

struct Ended(Arc<Progress>);

impl Drop for Ended {
    fn drop(&mut self) {
        // A panic is the only other reason.
        let message = "a thread panicked that copied between host memory and a device";
        self.0.end(Err(Error::new(ErrorKind::DeviceFault, "prefetch", message)));
    }
}

struct Pending(Arc<AtomicUsize>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<T: Element> Rows<T> {
    /// Copies piece after piece by `copy`, which gets the first elements of the piece and their number.
    fn run(mut self, copy: impl Fn(&mut HostRows<T>, *mut T, usize)) {
        let thread = Arc::clone(&self.progress.0.thread);
        let written = self.before.iter().try_for_each(|write| {
            thread.set(Some(Waits::For(Arc::clone(write))));
            write.ended()
        });
        thread.set(None);
        if let Err(error) = written {
            return self.give_up(error);
        }
        while let (Some(turn), Some(host)) = (self.turns.pop_front(), &mut self.host) {
            let waited = turn.after.map_or(Ok(()), |after| {
                thread.set(Some(Waits::Until(after.clone())));
                let waited = after.wait();
                thread.set(None);
                waited
            });
            if let Err(error) = waited {
                // The device does not work any more.
                drop(turn.opener);
                return self.give_up(error);
            }
            copy(host, turn.pinned.host_ptr().as_ptr().cast(), turn.len);
            let mut last = None;
            if self.turns.is_empty() {
                // Before the last gate opens: what follows may take the host's memory.
                last = self.release();
                self.progress.0.end(Ok(()));
            }
            turn.opener.open();
            drop(last);
        }
    }

    /// Lets go of the host's memory. The owner of foreign memory must not be dropped before the gates are open, for
    /// which its destructor may wait.
    fn release(&mut self) -> Option<HostRows<T>> {
        self.host.take().filter(HostRows::is_foreign)
    }

    fn give_up(mut self, error: Error) {
        let last = self.release();
        self.progress.0.end(Err(error));
        self.turns.clear();
        drop(last);
    }
}

impl Worker {
    /// The worker of a stream.
    pub(crate) fn of(stream: &Stream) -> Arc<Self> {
        static ALL: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock();
        all.retain(|worker| worker.strong_count() > 0);
        let known =
            all.iter().filter_map(Weak::upgrade).find(|worker| worker.stream == stream.id());
        known.unwrap_or_else(|| {
            let (line, pending, doing) = (Mutex::default(), Arc::default(), Arc::default());
            let worker = Arc::new(Self { stream: stream.id(), line, pending, doing });
            all.push(Arc::downgrade(&worker));
            worker
        })
    }

    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        self.stream == stream.id()
    }

    /// Copies rows of the host's memory to the device, after what writes them `before`. `enqueue` enqueues the copy of
    /// the next bytes on the stream. Sets `job` to what is left to be done in the host's memory, also on an error.
    pub(crate) fn upload<T: Element>(
        &self,
        stream: &Stream,
        mut host: HostRows<T>,
        before: Vec<Arc<Progress>>,
        job: &mut Option<Arc<Progress>>,
        mut enqueue: impl FnMut(&PieceOf<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut line = self.line.lock();
        let room = line.prepare(stream, host.len() * size_of::<T>())? / size_of::<T>();
        let mut left = host.len();
        let is_alone = before.is_empty() && self.pending.load(Ordering::Acquire) == 0;
        if left * size_of::<T>() <= INLINE_BYTES && is_alone {
            let piece = line.next()?;
            let is_free = |end: &Event| matches!(end.is_done(), Ok(true));
            if piece.end.as_ref().is_none_or(is_free) {
                let pinned = Arc::clone(&piece.pinned);
                // SAFETY: no copy uses the piece, and neither does the thread, which has no job.
                unsafe { host.read(pinned.host_ptr().as_ptr().cast(), left) };
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: left * size_of::<T>() });
                return line.ended(stream).and(done).map(drop);
            }
        }
        line.start(stream)?;
        let mut rows = self.job(host, before);
        let enqueued = (|| {
            while left > 0 {
                let len = left.min(room);
                let piece = line.next()?;
                let pinned = Arc::clone(&piece.pinned);
                let (gate, opener) = stream.device().gate()?;
                stream.hold_until(&gate)?;
                let after = piece.end.take();
                rows.turns.push_back(Turn { pinned: Arc::clone(&pinned), after, len, opener });
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: len * size_of::<T>() });
                line.ended(stream).and(done)?;
                left -= len;
            }
            Ok(())
        })();
        // SAFETY: the copy that used the piece before has run, and the next one waits at the gate.
        let copy = |host: &mut HostRows<T>, piece, len| unsafe { host.read(piece, len) };
        *job = Some(line.submit(rows, copy));
        enqueued
    }

    /// Copies from the device to rows of the host's memory. `enqueue` enqueues the copy of the next bytes on the stream.
    /// Work enqueued on the stream afterwards comes after everything. Sets `job` to what is left to be done in the
    /// host's memory, also on an error.
    pub(crate) fn download<T: Element>(
        &self,
        stream: &Stream,
        host: HostRows<T>,
        job: &mut Option<Arc<Progress>>,
        mut enqueue: impl FnMut(&PieceOf<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut line = self.line.lock();
        let room = line.prepare(stream, host.len() * size_of::<T>())? / size_of::<T>();
        line.start(stream)?;
        let mut left = host.len();
        let mut rows = self.job(host, Vec::new());
        let mut full: VecDeque<Gate> = VecDeque::new();
        let enqueued = (|| {
            while left > 0 {
                let len = left.min(room);
                if full.len() == PIECES
                    && let Some(emptied) = full.pop_front()
                {
                    stream.hold_until(&emptied)?;
                }
                let pinned = Arc::clone(&line.next()?.pinned);
                let (gate, opener) = stream.device().gate()?;
                let done = enqueue(&PieceOf { pinned: &pinned, bytes: len * size_of::<T>() });
                let after = Some(line.ended(stream).and_then(|end| done.map(|()| end))?);
                rows.turns.push_back(Turn { pinned, after, len, opener });
                full.push_back(gate);
                left -= len;
            }
            Ok(())
        })();
        let held = full.iter().try_for_each(|emptied| stream.hold_until(emptied));
        if held.is_err() {
            // A later copy could fill a piece that is not empty.
            line.pieces = Default::default();
        }
        // SAFETY: the copy to the piece has run, and the next one waits at the gate.
        let copy = |host: &mut HostRows<T>, piece: *mut T, len| unsafe { host.write(piece, len) };
        *job = Some(line.submit(rows, copy));
        enqueued.and(held)
    }

    fn job<T: Element>(&self, host: HostRows<T>, before: Vec<Arc<Progress>>) -> Rows<T> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        Rows {
            host: Some(host),
            before,
            turns: VecDeque::new(),
            progress: Ended(Arc::new(Progress {
                done: OnceLock::new(),
                thread: Arc::clone(&self.doing),
            })),
            _pending: Pending(Arc::clone(&self.pending)),
        }
    }
}

impl Line {
    /// Makes pieces for a copy of that many bytes, and returns the size of a piece.
    fn prepare(&mut self, stream: &Stream, bytes: usize) -> Result<usize> {
        let share = bytes.div_ceil(COPIES).next_power_of_two();
        let most = share.clamp(PIECE_BYTES.start, PIECE_BYTES.end);
        let wanted = bytes.next_power_of_two().clamp(INLINE_BYTES, most);
        for piece in &mut self.pieces {
            if piece.as_ref().is_none_or(|piece| piece.pinned.len() < wanted) {
                // Jobs and copies keep the old memory as long as they need it.
                let pinned = Arc::new(stream.device().pinned_allocate(wanted)?);
                *piece = Some(Piece { pinned, end: None });
            }
        }
        let sizes = self.pieces.iter().flatten().map(|piece| piece.pinned.len());
        Ok(sizes.min().unwrap_or(wanted))
    }

    /// The next piece.
    fn next(&mut self) -> Result<&mut Piece> {
        self.used += 1;
        self.pieces[self.used % PIECES].as_mut().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "prefetch", "a stream has no pinned memory")
        })
    }

    /// Notes that the latest piece is used by everything enqueued so far. Gives the piece up if that is not possible.
    fn ended(&mut self, stream: &Stream) -> Result<Event> {
        let piece = &mut self.pieces[self.used % PIECES];
        match stream.record_event() {
            Ok(end) => {
                piece.iter_mut().for_each(|piece| piece.end = Some(end.clone()));
                Ok(end)
            }
            Err(error) => {
                *piece = None;
                Err(error)
            }
        }
    }

    /// Starts the thread.
    fn start(&mut self, stream: &Stream) -> Result<()> {
        if self.jobs.is_some() {
            return Ok(());
        }
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for job in queue {
                // A panic drops the job, whose gates then open as failed.
                let _panicked = catch_unwind(AssertUnwindSafe(job));
            }
        };
        let name = format!("{} copies", stream.device().id());
        thread::Builder::new().name(name).spawn(work).map_err(|error| {
            let message = "no thread that prepares copies";
            Error::new(ErrorKind::Driver, "prefetch", message).with_source(error)
        })?;
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Lets the thread do what was enqueued. If there is no thread, the gates open as failed.
    fn submit<T: Element>(
        &mut self,
        job: Rows<T>,
        copy: impl Fn(&mut HostRows<T>, *mut T, usize) + Send + 'static,
    ) -> Arc<Progress> {
        let progress = Arc::clone(&job.progress.0);
        if job.turns.is_empty() {
            progress.end(Ok(()));
        }
        if let Some(jobs) = &self.jobs {
            let _sent = jobs.send(Box::new(move || job.run(copy)));
        }
        progress
    }
}
