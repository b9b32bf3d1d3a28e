//! Exchanges between owned and ghost parts.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

use ndarray::Dimension;
use runtime_core::{
    Combine, Device, Element, Error, ErrorKind, MemoryView, MemoryViewMut, RegionCopy, RegionPlan,
    Result, Slot, Stream, WriteReport,
};

use crate::coherence::{Action, Reduce, ReplicaId};
use crate::core::{Core, Request};
use crate::part::PartRef;
use crate::transfer::side_of;
use crate::{ArrayBuffer, Parts};

pub use crate::coherence::Exchange;

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Begins to fill ghost parts from owned values, or to combine contributions with them, on `stream`.
    ///
    /// Until [`finish`](InFlight::finish), what is exchanged belongs to the result, which lends it for region copies,
    /// kernels and messages; the exchange stays on its device. Owned values can be read meanwhile during a broadcast.
    /// After a reduction, ghost parts wait for a broadcast.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Stale` for a broadcast while a reduction is pending; `InvalidArgument` for a reduction
    /// while none is.
    #[track_caller]
    pub fn begin_exchange<'a>(
        &'a mut self,
        stream: &'a Stream,
        exchange: Exchange,
    ) -> Result<InFlight<'a, T, D>> {
        let access = match exchange {
            Exchange::Broadcast => "broadcast",
            Exchange::Reduce => "reduce",
        };
        let op = self.core.pending();
        let set = match exchange {
            Exchange::Broadcast => self.partition().ghosts().0,
            Exchange::Reduce => self.partition().owned().0,
        };
        let request = Request { set, stream: Some(stream), access, site: Location::caller() };
        let at = self.core.act(&request, |at, by| Action::Begin { at, by, exchange })?;
        let op = op.filter(|_| exchange == Exchange::Reduce);
        let report = WriteReport::new();
        Ok(InFlight { core: &self.core, stream, at, op, report, ended: false })
    }
}

/// An exchange in flight: see [`ArrayBuffer::begin_exchange`].
///
/// Dropping it poisons what it was to write; forgetting it keeps that from being read until it is overwritten.
#[must_use = "dropping an exchange poisons what it was to write; finish it"]
pub struct InFlight<'b, T: Element, D> {
    core: &'b Core<T, D>,
    stream: &'b Stream,
    at: ReplicaId,
    op: Option<Reduce>,
    report: WriteReport,
    ended: bool,
}

impl<T: Element, D: Dimension> InFlight<'_, T, D> {
    /// The operation of a reduction; `None` for a broadcast.
    pub fn reduction(&self) -> Option<Reduce> {
        self.op
    }

    /// A part to read: an owned one of a broadcast, a ghost of a reduction.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for any other part.
    pub fn source(&self, part: usize) -> Result<MemoryView<'_>> {
        let parts = if self.op.is_some() { self.ghosts() } else { self.owned() };
        self.check(part, parts, "read")?;
        let partition = &self.core.partition;
        let shape = partition.shape();
        let view =
            self.core.storage.view(self.at)?.reshape(shape)?.region(partition.ranges(part))?;
        Ok(view.on_stream(self.stream))
    }

    /// A part to write: a ghost of a broadcast, an owned one of a reduction.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for any other part.
    pub fn target(&mut self, part: usize) -> Result<MemoryViewMut<'_>> {
        let parts = if self.op.is_some() { self.owned() } else { self.ghosts() };
        self.check(part, parts, "written")?;
        let partition = &self.core.partition;
        let shape = partition.shape();
        let view =
            self.core.storage.view_mut(self.at)?.reshape(shape)?.region(partition.ranges(part))?;
        Ok(view.on_stream(self.stream).reporting_to(&self.report))
    }

    /// The owned parts, to read on any stream while a broadcast is in flight.
    ///
    /// # Errors
    ///
    /// `Conflict` during a reduction.
    pub fn owned_values(&self) -> Result<PartRef<'_, T, D>> {
        if self.op.is_some() {
            let message = "owned values change while a reduction is in flight";
            return Err(Error::new(ErrorKind::Conflict, "owned_values", message));
        }
        Ok(PartRef { core: self.core, set: self.owned().0 })
    }

    /// Enqueues the copies of a star forest within the array.
    ///
    /// # Errors
    ///
    /// What planning or executing the copies reports; the exchange has failed then.
    pub fn run(&mut self, forest: &mut StarForest) -> Result<()> {
        let plan = forest.plan::<T>(self.stream.device(), self.core.partition.shape(), self.op)?;
        let view = self.core.storage.view_mut(self.at)?;
        let view = view.on_stream(self.stream).reporting_to(&self.report);
        plan.execute(self.stream, &mut [Slot::Write(view)])
    }

    /// Ends the exchange: what was enqueued on its stream makes the parts good.
    ///
    /// # Errors
    ///
    /// `Poisoned` if an operation failed or nothing was written; the parts are poisoned then.
    pub fn finish(mut self) -> Result<()> {
        self.ended = true;
        let nothing = !self.report.wrote() && !self.ghosts().is_empty();
        if self.report.failed() || nothing {
            self.core.end_exchange(Action::Fail)?;
            let why = if nothing { "nothing was written" } else { "an operation failed" };
            let error = Error::new(ErrorKind::Poisoned, "finish", why);
            return Err(error.on(self.stream.device().id()));
        }
        self.core.end_exchange(Action::End)
    }

    fn owned(&self) -> Parts {
        self.core.partition.owned()
    }

    fn ghosts(&self) -> Parts {
        self.core.partition.ghosts()
    }

    fn check(&self, part: usize, parts: Parts, what: &str) -> Result<()> {
        if parts.contains(part) {
            return Ok(());
        }
        let kind = if self.op.is_some() { "reduction" } else { "broadcast" };
        let message = format!("part {part} is not {what} in a {kind}; {parts:?} are");
        Err(Error::new(ErrorKind::InvalidArgument, "exchange", message))
    }
}

