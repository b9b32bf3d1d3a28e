//! Exchanges that complete within one call, with or without concurrent work of the program.

use std::cell::Cell;
use std::fmt;

use runtime_core::{AnyView, Error, Result, Stream};
use smallvec::SmallVec;

use super::HaloExchange;
use super::messenger::{InFlight, State};
use crate::communicator::{LentViews, Loan, LoanSession};
use crate::engine::Engine;
use crate::engine::direct::{DirectRoute, Divided};
use crate::engine::route::Direction;
use crate::engine::statistics::{Moved, Part};
use crate::field::{Field, end_writes, footprints};
use crate::plan::transfer::refuse;

/// Up to this number of fields, the lists need no allocation.
const FEW: usize = 4;

impl HaloExchange {
    /// Fills the halos. Work enqueued on the stream from then on sees them, and may change the owned values.
    ///
    /// Blocks until the neighbours have joined the exchange, and, if it uses messages, until these have arrived. Does
    /// not wait until the device has copied, if the device copies regions itself.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start) and [`finish`](InFlight::finish). `Conflict` if ranks read each other's fields,
    /// and a neighbour called another method for this exchange.
    pub fn exchange(&mut self, stream: &Stream, fields: &mut [Field<'_>]) -> Result<()> {
        self.overlap(stream, fields, |_| Ok(()))
    }

    /// Fills the halos while `work` runs, and returns the result of `work`. Otherwise as [`exchange`](Self::exchange).
    ///
    /// `work` computes the part that needs no ghosts, and enqueues it on any stream.
    /// [`interior_and_rim`](crate::interior_and_rim) determines that part, and `work` may read [`Progress::owned`]. It
    /// may take longer than the timeout of this rank, but neighbours that are done wait until it
    /// [polls](Progress::poll). If `work` fails, the exchange is still completed, unless `work` took a failure of
    /// `stream`. If `work` panics, the exchange has failed on this rank, and other ranks get an error unless they no
    /// longer need this rank.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use backend_host::HostDevice;
    /// # use halo::communicator::ThreadCommunicator;
    /// # use halo::{Dim, FieldSpec, HaloExchange, HaloOptions, Quantity, Topology, interior_and_rim};
    /// # use runtime_core::{DType, Device, Grid, HostModule, Launch, args};
    /// # let device = Device::new(HostDevice::new(0))?;
    /// # let stream = device.default_stream();
    /// # let topology = Topology::cartesian(&[4, 3], &[1, 1], &[true, true])?;
    /// # let [ranks] = ThreadCommunicator::group(1)?.try_into().unwrap();
    /// // Three rows of four cells, with one ghost cell on every side.
    /// let field = FieldSpec::new("f", DType::F64, &[Dim::axis(1, 3).halo(1, 1), Dim::axis(0, 4).halo(1, 1)])?;
    /// # let options = HaloOptions::default();
    /// # let mut halo = HaloExchange::new(Arc::new(ranks), &topology, &[Quantity::scalar(field)], &device, &options)?;
    /// // Cells whose neighbours are all owned. Indices start at the first owned cell, as in `owned`.
    /// let step = interior_and_rim(&[0..3, 0..4], &[(1, 1), (1, 1)]);
    /// assert_eq!(step.interior, [1..2, 1..3]);
    ///
    /// fn sums(_: &Grid<'_>, sums: &mut [f64], owned: &[f64], pitch: u64) {
    ///     let pitch = pitch as usize;
    ///     for (sum, at) in sums.iter_mut().zip(pitch + 1..) {
    ///         *sum = owned[at - 1] + owned[at + 1] + owned[at - pitch] + owned[at + pitch];
    ///     }
    /// }
    /// let module = device.module_load(&HostModule::new().with("sums", sums))?;
    /// let kernel = module.kernel("sums")?;
    /// let mut interior = device.memory_allocate::<f64>(2)?;
    ///
    /// let values: Vec<f64> = (0..30).map(f64::from).collect();
    /// let mut values = device.memory_from_slice(&stream, &values)?;
    /// let fields = &mut [values.view_mut().reshape(&[5, 6])?.into()];
    /// halo.overlap(&stream, fields, |progress| {
    ///     let owned = progress.owned(0)?;
    ///     let pitch = owned.layout().strides()[0] as u64;
    ///     // SAFETY: the kernel is safe Rust, and reads no ghosts.
    ///     unsafe { kernel.launch(&stream, &Launch::cover(1, 1), args![interior.view_mut(), owned.span()?, pitch]) }?;
    ///     // Poll between launches, so that messages make progress.
    ///     progress.poll()
    /// })?;
    /// // Other launches then compute the rim: four boxes.
    /// assert_eq!(step.rim.len(), 4);
    /// assert_eq!(interior.to_vec(&stream)?, [4.0 * 14.0, 4.0 * 15.0]);
    /// assert_eq!(values.to_vec(&stream)?[6..12], [10.0, 7.0, 8.0, 9.0, 10.0, 7.0]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`exchange`](Self::exchange), and the error of `work`. If polling failed, the first error that it
    /// returned, whatever `work` does with it.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics.
    pub fn overlap<R>(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        work: impl FnOnce(&mut Progress<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        if self.direct.is_some() {
            let failures = stream.failures();
            let result = self.read(stream, fields, work)?;
            self.messenger.engine.average_corners(stream, fields)?;
            self.messenger.engine.check_since(stream, failures)?;
            end_writes(fields);
            self.messenger.state = State::Idle;
            return result;
        }
        let mut progress = Progress::new(Path::Messages(self.start(stream, fields)?));
        let result = work(&mut progress);
        progress.finish()?;
        result
    }

    /// Runs the exchange by copies from the neighbours' owned values. Returns the result of `work`. The writes of the
    /// fields have begun then, and not ended, and the state is `Broken`.
    fn read<R>(
        &mut self,
        stream: &Stream,
        fields: &mut [Field<'_>],
        work: impl FnOnce(&mut Progress<'_, '_>) -> Result<R>,
    ) -> Result<Result<R>> {
        self.messenger.check(Direction::Fill, stream, fields)?;
        if let Some(route) = &mut self.direct {
            route.use_stream(stream)?;
            route.begin_writes(fields);
        }
        let elements = footprints(fields);
        let target = Target { fields, has_copied: Cell::new(false) };
        let specs = self.messenger.engine.specs();
        let mut divided: SmallVec<[Divided<'_>; FEW]> = SmallVec::new();
        for (field, spec) in target.fields.iter_mut().zip(specs) {
            divided.push(field.divide(spec)?);
        }
        // From here on other ranks are affected.
        self.messenger.state = State::Broken;
        self.messenger.channel.begin(elements, &self.messenger.engine)?;
        let (Some(route), Some(direct)) = (&self.direct, self.messenger.channel.direct()) else {
            return Err(refuse("ranks share no memory any more".to_owned()));
        };
        let views: SmallVec<[AnyView<'_>; FEW]> = divided.iter().map(|(view, _)| *view).collect();
        let loan = Loan {
            tag: self.messenger.channel.exchange_id(0),
            peers: &route.peers,
            views: &views,
            events: &route.events,
            timeout: self.messenger.engine.settings.timeout,
        };
        let check = || self.messenger.channel.check_claims();
        let result = direct
            .called("exchange")
            .checked(&check)
            .with_token(self.messenger.channel.token)
            .lend(&loan, |session| {
                let (own, has_copied) = (&mut divided[..], &target.has_copied);
                let read = DirectRead {
                    route,
                    session,
                    stream,
                    own,
                    has_copied,
                    engine: &self.messenger.engine,
                };
                let mut progress = Progress::new(Path::Direct(read));
                let result = work(&mut progress);
                progress.finish().map(|()| result)
            });
        result.map_err(|error| self.messenger.channel.failed(error))
    }
}

/// The state of an exchange that is in progress while the program works.
pub struct Progress<'a, 'f> {
    path: Path<'a, 'f>,
    /// Why the exchange failed, if `poll` returned an error.
    failure: Option<Error>,
}

enum Path<'a, 'f> {
    Messages(InFlight<'a, 'f>),
    Direct(DirectRead<'a, 'f>),
}

/// The fields to which an exchange copies. Their writes have begun.
struct Target<'a, 'f> {
    fields: &'a mut [Field<'f>],
    has_copied: Cell<bool>,
}

impl Drop for Target<'_, '_> {
    fn drop(&mut self) {
        if !self.has_copied.get() {
            // The values are as before, or the failure of the copies was reported.
            end_writes(self.fields);
        }
    }
}

/// An exchange of ranks that read each other's fields.
struct DirectRead<'a, 'f> {
    route: &'a DirectRoute,
    session: &'a LoanSession<'a>,
    stream: &'a Stream,
    own: &'a mut [Divided<'f>],
    has_copied: &'a Cell<bool>,
    engine: &'a Engine,
}

impl DirectRead<'_, '_> {
    fn poll(&mut self) -> Result<bool> {
        let session = self.session;
        session.try_read(|views| self.copy(views))
    }

    fn finish(&mut self) -> Result<()> {
        let session = self.session;
        session.read(|views| self.copy(views))
    }

    fn copy(&mut self, views: &[LentViews<'_>]) -> Result<()> {
        let Self { route, stream, own, has_copied, engine, .. } = self;
        let mut recorder = engine.recorder();
        let copy = || route.execute(stream, own, views).inspect(|_| has_copied.set(true));
        recorder.measure(Part::Copy, stream, copy)?;
        for (rank, bytes) in &route.copied {
            recorder.moved(*rank, Moved::Copied, *bytes);
        }
        Ok(())
    }
}

impl<'a, 'f> Progress<'a, 'f> {
    fn new(path: Path<'a, 'f>) -> Self {
        Self { path, failure: None }
    }

    /// Blocks until the exchange is complete. After a failure nothing more can be done, and the failure is returned.
    fn finish(self) -> Result<()> {
        match (self.failure, self.path) {
            (Some(failure), _) => Err(failure),
            (None, Path::Messages(flight)) => flight.finish(),
            (None, Path::Direct(mut read)) => read.finish(),
        }
    }

    /// Advances the exchange as far as possible. Returns whether it is complete: work enqueued on its stream from now
    /// on then sees the halos. Blocks only where [`InFlight::poll`] does.
    ///
    /// # Errors
    ///
    /// As for [`InFlight::poll`]. Later calls return the same error again.
    pub fn poll(&mut self) -> Result<bool> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let polled = match &mut self.path {
            Path::Messages(flight) => flight.poll(),
            Path::Direct(read) => read.poll(),
        };
        polled.inspect_err(|error| self.failure = Some(error.clone()))
    }

    /// Returns the values of a field that the rank owns: the box without ghosts. `field` is its number in the exchange.
    ///
    /// Indices start at the first owned element, whereas those of [`Dim::owned`](crate::Dim::owned) start at the first
    /// element of the memory. If there are ghosts at the ends of its rows, the box has gaps: pass its
    /// [`span`](runtime_core::MemoryView::span) to kernels that are Rust functions.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no such field.
    pub fn owned(&self, field: usize) -> Result<AnyView<'_>> {
        let (view, fields) = match &self.path {
            Path::Messages(flight) => (flight.owned(field), flight.fields.len()),
            Path::Direct(read) => (read.own.get(field).map(|(view, _)| Ok(*view)), read.own.len()),
        };
        let absent = || Err(refuse(format!("field {field} of an exchange of {fields} fields")));
        view.unwrap_or_else(absent)
    }
}

impl fmt::Debug for Progress<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Path::Messages(flight) => flight.fmt(f),
            Path::Direct(read) => read.session.fmt(f),
        }
    }
}
