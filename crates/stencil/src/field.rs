//! Fields: coherent arrays of points, with ghosts around those of each rank.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use array_buffer::{ArrayBuffer, HostReadGuard, HostWriteGuard, Parts, TransferReport};
use ndarray::IxDyn;
use runtime_core::{Error, ErrorKind, Memory, Result, Stream};

use crate::boundary::{Boundary, Constants, Filling, Rules};
use crate::domain::Domain;
use crate::erased::{Array, Number};
use crate::hash::hash_of_text;
use crate::shape::{Ends, Need, Shape};

/// The number of the part that a rank owns. The other parts are ghosts and padding.
pub(crate) const OWN: usize = 0;

/// The part that a rank owns.
pub(crate) fn own() -> Parts {
    Parts::one(OWN)
}

/// Where in its cell a field has its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Location {
    /// At the centre. The field has one value for each cell.
    #[default]
    Centre,
    /// On the faces across this axis. Face `i` is between cells `i - 1` and `i`, and the field has one value more along
    /// the axis than there are cells. Two blocks that meet both have the values of the faces between them, and both
    /// compute them. If the axis is periodic, the last face is the first one, too: set both alike.
    Face(usize),
    /// At the corners: on the faces across all axes.
    ///
    /// There are no edges, such as those with the electric field of a staggered grid, on the faces across two of three
    /// axes. If one of the two is periodic, a field on the faces across the other one holds them: its value at a point
    /// is that of the edge at the low end of the periodic axis. If neither is, a field at centres does. The edges at
    /// the high ends of the grid are ghosts then, which a stencil sets ([`Boundary::Computed`]): the other boundaries
    /// mirror and continue about the ends of the cells, which is not where such values are.
    Corner,
}

impl Location {
    fn staggered(self, rank: usize) -> Result<[bool; 3]> {
        match self {
            Self::Centre => Ok([false; 3]),
            Self::Corner => Ok(std::array::from_fn(|axis| axis < rank)),
            Self::Face(across) if across < rank => Ok(std::array::from_fn(|axis| axis == across)),
            Self::Face(across) => {
                Err(refuse(format!("faces across axis {across} of a grid of {rank} axes")))
            }
        }
    }
}

/// Values of `T` on a [`Grid`](crate::Grid) of `N` axes. [`Grid::field`](crate::Grid::field) makes it.
///
/// A rank has the values of its block, and *ghosts* around them: values that other ranks own, or that lie beyond the
/// ends of the grid. A stencil that reads ghosts first gets those that are stale: see [`Launch`](crate::Launch).
///
/// The values are where they were used last, on the device or on the host. They are copied when they are needed
/// elsewhere. `std::mem::swap` exchanges two fields without a copy.
pub struct Field<T: Number, const N: usize> {
    core: Core,
    array: RefCell<Array<T>>,
    boundaries: [[Boundary<T>; 2]; 3],
}

/// A field that is a component of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Component {
    /// The number of the vector in its grid.
    pub(crate) vector: usize,
    /// The axis along which the component points.
    pub(crate) axis: usize,
    /// The number of fields that were made of this component before. Fields of the two components with the same number
    /// belong together.
    pub(crate) level: u64,
}

impl Component {
    /// The next field of the same component.
    fn next(self, grid: &Domain) -> Self {
        let level = &mut grid.state().levels[self.vector][self.axis];
        *level += 1;
        Self { level: *level - 1, ..self }
    }
}

/// What is known of a field without its element type.
pub(crate) struct Core {
    pub(crate) grid: Arc<Domain>,
    pub(crate) name: String,
    /// A number for the name.
    pub(crate) name_hash: u64,
    pub(crate) location: Location,
    pub(crate) shape: Shape,
    pub(crate) rules: Rules,
    pub(crate) component: Option<Component>,
    /// Whether the own points have had values. They keep them, unless a failure takes them.
    pub(crate) is_set: Cell<bool>,
    fresh: Cell<Option<Fresh>>,
    /// Values of boundaries, made for one stream. `None` after they were changed.
    constants: RefCell<Option<(u64, Box<dyn Constants>)>>,
    fillings: RefCell<Vec<(Need, Filling)>>,
}

