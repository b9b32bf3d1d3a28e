//! Reductions: one value made of the values that a stencil has at all points.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::panic::Location;
use std::sync::Arc;

use bytemuck::{bytes_of, pod_read_unaligned};
use runtime_core::{Error, ErrorKind, Result, Stream};

use crate::accumulate::{Accumulator, Fold, INFINITE, LARGE, Op, Unfinished};
use crate::argument::Argument;
use crate::description::Stencil;
use crate::domain::Domain;
use crate::erased::Number;
use crate::field::{Field, own};
use crate::generated::Scalar;
use crate::hash::hash_of_numbers;
use crate::launch::{Launch, launched};
use crate::reducer::{Place, Results, Scratch};

/// A reduction with its fields and scalars: what a function with the attribute
/// [`reduction`](macro@crate::reduction) returns. [`run`](Self::run) enqueues it.
///
/// ```
/// use runtime_core::Device;
/// use stencil::{Grid, In, reduction};
///
/// /// The mass of a layer of this height.
/// #[reduction(sum)]
/// fn mass(height: In<f64, 2>, area: f64) -> f64 {
///     height.at(0, 0) * area
/// }
///
/// /// The steepest rise along the first axis.
/// #[reduction(max)]
/// fn steepest(height: In<f64, 2>) -> f64 {
///     (height.at(1, 0) - height.at(0, 0)).abs()
/// }
///
/// let device = Device::new(backend_host::HostDevice::new(0))?;
/// let stream = device.default_stream();
/// let grid = Grid::cartesian([30, 20]).build(&device)?;
/// let height = grid.field("height").from_fn(|[i, j]| (i * i + j) as f64)?;
///
/// let mass = mass(&height, 0.5).run(&stream)?;
/// let steepest = steepest(&height).over(0, ..29).run(&stream)?;
/// // The device goes on computing; reading waits for it.
/// assert_eq!(mass.get()?, 88_400.0);
/// assert_eq!(steepest.get()?, 57.0);
/// # Ok::<(), runtime_core::Error>(())
/// ```
///
/// The value at each point is that of a stencil. It belongs to the place in the cell of the first field. The last faces
/// of a block are those of the next one, and count once, as do those at the two ends of a periodic axis. On a cubed
/// sphere, the first field is at centres.
///
/// # Bits
///
/// The result has the same bits for any number of ranks, on every device that computes the same values, and in any
/// order.
///
/// | result | of |
/// |---|---|
/// | sum of `f64` | values below 2¹³⁸ (3.5 · 10⁴¹) in magnitude, each cut off to a multiple of the quantum 2⁻¹³⁸ (2.9 · 10⁻⁴²) and added exactly; the sum is rounded once. A sum of zeros is 0.0 |
/// | sum of `f32` | finite values, added exactly; the sum is rounded once |
/// | sum of `i32`, `i64`, `u32` | values, added exactly |
/// | `min`, `max` | values; -0.0 is less than 0.0 |
///
/// The number of values is not limited. Values that are NaN, values out of these ranges, and a sum that its type does
/// not have are errors when the result is [read](Reduced::get).
#[must_use = "a reduction does nothing until `run`"]
pub struct Reduction<'a, T: Number> {
    launch: Launch<'a>,
    op: Op,
    value: PhantomData<T>,
}

/// Makes a reduction.
#[doc(hidden)]
pub fn reduce<'a, T: Number, const F: usize>(
    op: Op,
    stencil: &'static Stencil,
    arguments: [Argument<'a>; F],
    scalars: &[Scalar],
) -> Reduction<'a, T> {
    let launch = crate::launch::launch(stencil, arguments, scalars);
    Reduction { launch, op, value: PhantomData }
}

