//! Launches of stencils: checks, exchanges of what is stale, and the kernels.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::mem;
use std::ops::{Bound, Range, RangeBounds};
use std::panic::Location;
use std::ptr;
use std::slice;
use std::sync::Arc;

use array_buffer::PartStatus;
use halo::interior_and_rim;
use runtime_core::{AnyView, Arg, Error, ErrorKind, MemoryViewMut, Result, Stream};
use smallvec::SmallVec;

use crate::argument::Argument;
use crate::arguments::Words;
use crate::boundary::Rule;
use crate::column;
use crate::description::{ColumnParts, FieldParts, Intent, Stencil};
use crate::domain::{Domain, State};
use crate::erased::{Any, Borrowed, Exclusive, Flights, Number, Owned, Reads, Writes, map, with};
use crate::exchange::{OnDrop, Stale, begin, refresh};
use crate::field::{Core, End, Field, OWN, own};
use crate::generated::Scalar;
use crate::geometry::{geometry, pieces};
use crate::hash::hash_of_numbers;
use crate::need::{Target, reach, reads};
use crate::shape::Ends;

/// The number of fields for which a launch allocates nothing, if no ghosts are stale.
const FEW: usize = 8;

/// A stencil with its fields and scalars: what the function of a stencil returns. [`run`](Self::run) enqueues it.
///
/// A launch is collective: all ranks make the same launches in the same order. Before it reads ghosts, it fills those
/// that are stale: values of other ranks, all in one message for each neighbour, and values beyond the ends of the
/// grid. It computes the points that need no ghosts while messages are in transit. Ranks that are threads with one
/// device usually read each other's fields without messages, and compute all points at once. Nothing is exchanged if
/// nothing is stale.
#[must_use = "a launch does nothing until `run`"]
pub struct Launch<'a> {
    /// `None` for a kernel that is brought along.
    stencil: Option<&'static Stencil>,
    known: &'a [FieldParts],
    arguments: SmallVec<[Argument<'a>; FEW]>,
    words: Words,
    /// Whether the scalars are those of the stencil.
    has_scalars: bool,
    inside: usize,
    /// Axes, and the points along them.
    over: SmallVec<[(usize, usize, Option<usize>); 3]>,
    /// The end beyond which it computes ghosts, instead of points.
    on: Option<End>,
    /// Whether a point that several ranks have is computed by one of them alone. Outputs are overwritten as a whole.
    once: bool,
}

/// Makes a launch.
#[doc(hidden)]
pub fn launch<'a, const F: usize>(
    stencil: &'static Stencil,
    arguments: [Argument<'a>; F],
    scalars: &[Scalar],
) -> Launch<'a> {
    let parts = stencil.parts();
    let sizes = scalars.iter().map(|scalar| scalar.size);
    let has_scalars = sizes.eq(parts.scalars.iter().map(|(_, size)| *size));
    let words = Words::new(parts, if has_scalars { scalars } else { &[] });
    let arguments = SmallVec::from_iter(arguments);
    let over = SmallVec::new();
    let (stencil, known) = (Some(stencil), parts.fields);
    Launch { stencil, known, arguments, words, has_scalars, inside: 0, over, on: None, once: false }
}

/// The arguments of a kernel for a box: the memories of its fields, and where the box is.
pub(crate) type Act<'f> =
    dyn for<'x> FnMut(&mut Args<'x>, &'x Words, &'x [usize]) -> Result<()> + 'f;

/// The arguments of one launch of a kernel.
pub(crate) type Args<'x> = SmallVec<[Arg<'x>; 16]>;

/// A box of points, along each axis.
type Points = [Range<usize>; 3];

/// What a launch computes.
pub(crate) struct Computed {
    /// The points, counted from the rank's first point.
    pub(crate) local: Points,
    /// Whether no rank has a point to compute.
    pub(crate) is_nothing: bool,
}

/// What a launch needs, after it was checked.
struct Checked<'s, 'a> {
    /// The points to compute, counted from the rank's first point, or from the lowest ghost.
    local: Points,
    /// Along each axis, where the counting begins: 0, or the place of the lowest ghost.
    shift: [isize; 3],
    /// Whether these are all points of the rank.
    is_whole: bool,
    /// Whether all ranks together compute all points.
    covers: bool,
    /// Whether no rank has a point to compute.
    is_nothing: bool,
    /// What ranks compare, if there are several.
    hash: Option<u64>,
    stale: Vec<Stale<'s, 'a>>,
    /// For each argument, its number among the stale fields, and whether it reads ghosts.
    uses: SmallVec<[(Option<usize>, bool); FEW]>,
}

impl<'a> Launch<'a> {
    /// Leaves out the points that are fewer than `distance` away from an end of the grid. The outputs keep their values
    /// there. If the grid has no other points, the launch computes nothing.
    pub fn inside(self, distance: usize) -> Self {
        Self { inside: distance, ..self }
    }

