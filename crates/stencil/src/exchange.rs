//! Exchanges of stale ghosts: all fields of a launch in one message for each neighbour.
#![expect(unsafe_code, reason = "lends an exchange a view of more than it writes")]

use std::cell::Cell;
use std::mem;
use std::sync::Arc;

use array_buffer::Parts;
use halo::{HaloExchange, HaloOptions, MissingCorners, Quantity, Reach};
use runtime_core::{AnyView, Error, ErrorKind, Result, Slot, Stream};
use smallvec::SmallVec;

use crate::argument::Argument;
use crate::domain::Domain;
use crate::erased::{Any, Exclusive, Flights, map, with};
use crate::exchanges::Kind;
use crate::field::{Core, End, Location};
use crate::shape::{Ends, Need};

/// A field with stale ghosts, and the ghosts that are needed.
pub(crate) struct Stale<'s, 'a> {
    pub(crate) argument: &'s Argument<'a>,
    pub(crate) need: Need,
    /// The ends beyond which it reads ghosts that a stencil has computed.
    pub(crate) computed: Ends,
}

impl Stale<'_, '_> {
    fn kind(&self, grid: &Domain) -> Kind {
        let core = self.argument.core;
        // Only between tiles do the axes of neighbours differ.
        let component = core.component.filter(|_| grid.tiles > 1);
        Kind::new(&core.shape, self.need, component.map(|component| component.axis))
    }
}

/// Whether ghosts come from blocks, of other ranks or the same one.
fn comes_from_blocks(grid: &Domain, stale: &[Stale<'_, '_>]) -> bool {
    let joined = |axis: usize| grid.is_joined(axis);
    let from = |need: &Need| (0..grid.rank).any(|axis| joined(axis) && need.widths[axis] != [0, 0]);
    stale.iter().any(|stale| from(&stale.need))
}