impl<T: Number> Reduction<'_, T> {
    /// Leaves out the points that are fewer than `distance` away from an end of the grid.
    pub fn inside(self, distance: usize) -> Self {
        Self { launch: self.launch.inside(distance), ..self }
    }

    /// Takes only the points with these indices along an axis, counted over all ranks. May be called for several axes.
    pub fn over(self, axis: usize, points: impl RangeBounds<usize>) -> Self {
        Self { launch: self.launch.over(axis, points), ..self }
    }

    /// Enqueues the reduction on a stream of the grid's device. Collective, as [`Launch::run`] is, with its exchanges.
    /// Does not wait for the result.
    ///
    /// # Errors
    ///
    /// As [`Launch::run`]. `InvalidArgument` for the least or the greatest value of no points; on a cubed sphere, if
    /// the first field is not at centres; and for the last faces of a periodic axis without the first ones.
    #[track_caller]
    pub fn run(self, stream: &Stream) -> Result<Reduced<T>> {
        let place = Location::caller();
        let name = self.launch.name();
        self.enqueue(stream).map_err(|error| launched(error, "reduction", name, place))
    }

    #[track_caller]
    fn enqueue(&self, stream: &Stream) -> Result<Reduced<T>> {
        let Some(first) = self.launch.first() else { return Err(refuse("no field".to_owned())) };
        let grid = Arc::clone(&first.grid);
        let staggered = first.shape.staggered;
        if grid.tiles > 1 && staggered.contains(&true) {
            return Err(refuse(format!(
                "{} is at {:?}; on a cubed sphere, only values at centres belong to one tile alone",
                first.name, first.location
            )));
        }
        let known = grid.state().reducer.take(|free: &Scratch<T>| free.staggered == staggered);
        let known = known.map(|known: Scratch<T>| known.array);
        let mut values = Field::<T, 3>::scratch(&grid, first.location, known)?;
        let computed = self.launch.with_output(&mut values).compute(stream)?;
        if computed.is_nothing && self.op != Op::Sum {
            return Err(refuse("the least or the greatest of no points".to_owned()));
        }
        let shape = values.core().shape.clone();
        let points = std::array::from_fn(|axis| grid.cells[axis] + usize::from(staggered[axis]));
        let array = values.into_array();
        let mut state = grid.state();
        let token = hash_of_numbers([state.exchanges.sequence(), self.op as u64].into_iter());
        let mut results = None;
        if !computed.local.iter().any(Range::is_empty) {
            let first = std::array::from_fn(|axis| grid.block[axis].start);
            let place = Place { local: computed.local, first, tile: grid.tile, points };
            let guard = array.part(own())?.read(stream)?;
            let reducer = &mut state.reducer;
            results = Some(reducer.accumulate(self.op, stream, &guard, &shape, &place)?);
        }
        state.reducer.keep(Scratch { staggered, array });
        drop(state);
        let fold = Fold { op: self.op, dtype: T::DTYPE };
        let name = self.launch.name();
        Ok(Reduced { grid, name, fold, token, points, results, value: PhantomData })
    }
}

impl<T: Number> fmt::Debug for Reduction<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reduction({:?}, {:?})", self.op, self.launch)
    }
}

/// The result of a [`Reduction`], which the device may still be computing. [`get`](Self::get) waits for it.
#[must_use = "the result is read with `get`"]
pub struct Reduced<T: Number> {
    grid: Arc<Domain>,
    name: &'static str,
    fold: Fold,
    /// The same on all ranks that made the same launches.
    token: u64,
    /// Of all ranks.
    points: [usize; 3],
    /// The accumulators of this rank. `None` if it has no points.
    results: Option<Results>,
    value: PhantomData<T>,
}

/// What ranks tell each other: the token, whether the rank has failed, its accumulator.
type Message = [i64; 2 + crate::accumulate::WORDS];