/// The ghosts that a field has current values of.
#[derive(Clone, Copy, Default)]
struct Fresh {
    /// Those that were exchanged or copied.
    filled: Need,
    /// Whether a stencil has computed all those beyond each end.
    computed: Ends,
    /// The number of resets of the grid at that time.
    resets: u64,
}

impl Core {
    fn new(
        grid: Arc<Domain>,
        name: String,
        location: Location,
        shape: Shape,
        rules: Rules,
    ) -> Self {
        let (is_set, fresh, constants, fillings) = Default::default();
        let (name_hash, component) = (hash_of_text(&name), None);
        Self {
            grid,
            name,
            name_hash,
            location,
            shape,
            rules,
            component,
            is_set,
            fresh,
            constants,
            fillings,
        }
    }

    /// Whether ghosts have current values, after this number of resets of the grid.
    pub(crate) fn has(&self, need: &Need, resets: u64) -> bool {
        let has = |fresh: Fresh| fresh.filled.includes(need);
        need.is_nothing() || self.fresh(resets).is_some_and(has)
    }

    /// Whether a stencil has computed the ghosts beyond an end, after this number of resets.
    pub(crate) fn is_computed(&self, end: End, resets: u64) -> bool {
        let (axis, side) = end.place();
        self.fresh(resets).is_some_and(|fresh| fresh.computed[axis][side])
    }

    /// Refuses an end beyond which no stencil has computed the ghosts for the field's values.
    pub(crate) fn check_computed(&self, end: End, resets: u64) -> Result<()> {
        if self.is_computed(end, resets) {
            return Ok(());
        }
        let message = format!(
            "field {} has no current ghosts beyond End::{end:?}, since its values have changed or its grid was reset: launch a stencil with `on(End::{end:?})` before, on all ranks",
            self.name
        );
        Err(Error::new(ErrorKind::Stale, "run", message))
    }

    /// Notes that these ghosts have current values, besides those that had them before.
    pub(crate) fn set_fresh(&self, need: Need, resets: u64) {
        let fresh = self.fresh(resets).unwrap_or_default();
        self.fresh.set(Some(Fresh { filled: fresh.filled.with(&need), resets, ..fresh }));
    }

    /// Notes that a stencil has computed the ghosts beyond an end.
    pub(crate) fn set_computed(&self, end: End, resets: u64) {
        let (axis, side) = end.place();
        let mut fresh = Fresh { resets, ..self.fresh(resets).unwrap_or_default() };
        fresh.computed[axis][side] = true;
        self.fresh.set(Some(fresh));
    }

    fn fresh(&self, resets: u64) -> Option<Fresh> {
        self.fresh.get().filter(|fresh| fresh.resets == resets)
    }

    /// Notes that values have changed.
    pub(crate) fn set_stale(&self) {
        self.fresh.set(None);
    }

    /// Calls `work` with the copies that fill ghosts beyond the ends of the grid.
    pub(crate) fn with_filling<R>(
        &self,
        need: &Need,
        work: impl FnOnce(&Filling) -> Result<R>,
    ) -> Result<R> {
        let mut fillings = self.fillings.borrow_mut();
        let known = fillings.iter().position(|(other, _)| other == need);
        let index = match known {
            Some(index) => index,
            None => {
                let Need { widths, corners } = need;
                let device = &self.grid.device;
                let filling = Filling::new(device, &self.shape, &self.rules, widths, *corners)?;
                fillings.push((*need, filling));
                fillings.len() - 1
            }
        };
        work(&fillings[index].1)
    }

    /// The error, with the field's name.
    pub(crate) fn about(&self, error: Error) -> Error {
        let hint = match error.kind() {
            ErrorKind::Uninitialized => ", to set by a launch, `filled`, `from_fn` or `write_host`",
            _ => "",
        };
        error.about(format_args!("field {}{hint}", self.name))
    }
}

