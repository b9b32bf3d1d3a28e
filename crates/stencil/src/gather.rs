//! The values of all ranks on one rank, and those of one rank on all.

use std::ops::Range;
use std::sync::Arc;

use halo::communicator::Buffer;
use ndarray::{
    Array, ArrayD, ArrayRef, ArrayViewD, ArrayViewMut, ArrayViewMutD, Axis, Dimension,
    IntoDimension, IxDyn, Slice,
};
use runtime_core::{Error, ErrorKind, Result};

use crate::domain::Domain;
use crate::erased::Number;
use crate::field::Field;
use crate::hash::{hash_of_numbers, hash_of_text};

/// The most bytes of one message, of which a rank holds two.
const BYTES: usize = 1 << 22;

/// The length of the text that ranks compare before a collective call.
const TEXT: usize = 120;

impl<T: Number, const N: usize> Field<T, N> {
    /// The values of all ranks on rank `root`, in an array of [`points`](Self::points); `None` on the others. On a
    /// cubed sphere, the tiles follow one another along axis 0. Collective. Blocks until all ranks have computed them.
    /// They are sent in messages of at most 4 MiB.
    ///
    /// The array is one of the crate `ndarray`, which `runtime` also has as `runtime::array::ndarray`. Its number of
    /// axes is known at run time: `into_dimensionality` gives it that of the field.
    ///
    /// ```
    /// use ndarray::{Array2, Ix2};
    /// use runtime_core::Device;
    /// use stencil::Grid;
    ///
    /// let device = Device::new(backend_host::HostDevice::new(0))?;
    /// let grid = Grid::cartesian([30, 20]).build(&device)?;
    /// let mut height = grid.field("height").from_fn(|[i, j]| (i * j) as f64)?;
    /// if let Some(heights) = height.gather(0)? {
    ///     let heights: Array2<f64> = heights.into_dimensionality::<Ix2>()?;
    ///     assert_eq!(heights.row(2)[3], 6.0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`read_host`](Self::read_host). `OutOfMemory` if `root` has no room for the values. `InvalidArgument`
    /// if there is no such rank, if another rank failed, or if another rank makes another call. Errors of
    /// communication, after which all ranks call [`Grid::reset`](crate::Grid::reset).
    #[track_caller]
    pub fn gather(&mut self, root: usize) -> Result<Option<ArrayD<T>>> {
        let grid = Arc::clone(&self.core().grid);
        let (points, what) = (self.all_points(), format!("gather {self:?} on rank {root}"));
        let ranges = self.ranges();
        let own = self.read_host();
        let ready = check_root(&grid, root).and(own).and_then(|own| {
            let whole = (grid.number() == root)
                .then(|| zeros::<T, IxDyn>("gather", &points[..]))
                .transpose()?;
            Ok((own, whole))
        });
        let (own, whole) = grid.agree(&what, ready)?;
        let Some(mut whole) = whole else {
            grid.send(root, own.view())?;
            return Ok(None);
        };
        for (rank, ranges) in ranges.iter().enumerate() {
            let mut block = block_of(&mut whole, ranges);
            if rank == root {
                block.assign(&own);
            } else {
                grid.receive(rank, block)?;
            }
        }
        Ok(Some(whole))
    }

    /// Sets the points of all ranks to the values of an array of [`points`](Self::points) that rank `root` has. Only
    /// this rank calls `values`. Collective, as [`write_host`](Self::write_host).
    ///
    /// # Errors
    ///
    /// The error of `values`. `InvalidArgument` if its array has another shape. Those of [`gather`](Self::gather).
    #[track_caller]
    pub fn scatter<D: Dimension>(
        &mut self,
        root: usize,
        values: impl FnOnce() -> Result<Array<T, D>>,
    ) -> Result<()> {
        let grid = Arc::clone(&self.core().grid);
        let what = format!("scatter {self:?} from rank {root}");
        let ranges = self.ranges();
        let whole = check_root(&grid, root).and_then(|()| {
            let whole = (grid.number() == root).then(values).transpose()?;
            whole.map(|whole| self.check(whole)).transpose()
        });
        let whole = grid.agree(&what, whole)?;
        let mut own = grid.agree(&what, self.write_host())?;
        let moved = match whole {
            None => grid.receive(root, own.view_mut()),
            Some(mut whole) => ranges.iter().enumerate().try_for_each(|(rank, ranges)| {
                let block = block_of(&mut whole, ranges);
                if rank == root {
                    own.assign(&block);
                    return Ok(());
                }
                grid.send(rank, block.view())
            }),
        };
        match moved {
            Ok(()) => own.commit(),
            Err(error) => {
                own.abort();
                Err(error)
            }
        }
    }

