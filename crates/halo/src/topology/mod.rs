//! Neighbours of ranks: tiles are cut into blocks, which belong to ranks, and joined along their sides.

mod cartesian;
mod cube;
pub(crate) mod links;
mod owners;
pub(crate) mod regions;
mod side;
pub(crate) mod symmetry;

use std::collections::BTreeMap;
use std::ops::Range;

use runtime_core::{Error, ErrorKind, Result};

pub use self::side::Side;
pub use self::symmetry::Symmetry;
use self::symmetry::{AXES, Map};
use crate::communicator::MAX_RANKS;

/// A decomposition: which rank owns which block of cells, and what lies beyond the sides of each block.
///
/// Cells lie in one or several rectangular *tiles*. A grid cuts each tile into blocks, and each block belongs to one
/// rank. A rank has one block, or [several](Self::on_ranks). Tiles are joined along whole sides, possibly rotated or
/// reflected. [`cartesian`](Self::cartesian), [`cubed_sphere`](Self::cubed_sphere) and [`of_blocks`](Self::of_blocks)
/// make topologies. With [`of_regions`](Self::of_regions), the user gives the cells for each box of ghosts instead.
/// Every rank makes the same topology.
///
/// ```
/// use halo::{Side, Symmetry, Topology};
///
/// let sphere = Topology::cubed_sphere(48, [1, 2])?; // each tile in one row of two blocks
/// assert_eq!(sphere.ranks(), 12);
/// assert_eq!(sphere.block(3)?.cells, [24, 48, 1]);
/// let west = sphere.neighbours(0)?.into_iter().find(|next| next.side == Side::WEST).unwrap();
/// assert_eq!((west.rank, west.symmetry), (9, Symmetry::QUARTER));
/// # Ok::<(), halo::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    axes: usize,
    tiles: Vec<Tile>,
    joints: BTreeMap<(usize, Side), Joint>,
    /// What lies around blocks, instead of what `joints` say.
    regions: Option<Regions>,
    /// The ranks of the blocks, unless each rank has the block with its number.
    owners: Option<Owners>,
}

/// A rectangle of cells and how it is cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tile {
    /// For each axis: 0, the positions of the cuts, and the number of cells.
    cuts: [Vec<usize>; AXES],
    /// The number of the tile's first block; x runs fastest.
    first: usize,
}

/// The neighbour or the boundary beyond a side of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joint {
    tile: usize,
    map: Map,
}

/// The cells of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The tile that contains them.
    pub tile: usize,
    /// The first cell in the tile along each axis.
    pub start: [usize; 3],
    /// The number of cells along each axis; 1 for an axis that the topology does not have.
    pub cells: [usize; 3],
}

/// A rank whose cells lie beyond a side of another rank's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The side.
    pub side: Side,
    /// The neighbour.
    pub rank: usize,
    /// Its block.
    pub block: usize,
    /// How the axes of this block lie relative to the axes of that block.
    pub symmetry: Symmetry,
}

/// A side, edge or corner of a tile that is joined to a side, edge or corner of a tile, possibly of the same tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seam {
    /// The tile.
    pub tile: usize,
    /// Its side.
    pub side: Side,
    /// The tile beyond the side. It is joined with its side [`Side::through`] the symmetry.
    pub neighbour: usize,
    /// How the axes of the tile lie relative to the axes of its neighbour.
    pub symmetry: Symmetry,
}

/// Ghost cells of one block that lie in one neighbour, possibly in the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) side: Side,
    pub(crate) block: usize,
    /// The cells in the coordinates of the receiver's block.
    pub(crate) cells: [Range<isize>; AXES],
    /// From the receiver's block to the neighbour's.
    pub(crate) map: Map,
    /// The numbers of cells of the neighbour, which limit the widths of halos.
    pub(crate) neighbour_cells: [usize; AXES],
}

/// Ghost cells of one block that no block contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) side: Side,
    /// The cells in the coordinates of the block.
    pub(crate) cells: [Range<isize>; AXES],
    /// Whether it is a corner at which tiles meet, rather than a physical boundary.
    pub(crate) is_corner: bool,
}

/// The ghosts of all blocks, if the user gave their boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Regions {
    /// For each block, the pieces around it.
    pieces: Vec<Vec<Piece>>,
    /// For each block, the blocks that read its cells, in order.
    readers: Vec<Vec<usize>>,
}

