//! Memory that several arrays show, and the streams that work on it.
#![expect(unsafe_code, reason = "arrays of one memory are written although they share it")]

use std::sync::{Arc, Mutex, OnceLock};

use runtime::interchange::{Access, ArrayExchange, Keeper, Pending};
use runtime::{
    DType, Device, Error, ErrorKind, Event, Layout, Memory, MemoryView, MemoryViewMut, Result,
    Stream,
};

/// Memory of a device, shared by the arrays that show parts of it.
pub(crate) struct Block {
    // What waits for strangers, before the memory.
    strangers: OnceLock<Option<Keeper>>,
    memory: Place,
    device: Device,
    /// Those that may have unfinished work on it.
    streams: Mutex<Vec<Stream>>,
}

enum Place {
    Own(Memory<u8>),
    /// Lent by an array buffer until its access ends, for work on one stream.
    Lent(Mutex<Option<Arc<dyn Lent>>>, Stream),
}

/// Memory that an array buffer lends.
pub(crate) trait Lent: Send + Sync {
    /// Elements along each dimension.
    fn shape(&self) -> &[usize];

    /// All values, in row-major order, to read.
    fn view(&self) -> Result<MemoryView<'_>>;

    /// The same, to write.
    fn view_mut(&self) -> Result<MemoryViewMut<'_>>;

    /// Where the first element lies on the host, if the values are lent there.
    fn host_address(&self) -> Result<usize>;

    /// Others may write the values from now on, without being seen.
    fn lend_to_strangers(&self);

    /// Gives up a share of the access, which ends with the last: what was written is the array's, unless the code that held it
    /// failed.
    fn finish(self: Arc<Self>, failed: bool) -> Result<()>;
}

/// While this is there, work on a block is being enqueued on a stream.
#[must_use = "the work is noted once more when this is dropped"]
pub(crate) struct Enqueuing<'a> {
    block: &'a Block,
    stream: &'a Stream,
}

impl Drop for Enqueuing<'_> {
    fn drop(&mut self) {
        self.block.used_on(self.stream);
    }
}

/// Memory that is there as long as this is.
pub(crate) enum Held<'a> {
    Own(&'a Memory<u8>),
    Lent(Arc<dyn Lent>),
}

/// Beyond this many streams, those that are done are forgotten.
const PRUNE_AT: usize = 4;

impl Block {
    pub(crate) fn new(memory: Memory<u8>) -> Self {
        let device = memory.device().clone();
        Self::of(Place::Own(memory), device)
    }

    pub(crate) fn lent(lent: Arc<dyn Lent>, stream: &Stream) -> Self {
        let block =
            Self::of(Place::Lent(Mutex::new(Some(lent)), stream.clone()), stream.device().clone());
        block.used_on(stream);
        block
    }

    fn of(memory: Place, device: Device) -> Self {
        Self { strangers: OnceLock::new(), memory, device, streams: Mutex::default() }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The stream that it is lent on, and used on alone.
    pub(crate) fn own_stream(&self) -> Option<&Stream> {
        match &self.memory {
            Place::Own(_) => None,
            Place::Lent(_, stream) => Some(stream),
        }
    }

    /// Its memory.
    ///
    /// # Errors
    ///
    /// `Conflict` if it was lent and the access has ended.
    pub(crate) fn hold(&self) -> Result<Held<'_>> {
        match &self.memory {
            Place::Own(memory) => Ok(Held::Own(memory)),
            Place::Lent(lent, _) => crate::lock(lent).clone().map(Held::Lent).ok_or_else(|| {
                let message = "the access to the array buffer that lent it has ended";
                Error::new(ErrorKind::Conflict, "array", message).on(self.device.id())
            }),
        }
    }

    /// Ends the access of memory that was lent.
    pub(crate) fn end(&self) -> Option<Arc<dyn Lent>> {
        match &self.memory {
            Place::Own(_) => None,
            Place::Lent(lent, _) => crate::lock(lent).take(),
        }
    }

    /// Notes that its address is known outside, so that it is given back when all work of the device is done.
    pub(crate) fn lend_to_strangers(&self) -> Result<()> {
        if self.strangers.get().is_some() {
            return Ok(());
        }
        let held = self.hold()?;
        let whole = held.view(0, &Layout::row(DType::U8, 0)?)?;
        let after = Pending::events([]);
        // SAFETY: of no element.
        let lent = unsafe { ArrayExchange::from_view_after(&whole, Access::ReadOnly, after, ()) };
        self.strangers.get_or_init(|| lent.ok().map(ArrayExchange::into_keeper));
        Ok(())
    }

    /// Notes work on the memory before it is enqueued, and after: whoever looks meanwhile forgets a stream with nothing to do.
    pub(crate) fn enqueuing<'a>(&'a self, stream: &'a Stream) -> Enqueuing<'a> {
        self.used_on(stream);
        Enqueuing { block: self, stream }
    }

    /// Notes that work on the memory was enqueued.
    pub(crate) fn used_on(&self, stream: &Stream) {
        let mut streams = crate::lock(&self.streams);
        if streams.contains(stream) {
            return;
        }
        if streams.len() >= PRUNE_AT {
            streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        }
        streams.push(stream.clone());
    }

    /// Marks of the work that is enqueued on the memory by now and not done.
    pub(crate) fn unfinished(&self) -> Result<Vec<Event>> {
        let mut streams = crate::lock(&self.streams);
        streams.retain(|stream| !matches!(stream.is_done(), Ok(true)));
        streams.iter().map(Stream::record_event).collect()
    }
}

impl Held<'_> {
    /// What keeps the memory beside its block, if it is lent.
    pub(crate) fn lent(&self) -> Option<Arc<dyn Lent>> {
        match self {
            Self::Own(_) => None,
            Self::Lent(lent) => Some(Arc::clone(lent)),
        }
    }

    /// Others may write the memory from now on, without being seen.
    pub(crate) fn lend_to_strangers(&self) {
        if let Self::Lent(lent) = self {
            lent.lend_to_strangers();
        }
    }

    /// The elements of `layout` whose element `[0, …, 0]` lies at byte `origin`, to read.
    pub(crate) fn view(&self, origin: usize, layout: &Layout) -> Result<MemoryView<'_>> {
        match self {
            Self::Own(memory) => memory.view().with_layout(origin, layout),
            Self::Lent(lent) => lent.view()?.with_layout(origin, layout),
        }
    }

    /// The same elements, to write.
    pub(crate) fn view_mut(&self, origin: usize, layout: &Layout) -> Result<MemoryViewMut<'_>> {
        match self {
            // SAFETY: this crate makes no slice of the memory. Who has its address outside orders accesses with this one's
            // work, which the documentation of the protocols asks for.
            Self::Own(memory) => unsafe { memory.view_mut_shared() }.with_layout(origin, layout),
            Self::Lent(lent) => lent.view_mut()?.with_layout(origin, layout),
        }
    }
}