impl<T: Number, const N: usize> Field<T, N> {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// A field without ghosts, for the values of a reduction, in the memory of an earlier one if there is any.
    pub(crate) fn scratch(
        grid: &Arc<Domain>,
        location: Location,
        memory: Option<Array<T>>,
    ) -> Result<Self> {
        let boundaries = [[Boundary::Nothing; 2]; 3];
        let rules = boundaries.map(|ends| ends.map(|boundary| boundary.rule()));
        let cells: Vec<usize> = (0..grid.rank).map(|axis| grid.block[axis].len()).collect();
        let (staggered, ends) = (location.staggered(grid.rank)?, grid.is_end());
        let shape = Shape::new(&grid.device, T::DTYPE, &cells, staggered, 0, ends);
        let array = match memory {
            Some(memory) => memory,
            None => ArrayBuffer::with_partition(shape.partition()?)?,
        };
        let core = Core::new(Arc::clone(grid), "value".to_owned(), location, shape, rules);
        Ok(Self { core, array: RefCell::new(array), boundaries })
    }

    /// Its values, without what is known of them.
    pub(crate) fn into_array(self) -> Array<T> {
        self.array.into_inner()
    }

    pub(crate) fn array(&self) -> &RefCell<Array<T>> {
        &self.array
    }

    /// A field of the same kind, with the same boundaries and no values yet.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub fn like(&self, name: impl Into<String>) -> Result<Self> {
        let Core { grid, shape, location, rules, component, .. } = &self.core;
        let array = RefCell::new(ArrayBuffer::with_partition(shape.partition()?)?);
        let component = component.map(|component| component.next(grid));
        let grid = Arc::clone(grid);
        let core = Core::new(grid, name.into(), *location, shape.clone(), *rules);
        let core = Core { component, ..core };
        Ok(Self { core, array, boundaries: self.boundaries })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Where in its cell it has its values.
    pub fn location(&self) -> Location {
        self.core.location
    }