/// The blocks of each rank, if ranks may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owners {
    /// The rank of each block.
    ranks: Vec<usize>,
    /// All blocks, ordered by rank, then by number.
    blocks: Vec<usize>,
    /// For each rank, the place of its first block in `blocks`, and their number at the end.
    starts: Vec<usize>,
}

/// The pieces and gaps around a block.
pub(crate) type Surroundings = (Vec<Piece>, Vec<Gap>);

impl Topology {
    /// Joins tiles along these sides. Each seam is given from both of its ends.
    fn joined(
        axes: usize,
        tiles: Vec<Tile>,
        links: impl IntoIterator<Item = (usize, Side, usize, Symmetry)>,
    ) -> Result<Self> {
        let joints = BTreeMap::new();
        let mut topology = Self { axes, tiles, joints, regions: None, owners: None };
        let tiles = topology.tiles.len();
        for (tile, side, to, symmetry) in links {
            let what = format!("block {tile}, side {side}, joined to {to} by {symmetry}");
            if tile >= tiles || to >= tiles {
                return Err(refuse(format!("{what}: there are {tiles}")));
            }
            let plane = axes > 1 || !symmetry.swaps() && !symmetry.axis(1).1;
            if side == Side::NONE || !side.is_within(axes) || !plane {
                return Err(refuse(format!("{what}: there are {axes} axes")));
            }
            let (own, other) = (topology.tiles[tile].cells(), topology.tiles[to].cells());
            let Some(map) = Map::joining(symmetry, side.0, own, other) else {
                let message = format!(
                    "{what}: the sides differ in length, {:?} cells and {:?}",
                    &own[..axes],
                    &other[..axes]
                );
                return Err(refuse(message));
            };
            if topology.joints.insert((tile, side), Joint { tile: to, map }).is_some() {
                return Err(refuse(format!("{what}: something is joined there already")));
            }
        }
        for (&(tile, side), joint) in &topology.joints {
            let back = (joint.tile, side.through(joint.map.symmetry));
            let expected = Joint { tile, map: joint.map.inverse() };
            if topology.joints.get(&back) != Some(&expected) {
                let message = format!(
                    "block {tile}, side {side}, is joined to block {}, whose side {} is not joined to it",
                    joint.tile, back.1
                );
                return Err(refuse(message));
            }
        }
        Ok(topology)
    }

    /// Whether it is a box that is cut along its axes, each of them periodic or not.
    pub(crate) fn is_box(&self) -> bool {
        let is_joined = |side| self.joints.contains_key(&(0, side));
        self.tiles.len() == 1
            && self.regions.is_none()
            && self.joints.values().all(|joint| joint.map.symmetry == Symmetry::IDENTITY)
            && Side::all(self.axes).all(|side| is_joined(side) == side.faces().all(is_joined))
    }

    /// The number of axes that can be divided: 1 to 3.
    pub fn axes(&self) -> usize {
        self.axes
    }

    /// The number of blocks.
    pub fn block_count(&self) -> usize {
        self.tiles.last().map_or(0, |tile| tile.first + tile.blocks())
    }

