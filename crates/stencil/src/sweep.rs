//! Steps over fields with kernels that the program brings.

use std::mem;
use std::panic::Location;

use runtime_core::{Arg, Error, ErrorKind, Launch as Geometry, Result, Stream};

use crate::argument::Argument;
use crate::arguments::Words;
use crate::description::{FieldParts, Intent};
use crate::erased::Number;
use crate::field::Field;
use crate::geometry::geometry;
use crate::launch::{Args, Launch, launched};

/// A field that a [`sweep`] uses.
#[derive(Debug)]
pub struct Use<'a, const N: usize> {
    argument: Argument<'a>,
    known: FieldParts,
}

impl<'a, const N: usize> Use<'a, N> {
    /// The kernel reads the field, up to `reach` points away along each axis, and diagonally.
    pub fn read<T: Number>(field: &'a Field<T, N>, reach: [usize; N]) -> Self {
        let reach = std::array::from_fn(|axis| {
            let points =
                reach.get(axis).map_or(0, |n| i64::from(u32::try_from(*n).unwrap_or(u32::MAX)));
            [-points, points]
        });
        let known = FieldParts { reach, ..known::<T>("input", Intent::In) };
        Self { argument: Argument::input(field), known }
    }

    /// The kernel reads along the axes alone. Then no ghosts at edges and corners are exchanged.
    #[must_use]
    pub fn without_diagonals(mut self) -> Self {
        self.known.has_diagonals = false;
        self
    }

    /// The kernel sets the field at each point of a part, and does not read it.
    pub fn write<T: Number>(field: &'a mut Field<T, N>) -> Self {
        let known = known::<T>("output", Intent::Out);
        Self { argument: Argument::output(field), known }
    }

    /// The kernel may read and set the field at the points of a part.
    pub fn update<T: Number>(field: &'a mut Field<T, N>) -> Self {
        let known = known::<T>("update", Intent::InOut);
        Self { argument: Argument::update(field), known }
    }
}

fn known<T: Number>(name: &'static str, intent: Intent) -> FieldParts {
    let (dtype, is_read) = (T::DTYPE, intent != Intent::Out);
    FieldParts { name, intent, dtype, reach: [[0; 2]; 3], has_diagonals: true, is_read }
}

/// A box of points that one launch of a kernel computes, for fields of `N` axes, of which there are `F`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Part<const N: usize, const F: usize> {
    /// The numbers of points along the axes.
    pub extents: [u64; N],
    /// The place of the first point in the grid.
    pub first: [u64; N],
    /// The element of each field's memory that is the first point.
    pub elements: [u64; F],
    /// For each field, how many elements apart neighbours along each axis are. It is 1 along the last one.
    pub strides: [[u64; N]; F],
    /// A launch with a work-item for each point: x runs along the last axis.
    pub geometry: Geometry,
}

/// Computes fields with a kernel of the program's own, as a [`Launch`] does with a stencil: ghosts that are stale are
/// filled, and while messages are in transit the points that need none of them are computed. `work` is called for each
/// part of this rank's points, with the memories of the fields in their order, and launches the kernel on `stream`.
/// They are the whole memories: elements that are no points of the part, or are farther away than a field is declared
/// to be read, have values of any age.
///
/// Collective. A rank without points does not call `work`. One that waits for messages calls it for its inner points,
/// and then for the others in several parts. Ranks that are threads with one device usually exchange without messages.
/// `work` makes no other collective calls on the grid: a launch that needs an exchange is refused while messages are in
/// transit.
///
/// ```
/// use runtime_core::{Device, Grid as Cores, HostModule, args};
/// use stencil::{Boundary, Grid, Use, sweep};
///
/// /// Averages of three. The memories, the element of the first point in each, the number of points.
/// fn smooth(cores: &Cores<'_>, next: &mut [f64], t: &[f64], next_at: u64, t_at: u64, n: u64) {
///     let (next_at, t_at, n) = (next_at as usize, t_at as usize, n as usize);
///     cores.chunks_mut(&mut next[next_at..][..n], 4096, |chunk, next| {
///         for (i, next) in (t_at + 4096 * chunk..).zip(next) {
///             *next = (t[i - 1] + t[i] + t[i + 1]) / 3.0;
///         }
///     });
/// }
///
/// # fn main() -> stencil::Result<()> {
/// let device = Device::new(backend_host::HostDevice::new(0))?;
/// let stream = device.default_stream();
/// let kernel = device.module_load(&HostModule::new().with("smooth", smooth))?.kernel("smooth")?;
/// let grid = Grid::cartesian([100]).build(&device)?;
/// let t = grid.field("T").boundary(Boundary::Mirror).from_fn(|[i]| i as f64)?;
/// let mut next = t.like("next")?;
/// sweep(&stream, [Use::write(&mut next), Use::read(&t, [1])], |part, [next, t]| {
///     let args = args![next, t, part.elements[0], part.elements[1], part.extents[0]];
///     // SAFETY: the kernel writes the points of the part, and reads one more at either end.
///     unsafe { kernel.launch(&stream, &part.geometry, args) }
/// })?;
/// assert_eq!(next.read_host()?[[0]], 1.0 / 3.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of `work`, and of [`Launch::run`]. After an error of `work`, the outputs must be set again.
#[track_caller]
pub fn sweep<const N: usize, const F: usize>(
    stream: &Stream,
    fields: [Use<'_, N>; F],
    mut work: impl FnMut(&Part<N, F>, [Arg<'_>; F]) -> Result<()>,
) -> Result<()> {
    let known = fields.each_ref().map(|field| field.known);
    let arguments = fields.each_ref().map(|field| field.argument.again());
    let launch = Launch::brought(N, &known, arguments);
    let limits = &stream.device().info().limits;
    let mut act = |args: &mut Args<'_>, words: &Words, extents: &[usize]| {
        let words = words.words();
        let place = |group: usize| std::array::from_fn(|axis| words[(F + group) * N + axis]);
        let part = Part {
            extents: place(0),
            first: place(1),
            elements: std::array::from_fn(|field| words[field * N]),
            strides: std::array::from_fn(|field| {
                std::array::from_fn(
                    |axis| if axis + 1 < N { words[field * N + axis + 1] } else { 1 },
                )
            }),
            geometry: geometry(limits, extents),
        };
        let args = mem::take(args).into_vec().try_into();
        work(&part, args.map_err(|_| refuse("other fields than those of the sweep"))?)
    };
    let swept = launch.compute_by(stream, |_| Ok(()), &mut act);
    let place = Location::caller();
    swept.map(drop).map_err(|error| launched(error, "sweep", "of a kernel", place))
}

fn refuse(message: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "sweep", message)
}