    /// Sets this rank's points to their values in an array of all [`points`](Self::points), which each rank has.
    /// Collective, as [`write_host`](Self::write_host); nothing is sent.
    ///
    /// ```
    /// use ndarray::Array2;
    /// use runtime_core::Device;
    /// use stencil::Grid;
    ///
    /// let device = Device::new(backend_host::HostDevice::new(0))?;
    /// let grid = Grid::cartesian([30, 20]).build(&device)?;
    /// let mut height = grid.field("height").uninit()?;
    /// height.set_from_array(&Array2::from_shape_fn([30, 20], |(i, j)| (i * j) as f64))?;
    /// assert_eq!(height.read_host()?[[2, 3]], 6.0);
    /// # Ok::<(), runtime_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the array has another shape. Those of [`write_host`](Self::write_host).
    #[track_caller]
    pub fn set_from_array<D: Dimension>(&mut self, values: &ArrayRef<T, D>) -> Result<()> {
        let mut values = self.check(values.view())?;
        let (mut first, extents) = (self.first(), self.extents());
        first[0] += self.core().grid.tile * self.points()[0];
        values.slice_each_axis_inplace(|axis| {
            let axis = axis.axis.index();
            Slice::from(first[axis]..first[axis] + extents[axis])
        });
        let mut own = self.write_host()?;
        own.assign(&values);
        own.commit()
    }

    /// The array without its static rank, if it has a value for each point.
    fn check<S, D>(&self, values: ndarray::ArrayBase<S, D>) -> Result<ndarray::ArrayBase<S, IxDyn>>
    where
        S: ndarray::RawData<Elem = T>,
        D: Dimension,
    {
        if values.shape() == self.all_points() {
            return Ok(values.into_dyn());
        }
        let message = format!(
            "an array of shape {:?} for {:?}, the points of all ranks; `write_host` sets those of this one",
            values.shape(),
            self.all_points()
        );
        Err(self.core().about(Error::new(ErrorKind::InvalidArgument, "set", message)))
    }

    /// The points of all ranks along each axis. Those of tiles follow one another along axis 0.
    fn all_points(&self) -> [usize; N] {
        let mut points = self.points();
        points[0] *= self.core().grid.tiles;
        points
    }

    /// The points of each rank.
    fn ranges(&self) -> Vec<[Range<usize>; N]> {
        let core = self.core();
        let blocks =
            (0..core.grid.topology.ranks()).filter_map(|rank| core.grid.topology.block(rank).ok());
        blocks
            .map(|block| {
                std::array::from_fn(|axis| {
                    let more = usize::from(core.shape.staggered[axis]);
                    let before = if axis == 0 { block.tile * self.points()[0] } else { 0 };
                    let start = before + block.start[axis];
                    start..start + block.cells[axis] + more
                })
            })
            .collect()
    }
}

impl Domain {
    /// Ends a step of a collective call: the result of this rank if all ranks make the same call and none has failed.
    pub(crate) fn agree<R>(&self, what: &str, result: Result<R>) -> Result<R> {
        // The text may be longer.
        let hash = hash_of_numbers([hash_of_text(what), self.state().exchanges.grid()].into_iter())
            .to_ne_bytes();
        let mut mine = [0; TEXT + 9];
        mine[0] = u8::from(result.is_ok());
        let bytes = hash.into_iter().chain(what.bytes());
        mine[1..].iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let all = self.communicator.all_gather(&mine, self.timeout);
        let result = result?;
        let failed = |error: Error| {
            error.about(format_args!(
                "{what}, which all ranks call (Grid::reset on all ranks begins again)"
            ))
        };
        for (rank, theirs) in all.map_err(failed)?.chunks_exact(mine.len()).enumerate() {
            let message = if theirs[1..] != mine[1..] {
                let is_alike = theirs[9..] == mine[9..];
                let other = if is_alike { ", on another grid or with a longer name" } else { "" };
                let theirs = String::from_utf8_lossy(&theirs[9..]);
                format!("rank {rank}: {}{other}; this rank: {what}", theirs.trim_end_matches('\0'))
            } else if theirs[0] == 0 {
                format!("rank {rank} failed to {what}")
            } else {
                continue;
            };
            return Err(Error::new(ErrorKind::InvalidArgument, "gather", message));
        }
        Ok(result)
    }