    /// The index in the grid of this rank's first point.
    pub fn first(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.core.grid.block[axis].start)
    }

    /// The number of points of this rank along each axis.
    pub fn extents(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.core.shape.points(axis))
    }

    /// The number of points of all ranks along each axis.
    pub fn points(&self) -> [usize; N] {
        let Core { grid, shape, .. } = &self.core;
        std::array::from_fn(|axis| grid.cells[axis] + usize::from(shape.staggered[axis]))
    }

    /// Starts to copy this rank's points to the stream's device, if they are not there. Launches do this by themselves.
    ///
    /// # Errors
    ///
    /// As [`read_host`](Self::read_host).
    #[track_caller]
    pub fn prefetch(&mut self, stream: &Stream) -> Result<()> {
        let Self { core, array, .. } = self;
        let part = array.get_mut().part(own())?;
        part.prefetch(stream).map_err(|error| core.about(error))
    }

    /// Reads this rank's points on the host. Blocks until they are computed and, if they are elsewhere, copied.
    ///
    /// # Errors
    ///
    /// `Uninitialized`, `Poisoned`, and the errors of copying.
    #[track_caller]
    pub fn read_host(&mut self) -> Result<HostReadGuard<'_, T, IxDyn>> {
        let Self { core, array, .. } = self;
        let part = array.get_mut().part(own())?;
        part.read_host().map_err(|error| core.about(error))
    }

    /// Reads and writes this rank's points on the host. Collective: ghosts on all ranks are stale afterwards. Otherwise
    /// as [`read_host`](Self::read_host).
    ///
    /// # Errors
    ///
    /// As [`read_host`](Self::read_host).
    #[track_caller]
    pub fn read_write_host(&mut self) -> Result<HostWriteGuard<'_, T, IxDyn>> {
        let Self { core, array, .. } = self;
        core.set_stale();
        let [part] = array.get_mut().split([own()])?;
        part.into_read_write_host().map_err(|error| core.about(error))
    }

    /// Writes all of this rank's points on the host. Collective, as [`read_write_host`](Self::read_write_host). What
    /// the points are before is unspecified. Indices count from this rank's [`first`](Self::first) point. On faces and
    /// at corners, two ranks whose blocks meet both have the points between them, and must set them alike.
    ///
    /// # Errors
    ///
    /// Errors of the device and of memory.
    #[track_caller]
    pub fn write_host(&mut self) -> Result<HostWriteGuard<'_, T, IxDyn>> {
        let Self { core, array, .. } = self;
        core.set_stale();
        let [part] = array.get_mut().split([own()])?;
        part.into_write_host().map_err(|error| core.about(error))
    }

    /// Sets each point of all ranks to what `value` returns for its index in the grid. Collective.
    ///
    /// # Errors
    ///
    /// As [`write_host`](Self::write_host).
    #[track_caller]
    pub fn set_from_fn(&mut self, mut value: impl FnMut([usize; N]) -> T) -> Result<()> {
        let (first, grid) = (self.first(), Arc::clone(&self.core.grid));
        let mut guard = self.write_host()?;
        for (index, point) in guard.indexed_iter_mut() {
            *point =
                value(std::array::from_fn(|axis| grid.wrapped(axis, first[axis] + index[axis])));
        }
        guard.commit()
    }

    /// Changes what lies beyond one end of an axis. Collective. The values of boundaries may change in each step.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an axis that does not exist, or a boundary that the element type does not admit.
    pub fn set_boundary(&mut self, end: End, boundary: Boundary<T>) -> Result<()> {
        let (axis, index) = end.place();
        if axis >= N {
            return Err(no_axis(axis, N));
        }
        check_boundary(&boundary)?;
        let core = &mut self.core;
        self.boundaries[axis][index] = boundary;
        core.constants.get_mut().take();
        if core.rules[axis][index] != boundary.rule() {
            core.rules[axis][index] = boundary.rule();
            core.fillings.get_mut().clear();
        }
        core.set_stale();
        Ok(())
    }

    /// The transfers of this rank's values so far, with their causes.
    pub fn transfers(&self) -> TransferReport {
        self.array.borrow().transfers()
    }

    /// Calls `work` with the values of boundaries, in memory that work on `stream` may read.
    pub(crate) fn with_constants(
        &self,
        stream: &Stream,
        work: &mut dyn FnMut(&dyn Constants) -> Result<()>,
    ) -> Result<()> {
        let mut constants = self.core.constants.borrow_mut();
        if constants.as_ref().is_none_or(|(made_for, _)| *made_for != stream.id()) {
            let values = self.boundaries.as_flattened().iter().map(|boundary| match boundary {
                Boundary::Value(value) => *value,
                _ => T::zeroed(),
            });
            let values: Vec<T> = values.collect();
            let memory: Memory<T> = stream.device().memory_from_slice(stream, &values)?;
            *constants = Some((stream.id(), Box::new(memory)));
        }
        match &*constants {
            Some((_, constants)) => work(&**constants),
            None => Ok(()),
        }
    }
}

impl<T: Number, const N: usize> fmt::Debug for Field<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { name, location, .. } = &self.core;
        write!(f, "Field({name}, {:?} points of {}, {location:?})", self.points(), T::DTYPE)
    }
}

/// An end of an axis of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Before the first cell along this axis.
    Low(usize),
    /// Behind the last cell along this axis.
    High(usize),
}

impl End {
    /// The ends that have a mark.
    pub(crate) fn marked(ends: &Ends) -> impl Iterator<Item = Self> {
        let all = (0..3).flat_map(|axis| [Self::Low(axis), Self::High(axis)]);
        all.zip(ends.as_flattened()).filter(|(_, is_marked)| **is_marked).map(|(end, _)| end)
    }

    /// The axis, and 0 or 1.
    pub(crate) fn place(self) -> (usize, usize) {
        match self {
            Self::Low(axis) => (axis, 0),
            Self::High(axis) => (axis, 1),
        }
    }
}

