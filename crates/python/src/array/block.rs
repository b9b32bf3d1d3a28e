//! Memory that several arrays show.
#![expect(unsafe_code, reason = "arrays of one memory are written although they share it")]

use std::sync::{Arc, Mutex, OnceLock};

use runtime::interchange::{Access, ArrayExchange, Keeper, Pending};
use runtime::{
    DType, Device, Error, ErrorKind, Layout, Memory, MemoryView, MemoryViewMut, Result, Stream,
};

use super::work::Work;

/// Memory of a device, shared by the arrays that show parts of it.
pub(crate) struct Block {
    // What waits for strangers, before the memory.
    strangers: OnceLock<Option<Keeper>>,
    memory: Place,
    device: Device,
    pub(crate) work: Work,
}

enum Place {
    Own(Memory<u8>),
    /// Lent by an array buffer until its access ends.
    Lent(Mutex<Option<Arc<dyn Lent>>>),
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

/// Memory that is there as long as this is.
pub(crate) enum Held<'a> {
    Own(&'a Memory<u8>),
    Lent(Arc<dyn Lent>),
}

impl Block {
    pub(crate) fn new(memory: Memory<u8>) -> Self {
        let device = memory.device().clone();
        Self::of(Place::Own(memory), device, Work::default())
    }

    /// Memory that is lent for work on a stream.
    pub(crate) fn lent(lent: Arc<dyn Lent>, stream: &Stream) -> Self {
        let memory = Place::Lent(Mutex::new(Some(lent)));
        Self::of(memory, stream.device().clone(), Work::bound_to(stream))
    }

    fn of(memory: Place, device: Device, work: Work) -> Self {
        Self { strangers: OnceLock::new(), memory, device, work }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Its memory.
    ///
    /// # Errors
    ///
    /// `Conflict` if it was lent and the access has ended.
    pub(crate) fn hold(&self) -> Result<Held<'_>> {
        match &self.memory {
            Place::Own(memory) => Ok(Held::Own(memory)),
            Place::Lent(lent) => crate::lock(lent).clone().map(Held::Lent).ok_or_else(|| {
                let message = "the access to the array buffer that lent it has ended";
                Error::new(ErrorKind::Conflict, "array", message).on(self.device.id())
            }),
        }
    }

    /// Ends the access of memory that was lent.
    pub(crate) fn end(&self) -> Option<Arc<dyn Lent>> {
        match &self.memory {
            Place::Own(_) => None,
            Place::Lent(lent) => crate::lock(lent).take(),
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