impl<T: Element, D> Drop for InFlight<'_, T, D> {
    fn drop(&mut self) {
        if !self.ended {
            // It cannot be refused.
            let _failed = self.core.end_exchange(Action::Fail);
        }
    }
}

impl<T: Element, D> fmt::Debug for InFlight<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({:?} on {})", self.op, self.stream.device().id())
    }
}

/// Which ghost elements (leaves) are copies of which owned ones (roots) of the same array, as pairs of boxes: periodic
/// boundaries, for instance. One launch serves all of them.
///
/// ```
/// use array_buffer::{ArrayBuffer, Exchange, Partition, StarForest};
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// // A ring of three cells with a ghost at either end.
/// let partition = Partition::with_ghosts(&[5], &[(1, 1)])?;
/// let mut ring = StarForest::new([(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])]);
/// let mut array = ArrayBuffer::from_array_with(ndarray::array![0, 1, 2, 3, 0], partition)?;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let stream = device.default_stream();
/// let mut flight = array.begin_exchange(&stream, Exchange::Broadcast)?;
/// flight.run(&mut ring)?;
/// flight.finish()?;
/// assert_eq!(array.into_inner()?.to_vec(), [3, 1, 2, 3, 1]);
/// # Ok::<(), array_buffer::Error>(())
/// ```
#[derive(Debug)]
pub struct StarForest {
    links: Vec<Link>,
    plans: Vec<(Device, Option<Reduce>, RegionPlan)>,
}

/// A box of ghosts and the box of owned elements that they are copies of.
type Link = (Vec<Range<usize>>, Vec<Range<usize>>);

impl StarForest {
    /// Pairs of a box of ghosts and the box of owned elements that they are copies of.
    pub fn new(links: impl IntoIterator<Item = (Vec<Range<usize>>, Vec<Range<usize>>)>) -> Self {
        Self { links: links.into_iter().collect(), plans: Vec::new() }
    }

    /// The plan of one direction, made when it is first needed.
    fn plan<T: Element>(
        &mut self,
        device: &Device,
        shape: &[usize],
        op: Option<Reduce>,
    ) -> Result<&RegionPlan> {
        let known = self.plans.iter().position(|(on, with, plan)| {
            on.is_same(device)
                && *with == op
                && plan.slots().iter().all(|slot| slot.dtype.is_none_or(|of| of == T::DTYPE))
        });
        let index = match known {
            Some(index) => index,
            None => {
                let copies =
                    self.links.iter().map(|(ghost, owned)| link::<T>(shape, ghost, owned, op));
                let plan = device.plan_regions(&copies.collect::<Result<Vec<_>>>()?)?;
                self.plans.push((device.clone(), op, plan));
                self.plans.len() - 1
            }
        };
        Ok(&self.plans[index].2)
    }
}

fn link<T: Element>(
    shape: &[usize],
    ghost: &[Range<usize>],
    owned: &[Range<usize>],
    op: Option<Reduce>,
) -> Result<RegionCopy> {
    let extents = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).collect::<Vec<_>>();
    let inside = |ranges: &[Range<usize>]| {
        ranges.len() == shape.len()
            && ranges.iter().zip(shape).all(|(r, extent)| r.start <= r.end && r.end <= *extent)
    };
    if !inside(ghost) || !inside(owned) || extents(ghost) != extents(owned) {
        let message = format!("ghosts {ghost:?} of {owned:?} in shape {shape:?}");
        return Err(Error::new(ErrorKind::InvalidArgument, "star forest", message));
    }
    let side = |ranges: &[Range<usize>]| side_of::<T>(shape, ranges);
    let (source, destination) = match op {
        None => (side(owned), side(ghost)),
        Some(_) => (side(ghost), side(owned)),
    };
    let combine = match op {
        None | Some(Reduce::Replace) => Combine::Replace,
        Some(Reduce::Sum) => Combine::Sum,
        Some(Reduce::Min) => Combine::Min,
        Some(Reduce::Max) => Combine::Max,
    };
    let extents = extents(ghost);
    Ok(RegionCopy { dtype: T::DTYPE, extents, source, destination, negate: false, combine })
}
