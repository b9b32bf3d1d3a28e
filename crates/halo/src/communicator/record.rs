//! Recording of the messages that one rank receives, and replay of that rank alone.
//!
//! The file starts with `HALOMSGS`, the version, the rank, the number of ranks and the largest tag. Then each message
//! follows: its source rank, its tag, the number of its receive among those with the same rank and tag, its mark, and
//! its bytes with their length. All numbers are little-endian and have 64 bits. The start of the file and each message
//! end with their CRC-32.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtime_core::{Device, Error, ErrorKind, Result};

use super::{Buffer, Collectives, Communicator, Direct, Envelope, Request, Way, complete};

const MAGIC: [u8; 8] = *b"HALOMSGS";
/// The version changes with the file format, and with what an exchange sends: the layout of its messages, their marks,
/// and what ranks agree on before. A record of another version cannot be replayed.
const VERSION: u64 = 5;

/// The number of receives for each line. A line is a rank and a tag.
#[derive(Debug, Default)]
struct Lines(Mutex<HashMap<(usize, u32), u64>>);

impl Lines {
    /// The number of the next receive of the line.
    fn next(&self, envelope: &Envelope) -> u64 {
        let mut lines = self.0.lock();
        let next = lines.entry((envelope.peer, envelope.tag)).or_default();
        *next += 1;
        *next - 1
    }
}

/// A communicator that writes every message it receives to a file, for [`Replay`].
///
/// ```
/// use std::time::Duration;
/// use halo::communicator::{Buffer, Communicator, Recorder, Replay, ThreadCommunicator};
///
/// fn program(ranks: &dyn Communicator) -> halo::Result<Vec<u8>> {
///     let second = Duration::from_secs(1);
///     let sent = ranks.send(1 - ranks.rank(), 1, Buffer::host(vec![ranks.rank() as u8; 4]))?;
///     let received = ranks.receive(1 - ranks.rank(), 1, Buffer::host(vec![0; 4]))?;
///     ranks.wait(sent, second)?;
///     ranks.wait(received, second)?.to_vec()
/// }
///
/// let file = std::env::temp_dir().join(format!("halo-record-{}", std::process::id()));
/// ThreadCommunicator::run(2, |ranks| match ranks.rank() {
///     0 => program(&Recorder::create(ranks, &file)?),
///     _ => program(&ranks),
/// })?;
/// assert_eq!(program(&Replay::open(&file)?)?, [1; 4]);
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder<C: Communicator> {
    inner: C,
    lines: Lines,
    record: Arc<Record>,
}

#[derive(Debug)]
struct Record {
    path: PathBuf,
    file: Mutex<File>,
}

impl<C: Communicator> Recorder<C> {
    /// Records what `inner` receives from now on to a new file at `path`, which replaces an existing file.
    ///
    /// # Errors
    ///
    /// `Conflict` if `inner` has already made a collective call: the record would lack some of its messages. `Driver`
    /// if the file cannot be written; later receives then return it, too.
    pub fn create(inner: C, path: impl AsRef<Path>) -> Result<Self> {
        if !inner.collectives().are_unused() {
            let message =
                format!("rank {} made a collective call before its record begins", inner.rank());
            return Err(Error::new(ErrorKind::Conflict, "record", message));
        }
        let path = path.as_ref().to_owned();
        let written = File::create(&path).and_then(|mut file| {
            let numbers =
                [VERSION, inner.rank() as u64, inner.size() as u64, u64::from(inner.max_tag())];
            file.write_all(&sealed(&MAGIC, &numbers, &[]))?;
            Ok(file)
        });
        let file = Mutex::new(written.map_err(|error| failed("record", &path, error))?);
        Ok(Self { inner, lines: Lines::default(), record: Arc::new(Record { path, file }) })
    }
}

/// Numbers and bytes with their CRC-32.
fn sealed(start: &[u8], numbers: &[u64], bytes: &[u8]) -> Vec<u8> {
    let mut all = start.to_vec();
    numbers.iter().for_each(|number| all.extend(number.to_le_bytes()));
    all.extend_from_slice(bytes);
    let seal = crc32fast::hash(&all);
    all.extend(u64::from(seal).to_le_bytes());
    all
}

#[cold]
fn failed(operation: &'static str, path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Driver, operation, path.display().to_string()).with_source(error)
}

impl<C: Communicator> Communicator for Recorder<C> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn max_tag(&self) -> u32 {
        self.inner.max_tag()
    }

    fn passes_memory_of(&self, device: &Device) -> bool {
        self.inner.passes_memory_of(device)
    }

    fn collectives(&self) -> &Collectives {
        self.inner.collectives()
    }

    /// Returns `None`: only messages are recorded.
    fn direct(&self) -> Option<Direct<'_>> {
        None
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        self.inner.send(to, tag, buffer)
    }

    fn receive(&self, from: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let inner = self.inner.receive(from, tag, buffer)?;
        let number = self.lines.next(&inner.envelope());
        Ok(Box::new(Recorded { inner, number, record: Arc::clone(&self.record) }))
    }

    fn progress(&self) -> u64 {
        self.inner.progress()
    }

    fn wait_beyond(&self, seen: u64, deadline: Instant) {
        self.inner.wait_beyond(seen, deadline);
    }
}

/// A receive whose message is written to the file when it arrives.
struct Recorded {
    inner: Box<dyn Request>,
    number: u64,
    record: Arc<Record>,
}

impl Request for Recorded {
    fn envelope(&self) -> Envelope {
        self.inner.envelope()
    }