    /// The tag of messages that carry whole blocks. Exchanges have lower ones.
    pub(crate) fn tag(&self) -> u32 {
        self.communicator.max_tag()
    }

    /// The buffer of such a message. Its ID differs from those of before a reset.
    fn whole(&self, bytes: Vec<u8>) -> Buffer {
        Buffer::host(bytes).with_message_id(self.state().exchanges.origin())
    }

    fn send<T: Number>(&self, to: usize, values: ArrayViewD<'_, T>) -> Result<()> {
        let (most, mut left) = (BYTES / size_of::<T>(), values.len());
        let mut message: Vec<T> = Vec::with_capacity(most.min(left));
        for row in values.rows() {
            let row = row.as_standard_layout();
            let mut row = row.as_slice().unwrap_or_default();
            while !row.is_empty() {
                let (now, later) = row.split_at(row.len().min(most - message.len()));
                message.extend_from_slice(now);
                row = later;
                left -= now.len();
                if message.len() == most || left == 0 {
                    let bytes = bytemuck::cast_slice(&message).to_vec();
                    let sent = self.communicator.send(to, self.tag(), self.whole(bytes))?;
                    self.communicator.wait(sent, self.timeout)?;
                    message.clear();
                }
            }
        }
        Ok(())
    }

    fn receive<T: Number>(&self, from: usize, mut values: ArrayViewMutD<'_, T>) -> Result<()> {
        let (most, mut left) = (BYTES / size_of::<T>(), values.len());
        let (mut bytes, mut read) = (Vec::new(), 0);
        for mut row in values.rows_mut() {
            let mut row = row.view_mut();
            while !row.is_empty() {
                if read == bytes.len() {
                    let buffer = self.whole(vec![0; left.min(most) * size_of::<T>()]);
                    let received = self.communicator.receive(from, self.tag(), buffer)?;
                    (bytes, read) = (self.communicator.wait(received, self.timeout)?.to_vec()?, 0);
                }
                let arrived = bytes[read..].chunks_exact(size_of::<T>());
                let now = arrived.len().min(row.len());
                let (mut points, later) = row.split_at(Axis(0), now);
                let arrived = arrived.map(bytemuck::pod_read_unaligned);
                points.iter_mut().zip(arrived).for_each(|(value, arrived)| *value = arrived);
                row = later;
                left -= now;
                read += now * size_of::<T>();
            }
        }
        Ok(())
    }
}

fn check_root(grid: &Domain, root: usize) -> Result<()> {
    let ranks = grid.topology.ranks();
    if root < ranks {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, "gather", format!("rank {root}; there are {ranks}")))
}

/// The part of an array that a rank owns.
fn block_of<'w, T, const N: usize>(
    whole: &'w mut ArrayD<T>,
    ranges: &[Range<usize>; N],
) -> ArrayViewMut<'w, T, IxDyn> {
    whole.slice_each_axis_mut(|axis| Slice::from(ranges[axis.axis.index()].clone()))
}

/// An array, if there is enough memory.
pub(crate) fn zeros<T: Number, D: Dimension>(
    operation: &'static str,
    points: impl IntoDimension<Dim = D>,
) -> Result<Array<T, D>> {
    let refuse = |message| Error::new(ErrorKind::OutOfMemory, operation, message);
    let shape = points.into_dimension();
    let points = shape.slice().to_vec();
    let count = points.iter().try_fold(1_usize, |count, n| count.checked_mul(*n));
    let mut values = Vec::new();
    count.ok_or_else(|| refuse(format!("an array of {points:?} points"))).and_then(|count| {
        let message = || format!("{count} values of {} bytes on the host", size_of::<T>());
        values.try_reserve_exact(count).map_err(|error| refuse(message()).with_source(error))?;
        values.resize(count, T::zeroed());
        Ok(())
    })?;
    Array::from_shape_vec(shape, values)
        .map_err(|error| refuse(format!("an array of {points:?} points")).with_source(error))
}
