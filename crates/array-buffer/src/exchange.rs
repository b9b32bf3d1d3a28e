//! Exchanges between owned and ghost parts.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::Location;

use coherence::{Action, PartState, Reduce, ReplicaId, keep};
use ndarray::Dimension;
use runtime_core::{
    Combine, Device, Element, Error, ErrorKind, MemoryView, MemoryViewMut, RegionCopy, RegionPlan,
    Result, Slot, Stream, WriteReport,
};

use crate::call_site::CallSite;
use crate::core::{Core, Request, Then};
use crate::part::PartRef;
use crate::partition::{overlap, volume};
use crate::poison::Poison;
use crate::storage::Hold;
use crate::transfer::side_of;
use crate::{ArrayBuffer, PartStatus, Partition, Parts};

#[doc(inline)]
pub use coherence::Exchange;

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Begins to fill ghost parts from owned values, or to combine contributions with owned values, on `stream`.
    ///
    /// Until [`finish`](InFlight::finish), the result holds the exchanged parts. It lends them for region copies,
    /// kernels and messages. The exchange stays on its device. During a broadcast, owned values can still be read.
    /// After a reduction, ghost parts wait for a broadcast.
    ///
    /// An exchange covers all ghost parts. A broadcast must fill each ghost part. A reduction must take the
    /// contributions of each ghost part that has any. For each such part, one [`StarForest`] covers it, or the result
    /// lends it.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, Exchange, Parts, Partition};
    /// # use backend_sim::{SimConfig, SimDevice};
    /// # use runtime_core::Device;
    ///
    /// // Three cells, behind a ghost beyond the end of the grid. Its value is 7.
    /// let partition = Partition::with_ghosts(&[4], &[(1, 0)])?;
    /// let mut array = ArrayBuffer::from_array_with(ndarray::array![7.0, 1.0, 2.0, 3.0], partition)?;
    /// # let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
    /// let stream = device.default_stream();
    /// {
    ///     let [mut own] = array.split([Parts::one(0)])?;
    ///     own.write(&stream)?.view_mut()?.fill(&stream, 5.0)?;
    /// }
    /// let mut flight = array.begin_exchange(&stream, Exchange::Broadcast)?;
    /// flight.target(1)?.fill(&stream, 7.0)?;
    /// flight.finish()?;
    /// assert_eq!(array.read_host()?.to_vec(), [7.0, 5.0, 5.0, 5.0]);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). `Stale` for a broadcast while a reduction is pending. `InvalidArgument` for a reduction
    /// while none is pending.
    #[track_caller]
    pub fn begin_exchange<'a>(
        &'a mut self,
        stream: &'a Stream,
        exchange: Exchange,
    ) -> Result<InFlight<'a, T, D>> {
        self.exclusive().forget_idle_if_crowded()?;
        InFlight::begin(&self.core, stream, exchange, Location::caller())
    }
}

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Begins a broadcast that need not fill all ghosts. The others keep the bytes that they have on the stream's
    /// device, and become valid, too. Also returns the ghost parts whose earlier values are lost, or that never had any.
    ///
    /// Safe programs fill all ghosts, for example those beyond the end of a grid through
    /// [`target`](InFlight::target).
    ///
    /// # Errors
    ///
    /// As [`begin_exchange`](Self::begin_exchange).
    ///
    /// # Safety
    ///
    /// Elements of ghost parts that neither this exchange nor earlier work on the device has written are not read, and
    /// no elements of the parts that are returned, unless they are written afterwards.
    #[track_caller]
    #[expect(unsafe_code, reason = "values that were never written become valid")]
    pub unsafe fn begin_partial_broadcast<'a>(
        &'a mut self,
        stream: &'a Stream,
    ) -> Result<(InFlight<'a, T, D>, Parts)> {
        self.exclusive().forget_idle_if_crowded()?;
        let (ghosts, mut lost) = (self.core.partition.ghosts(), Parts::NONE);
        let mut note = |at: ReplicaId, before: &[PartState], now: &mut [PartState]| {
            for part in ghosts.iter().filter(|part| !keep(&mut now[*part], &before[*part], at)) {
                lost = lost | Parts::one(part);
            }
        };
        let (broadcast, call_site) = (Exchange::Broadcast, Location::caller());
        let mut flight =
            InFlight::begin_then(&self.core, stream, broadcast, call_site, Some(&mut note))?;
        flight.covered = ghosts;
        Ok((flight, lost))
    }
}