    /// Computes only the points with these indices along an axis, counted over all ranks. The outputs keep their values
    /// elsewhere. May be called for several axes. For the same axis again, it takes the points that both have.
    ///
    /// ```
    /// # use stencil::{Boundary, Grid, Out, Result, stencil};
    /// #[stencil]
    /// fn set(t: Out<f64, 2>, value: f64) {
    ///     t.set(value);
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let device = runtime_core::Device::new(backend_host::HostDevice::new(0))?;
    /// let grid = Grid::cartesian([3, 4]).build(&device)?;
    /// let mut t = grid.field("T").filled(0.0)?;
    /// set(&mut t, 1.0).over(0, ..2).over(1, 3..).run(&device.default_stream())?;
    /// let expected = [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0; 4]];
    /// assert!(t.read_host()?.iter().eq(expected.as_flattened()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn over(mut self, axis: usize, points: impl RangeBounds<usize>) -> Self {
        let start = match points.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match points.end_bound() {
            Bound::Included(last) => Some(last.saturating_add(1)),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => None,
        };
        self.over.push((axis, start, end));
        self
    }

    /// Computes the ghosts of the outputs beyond an end of the grid, and nothing else: all layers of the
    /// [halo](crate::GridBuilder::halo). The outputs have [`Boundary::Computed`](crate::Boundary::Computed) there. So a
    /// boundary may depend on the place, on time, and on the values within. [`inside`](Self::inside) and
    /// [`over`](Self::over) do not apply.
    ///
    /// ```
    /// use std::mem::swap;
    ///
    /// use stencil::{Boundary, End, Grid, In, Out, Result, column, stencil};
    ///
    /// #[stencil]
    /// fn diffuse(next: Out<f64, 1>, t: In<f64, 1>) {
    ///     next.set(t.at(0) + 0.25 * (t.at(-1) - 2.0 * t.at(0) + t.at(1)));
    /// }
    ///
    /// /// Heat flows out in proportion to the temperature (Robin).
    /// #[column(backward, ghosts)]
    /// fn cool(t: Out<f64, 1>, keep: f64) {
    ///     t.set(keep * t.at(1));
    /// }
    ///
    /// /// The temperature beyond the end changes with time.
    /// #[stencil]
    /// fn heat(t: Out<f64, 1>, temperature: f64) {
    ///     t.set(temperature);
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let device = runtime_core::Device::new(backend_host::HostDevice::new(0))?;
    /// # let stream = device.default_stream();
    /// let grid = Grid::cartesian([50]).build(&device)?;
    /// let mut t = grid.field("T").boundary(Boundary::Computed).filled(1.0)?;
    /// let mut next = t.like("next")?;
    /// for step in 0..100 {
    ///     cool(&mut t, 0.5).on(End::Low(0)).run(&stream)?;
    ///     heat(&mut t, (0.1 * step as f64).sin()).on(End::High(0)).run(&stream)?;
    ///     diffuse(&mut next, &t).run(&stream)?;
    ///     swap(&mut t, &mut next);
    /// }
    /// # assert!(t.read_host()?.iter().all(|t| (-1.0..1.0).contains(t)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// All ranks make the launch, also those that have no such end.
    ///
    /// Inputs are read around each ghost. So `profile.at(0, 0)` is a ghost of the input, which needs a boundary there,
    /// too. In the stencil, `index(axis)` is negative beyond a low end, -1 next to it.
    ///
    /// A [column](crate#columns) with the option `ghosts` also reads the output within, as `t.at(1)` in the example. It
    /// goes outwards: `backward` at a low end, `forward` at a high one. Its first point is the first ghost. The
    /// previous point of that is the field's last own point, which is the face at the end if the field is on faces. A
    /// boundary that depends on more points within reads them of a copy of the field, as an input.
    ///
    /// A launch that reads the ghosts gets an error if the field has changed since they were computed. It also gets one
    /// if it reads the ghosts at corners beside them: none are computed there.
    pub fn on(self, end: End) -> Self {
        Self { on: Some(end), ..self }
    }

    /// Enqueues the launch on a stream of the grid's device.
    ///
    /// The host waits for messages of other ranks, and for nothing else, unless a field is copied from or to the host,
    /// or a kernel is compiled for the first time.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the fields are of different grids or the outputs at different locations, if a column goes
    /// along an axis that is divided among ranks or that has no ends, if the stencil reads farther than the halo, if it
    /// reads beyond an end of the grid where a field has no boundary, or if it cannot be launched [`on`](Self::on) an
    /// end; `Stale` if it reads ghosts that a stencil must compute before. No rank has enqueued anything then.
    /// `Uninitialized` if a field is read before it was set. `WrongDevice`. `InvalidModule` if the stencil cannot be
    /// compiled. Errors of the exchange: `Timeout`, `PeerLost`, and `InvalidArgument` or
    /// `Conflict` if other ranks make another launch; call [`Grid::reset`](crate::Grid::reset) on all ranks then.
    /// Errors of the device.
    #[track_caller]
    pub fn run(self, stream: &Stream) -> Result<()> {
        let kind = self.stencil.map_or("stencil", Stencil::kind);
        let place = Location::caller();
        self.compute(stream).map(drop).map_err(|error| launched(error, kind, self.name(), place))
    }

    /// A launch of a kernel that is brought along.
    pub(crate) fn brought<const F: usize>(
        rank: usize,
        known: &'a [FieldParts; F],
        arguments: [Argument<'a>; F],
    ) -> Self {
        let words = Words::without_scalars(rank, F);
        let (arguments, over) = (SmallVec::from_iter(arguments), SmallVec::new());
        let has_scalars = true;
        let (stencil, on) = (None, None);
        Launch { stencil, known, arguments, words, has_scalars, inside: 0, over, on, once: false }
    }

    /// The name of the stencil.
    pub(crate) fn name(&self) -> &'static str {
        self.stencil.map_or("sweep", Stencil::name)
    }

    /// How it goes through a grid, if it is a column.
    fn column(&self) -> Option<&'static ColumnParts> {
        self.stencil?.parts().column.as_ref()
    }

    /// What is known of a parameter, for these points.
    fn known(&self, parameter: usize, points: &Points) -> FieldParts {
        let known = &self.known[parameter];
        match self.column() {
            Some(column) => column::known(column, parameter, known, points[column.axis].len()),
            None => *known,
        }
    }

    /// The first field.
    pub(crate) fn first(&self) -> Option<&'a Core> {
        self.arguments.first().map(|argument| argument.core)
    }

    /// The same launch with one more output. It computes each point once.
    pub(crate) fn with_output<'b, T: Number, const N: usize>(
        &'b self,
        output: &'b mut Field<T, N>,
    ) -> Launch<'b> {
        let Self { stencil, known, words, has_scalars, inside, over, on, .. } = self;
        let arguments = self.arguments.iter().map(Argument::again);
        let arguments = arguments.chain([Argument::output(output)]).collect();
        let (words, over) = (words.clone(), over.clone());
        let (stencil, has_scalars, inside, on) = (*stencil, *has_scalars, *inside, *on);
        Launch { stencil, known, arguments, words, has_scalars, inside, over, on, once: true }
    }

    /// Enqueues the launch. Returns what it computes.
    #[track_caller]
    pub(crate) fn compute(&self, stream: &Stream) -> Result<Computed> {
        self.check_signature()?;
        let device = stream.device();
        let loaded = OnceCell::new();
        let load = |state: &mut State| {
            let stencil = self.stencil.ok_or_else(|| refuse("no stencil".to_owned()))?;
            drop(loaded.set(state.kernels.of(device, stencil)?));
            Ok(())
        };
        self.compute_by(stream, load, &mut |args, words, extents| {
            let Some(kernel) = loaded.get() else { return Ok(()) };
            // Kernels of embedded devices take no structs.
            let takes_words = (kernel.parameters())
                .is_some_and(|parameters| parameters.len() > self.arguments.len() + 1);
            if takes_words {
                args.extend(words.words().iter().copied().map(Arg::from));
            } else {
                args.push(Arg::bytes(words.bytes()));
            }
            let along = self.column().map(|column| column.axis);
            let across: SmallVec<[usize; 3]> = (extents.iter().enumerate())
                .filter_map(|(axis, extent)| (Some(axis) != along).then_some(*extent))
                .collect();
            let geometry = geometry(&device.info().limits, &across);
            // SAFETY: the kernel takes these arguments. It writes the points of the box in the outputs, which are no
            // other arguments, and reads inputs at the offsets of its footprint, which lie in their memory.
            unsafe { kernel.launch(stream, &geometry, args) }
        })
    }

    /// Does all of the launch but for its kernels: calls `load` once, and `act` for each box.
    #[track_caller]
    pub(crate) fn compute_by(
        &self,
        stream: &Stream,
        load: impl FnOnce(&mut State) -> Result<()>,
        act: &mut Act<'_>,
    ) -> Result<Computed> {
        let Some(first) = self.arguments.first() else { return Err(refuse("no field".to_owned())) };
        let grid = &first.core.grid;
        let mut state = grid.state();
        let checked = self.check(grid, stream, state.resets)?;
        let is_empty = checked.local.iter().any(Range::is_empty);
        self.check_set(&checked, stream)?;
        if let Some(hash) = checked.hash {
            state.exchanges.begin_launch(hash);
        }
        load(&mut state)?;
        drop(state);
        let has_begun = Cell::new(false);
        let work = Work { launch: self, grid, checked: &checked, stream, has_begun: &has_begun };
        if let Some(end) = self.on {
            self.compute_ghosts(&work, end, is_empty, act)?;
            let Checked { local, is_nothing, .. } = checked;
            return Ok(Computed { local, is_nothing });
        }
        let sets = |argument: &&Argument<'_>| argument.intent != Intent::In && !is_empty;
        let outputs = || self.arguments.iter().filter(sets);
        let mut arrays: SmallVec<[Any<Exclusive<'_>>; FEW]> = SmallVec::new();
        for output in outputs() {
            arrays.push(output.exclusive()?);
        }
        let mut parts: SmallVec<[Any<Owned<'_>>; FEW]> = SmallVec::new();
        for array in &mut arrays {
            parts.push(map!(array, array => {
                let [part] = array.split([own()])?;
                part
            }));
        }
        let mut writes: SmallVec<[Any<Writes<'_>>; FEW]> = SmallVec::new();
        for (part, output) in parts.iter_mut().zip(outputs()) {
            let overwrites = self.overwrites(output, &checked);
            writes.push(map!(part, part => {
                if overwrites { part.write(stream) } else { part.read_write(stream) }
                    .map_err(|error| output.core.about(error))?
            }));
        }
        let done = self.work(&work, &mut writes, is_empty, act);
        for output in self.arguments.iter().filter(|argument| argument.intent != Intent::In) {
            output.core.set_stale();
        }
        for write in writes.drain(..) {
            match &done {
                // Some of the points are computed.
                Err(_) if has_begun.get() => with!(write, write => write.abort()),
                Err(_) => {}
                Ok(()) => with!(write, write => write.commit())?,
            }
        }
        done?;
        let Checked { local, is_nothing, .. } = checked;
        Ok(Computed { local, is_nothing })
    }

    /// Fills ghosts that are stale, and computes the points.
    #[track_caller]
    fn work(
        &self,
        work: &Work<'_, '_, '_>,
        writes: &mut [Any<Writes<'_>>],
        is_empty: bool,
        act: &mut Act<'_>,
    ) -> Result<()> {
        let Work { grid, checked, stream, .. } = *work;
        let mut rest: SmallVec<[Points; 1]> = SmallVec::new();
        rest.push(checked.local.clone());
        if !checked.stale.is_empty() {
            refresh(grid, &checked.stale, stream, &mut |owned| {
                let Some((interior, rim)) = self.split(grid, checked) else { return Ok(()) };
                rest = rim.into_iter().collect();
                work.run(slice::from_ref(&interior), writes, Some(owned), act)
            })?;
        }
        if is_empty { Ok(()) } else { work.run(&rest, writes, None, act) }
    }

    /// Fills ghosts of inputs that are stale, and computes those of the outputs beyond an end.
    #[track_caller]
    fn compute_ghosts(
        &self,
        work: &Work<'_, '_, '_>,
        end: End,
        is_empty: bool,
        act: &mut Act<'_>,
    ) -> Result<()> {
        let Work { grid, checked, stream, .. } = *work;
        if !checked.stale.is_empty() {
            refresh(grid, &checked.stale, stream, &mut |_| Ok(()))?;
        }
        let outputs = || self.arguments.iter().filter(|argument| argument.intent != Intent::In);
        let mut arrays: SmallVec<[Any<Exclusive<'_>>; FEW]> = SmallVec::new();
        for output in outputs() {
            arrays.push(output.exclusive()?);
        }
        // After a failure no ghosts are known.
        let failed = OnDrop(|| outputs().for_each(|output| output.core.set_stale()));
        self.compute_ghosts_of(work, end, is_empty, &mut arrays, act)?;
        mem::forget(failed);
        Ok(())
    }

    #[track_caller]
    fn compute_ghosts_of(
        &self,
        work: &Work<'_, '_, '_>,
        end: End,
        is_empty: bool,
        arrays: &mut [Any<Exclusive<'_>>],
        act: &mut Act<'_>,
    ) -> Result<()> {
        let Work { grid, checked, stream, .. } = *work;
        let outputs = || self.arguments.iter().filter(|argument| argument.intent != Intent::In);
        let mut flights: SmallVec<[Any<Flights<'_>>; FEW]> = SmallVec::new();
        for (array, output) in arrays.iter_mut().zip(outputs()) {
            flights.push(begin(output.core, array, stream)?);
        }
        if !is_empty {
            work.run(slice::from_ref(&checked.local), &mut flights, None, act)?;
        }
        let resets = grid.state().resets;
        for (flight, output) in flights.into_iter().zip(outputs()) {
            with!(flight, flight => flight.finish()).map_err(|error| output.core.about(error))?;
            output.core.set_computed(end, resets);
        }
        Ok(())
    }

    /// Refuses arguments that are not those of the stencil. Only code that no attribute has generated can pass them.
    fn check_signature(&self) -> Result<()> {
        let Some(parts) = self.stencil.map(Stencil::parts) else { return Ok(()) };
        let fits = |(argument, known): (&Argument<'_>, &FieldParts)| {
            let shape = &argument.core.shape;
            (argument.intent, shape.dtype, shape.rank) == (known.intent, known.dtype, parts.rank)
        };
        let is_same = self.arguments.len() == parts.fields.len()
            && self.arguments.iter().zip(parts.fields).all(fits)
            && self.has_scalars;
        if is_same {
            Ok(())
        } else {
            Err(refuse("other arguments than those of the stencil".to_owned()))
        }
    }

    /// Checks all that can be refused, and finds what is stale. Its result is the same on all ranks.
    fn check<'s>(
        &'s self,
        grid: &Arc<Domain>,
        stream: &Stream,
        resets: u64,
    ) -> Result<Checked<'s, 'a>> {
        if !grid.device.is_same(stream.device()) {
            let (of, given) = (grid.device.id(), stream.device().id());
            let hint =
                if of == given { ", opened another time: use clones of one `Device`" } else { "" };
            let message = format!("a stream of {given}; the grid is on {of}{hint}");
            return Err(Error::new(ErrorKind::WrongDevice, "run", message));
        }
        let mut location: Option<&Core> = None;
        for argument in &self.arguments {
            let core = argument.core;
            if !Arc::ptr_eq(&core.grid, grid) {
                let first = &self.arguments[0].core.name;
                return Err(refuse(format!(
                    "fields {first} and {} are of different grids",
                    core.name
                )));
            }
            if argument.intent == Intent::In {
                continue;
            }
            if let Some(first) = location
                && first.location != core.location
            {
                return Err(refuse(format!(
                    "outputs at different locations: {} at {:?}, {} at {:?}",
                    first.name, first.location, core.name, core.location
                )));
            }
            location = Some(core);
        }
        let Some(output) = location else { return Err(refuse("no output".to_owned())) };
        if let Some(column) = self.column() {
            column::check(column, output, self.on)?;
        }
        let mut global = self.global(grid, output)?;
        if let Some(end) = self.on {
            self.check_on(grid, end)?;
            global[end.place().0] = 0..grid.width;
        }
        let mut checked = Checked {
            local: [0..1, 0..1, 0..1],
            shift: [0; 3],
            is_whole: true,
            covers: self.on.is_none(),
            is_nothing: global.iter().any(Range::is_empty),
            hash: grid.has_others().then(|| self.hash(grid, &global)),
            stale: Vec::new(),
            uses: SmallVec::new(),
        };
        for (axis, range) in global.iter().enumerate().take(grid.rank) {
            let (start, mut points) = (grid.block[axis].start, output.shape.points(axis));
            if self.once && output.shape.staggered[axis] && !output.shape.is_end[axis][1] {
                // The next block has the last point, too.
                points -= 1;
            }
            let low = range.start.clamp(start, start + points) - start;
            let high = range.end.clamp(start, start + points) - start;
            checked.local[axis] = low..high.max(low);
            checked.is_whole &= checked.local[axis] == (0..output.shape.points(axis));
            let all = grid.cells[axis] + usize::from(output.shape.staggered[axis]);
            checked.covers &= *range == (0..all);
        }
        if let Some((axis, side)) = self.on.map(End::place) {
            let has_end = output.shape.is_end[axis][side];
            checked.local[axis] = 0..if has_end { grid.width } else { 0 };
            let points = [-grid.width.cast_signed(), output.shape.points(axis).cast_signed()];
            checked.shift[axis] = points[side];
        }
        let target = Target { output, global: &global, on: self.on };
        let mut computed: SmallVec<[Ends; FEW]> = SmallVec::new();
        for (number, argument) in self.arguments.iter().enumerate() {
            let known = self.known(number, &global);
            let reads = reads(grid, &target, argument.core, &known, resets)?;
            let need = reads.need;
            checked.uses.push((None, reads.has_ghosts));
            computed.push(reads.computed);
            if argument.core.has(&need, resets) {
                continue;
            }
            let same = |stale: &Stale<'_, '_>| ptr::eq(stale.argument.core, argument.core);
            match checked.stale.iter_mut().find(|stale| same(stale)) {
                Some(stale) => stale.need = stale.need.and(&need),
                None => checked.stale.push(Stale { argument, need, computed: Ends::default() }),
            }
        }
        // Also those of another input, which needs no others: if some were lost, the exchange finds out.
        for (argument, read) in self.arguments.iter().zip(computed) {
            let same = |stale: &&mut Stale<'_, '_>| ptr::eq(stale.argument.core, argument.core);
            for stale in checked.stale.iter_mut().filter(same) {
                let read = read.as_flattened().iter();
                stale.computed.iter_mut().flatten().zip(read).for_each(|(end, read)| *end |= read);
            }
        }
        if grid.tiles > 1 {
            self.pair_components(&mut checked.stale)?;
        }
        for (argument, (stale, _)) in self.arguments.iter().zip(&mut checked.uses) {
            let same = |other: &Stale<'_, '_>| ptr::eq(other.argument.core, argument.core);
            *stale = checked.stale.iter().position(same);
        }
        Ok(checked)
    }

    /// Refuses fields that are read and were never set, before an output is taken: it would lose its values. All ranks
    /// refuse the same, whatever their own points are: otherwise, some would go on to an exchange.
    #[track_caller]
    fn check_set(&self, checked: &Checked<'_, '_>, stream: &Stream) -> Result<()> {
        let unknown = |argument: &&Argument<'_>| {
            let overwrites = argument.intent == Intent::Out && (checked.covers || self.once);
            !overwrites && !checked.is_nothing && !argument.core.is_set.get()
        };
        for argument in self.arguments.iter().filter(unknown) {
            let about = |error| match argument.intent {
                Intent::Out => argument
                    .core
                    .about(error)
                    .about("an output keeps the points that a launch leaves out: set it before"),
                _ => argument.core.about(error),
            };
            with!(argument.shared()?, array => {
                if array.status(OWN) == PartStatus::Uninitialized {
                    array.part(own())?.read(stream).map(drop).map_err(about)?;
                }
            });
            argument.core.is_set.set(true);
        }
        Ok(())
    }

    /// Whether a launch sets all own points of a field, or all that matter.
    fn overwrites(&self, output: &Argument<'_>, checked: &Checked<'_, '_>) -> bool {
        output.intent == Intent::Out && (checked.is_whole || self.once)
    }

    /// Refuses to compute ghosts beyond an end where they are not the outputs', or from ghosts that they replace.
    fn check_on(&self, grid: &Domain, end: End) -> Result<()> {
        let (axis, side) = end.place();
        let message = if axis >= grid.rank {
            format!("there is no axis {axis} in a grid of {} axes", grid.rank)
        } else if grid.tiles > 1 {
            "a cubed sphere has no ends".to_owned()
        } else if grid.periodic[axis] {
            format!("axis {axis} is periodic, and has no ends")
        } else if grid.width == 0 {
            "a halo of 0 has no ghosts: make the grid with `halo(1)`".to_owned()
        } else if self.inside > 0 || !self.over.is_empty() {
            "all ghosts beyond the end are computed: leave out `inside` and `over`, and compare `index(axis)`"
                .to_owned()
        } else {
            let mut outputs = self
                .arguments
                .iter()
                .zip(self.known)
                .filter(|(argument, _)| argument.intent != Intent::In);
            let refused = outputs.find_map(|(Argument { core, .. }, known)| {
                if core.rules[axis][side] != Rule::Computed {
                    Some(format!(
                        "{} has another boundary there: make it `Boundary::Computed`",
                        known.called(&core.name)
                    ))
                } else if known.is_read {
                    Some(format!(
                        "{} is read at the ghosts that are set, which have no values before: take an `In`, or a column that reads the previous point",
                        known.called(&core.name)
                    ))
                } else {
                    None
                }
            });
            let Some(refused) = refused else { return Ok(()) };
            refused
        };
        Err(refuse(format!("on(End::{end:?}): {message}")))
    }

    /// A number for the stencil, its fields and scalars, and the points that it computes, the same on all ranks.
    fn hash(&self, grid: &Domain, points: &Points) -> u64 {
        let bounds = points.iter().flat_map(|range| [range.start as u64, range.end as u64]);
        let names = self.arguments.iter().map(|argument| argument.core.name_hash);
        let cells = grid.cells.iter().map(|cells| *cells as u64);
        let brought = || {
            let fields = self.known.iter().flat_map(|field| {
                let reach = field.reach.into_iter().flatten().map(i64::cast_unsigned);
                reach.chain([field.intent as u64])
            });
            hash_of_numbers(fields)
        };
        let body = self.stencil.map_or_else(brought, Stencil::hash);
        let numbers = bounds.chain(cells).chain(self.words.scalars().iter().copied());
        let on = self.on.map(|end| {
            let (axis, side) = end.place();
            (2 * axis + side) as u64
        });
        hash_of_numbers([body].into_iter().chain(names).chain(numbers).chain(on))
    }

    /// Puts the two components of each vector next to each other: between tiles, each becomes the other.
    fn pair_components<'s>(&'s self, stale: &mut Vec<Stale<'s, 'a>>) -> Result<()> {
        let mut paired: Vec<Stale<'s, 'a>> = Vec::new();
        while !stale.is_empty() {
            let mut first = stale.remove(0);
            let core = first.argument.core;
            let Some(component) = core.component else {
                paired.push(first);
                continue;
            };
            let is_other = |argument: &&Argument<'_>| {
                let other = argument.core.component.is_some_and(|other| {
                    let is_same =
                        (other.vector, other.level) == (component.vector, component.level);
                    is_same && other.axis != component.axis
                });
                other && argument.intent == Intent::In
            };
            let Some(other) = self.arguments.iter().find(is_other) else {
                return Err(refuse(format!(
                    "field {} is a component of a vector: the stencil must read the other one, too, which was made in the same order of fields",
                    core.name
                )));
            };
            let same = |known: &Stale<'_, '_>| ptr::eq(known.argument.core, other.core);
            let mut second = match stale.iter().position(same) {
                Some(known) => stale.remove(known),
                None => Stale { argument: other, need: first.need, computed: Ends::default() },
            };
            first.need = first.need.and(&second.need);
            second.need = first.need;
            let in_order = if component.axis == 0 { [first, second] } else { [second, first] };
            paired.extend(in_order);
        }
        *stale = paired;
        Ok(())
    }

    /// The points to compute, over all ranks.
    fn global(&self, grid: &Domain, output: &Core) -> Result<Points> {
        if let Some((axis, ..)) = self.over.iter().find(|(axis, ..)| *axis >= grid.rank) {
            let rank = grid.rank;
            return Err(refuse(format!("points along axis {axis} of a grid of {rank} axes")));
        }
        let mut global = [0..1, 0..1, 0..1];
        for (axis, points_along) in global.iter_mut().enumerate().take(grid.rank) {
            let points = grid.cells[axis] + usize::from(output.shape.staggered[axis]);
            let inside = if grid.periodic[axis] { 0 } else { self.inside };
            let mut range = inside.min(points)..points.saturating_sub(inside);
            for &(_, start, end) in self.over.iter().filter(|(of, ..)| *of == axis) {
                if start > end.unwrap_or(points) || end > Some(points) {
                    // A reduction's output has the points of the first field.
                    let named = self.first().filter(|_| self.once).unwrap_or(output);
                    let end = end.map_or(String::new(), |end| end.to_string());
                    return Err(refuse(format!(
                        "points {start}..{end} along axis {axis}; {} has {points}",
                        named.name
                    )));
                }
                range = range.start.max(start)..range.end.min(end.unwrap_or(points));
            }
            let is_twice = self.once && output.shape.staggered[axis] && grid.periodic[axis];
            if is_twice && range.start > 0 && range.start < points && range.end == points {
                return Err(refuse(format!(
                    "points {}..{points} along axis {axis}, which is periodic: the last one is the first one, which is left out; end at {}",
                    range.start,
                    points - 1
                )));
            }
            *points_along = range.start..range.end.max(range.start);
        }
        Ok(global)
    }

    /// The points that read no ghosts from other ranks, and boxes of the others. `None` if there is nothing to compute
    /// while messages are in transit.
    fn split(&self, grid: &Domain, checked: &Checked<'_, '_>) -> Option<(Points, Vec<Points>)> {
        if !grid.has_others() {
            return None;
        }
        let rank = grid.rank;
        let output = self.arguments.iter().find(|argument| argument.intent != Intent::In)?;
        let mut margins = [(0, 0); 3];
        for (axis, (low, high)) in margins.iter_mut().enumerate().take(rank) {
            let width = |side: usize| {
                let uses = self.arguments.iter().zip(&checked.uses).enumerate();
                // Meanwhile kernels get the own values of stale fields alone, also at the ends of the grid.
                let reaches = uses.map(|(number, (argument, (stale, _)))| {
                    let known = self.known(number, &checked.local);
                    match stale {
                        Some(_) if known.is_read => {
                            reach(&known, output.core, argument.core, axis)[side]
                        }
                        _ => 0,
                    }
                });
                reaches.max().unwrap_or(0)
            };
            let (points, range) = (output.core.shape.points(axis), &checked.local[axis]);
            *low = width(0).saturating_sub(range.start);
            *high = width(1).saturating_sub(points - range.end);
        }
        // A column is computed as a whole.
        if self.column().is_some_and(|column| margins[column.axis] != (0, 0)) {
            return None;
        }
        let step = interior_and_rim(&checked.local[..rank], &margins[..rank]);
        if step.interior.iter().any(Range::is_empty) {
            return None;
        }
        let full = |ranges: &[Range<usize>]| {
            std::array::from_fn(|axis| ranges.get(axis).cloned().unwrap_or(0..1))
        };
        Some((full(&step.interior), step.rim.iter().map(|piece| full(piece)).collect()))
    }
}

/// The launches of one stencil.
struct Work<'w, 's, 'a> {
    launch: &'w Launch<'a>,
    grid: &'w Domain,
    checked: &'w Checked<'s, 'a>,
    stream: &'w Stream,
    /// Whether a box was computed, or begun.
    has_begun: &'w Cell<bool>,
}

/// Adds the launch to its error, and the place of the program that made it, unless the error names that.
pub(crate) fn launched(error: Error, kind: &str, name: &str, place: &Location<'_>) -> Error {
    let place = place.to_string();
    match error.message().contains(&place) {
        true => error.about(format_args!("{kind} {name}")),
        false => error.about(format_args!("{kind} {name} at {place}")),
    }
}

impl Work<'_, '_, '_> {
    /// Computes boxes. During an exchange, stale fields are in `owned`, with own values alone.
    #[track_caller]
    fn run(
        &self,
        boxes: &[Points],
        writes: &mut [impl Memory],
        owned: Option<&[AnyView<'_>]>,
        act: &mut Act<'_>,
    ) -> Result<()> {
        let Self { launch, grid, checked, stream, .. } = self;
        let uses = || launch.arguments.iter().zip(&checked.uses);
        let is_guarded = |stale: Option<usize>| stale.is_none() || owned.is_none();
        let inputs = || uses().filter(|(argument, _)| argument.intent == Intent::In);
        let guarded = || inputs().filter(|(_, (stale, _))| is_guarded(*stale));
        let mut arrays: SmallVec<[Any<Borrowed<'_>>; FEW]> = SmallVec::new();
        for (argument, _) in guarded() {
            arrays.push(argument.shared()?);
        }
        let mut reads: SmallVec<[Any<Reads<'_>>; FEW]> = SmallVec::new();
        for (array, (argument, (_, ghosts))) in arrays.iter().zip(guarded()) {
            let about = |error| argument.core.about(error);
            let has_ghosts = *ghosts;
            reads.push(map!(array, array => {
                if has_ghosts { array.read(stream) } else { array.part(own())?.read(stream) }
                    .map_err(about)?
            }));
        }
        let mut words = launch.words.clone();
        let limits = &grid.device.info().limits;
        let along = launch.column().map(|column| column.axis);
        for points in boxes.iter().flat_map(|points| pieces(limits, grid.rank, along, points)) {
            let extents = std::array::from_fn(|axis| points[axis].len());
            let start = |axis: usize| points[axis].start.wrapping_add_signed(checked.shift[axis]);
            let first =
                std::array::from_fn(|axis| grid.block[axis].start.wrapping_add(start(axis)));
            words.set_box(&extents, &first, &grid.cells);
            let mut args = Args::new();
            let (mut reads, mut writes) = (reads.iter(), writes.iter_mut());
            for (number, (argument, (stale, _))) in uses().enumerate() {
                let shape = &argument.core.shape;
                let mut at = (0..grid.rank).fold(0_usize, |at, axis| {
                    at.wrapping_add(start(axis).wrapping_mul(shape.strides[axis]))
                });
                let arg = match argument.intent {
                    Intent::In => match (owned, *stale) {
                        (Some(owned), Some(stale)) => {
                            // SAFETY: the box and the footprint around it are own values.
                            unsafe { owned[stale].span()? }.into()
                        }
                        _ => {
                            at = at.wrapping_add(shape.first());
                            let Some(read) = reads.next() else { continue };
                            // SAFETY: the box and the footprint around it are own values, or ghosts that were filled.
                            with!(read, read => unsafe { read.whole()? }.into())
                        }
                    },
                    Intent::Out | Intent::InOut => {
                        at = at.wrapping_add(shape.first());
                        let Some(write) = writes.next() else { continue };
                        write.arg()?
                    }
                };
                words.set_field(number, at, &shape.strides);
                args.push(arg);
            }
            self.has_begun.set(true);
            act(&mut args, &words, &extents[..grid.rank])?;
        }
        Ok(())
    }
}

/// What a launch sets.
trait Memory {
    /// The memory of the whole field.
    fn arg(&mut self) -> Result<Arg<'_>>;
}

/// Own points.
impl Memory for Any<Writes<'_>> {
    fn arg(&mut self) -> Result<Arg<'_>> {
        with!(self, write => {
            // SAFETY: the stencil reads and writes the box, which the rank owns.
            let view: MemoryViewMut<'_, _> = unsafe { write.whole_mut()? };
            Ok(view.into())
        })
    }
}

/// Ghosts.
impl Memory for Any<Flights<'_>> {
    fn arg(&mut self) -> Result<Arg<'_>> {
        with!(self, flight => {
            let ghosts = flight.partition().ghosts();
            // SAFETY: the stencil writes the box, which consists of ghosts. It reads them, and own points beside them.
            let (_, whole) = unsafe { flight.whole(ghosts)? };
            Ok(whole.into())
        })
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "run", message)
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Launch({} of {:?})", self.name(), self.arguments)
    }
}
