//! Grids: cells, their division among ranks, and the device of each rank.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use halo::Topology;
use halo::communicator::{Communicator, ThreadCommunicator};
use parking_lot::{Mutex, ReentrantMutex};
use runtime_core::{Device, Error, ErrorKind, ModuleImage, Result, Traffic};

use crate::description::Stencil;
use crate::domain::{Domain, State};
use crate::erased::Number;
use crate::exchanges::Exchanges;
use crate::field::{Component, FieldBuilder};

/// The widest halo. Stencils read no farther.
pub(crate) const MAX_WIDTH: usize = 1024;

/// A rectangular grid of cells over `N` axes, on one rank or several. Clones are the same grid.
///
/// Axis 0 is that of the first index. Along the last axis, neighbours lie next to each other in memory.
///
/// All ranks make the same grid with [`cartesian`](Self::cartesian), and the same fields on it, in the same order. What
/// is said to be *collective* is called by all ranks together, in the same order.
///
/// ```
/// use runtime_core::Device;
/// use stencil::{Boundary, Grid};
///
/// let device = Device::new(backend_host::HostDevice::new(0))?;
/// let grid = Grid::cartesian([30, 20]).periodic([true, false]).build(&device)?;
/// let mut height = grid.field("height").boundary(Boundary::Mirror).from_fn(|[i, j]| (i * j) as f64)?;
/// assert_eq!(height.read_host()?[[2, 3]], 6.0);
/// # Ok::<(), runtime_core::Error>(())
/// ```
pub struct Grid<const N: usize>(pub(crate) Arc<Domain>);

impl<const N: usize> Grid<N> {
    /// Begins to make a grid of these cells.
    pub fn cartesian(cells: [usize; N]) -> GridBuilder<N> {
        GridBuilder {
            cells,
            periodic: [false; N],
            tiles: 1,
            blocks: [0; N],
            width: 1,
            communicator: None,
            timeout: Duration::from_secs(60),
        }
    }

    /// Begins to make a field. Its name is for messages.
    pub fn field<T: Number>(&self, name: impl Into<String>) -> FieldBuilder<T, N> {
        FieldBuilder::new(Arc::clone(&self.0), name.into(), None)
    }

    /// Begins to make the components of a vector along each axis. Where tiles of a [cubed sphere](Grid::cubed_sphere)
    /// meet, the axes of one tile are others on its neighbour: then components change places and signs. There, a
    /// stencil that reads ghosts of one component must read the other one, too: the first fields that are made of both
    /// belong together, and then the first ones that [`like`](crate::Field::like) makes of both, and so on. On other
    /// grids, components are as any fields.
    pub fn vector<T: Number>(&self, names: [&str; N]) -> [FieldBuilder<T, N>; N] {
        let mut state = self.0.state();
        let vector = state.levels.len();
        state.levels.push([0; 3]);
        std::array::from_fn(|axis| {
            let component = Some(Component { vector, axis, level: 0 });
            FieldBuilder::new(Arc::clone(&self.0), names[axis].to_owned(), component)
        })
    }