    /// The number of tiles.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// For each tile, the positions that cut it along each axis.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = &[Vec<usize>]> {
        self.tiles.iter().map(|tile| &tile.cuts[..self.axes])
    }

    /// The joints between tiles, in the order of tiles and sides. Each seam is listed from both of its ends.
    ///
    /// A side without a seam is a physical boundary. A corner or edge without a seam, whose adjacent sides have seams,
    /// is a corner or edge without cells.
    ///
    /// ```
    /// use halo::{Side, Topology};
    ///
    /// let ring = Topology::cartesian(&[8], &[4], &[true])?;
    /// let sides: Vec<Side> = ring.seams().map(|seam| seam.side).collect();
    /// assert_eq!(sides, [Side::WEST, Side::EAST]);
    /// # Ok::<(), halo::Error>(())
    /// ```
    pub fn seams(&self) -> impl Iterator<Item = Seam> + '_ {
        self.joints.iter().map(|(&(tile, side), joint)| Seam {
            tile,
            side,
            neighbour: joint.tile,
            symmetry: joint.map.symmetry,
        })
    }

    /// The cells of a block. Its number is that of its rank, unless [ranks have several blocks](Self::on_ranks).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no such block.
    pub fn block(&self, block: usize) -> Result<Block> {
        self.check_block(block)?;
        let tile = self.tiles.partition_point(|tile| tile.first <= block) - 1;
        let (start, cells) = self.tiles[tile].block(block);
        Ok(Block { tile, start, cells })
    }

    fn check_block(&self, block: usize) -> Result<()> {
        let blocks = self.block_count();
        if block >= blocks {
            return Err(refuse(format!("block {block} of a topology of {blocks}")));
        }
        Ok(())
    }

    /// The blocks and ranks beyond each side and corner of a block, possibly the block itself. If blocks do not match,
    /// several lie beyond one side.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn neighbours(&self, block: usize) -> Result<Vec<Neighbour>> {
        let (pieces, _) = self.surroundings(block, &[[1; 2]; AXES])?;
        let mut neighbours: Vec<Neighbour> = Vec::new();
        for Piece { side, block, map, .. } in pieces {
            let next = Neighbour { side, rank: self.owner(block), block, symmetry: map.symmetry };
            if !neighbours.contains(&next) {
                neighbours.push(next);
            }
        }
        Ok(neighbours)
    }

    /// What the user gave for each box of ghosts: the block of the ghosts, the block of the cells, and in readable form
    /// the boxes and the symmetry.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (usize, usize, String)> + '_ {
        self.regions.iter().flat_map(Regions::all).map(|(block, piece)| {
            let (cells, image) = (&piece.cells, piece.map.image(&piece.cells));
            (block, piece.block, format!("{cells:?} from {image:?} by {}", piece.map.symmetry))
        })
    }

    /// Whether the user gave the boxes of ghosts.
    pub(crate) const fn has_regions(&self) -> bool {
        self.regions.is_some()
    }

    /// The blocks that read cells of a block, if halos are at most this wide, in any order and possibly more than once.
    pub(crate) fn readers(&self, block: usize, reach: usize) -> Result<Vec<usize>> {
        if let Some(regions) = &self.regions {
            return Ok(regions.readers(block).to_vec());
        }
        // Any block within the widest halo of this block has this block within its own widest halo.
        let (pieces, _) = self.surroundings(block, &[[reach; 2]; AXES])?;
        Ok(pieces.iter().map(|piece| piece.block).collect())
    }

    /// Returns the pieces and gaps around a block up to these widths below and above along each axis, in the order of
    /// sides.
    ///
    /// If no width exceeds the neighbour's cells, every ghost cell is in exactly one piece or gap. Ghosts beyond the
    /// neighbour's cells are left out. Widths may be of any size.
    pub(crate) fn surroundings(
        &self,
        number: usize,
        widths: &[[usize; 2]; AXES],
    ) -> Result<Surroundings> {
        let block = self.block(number)?;
        let widths = &widths.map(|widths| widths.map(|width| width.min(MAX_CELLS)));
        if let Some(regions) = &self.regions {
            return Ok(regions.surroundings(number, self.axes, block.cells, widths));
        }
        let size = self.tiles[block.tile].cells();
        let (mut pieces, mut gaps) = (Vec::new(), Vec::new());
        for side in Side::all(self.axes) {
            let cells: [Range<isize>; AXES] = std::array::from_fn(|axis| {
                side.ghosts(axis, block.cells[axis].cast_signed(), widths[axis])
            });
            if cells.iter().any(Range::is_empty) {
                continue;
            }
            // The axes along which the ghosts lie outside the tile.
            let beyond = Side(std::array::from_fn(|axis| match side.0[axis] {
                -1 if block.start[axis] == 0 => -1,
                1 if block.start[axis] + block.cells[axis] == size[axis] => 1,
                _ => 0,
            }));
            let joint = match beyond {
                Side::NONE => Joint { tile: block.tile, map: Map::IDENTITY },
                _ => match self.joints.get(&(block.tile, beyond)) {
                    Some(joint) => *joint,
                    None => {
                        let joined = |part| self.joints.contains_key(&(block.tile, part));
                        let is_corner = beyond.faces().count() > 1 && beyond.faces().all(joined);
                        gaps.push(Gap { side, cells, is_corner });
                        continue;
                    }
                },
            };
            self.cut(&block, side, &cells, joint, &mut pieces);
        }
        Ok((pieces, gaps))
    }

    /// Splits ghost cells that lie in one tile along the blocks of that tile.
    fn cut(
        &self,
        block: &Block,
        side: Side,
        cells: &[Range<isize>; AXES],
        joint: Joint,
        pieces: &mut Vec<Piece>,
    ) {
        let from_block = joint.map.starting_at(&block.start.map(usize::cast_signed));
        let back = from_block.inverse();
        let tile = &self.tiles[joint.tile];
        let first = pieces.len();
        for index in tile.blocks_in(&from_block.image(cells)) {
            let block = tile.number(index);
            let (start, neighbour_cells) = tile.block(block);
            let image = from_block.image(cells);
            let common = std::array::from_fn(|axis| {
                let (low, high) = (
                    start[axis].cast_signed(),
                    (start[axis] + neighbour_cells[axis]).cast_signed(),
                );
                image[axis].start.max(low)..image[axis].end.min(high)
            });
            let map = from_block.shifted(&start.map(|start| -start.cast_signed()));
            pieces.push(Piece { side, block, cells: back.image(&common), map, neighbour_cells });
        }
        pieces[first..]
            .sort_by_key(|piece| std::array::from_fn::<_, AXES, _>(|a| piece.cells[a].start));
    }
}