/// An exchange in flight: see [`ArrayBuffer::begin_exchange`].
///
/// Dropping it poisons the parts that it should write. If it is forgotten (`mem::forget`), these parts cannot be read
/// until they are overwritten.
#[must_use = "dropping an exchange poisons the parts it was to write; finish it"]
pub struct InFlight<'b, T: Element, D> {
    core: &'b Core<T, D>,
    stream: &'b Stream,
    at: ReplicaId,
    op: Option<Reduce>,
    /// Ghost parts that are filled, or that have contributions.
    ghosts: Parts,
    /// Those with elements, which must not be left out.
    needed: Vec<usize>,
    /// The outcome of operations on each part that was lent for writing.
    reports: Vec<WriteReport>,
    /// The outcome of operations by forests.
    forest: WriteReport,
    /// Parts that were lent for reading.
    read: Cell<Parts>,
    /// Ghost parts that a forest covered.
    covered: Parts,
    /// Ghost parts that were lent with the whole array, and the outcome of operations on it.
    around: Parts,
    whole: WriteReport,
    ended: bool,
    _hold: Option<Hold>,
}

impl<'b, T: Element, D> InFlight<'b, T, D> {
    /// Begins an exchange. No guard holds a ghost part, nor, for a reduction, any part.
    pub(crate) fn begin(
        core: &'b Core<T, D>,
        stream: &'b Stream,
        exchange: Exchange,
        call_site: CallSite,
    ) -> Result<Self> {
        Self::begin_then(core, stream, exchange, call_site, None)
    }

    fn begin_then(
        core: &'b Core<T, D>,
        stream: &'b Stream,
        exchange: Exchange,
        call_site: CallSite,
        then: Option<&mut Then<'_>>,
    ) -> Result<Self> {
        let op = core.pending();
        let concerned = |part: &usize| match exchange {
            Exchange::Broadcast => true,
            Exchange::Reduce => matches!(core.status(*part), PartStatus::Pending(_)),
        };
        let partition = &core.partition;
        let ghosts = partition.ghosts().iter().filter(concerned);
        let ghosts = ghosts.fold(Parts::NONE, |all, part| all | Parts::one(part));
        let needed = ghosts.iter().filter(|part| !partition.is_empty(*part)).collect();
        let set = match exchange {
            Exchange::Broadcast => partition.ghosts().set,
            Exchange::Reduce => partition.owned().set,
        };
        let access = exchange.name();
        let request = Request::new(&set, Some(stream), access, call_site);
        let (at, hold) =
            core.act_then(&request, |at, by| Action::Begin { at, by, exchange }, then)?;
        Ok(Self {
            core,
            stream,
            at,
            op: op.filter(|_| exchange == Exchange::Reduce),
            ghosts,
            needed,
            reports: (0..partition.count()).map(|_| WriteReport::new()).collect(),
            forest: WriteReport::new(),
            read: Cell::new(Parts::NONE),
            covered: Parts::NONE,
            around: Parts::NONE,
            whole: WriteReport::new(),
            ended: false,
            _hold: hold.map(|hold| hold.by("an exchange")),
        })
    }

    /// Whether this is an exchange of the array with this core.
    pub(crate) fn is_of(&self, core: &Core<T, D>) -> bool {
        std::ptr::eq(self.core, core)
    }

