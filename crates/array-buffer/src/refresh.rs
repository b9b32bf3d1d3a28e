//! Ghosts that accesses refresh, and what several ranks must know of that.

use std::panic::Location;

use ndarray::Dimension;
use runtime_core::{Element, Error, ErrorKind, Result, Stream};

use crate::call_site::CallSite;
use crate::core::Core;
use crate::{ArrayBuffer, InFlight, PartMut, PartStatus, Parts};

impl<T: Element, D: Dimension> ArrayBuffer<T, D> {
    /// Lets accesses run the exchanges that they need, from now on, instead of refusing them as `Stale`.
    ///
    /// `refresh` gets an exchange that has begun on `stream`, and does its work: it runs a
    /// [`StarForest`](crate::StarForest), or sends messages. The array then [finishes](InFlight::finish) the exchange.
    /// An access of the array, or of a [`part`](Self::part) of it, that needs owned values runs a reduction if one is
    /// pending. If it needs ghosts that are stale, it then runs a broadcast. Nothing is exchanged if nothing is stale.
    /// The values that the access needs elsewhere are copied from the device of `stream`: choose the device that
    /// computes.
    ///
    /// ```
    /// use array_buffer::{ArrayBuffer, Partition, StarForest};
    /// use backend_sim::{SimConfig, SimDevice};
    /// use runtime_core::Device;
    ///
    /// // A ring of three cells with a ghost at either end.
    /// let partition = Partition::with_ghosts(&[5], &[(1, 1)])?;
    /// let mut ring = StarForest::new([(vec![0..1], vec![3..4]), (vec![4..5], vec![1..2])]);
    /// let mut array = ArrayBuffer::from_array_with(ndarray::array![0, 0, 0, 0, 0], partition)?;
    ///
    /// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
    /// let stream = device.default_stream();
    /// array.on_stale_ghosts(&stream, move |exchange| exchange.run(&mut ring))?;
    /// array.write_host()?.assign(&ndarray::array![0, 1, 2, 3, 0]);
    /// assert_eq!(array.read_host()?.to_vec(), [3, 1, 2, 3, 1]);
    /// assert_eq!(array.transfers().refreshes()[0].count, 1);
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// While one thread refreshes, others that need the exchange wait. `refresh` may use the array, but must not need
    /// its stale ghosts: on the same thread, such an access is refused with `Conflict`; if it waits for another thread
    /// with such an access, both wait for ever.
    ///
    /// A refresh changes all ghosts, or none. Parts that were [split](Self::split) off are not refreshed, since guards
    /// on others may exist: read the array, or [prefetch](Self::prefetch) it, before.
    /// [`freeze`](Self::freeze) and [`refuse_stale_ghosts`](Self::refuse_stale_ghosts) end this; another call replaces
    /// `refresh`. A [duplicate](Self::duplicate) has no `refresh`.
    ///
    /// # Ranks
    ///
    /// If the ranks of a program exchange, then a refresh is a collective call, and so is every call that makes ghosts
    /// stale: this one, [`mark_stale`](Self::mark_stale), and each call that writes through `&mut ArrayBuffer`. All
    /// ranks make the same ones in the same order. Each counts as a write, even if its guard wrote nothing, except
    /// accumulations with [`Reduce::Replace`](crate::Reduce::Replace): all ranks write in these, or none. A rank writes
    /// alone with [`write_local`](Self::write_local). If ranks differ in these calls, their
    /// [`InFlight::sequence`] differs.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a device or a stream too many. `InvalidArgument` for a stream that is capturing.
    ///
    /// # Errors of accesses
    ///
    /// An access whose refresh fails returns the error, which names the part, the device and the access. If the exchange
    /// has read and written nothing, the parts are as before, and the next access tries again. Otherwise it has failed:
    /// see [`InFlight::finish`]. `Conflict` if `refresh` replaced the exchange by one of another array. A failed
    /// broadcast poisons the ghosts: after the next write of owned values, or after [`mark_stale`](Self::mark_stale),
    /// they are refreshed again. A failed reduction poisons the owned values, too, which must be written again.
    /// `Conflict` if some ghosts are valid and others stale. `Poisoned` if a ghost part is. `LimitExceeded` under a [`TransferBudget`](crate::TransferBudget) that
    /// forbids refreshes. These change nothing.
    pub fn on_stale_ghosts(
        &mut self,
        stream: &Stream,
        mut refresh: impl FnMut(&mut InFlight<'_, T, D>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.exclusive().forget_idle_if_crowded()?;
        self.exclusive().register(
            stream,
            Box::new(move |core, stream, exchange, call_site| {
                let mut flight = InFlight::begin(core, stream, exchange, call_site)?;
                refresh(&mut flight)?;
                // Otherwise the access would begin the next refresh, without end.
                if !flight.is_of(core) {
                    let message = "`refresh` replaced the exchange by one of another array";
                    return Err(Error::new(ErrorKind::Conflict, "refresh", message));
                }
                flight.finish()
            }),
        )
    }

    /// Ends what [`on_stale_ghosts`](Self::on_stale_ghosts) began: accesses that need an exchange are refused again.
    pub fn refuse_stale_ghosts(&mut self) {
        self.exclusive().unregister();
    }

    /// Marks all ghosts as stale. If the array is [refreshed](Self::on_stale_ghosts), all ranks call this after a
    /// [`write_local`](Self::write_local) of any rank. Poisoned ghosts become stale, too. Contributions stay pending.
    pub fn mark_stale(&mut self) {
        self.exclusive().outdate();
    }

    /// Lends owned parts to `f`, for writes that other ranks do not make. Before ghosts are refreshed again, all ranks
    /// must call [`mark_stale`](Self::mark_stale), or complete a [broadcast](Self::begin_exchange): until then, this rank
    /// refuses it as `Stale`, unless `f` began no write.
    ///
    /// ```
    /// # use array_buffer::{ArrayBuffer, Partition};
    /// # let partition = Partition::with_ghosts(&[5], &[(1, 1)])?;
    /// # let mut array = ArrayBuffer::from_array_with(ndarray::Array1::<f64>::zeros(5), partition)?;
    /// # let rank = 0;
    /// let own = array.partition().owned();
    /// if rank == 0 {
    ///     array.write_local(own, |part| {
    ///         part.read_write_host()?[0] = 1.0;
    ///         Ok(())
    ///     })?;
    /// }
    /// array.mark_stale(); // on all ranks
    /// # Ok::<(), array_buffer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for parts that are not owned. `Stale` if a reduction is pending. The error of `f`.
    #[track_caller]
    pub fn write_local<R>(
        &mut self,
        parts: Parts,
        f: impl FnOnce(&mut PartMut<'_, T, D>) -> Result<R>,
    ) -> Result<R> {
        let owned = self.partition().owned();
        if !parts.are_in(owned.set) {
            let message = format!("{parts:?} are not all owned; {owned:?} are");
            return Err(Error::new(ErrorKind::InvalidArgument, "write_local", message));
        }
        if let Some(op) = self.core.pending() {
            let message = format!("a {op} reduction is pending; read the array before");
            return Err(Error::new(ErrorKind::Stale, "write_local", message));
        }
        let [mut part] = self.split([parts])?;
        // It ends even if `f` panics.
        let _write = LocalWrite::begin(part.core, Location::caller());
        f(&mut part)
    }
}

/// Writes that other ranks do not make.
struct LocalWrite<'b, T: Element, D> {
    core: &'b Core<T, D>,
    call_site: CallSite,
    version: u64,
    status: Vec<PartStatus>,
}

impl<'b, T: Element, D> LocalWrite<'b, T, D> {
    fn begin(core: &'b Core<T, D>, call_site: CallSite) -> Self {
        Self { core, call_site, version: core.version(), status: Self::status(core) }
    }

    fn status(core: &Core<T, D>) -> Vec<PartStatus> {
        (0..core.partition.count()).map(|part| core.status(part)).collect()
    }
}

impl<T: Element, D> Drop for LocalWrite<'_, T, D> {
    fn drop(&mut self) {
        // A write that began has committed, or has left a part lost or in use.
        if self.core.version() != self.version || Self::status(self.core) != self.status {
            self.core.set_local(Some(self.call_site));
        }
        self.core.exclude_since(self.version);
    }
}