impl Tile {
    /// A tile cut at these positions. It has one cell along axes that are not given.
    fn new(cuts: &[Vec<usize>], first: usize) -> Self {
        let cuts =
            std::array::from_fn(|axis| cuts.get(axis).cloned().unwrap_or_else(|| vec![0, 1]));
        Self { cuts, first }
    }

    fn cells(&self) -> [usize; AXES] {
        std::array::from_fn(|axis| self.cuts[axis].last().copied().unwrap_or(0))
    }

    /// The number of blocks along each axis.
    fn grid(&self) -> [usize; AXES] {
        std::array::from_fn(|axis| self.cuts[axis].len() - 1)
    }

    fn blocks(&self) -> usize {
        self.grid().iter().product()
    }

    /// The number of the block with this index in the grid.
    fn number(&self, index: [usize; AXES]) -> usize {
        let grid = self.grid();
        self.first + index[0] + grid[0] * (index[1] + grid[1] * index[2])
    }

    /// The start and the cells of a block in this tile.
    fn block(&self, block: usize) -> ([usize; AXES], [usize; AXES]) {
        let grid = self.grid();
        let number = block - self.first;
        let index = [number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]];
        let start: [usize; AXES] = std::array::from_fn(|axis| self.cuts[axis][index[axis]]);
        (start, std::array::from_fn(|axis| self.cuts[axis][index[axis] + 1] - start[axis]))
    }

    /// The indices of the blocks that contain cells of this box.
    fn blocks_in(
        &self,
        cells: &[Range<isize>; AXES],
    ) -> impl Iterator<Item = [usize; AXES]> + use<> {
        let [x, y, z] = std::array::from_fn(|axis| {
            let cuts = &self.cuts[axis];
            let first = cuts.partition_point(|cut| cut.cast_signed() <= cells[axis].start);
            let end = cuts.partition_point(|cut| cut.cast_signed() < cells[axis].end);
            first.max(1) - 1..end.min(cuts.len() - 1)
        });
        z.flat_map(move |k| {
            let x = x.clone();
            y.clone().flat_map(move |j| x.clone().map(move |i| [i, j, k]))
        })
    }
}

/// The most cells of a tile along an axis.
const MAX_CELLS: usize = i32::MAX as usize;

/// Refuses sizes that are too large, before anything is allocated for them. Other code counts axes and ranks with
/// `i32`, and every rank stores all cuts.
fn check_size(cells: &[usize], ranks: &[usize]) -> Result<()> {
    let all = ranks.iter().try_fold(1_usize, |all, ranks| all.checked_mul((*ranks).max(1)));
    if all.is_none_or(|all| all > MAX_RANKS) {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        return Err(refuse(format!("{} ranks; at most {MAX_RANKS}", ranks.join(" x "))));
    }
    match cells.iter().find(|cells| **cells > MAX_CELLS) {
        Some(cells) => Err(refuse(format!("{cells} cells along an axis; at most {MAX_CELLS}"))),
        None => Ok(()),
    }
}

/// The positions that cut `cells` cells into `blocks` parts, whose sizes differ by at most one cell.
fn even_cuts(cells: usize, blocks: usize) -> Result<Vec<usize>> {
    if blocks == 0 {
        return Err(refuse("0 ranks along an axis".to_owned()));
    }
    if blocks > cells {
        return Err(refuse(format!("{blocks} ranks along an axis of {cells} cells")));
    }
    let (least, more) = (cells / blocks, cells % blocks);
    Ok((0..=blocks).map(|cut| cut * least + cut * more / blocks).collect())
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "topology", message)
}