    /// Whether the exchange has lent and copied nothing. Views to write count if an operation has used them.
    fn is_untouched(&self) -> bool {
        let wrote = |report: &WriteReport| report.wrote() || report.failed();
        let read = self.read.get() | self.covered | self.around;
        read == Parts::NONE && !self.reports.iter().chain([&self.forest, &self.whole]).any(wrote)
    }

    /// Ends the exchange without success.
    fn fail(&self, poison: Poison) -> Result<()> {
        match self.is_untouched() {
            true => self.core.withdraw_exchange(),
            false => self.core.end_exchange(Some(poison)),
        }
    }

    /// The stream of the exchange.
    pub fn stream(&self) -> &'b Stream {
        self.stream
    }

    /// The partition of the array.
    pub fn partition(&self) -> &'b Partition {
        &self.core.partition
    }

    /// The number of collective operations on the array since
    /// [`on_stale_ghosts`](ArrayBuffer::on_stale_ghosts) was called. Ranks whose numbers differ do not exchange the
    /// same values.
    pub fn sequence(&self) -> u64 {
        self.core.sequence()
    }
}

impl<T: Element, D: Dimension> InFlight<'_, T, D> {
    /// The operation of a reduction; `None` for a broadcast.
    pub fn reduction(&self) -> Option<Reduce> {
        self.op
    }

    /// Returns a part to read: an owned part in a broadcast, a ghost part with contributions in a reduction.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for any other part.
    pub fn source(&self, part: usize) -> Result<MemoryView<'_, T>> {
        let parts = if self.op.is_some() { self.ghosts } else { self.owned() };
        self.check(part, parts, "read")?;
        self.read.set(self.read.get() | Parts::one(part));
        self.core.view(&Parts::one(part).set, self.at, self.stream)
    }

    /// Returns a part to write: a ghost part in a broadcast, an owned part in a reduction.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for any other part.
    pub fn target(&mut self, part: usize) -> Result<MemoryViewMut<'_, T>> {
        let parts = if self.op.is_some() { self.owned() } else { self.ghosts };
        self.check(part, parts, "written")?;
        let view = self.core.view_mut(&Parts::one(part).set, self.at)?;
        view.on_stream(self.stream)?.reporting_to(&self.reports[part])
    }

    /// Returns the box of the owned parts to read, and the whole array to write, for exchanges that find the parts by
    /// their position in the array. They handle these ghost parts.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a part that is not filled, or that has no contributions; and if the owned parts do not
    /// tile a box, or have [separate memory](crate::MemoryBudget).
    ///
    /// # Safety
    ///
    /// A broadcast reads owned parts and writes these ghost parts. A reduction reads these ghost parts, and reads and
    /// writes owned parts. Other elements are not accessed.
    #[expect(unsafe_code, reason = "others may read the parts that the exchange does not write")]
    pub unsafe fn whole(
        &mut self,
        ghosts: Parts,
    ) -> Result<(MemoryView<'_, T>, MemoryViewMut<'_, T>)> {
        ghosts.iter().try_for_each(|part| self.check(part, self.ghosts, "exchanged"))?;
        let owned = self.core.view(&self.owned().set, self.at, self.stream)?;
        let whole = self.core.view_mut(&self.core.partition.all().set, self.at)?;
        let whole = whole.on_stream(self.stream)?.reporting_to(&self.whole)?;
        self.around = self.around | ghosts;
        Ok((owned, whole))
    }

    /// Returns the owned parts, to read on any stream while a broadcast is in flight.
    ///
    /// # Errors
    ///
    /// `Conflict` during a reduction.
    pub fn owned_values(&self) -> Result<PartRef<'_, T, D>> {
        if self.op.is_some() {
            let message = "owned values change while a reduction is in flight";
            return Err(Error::new(ErrorKind::Conflict, "owned_values", message));
        }
        Ok(PartRef { core: self.core, set: self.owned().set })
    }

    /// Enqueues the copies of a star forest within the array. A reduction leaves out ghost parts without contributions.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the boxes of a link differ in shape or overlap, or if they are not ghosts and owned
    /// elements of this array; nothing was enqueued then. Errors of enqueuing the copies; the exchange has failed then.
    pub fn run(&mut self, forest: &mut StarForest) -> Result<()> {
        let device = self.stream.device();
        let planned = forest.plan::<T>(device, &self.core.partition, self.op, self.ghosts)?;
        let view = self.core.span_mut(&self.core.partition.all().set, self.at)?;
        let view = view.on_stream(self.stream)?.reporting_to(&self.forest)?;
        // A forest without links has nothing to bind.
        if !planned.plan.slots().is_empty() {
            planned.plan.execute(self.stream, &mut [Slot::from(view)])?;
        }
        self.covered = self.covered | planned.covered;
        Ok(())
    }

    /// Ends the exchange. The work that was enqueued on its stream makes the parts valid.
    ///
    /// # Errors
    ///
    /// `Poisoned` if an operation failed or if a ghost part was left out; the exchanged parts are then poisoned. If
    /// nothing was read or written, they are as before.
    pub fn finish(mut self) -> Result<()> {
        self.ended = true;
        let failed = self.forest.failed()
            || self.whole.failed()
            || self.reports.iter().any(WriteReport::failed);
        let why = match self.needed.iter().find(|part| !self.is_served(**part)) {
            _ if failed => "an operation failed".to_owned(),
            Some(part) if self.op.is_some() => {
                format!("the contributions of ghost part {part} were not taken")
            }
            Some(part) => format!("ghost part {part} was not filled"),
            None => {
                if self.op.is_none() {
                    self.core.set_local(None);
                }
                return self.core.end_exchange(None);
            }
        };
        self.fail(if failed { Poison::Operation } else { Poison::Unfinished })?;
        Err(Error::new(ErrorKind::Poisoned, "finish", why).on(self.stream.device().id()))
    }

    /// Whether the exchange handled a ghost part.
    fn is_served(&self, part: usize) -> bool {
        let lent = match self.op {
            None => self.reports[part].wrote(),
            Some(_) => self.read.get().contains(part),
        };
        lent || self.covered.contains(part) || self.around.contains(part) && self.whole.wrote()
    }

    fn owned(&self) -> Parts {
        self.core.partition.owned()
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
            // This cannot be refused.
            let _failed = self.fail(Poison::Unfinished);
        }
    }
}