impl<T: Number> Reduced<T> {
    /// Waits for the result. Collective: all ranks read the results of reductions in the same order, and get the same.
    /// May be called again, also after an error.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a value is NaN, or out of the range of [sums](Reduction#bits): the message names its point.
    /// `InvalidArgument` if the type does not have the sum, or if other ranks read the result of another reduction.
    /// `Poisoned` if the device of another rank has failed. Errors of this rank's device. Errors of
    /// [`all_gather`](halo::communicator::Communicator::all_gather), such as `Timeout`: call
    /// [`Grid::reset`](crate::Grid::reset) on all ranks then.
    #[track_caller]
    pub fn get(&self) -> Result<T> {
        let place = Location::caller();
        self.read().map_err(|error| launched(error, "reduction", self.name, place))
    }

    fn read(&self) -> Result<T> {
        // The other ranks learn that this one has failed.
        let own = self.own();
        let mut message: Message = [0; _];
        message[0] = self.token.cast_signed();
        message[1] = i64::from(own.is_err());
        message[2..].copy_from_slice(own.as_ref().unwrap_or(&self.fold.identity()));
        let all = self.grid.communicator.all_gather(bytes_of(&message), self.grid.timeout);
        let all = all.map_err(|error| match error.kind() {
            ErrorKind::PeerLost | ErrorKind::Timeout | ErrorKind::InvalidArgument => {
                error.about("all ranks call `get` (Grid::reset on all ranks begins again)")
            }
            _ => error,
        })?;
        own?;
        let mut sum = self.fold.identity();
        for (rank, message) in all.chunks_exact(size_of::<Message>()).enumerate() {
            let [token, failed, words @ ..]: Message = pod_read_unaligned(message);
            if token.cast_unsigned() != self.token {
                return Err(refuse(format!("rank {rank} reads the result of another reduction")));
            }
            if failed != 0 {
                let message = format!("the device of rank {rank} has failed");
                return Err(Error::new(ErrorKind::Poisoned, "get", message));
            }
            self.fold.combine(&mut sum, &words);
            self.fold.carry(&mut sum);
        }
        let bytes = self.fold.finish(sum).map_err(|why| refuse(self.explain(why)))?;
        Ok(pod_read_unaligned(&bytes[..size_of::<T>()]))
    }

    /// What the values of this rank accumulate to.
    fn own(&self) -> Result<Accumulator> {
        let mut sum = self.fold.identity();
        if let Some(Results { accumulators, count, .. }) = &self.results {
            let accumulators = accumulators.read_host()?;
            let words = accumulators.as_slice().unwrap_or(&[]).chunks(self.fold.words());
            words.take(*count).for_each(|words| self.fold.combine(&mut sum, words));
            self.fold.carry(&mut sum);
        }
        Ok(sum)
    }

    fn explain(&self, why: Unfinished) -> String {
        let ty = self.fold.dtype;
        match why {
            Unfinished::Overflow(sum) => format!("the sum is {sum}, which {ty} does not have"),
            Unfinished::Marked { point, why } => {
                let mut rest = usize::try_from(point).unwrap_or(0);
                let mut index = [0; 3];
                for axis in (0..self.grid.rank).rev() {
                    index[axis] = rest % self.points[axis];
                    rest /= self.points[axis];
                }
                let index = &index[..self.grid.rank];
                let tile =
                    if self.grid.tiles > 1 { format!(" of tile {rest}") } else { String::new() };
                match why {
                    INFINITE => format!("the value at {index:?}{tile} is infinite"),
                    LARGE => format!(
                        "the value at {index:?}{tile} is 2^138 or more in magnitude; sums of {ty} take less: scale it"
                    ),
                    _ => format!("the value at {index:?}{tile} is NaN"),
                }
            }
        }
    }
}

impl<T: Number> Drop for Reduced<T> {
    fn drop(&mut self) {
        if let Some(results) = self.results.take() {
            self.grid.state().reducer.keep(results);
        }
    }
}

impl<T: Number> fmt::Debug for Reduced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reduced({})", self.name)
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "reduction", message)
}