    /// The cells of all ranks along each axis; on a cubed sphere, those of one tile.
    pub fn cells(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.0.cells[axis])
    }

    /// The tile of this rank. It is 0, except on a [cubed sphere](Self::cubed_sphere).
    pub fn tile(&self) -> usize {
        self.0.tile
    }

    /// The cells of this rank; on a cubed sphere, their indices in its tile.
    pub fn block(&self) -> [Range<usize>; N] {
        std::array::from_fn(|axis| self.0.block[axis].clone())
    }

    /// The number of blocks along each axis, one for each rank.
    pub fn blocks(&self) -> [usize; N] {
        std::array::from_fn(|axis| self.0.blocks[axis])
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.0.number()
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.topology.ranks()
    }

    /// The number of exchanges of ghosts with this rank or others so far.
    pub fn exchanges(&self) -> u64 {
        self.0.state().exchanges.count()
    }

    /// The messages that these exchanges have sent to other ranks.
    pub fn sent(&self) -> Traffic {
        self.0.state().exchanges.sent()
    }

    /// Compiles a stencil for the device, if it is not compiled yet. Otherwise its first launch does so.
    ///
    /// # Errors
    ///
    /// As for compiling in [`Launch::run`](crate::Launch::run).
    pub fn load(&self, stencil: &'static Stencil) -> Result<()> {
        self.0.state().kernels.of(&self.0.device, stencil).map(drop)
    }

    /// Adds the kernel of a stencil for devices that compile nothing: embedded devices. `image` is an ELF executable,
    /// compiled from the stencil's [`source`](Stencil::source) for [`ImageFormat::Elf`](runtime_core::ImageFormat::Elf)
    /// with the flags `-std=gnu99 -ffp-contract=off -frounding-math`.
    ///
    /// An image made of another text is refused by the first launch. What the image's code does to the memory of such a
    /// device is the responsibility of the program.
    ///
    /// ```
    /// use runtime_core::{Device, ImageFormat, ModuleImage};
    /// use stencil::{Grid, InOut, stencil};
    ///
    /// #[stencil]
    /// fn double(t: InOut<f64, 1>) {
    ///     t.set(2.0 * t.at(0));
    /// }
    ///
    /// let device = Device::new(backend_host::HostDevice::new(0))?;
    /// let grid = Grid::cartesian([100]).build(&device)?;
    /// let text = double::STENCIL.source(ImageFormat::Elf);
    /// assert!(text.is_some_and(|text| text.starts_with("#include \"kernel.h\"")));
    /// # let compiled = [0];
    /// grid.add_image(double::STENCIL, ModuleImage::binary(ImageFormat::Elf, compiled.to_vec()))?;
    /// # Ok::<(), runtime_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for images in other formats, which are made here.
    pub fn add_image(&self, stencil: &'static Stencil, image: ModuleImage<'static>) -> Result<()> {
        self.0.state().kernels.add(stencil, image)
    }

    /// Makes launches possible again after one has failed on some rank, for example because a rank was late.
    /// Collective. Blocks until all ranks have called it. Fields that the failed launches were to set must be set
    /// again. All ghosts are stale, also those of other grids of the communicator, which need no reset of their own.
    ///
    /// # Errors
    ///
    /// Those of [`Communicator::reset`]. Call it again then.
    pub fn reset(&self) -> Result<()> {
        self.0.communicator.reset(self.0.timeout.saturating_mul(2))?;
        self.0.communicator.discard(self.0.tag()..self.0.tag() + 1)
    }
}

impl Grid<2> {
    /// Begins to make a cubed sphere: six tiles of `cells` × `cells` cells, each divided among as many ranks. The tiles
    /// are joined as [`Topology::cubed_sphere`] says, where x is axis 0 and y is axis 1. Indices are those in the tile.
    ///
    /// Neighbours may have their axes turned, so components of vectors are made by [`vector`](Self::vector). Ghosts at
    /// the eight corners of the cube, where there is no cell, are means of the two ghosts beside them. Stencils with
    /// diagonals therefore read only fields of floats.
    pub fn cubed_sphere(cells: usize) -> GridBuilder<2> {
        GridBuilder { periodic: [true; 2], tiles: 6, ..Self::cartesian([cells; 2]) }
    }
}

impl<const N: usize> Clone for Grid<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<const N: usize> fmt::Debug for Grid<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, ranks) = (self.rank(), self.ranks());
        write!(f, "Grid({:?} cells, rank {rank} of {ranks}, {})", self.cells(), self.0.device.id())
    }
}

/// The description of a [`Grid`].
#[derive(Clone)]
#[must_use = "a description makes no grid until `build`"]
pub struct GridBuilder<const N: usize> {
    cells: [usize; N],
    periodic: [bool; N],
    tiles: usize,
    blocks: [usize; N],
    width: usize,
    communicator: Option<Arc<dyn Communicator>>,
    timeout: Duration,
}

impl<const N: usize> GridBuilder<N> {
    /// Joins the ends of axes: beyond the last cell comes the first one. A cubed sphere has no ends to join.
    pub fn periodic(self, periodic: [bool; N]) -> Self {
        if self.tiles == 1 { Self { periodic, ..self } } else { self }
    }