impl<T: Element, D> fmt::Debug for InFlight<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({:?} on {})", self.op, self.stream.device().id())
    }
}

/// Says which ghost elements (leaves) are copies of which owned elements (roots) of the same array, as pairs of boxes.
/// An example is a periodic boundary. One launch handles all pairs.
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
    plans: Vec<Planned>,
}

/// The plan of one direction of a forest, for arrays with this partition on this device.
#[derive(Debug)]
struct Planned {
    device: Device,
    partition: Partition,
    op: Option<Reduce>,
    /// Ghost parts that take part.
    ghosts: Parts,
    plan: RegionPlan,
    /// Ghost parts whose elements are all in links.
    covered: Parts,
}

/// A box of ghosts, and the box of owned elements that it copies.
type Link = (Vec<Range<usize>>, Vec<Range<usize>>);

impl StarForest {
    /// Makes a forest from pairs: a box of ghosts, and the box of owned elements that it copies.
    pub fn new(links: impl IntoIterator<Item = (Vec<Range<usize>>, Vec<Range<usize>>)>) -> Self {
        Self { links: links.into_iter().collect(), plans: Vec::new() }
    }

    /// Returns the plan of one direction; makes it when it is first needed.
    fn plan<T: Element>(
        &mut self,
        device: &Device,
        partition: &Partition,
        op: Option<Reduce>,
        ghosts: Parts,
    ) -> Result<&Planned> {
        let is_for = |planned: &Planned| {
            let slots = planned.plan.slots();
            planned.device.is_same(device)
                && planned.op == op
                && planned.ghosts == ghosts
                && slots.iter().all(|slot| slot.dtype.is_none_or(|of| of == T::DTYPE))
                && planned.partition == *partition
        };
        let index = match self.plans.iter().position(is_for) {
            Some(index) => index,
            None => {
                let (device, partition) = (device.clone(), partition.clone());
                let covered = self.cover(&partition)?;
                let mut copies = Vec::new();
                for whole in &self.links {
                    let copy = link::<T>(&partition, whole, op)?;
                    if ghosts == partition.ghosts() {
                        copies.push(copy);
                        continue;
                    }
                    for piece in pieces(whole, &partition, ghosts) {
                        copies.push(link::<T>(&partition, &piece, op)?);
                    }
                }
                let plan = device.plan_regions(&copies)?;
                self.plans.push(Planned { device, partition, op, ghosts, plan, covered });
                self.plans.len() - 1
            }
        };
        Ok(&self.plans[index])
    }