/// Fills ghosts: those that other ranks own, and those beyond the ends of the grid. If ghosts come in messages, it
/// calls `work` once with the own values of the fields, while they are in transit. Collective.
#[track_caller]
pub(crate) fn refresh(
    grid: &Domain,
    stale: &[Stale<'_, '_>],
    stream: &Stream,
    work: &mut dyn FnMut(&[AnyView<'_>]) -> Result<()>,
) -> Result<()> {
    let mut arrays: SmallVec<[Any<Exclusive<'_>>; 4]> = SmallVec::new();
    for stale in stale {
        arrays.push(stale.argument.exclusive()?);
    }
    // Some of the ghosts may have been set, and others not.
    let failed = OnDrop(|| stale.iter().for_each(|stale| stale.argument.core.set_stale()));
    fill_all(grid, stale, &mut arrays, stream, work)?;
    mem::forget(failed);
    Ok(())
}

/// Calls a function when it is dropped, also by a panic of the program's code.
pub(crate) struct OnDrop<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[track_caller]
fn fill_all(
    grid: &Domain,
    stale: &[Stale<'_, '_>],
    arrays: &mut [Any<Exclusive<'_>>],
    stream: &Stream,
    work: &mut dyn FnMut(&[AnyView<'_>]) -> Result<()>,
) -> Result<()> {
    let resets = grid.state().resets;
    let mut flights: SmallVec<[Any<Flights<'_>>; 4]> = SmallVec::new();
    for (array, stale) in arrays.iter_mut().zip(stale) {
        let core = stale.argument.core;
        flights.push(begin(core, array, stream)?);
        // The beginning has found out whether any were lost.
        End::marked(&stale.computed).try_for_each(|end| core.check_computed(end, resets))?;
    }
    // Without corners, ghosts beyond the ends depend on own values alone.
    for (flight, stale) in flights.iter_mut().zip(stale).filter(|(_, stale)| !stale.need.corners) {
        fill(flight, stale, stream)?;
    }
    let is_of_work = Cell::new(false);
    let mut work = |owned: &[AnyView<'_>]| work(owned).inspect_err(|_| is_of_work.set(true));
    exchange(grid, stale, &mut flights, stream, &mut work).map_err(|error| {
        if is_of_work.get() {
            return error;
        }
        let names: Vec<&str> = stale.iter().map(|stale| &*stale.argument.core.name).collect();
        error.about(format_args!("ghosts of {}", names.join(", ")))
    })?;
    let resets = grid.state().resets;
    for (flight, stale) in flights.iter_mut().zip(stale).filter(|(_, stale)| stale.need.corners) {
        fill(flight, stale, stream)?;
    }
    for (flight, stale) in flights.into_iter().zip(stale) {
        with!(flight, flight => flight.finish())
            .map_err(|error| stale.argument.core.about(error))?;
        stale.argument.core.set_fresh(stale.need, resets);
    }
    Ok(())
}

/// Begins to set ghosts of a field. Those that are not set keep their values. If some were lost, all are stale.
#[track_caller]
pub(crate) fn begin<'a>(
    core: &Core,
    array: &'a mut Any<Exclusive<'_>>,
    stream: &'a Stream,
) -> Result<Any<Flights<'a>>> {
    let about = |error| core.about(error);
    Ok(map!(array, array => {
        // SAFETY: a launch reads ghosts only where they were set: the field remembers which have current values, and
        // forgets that of all if any were lost.
        let (flight, lost) = unsafe { array.begin_partial_broadcast(stream) }.map_err(about)?;
        if lost != Parts::NONE {
            core.set_stale();
        }
        flight
    }))
}

/// Exchanges ghosts with other ranks, or with the same rank across periodic ends.
fn exchange(
    grid: &Domain,
    stale: &[Stale<'_, '_>],
    flights: &mut [Any<Flights<'_>>],
    stream: &Stream,
    work: &mut dyn FnMut(&[AnyView<'_>]) -> Result<()>,
) -> Result<()> {
    if !comes_from_blocks(grid, stale) {
        return Ok(());
    }
    let Some(exchanging) = grid.exchanging.try_lock_for(grid.timeout) else {
        let message = format!("another thread's exchange on the grid took {:?}", grid.timeout);
        return Err(Error::new(ErrorKind::Timeout, "run", message));
    };
    if exchanging.replace(true) {
        let message = "a launch that needs an exchange, in the work of another one";
        return Err(Error::new(ErrorKind::Conflict, "run", message));
    }
    let _end = OnDrop(|| exchanging.set(false));
    if grid.tiles > 1 {
        stale.iter().try_for_each(|stale| check_sphere(stale.argument.core))?;
    }
    let kinds = stale.iter().map(|stale| stale.kind(grid));
    let mut state = grid.state();
    let resets = state.resets;
    let made = state.exchanges.take(kinds, |channel| make(grid, stale, channel));
    let mut made = made.map_err(|error| differ(error, false))?;
    drop(state);
    let mut fields: SmallVec<[halo::Field<'_>; 4]> = SmallVec::new();
    for flight in flights {
        fields.push(with!(flight, flight => {
            let ghosts = flight.partition().ghosts();
            // SAFETY: a halo exchange reads own values, and writes no others than ghosts.
            let (owned, whole) = unsafe { flight.whole(ghosts)? };
            halo::Field::split(owned, whole)?
        }));
    }
    let is_direct = made.exchange.is_direct();
    let exchanged = made.exchange.overlap(stream, &mut fields, |progress| {
        if is_direct {
            // The device copies once the neighbours have called, so more launches would only cost time.
            return Ok(());
        }
        let mut owned: SmallVec<[AnyView<'_>; 4]> = SmallVec::new();
        for field in 0..stale.len() {
            owned.push(progress.owned(field)?);
        }
        work(&owned)?;
        drop(owned);
        progress.poll().map(|_| ())
    });
    let mut state = grid.state();
    if state.resets == resets {
        state.exchanges.put_back(made);
    }
    exchanged.map_err(|error| differ(error, true))
}

/// Refuses faces of a cubed sphere alone: between tiles whose axes are turned, those across one axis become those
/// across the other.
fn check_sphere(core: &Core) -> Result<()> {
    if matches!(core.location, Location::Face(_)) && core.component.is_none() {
        let message = format!(
            "field {} is at {:?} of a cubed sphere: its ghosts come from fields across both axes, which `Grid::vector` makes",
            core.name, core.location
        );
        return Err(Error::new(ErrorKind::InvalidArgument, "run", message));
    }
    Ok(())
}

/// Adds to an error what ranks have done that leads to it, before an exchange was made or after that.
fn differ(error: Error, is_made: bool) -> Error {
    match error.kind() {
        ErrorKind::Conflict if !is_made => error,
        ErrorKind::InvalidArgument | ErrorKind::Conflict => error.about(
            "since the last exchange, ranks have made launches of different stencils, or with fields of different names, scalars or points; or a rank has failed",
        ),
        ErrorKind::Timeout => error.about("all ranks set the same fields and make the same launches"),
        _ => error,
    }
}

/// Fills ghosts beyond the ends of the grid.
fn fill(flight: &mut Any<Flights<'_>>, stale: &Stale<'_, '_>, stream: &Stream) -> Result<()> {
    let Argument { core, boundaries, .. } = stale.argument;
    core.with_filling(&stale.need, |filling| {
        for step in filling.steps() {
            with!(&mut *flight, flight => {
                let ghosts = flight.partition().ghosts();
                // SAFETY: the copies read own values and ghosts, and write ghosts.
                let (owned, whole) = unsafe { flight.whole(ghosts)? };
                let field = Slot::Both { read: owned.erase(), write: whole.erase() };
                if step.slots().len() > 1 {
                    let mut field = Some(field);
                    boundaries.lend(stream, &mut |constants| match field.take() {
                        Some(field) => step.execute(stream, &mut [field, Slot::Read(constants.view())]),
                        None => Ok(()),
                    })
                } else {
                    step.execute(stream, &mut [field])
                }
            })?;
        }
        Ok(())
    })
}

/// Makes the exchange of these fields. Collective.
fn make(grid: &Domain, stale: &[Stale<'_, '_>], channel: u32) -> Result<HaloExchange> {
    let corners = stale.iter().any(|stale| stale.need.corners);
    let spec = |number: usize| {
        let Stale { argument, need, .. } = &stale[number];
        argument.core.shape.spec(&number.to_string(), &need.widths)
    };
    let mut quantities = Vec::new();
    let mut number = 0;
    while number < stale.len() {
        let core = stale[number].argument.core;
        let is_vector = grid.tiles > 1 && core.component.is_some();
        quantities.push(match is_vector {
            true => Quantity::vector(spec(number)?, spec(number + 1)?)?,
            false => Quantity::scalar(spec(number)?),
        });
        number += if is_vector { 2 } else { 1 };
    }
    let options = HaloOptions {
        reach: if corners { Reach::Full } else { Reach::Faces },
        // A cubed sphere has eight corners without a cell.
        missing_corners: match corners && grid.tiles > 1 {
            true => MissingCorners::Average,
            false => MissingCorners::Untouched,
        },
        timeout: grid.timeout,
        channel,
        ..Default::default()
    };
    let communicator = Arc::clone(&grid.communicator);
    HaloExchange::new(communicator, &grid.topology, &quantities, &grid.device, &options)
}
