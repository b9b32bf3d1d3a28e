//! Memory that several arrays share.
#![expect(unsafe_code, reason = "arrays of one memory are written although they share it")]

use std::mem;
use std::sync::{Arc, Mutex, OnceLock};

use runtime::interchange::{Access, ArrayExchange, Keeper, Pending};
use runtime::{
    AnyView, AnyViewMut, DType, Device, Error, ErrorKind, Layout, Memory, Result, Stream,
};

use super::discarded;
use super::work::Work;
use crate::fork;

/// Device memory that is shared by the arrays over its parts.
pub(crate) struct Block {
    // Dropped before the memory: it waits for foreign work.
    exported: OnceLock<Option<Keeper>>,
    memory: Place,
    device: Device,
    pub(crate) work: Work,
}

enum Place {
    Own(Memory<u8>),
    /// Loan by an array buffer until its access ends.
    Loan(Mutex<Option<Arc<dyn Loan>>>),
}

/// Memory that an array buffer lends.
pub(crate) trait Loan: Send + Sync {
    /// The number of elements along each dimension.
    fn shape(&self) -> &[usize];

    /// All values, in row-major order, to read.
    fn view(&self) -> Result<AnyView<'_>>;

    /// All values, in row-major order, to read and write.
    fn view_mut(&self) -> Result<AnyViewMut<'_>>;

    /// The host address of the first element, if the values are lent on the host.
    fn host_address(&self) -> Result<usize>;

    /// Records that foreign code may write the values from now on.
    fn lend_to_consumers(&self);

    /// Gives up a share of the access. The access ends with the last share. The written values then become the array's,
    /// unless the code that held the access failed.
    fn finish(self: Arc<Self>, failed: bool) -> Result<()>;
}

/// Memory that exists while this value lives.
pub(crate) enum BlockMemory<'a> {
    Own(&'a Memory<u8>),
    Loan(Arc<dyn Loan>),
}

impl Block {
    pub(crate) fn new(memory: Memory<u8>) -> Self {
        let device = memory.device().clone();
        Self::of(Place::Own(memory), device, Work::default())
    }

    /// A block over memory that is lent for work on a stream.
    pub(crate) fn lent(lent: Arc<dyn Loan>, stream: &Stream) -> Self {
        let memory = Place::Loan(Mutex::new(Some(lent)));
        Self::of(memory, stream.device().clone(), Work::bound_to(stream))
    }

    fn of(memory: Place, device: Device, work: Work) -> Self {
        Self { exported: OnceLock::new(), memory, device, work }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Holds the memory.
    ///
    /// # Errors
    ///
    /// `Conflict` if the memory was lent and the access has ended. `Unsupported` in a fork.
    pub(crate) fn hold(&self) -> Result<BlockMemory<'_>> {
        fork::check("array")?;
        match &self.memory {
            Place::Own(memory) => Ok(BlockMemory::Own(memory)),
            Place::Loan(lent) => {
                crate::lock(lent).clone().map(BlockMemory::Loan).ok_or_else(|| {
                    let message = "the access to the array buffer that lent it has ended";
                    Error::new(ErrorKind::Conflict, "array", message).on(self.device.id())
                })
            }
        }
    }

    /// Whether an array buffer lends the memory.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.memory, Place::Loan(_))
    }

    /// Ends the access of memory that was lent.
    pub(crate) fn end(&self) -> Option<Arc<dyn Loan>> {
        match &self.memory {
            Place::Own(_) => None,
            Place::Loan(lent) => crate::lock(lent).take(),
        }
    }

    /// Records that foreign code has the address. The memory is then freed only once all work of the device has
    /// finished.
    pub(crate) fn lend_to_consumers(&self) -> Result<()> {
        if self.exported.get().is_some() {
            return Ok(());
        }
        let held = self.hold()?;
        let whole = held.view(0, &Layout::row(DType::U8, 0)?)?;
        let after = Pending::events([]);
        // SAFETY: the view has no elements.
        let lent = unsafe { ArrayExchange::from_view_after(whole, Access::ReadOnly, after, ()) };
        self.exported.get_or_init(|| lent.ok().map(ArrayExchange::into_keeper));
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if fork::is_broken() {
            // It would wait for the device.
            mem::forget(self.exported.take());
        } else if let Place::Own(memory) = &self.memory {
            discarded::count(memory, || self.work.busy());
        }
    }
}

impl BlockMemory<'_> {
    /// The access that keeps the memory alive in addition to its block, if it is lent.
    pub(crate) fn lent(&self) -> Option<Arc<dyn Loan>> {
        match self {
            Self::Own(_) => None,
            Self::Loan(lent) => Some(Arc::clone(lent)),
        }
    }

    /// Records that foreign code may write the memory from now on.
    pub(crate) fn lend_to_consumers(&self) {
        if let Self::Loan(lent) = self {
            lent.lend_to_consumers();
        }
    }

    /// The elements of `layout`, to read. Element `[0, …, 0]` lies at byte `origin`.
    pub(crate) fn view(&self, origin: usize, layout: &Layout) -> Result<AnyView<'_>> {
        match self {
            Self::Own(memory) => memory.view().reinterpret(origin, layout),
            Self::Loan(lent) => lent.view()?.reinterpret(origin, layout),
        }
    }

    /// The same elements, to read and write.
    pub(crate) fn view_mut(&self, origin: usize, layout: &Layout) -> Result<AnyViewMut<'_>> {
        match self {
            // SAFETY: this crate makes no slice of the memory. Foreign code that has its address orders accesses with
            // this view's work, as the documentation of the protocols requires.
            Self::Own(memory) => unsafe { memory.view_mut_shared() }.reinterpret(origin, layout),
            Self::Loan(lent) => lent.view_mut()?.reinterpret(origin, layout),
        }
    }
}