    /// Returns the ghost parts whose elements are all in links. Refuses links that are not between ghosts and owned
    /// elements, and ghosts that are in two links.
    fn cover(&self, partition: &Partition) -> Result<Parts> {
        for (index, (ghost, owned)) in self.links.iter().enumerate() {
            for (what, ranges, parts) in [
                ("ghosts", ghost, partition.ghosts()),
                ("owned elements", owned, partition.owned()),
            ] {
                let inside: usize = parts.iter().map(|part| partition.common(part, ranges)).sum();
                if ranges.len() != partition.shape().len() || inside != volume(ranges) {
                    return Err(refuse(format!("link {index}: {ranges:?} are not all {what}")));
                }
            }
            let twice = |(other, _): &Link| overlap(ghost, other) && volume(ghost) > 0;
            if let Some(other) = self.links[..index].iter().position(twice) {
                return Err(refuse(format!("links {other} and {index} have ghosts in common")));
            }
        }
        let linked = |part: &usize| {
            let common = |(ghost, _): &Link| partition.common(*part, ghost);
            self.links.iter().map(common).sum::<usize>() == volume(partition.ranges(*part))
        };
        Ok(partition.ghosts().iter().filter(linked).fold(Parts::NONE, |all, p| all | Parts::one(p)))
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "star forest", message)
}

/// The elements of a link in each of these ghost parts.
fn pieces(
    (ghost, owned): &Link,
    partition: &Partition,
    parts: Parts,
) -> impl Iterator<Item = Link> {
    let linked = move |part: &usize| partition.common(*part, ghost) > 0;
    parts.iter().filter(linked).map(move |part| {
        let both = ghost.iter().zip(partition.ranges(part));
        let common: Vec<_> = both.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end)).collect();
        let places = common.iter().zip(ghost).zip(owned);
        let of = places.map(|((common, ghost), owned)| {
            let first = owned.start + (common.start - ghost.start);
            first..first + common.len()
        });
        let of = of.collect();
        (common, of)
    })
}

fn link<T: Element>(
    partition: &Partition,
    (ghost, owned): &Link,
    op: Option<Reduce>,
) -> Result<RegionCopy> {
    let shape = partition.shape();
    let extents = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).collect::<Vec<_>>();
    let inside = |ranges: &[Range<usize>]| {
        ranges.len() == shape.len()
            && ranges.iter().zip(shape).all(|(r, extent)| r.start <= r.end && r.end <= *extent)
    };
    if !inside(ghost) || !inside(owned) || extents(ghost) != extents(owned) {
        let message = format!("ghosts {ghost:?} of {owned:?} in shape {shape:?}");
        return Err(refuse(message));
    }
    let side = |ranges: &[Range<usize>]| side_of::<T>(partition, ranges);
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