/// The description of a [`Field`].
#[derive(Clone)]
#[must_use = "a description makes no field until it gets values"]
pub struct FieldBuilder<T: Number, const N: usize> {
    grid: Arc<Domain>,
    name: String,
    location: Location,
    boundaries: [[Boundary<T>; 2]; 3],
    /// The first axis that was given a boundary and does not exist.
    missing: Option<usize>,
    component: Option<Component>,
}

impl<T: Number, const N: usize> FieldBuilder<T, N> {
    pub(crate) fn new(grid: Arc<Domain>, name: String, component: Option<Component>) -> Self {
        let (location, boundaries) = (Location::Centre, [[Boundary::Nothing; 2]; 3]);
        Self { grid, name, location, boundaries, missing: None, component }
    }

    /// Sets where in its cell the field has its values. The default is the centre.
    pub fn at(self, location: Location) -> Self {
        Self { location, ..self }
    }

    /// Sets what lies beyond all ends of the grid. The default is [`Boundary::Nothing`]. Axes that are periodic have no
    /// ends.
    pub fn boundary(self, boundary: Boundary<T>) -> Self {
        Self { boundaries: [[boundary; 2]; 3], ..self }
    }

    /// Sets what lies beyond one end of an axis.
    pub fn boundary_at(mut self, end: End, boundary: Boundary<T>) -> Self {
        let (axis, index) = end.place();
        if axis < N {
            self.boundaries[axis][index] = boundary;
        } else {
            self.missing.get_or_insert(axis);
        }
        self
    }

    /// Makes the field, with what `value` returns for the index of each point in the grid: `from_fn(|[i, j]| …)`.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    #[track_caller]
    pub fn from_fn(self, value: impl FnMut([usize; N]) -> T) -> Result<Field<T, N>> {
        let mut field = self.uninit()?;
        field.set_from_fn(value)?;
        Ok(field)
    }

    /// Makes the field, with the same value at each point.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    #[track_caller]
    pub fn filled(self, value: T) -> Result<Field<T, N>> {
        let mut field = self.uninit()?;
        let mut guard = field.write_host()?;
        guard.fill(value);
        guard.commit()?;
        Ok(field)
    }

    /// Makes the field without values. It is an error to read it before it is set.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`. `InvalidArgument` for a location or a boundary at an axis that the grid does not have, or a
    /// boundary that the element type does not admit.
    pub fn uninit(self) -> Result<Field<T, N>> {
        let Self { grid, name, location, boundaries, missing, component } = self;
        missing.map_or(Ok(()), |axis| Err(no_axis(axis, N)))?;
        boundaries.as_flattened().iter().try_for_each(check_boundary)?;
        let staggered = location.staggered(N)?;
        let cells: Vec<usize> = (0..N).map(|axis| grid.block[axis].len()).collect();
        let shape =
            Shape::new(&grid.device, T::DTYPE, &cells, staggered, grid.width, grid.is_end());
        let array = RefCell::new(ArrayBuffer::with_partition(shape.partition()?)?);
        let rules = boundaries.map(|ends| ends.map(|boundary| boundary.rule()));
        let component = component.map(|component| component.next(&grid));
        let core = Core { component, ..Core::new(grid, name, location, shape, rules) };
        Ok(Field { core, array, boundaries })
    }
}

impl<T: Number, const N: usize> fmt::Debug for FieldBuilder<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldBuilder")
            .field("name", &self.name)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

fn no_axis(axis: usize, rank: usize) -> Error {
    refuse(format!("a boundary at axis {axis} of a grid of {rank} axes"))
}

fn check_boundary<T: Number>(boundary: &Boundary<T>) -> Result<()> {
    if matches!(boundary, Boundary::OddMirror | Boundary::Extrapolate) && !T::DTYPE.admits_negate()
    {
        return Err(refuse(format!("{boundary:?} for {}, which has no negative values", T::DTYPE)));
    }
    Ok(())
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "field", message)
}