    /// Sets how far stencils may read, at most 1024. The default is 1.
    pub fn halo(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// Divides the grid among these ranks. The default is one rank.
    pub fn ranks(self, communicator: Arc<dyn Communicator>) -> Self {
        Self { communicator: Some(communicator), ..self }
    }

    /// Sets the number of blocks along each axis. Where it is 0, which is the default, the number is chosen such that
    /// the blocks have small surfaces.
    pub fn blocks(self, blocks: [usize; N]) -> Self {
        Self { blocks, ..self }
    }

    /// Sets the longest time that a rank waits for others. The default is a minute.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Makes the grid of this rank, for fields on `device`. Does not wait for other ranks: the first exchange compares
    /// their cells and blocks.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless there are one to three axes; for no cells along an axis; if the blocks are not as many
    /// as the ranks; or if a block has fewer cells than the halo along an axis on which there are neighbours.
    pub fn build(self, device: &Device) -> Result<Grid<N>> {
        let Self { cells, periodic, tiles, blocks, width, communicator, timeout } = self;
        if !(1..=3).contains(&N) {
            return Err(refuse(format!("{N} axes; 1 to 3")));
        }
        if width > MAX_WIDTH {
            return Err(refuse(format!("a halo of {width}; at most {MAX_WIDTH}")));
        }
        let communicator = match communicator {
            Some(communicator) => communicator,
            None => alone()?,
        };
        let ranks = communicator.size();
        if !ranks.is_multiple_of(tiles) {
            return Err(refuse(format!("{ranks} ranks for {tiles} tiles; each has as many")));
        }
        let blocks = Topology::blocks(&cells, &blocks, ranks / tiles)?;
        let topology = match (tiles, &blocks[..]) {
            (6, [x, y]) => Topology::cubed_sphere(cells[0], [*y, *x])?,
            _ => Topology::cartesian(&cells, &blocks, &periodic)?,
        };
        for axis in 0..N {
            let least = cells[axis] / blocks[axis];
            if (periodic[axis] || blocks[axis] > 1) && least < width {
                let message = format!(
                    "a halo of {width} along axis {axis}; a block has {least} cells there: use fewer ranks, or other `blocks`"
                );
                return Err(refuse(message));
            }
        }
        let own = topology.block(communicator.rank())?;
        let exchanges = {
            let collectives = communicator.collectives();
            Exchanges::new(collectives.next_object(), collectives.resets())
        };
        let ends = [topology.block(0)?.cells, topology.block(topology.ranks() - 1)?.cells];
        let inner = Domain {
            rank: N,
            cells: filled(cells, 1),
            periodic: filled(periodic, false),
            tiles,
            tile: own.tile,
            width,
            blocks: std::array::from_fn(|axis| blocks.get(axis).copied().unwrap_or(1)),
            block: std::array::from_fn(|axis| own.start[axis]..own.start[axis] + own.cells[axis]),
            at_ends: std::array::from_fn(|axis| ends.each_ref().map(|cells| cells[axis])),
            topology,
            communicator,
            device: device.clone(),
            timeout,
            state: Mutex::new(State { exchanges, ..State::default() }),
            exchanging: ReentrantMutex::default(),
        };
        Ok(Grid(Arc::new(inner)))
    }
}

impl<const N: usize> fmt::Debug for GridBuilder<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GridBuilder")
            .field("cells", &self.cells)
            .field("periodic", &self.periodic)
            .field("blocks", &self.blocks)
            .field("halo", &self.width)
            .finish_non_exhaustive()
    }
}

/// The communicator of a rank without others.
fn alone() -> Result<Arc<dyn Communicator>> {
    let only = ThreadCommunicator::group(1)?.pop();
    let only = only.ok_or_else(|| refuse("a group without a rank".to_owned()))?;
    Ok(Arc::new(only))
}

/// Values for up to three axes, with `rest` for those that are absent.
fn filled<T: Copy, const N: usize>(values: [T; N], rest: T) -> [T; 3] {
    std::array::from_fn(|axis| values.get(axis).copied().unwrap_or(rest))
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "grid", message)
}