    fn test(&mut self) -> Result<Option<Buffer>> {
        let Some(buffer) = self.inner.test()? else { return Ok(None) };
        let bytes = buffer.to_vec()?;
        let Envelope { peer, tag, mark, .. } = self.envelope();
        let numbers = [peer as u64, u64::from(tag), self.number, mark, bytes.len() as u64];
        let Record { path, file } = &*self.record;
        let written = file.lock().write_all(&sealed(&[], &numbers, &bytes));
        written.map_err(|error| failed("record", path, error))?;
        Ok(Some(buffer))
    }
}

/// A single rank that receives the messages of a file written by a [`Recorder`]. The messages that it sends are
/// discarded.
///
/// A recorded message is available at once. The receive of a message that was not recorded, because the program does
/// something else or runs for longer, returns `PeerLost`. The whole file is in memory.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    file: Vec<u8>,
    rank: usize,
    size: usize,
    max_tag: u32,
    collectives: Collectives,
    lines: Lines,
    /// The mark and the bytes of each message, by line and number of the receive.
    messages: HashMap<(usize, u32, u64), (u64, Range<usize>)>,
}

impl Replay {
    /// Opens a record, and checks the whole file.
    ///
    /// # Errors
    ///
    /// `Driver` if the file cannot be read. `InvalidArgument` if it is not a record; if its version differs from that
    /// of this program, with both versions; or if it is damaged, with the position of the damage.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "replay";
        let path = path.as_ref().to_owned();
        let refuse = |message: String| {
            let message = format!("{}: {message}", path.display());
            Error::new(ErrorKind::InvalidArgument, OPERATION, message)
        };
        let file = fs::read(&path).map_err(|error| failed(OPERATION, &path, error))?;
        let mut at = 0;
        let begin = part(&file, &mut at, &MAGIC, |_| 0);
        let Some(([version, rank, size, max_tag], _)) = begin else {
            return Err(refuse("not the beginning of a record at byte 0".to_owned()));
        };
        if version != VERSION {
            return Err(refuse(format!(
                "a record of version {version}; this program replays version {VERSION}"
            )));
        }
        let (Ok(rank), Ok(size), Ok(max_tag)) =
            (usize::try_from(rank), usize::try_from(size), u32::try_from(max_tag))
        else {
            return Err(refuse("numbers beyond this machine's at byte 16".to_owned()));
        };
        if rank >= size {
            return Err(refuse(format!("rank {rank} of {size} at byte 16")));
        }
        let mut messages = HashMap::new();
        while at < file.len() {
            let start = at;
            let message = part(&file, &mut at, &[], |[_, _, _, _, len]: [u64; 5]| len);
            let message = message.and_then(|([from, tag, number, mark, _], bytes)| {
                let from = usize::try_from(from).ok().filter(|from| *from < size)?;
                Some(((from, u32::try_from(tag).ok()?, number), (mark, bytes)))
            });
            let (key, message) =
                message.ok_or_else(|| refuse(format!("a damaged message at byte {start}")))?;
            messages.insert(key, message);
        }
        let (collectives, lines) = (Collectives::default(), Lines::default());
        Ok(Self { path, file, rank, size, max_tag, collectives, lines, messages })
    }
}

/// Reads a sealed part of the file at `at`, and moves `at` beyond it. Returns its numbers and the place of its bytes,
/// whose length `length` computes from the numbers. Returns `None` if the part is damaged.
fn part<const N: usize>(
    file: &[u8],
    at: &mut usize,
    start: &[u8],
    length: impl Fn([u64; N]) -> u64,
) -> Option<([u64; N], Range<usize>)> {
    let part = &file[*at..];
    let words = part.strip_prefix(start)?.as_chunks().0.first_chunk::<N>()?;
    let numbers = words.map(u64::from_le_bytes);
    let head = start.len() + 8 * N;
    let end = head.checked_add(usize::try_from(length(numbers)).ok()?)?;
    let seal = part.get(end..)?.first_chunk()?;
    if u64::from_le_bytes(*seal) != u64::from(crc32fast::hash(&part[..end])) {
        return None;
    }
    let bytes = *at + head..*at + end;
    *at = bytes.end + 8;
    Some((numbers, bytes))
}

impl Communicator for Replay {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn max_tag(&self) -> u32 {
        self.max_tag
    }

    fn passes_memory_of(&self, _: &Device) -> bool {
        true
    }

    fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    fn direct(&self) -> Option<Direct<'_>> {
        None
    }

    fn send(&self, to: usize, tag: u32, buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Send, to, tag, &buffer)?;
        Ok(complete(envelope, Ok(buffer)))
    }

    fn receive(&self, from: usize, tag: u32, mut buffer: Buffer) -> Result<Box<dyn Request>> {
        let envelope = Envelope::new(self, Way::Receive, from, tag, &buffer)?;
        let number = self.lines.next(&envelope);
        let Some((mark, bytes)) = self.messages.get(&(from, tag, number)) else {
            let message = format!("{envelope}, number {number}: not in {}", self.path.display());
            return Err(Error::new(ErrorKind::PeerLost, "receive", message));
        };
        let outcome = if *mark != envelope.mark {
            Err(envelope.wrong_mark())
        } else if bytes.len() != envelope.len {
            Err(envelope.wrong_length(bytes.len()))
        } else {
            buffer.copy_from_slice(&self.file[bytes.clone()]).map(|()| buffer)
        };
        Ok(complete(envelope, outcome))
    }

    fn progress(&self) -> u64 {
        0
    }

    fn wait_beyond(&self, _: u64, deadline: Instant) {
        // No message will come.
        let remaining = deadline.saturating_duration_since(Instant::now());
        thread::sleep(remaining.min(Duration::from_millis(1)));
    }
}
