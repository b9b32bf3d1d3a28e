//! Transfers: which elements of which field go from which rank to which rank.

use std::ops::Range;

use runtime_core::{Error, ErrorKind, Result};

use crate::field::{Dim, FieldSpec, Kind, Quantity};
use crate::options::Reach;
use crate::topology::symmetry::AXES;
use crate::topology::{Piece, Side, Surroundings, Topology};

/// The elements that are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Ghost elements.
    Halo(Reach),
    /// Ghost elements beyond the ends of an axis, with those of earlier axes beside them.
    Axis(usize),
    /// Points between cells that two ranks share.
    Shared,
}

/// All fields of a rank: those of its blocks, block after block. Each block has the same fields.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    specs: Vec<FieldSpec>,
    roles: Vec<Role>,
    /// The blocks of the rank, in order.
    blocks: Vec<usize>,
}

/// What a field is.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    /// Its name; that of its spec includes the block, if the rank may have several.
    pub(crate) name: String,
    /// The kind of its quantity.
    pub(crate) kind: Kind,
    /// The number of its quantity's first field in a block.
    first: usize,
}

/// A box of elements of one field that is copied from elements of another block, or of the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// The sender's block.
    pub(crate) from: usize,
    /// The receiver's block.
    pub(crate) to: usize,
    /// The side of the receiver beyond which, or on which, the elements lie.
    pub(crate) side: Side,
    /// The receiver's field, by its number in a block.
    pub(crate) field: usize,
    /// The sender's field, by its number in a block.
    pub(crate) source: usize,
    pub(crate) negate: bool,
    /// The receiver's elements along each axis; 0 is the first owned element.
    pub(crate) target: [Range<isize>; AXES],
    /// For each axis of the receiver, the elements of the sender.
    pub(crate) origin: [Run; AXES],
}

/// The fields of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockFields<'a> {
    pub(crate) specs: &'a [FieldSpec],
    pub(crate) roles: &'a [Role],
    /// The number of the first field among those of the rank.
    pub(crate) first: usize,
}

/// The numbers of ghost cells below and above along each axis.
type Widths = [[usize; 2]; AXES];

/// A run of elements of the sender along an axis of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The sender's axis.
    pub(crate) axis: usize,
    /// The sender's element that becomes the receiver's first element; 0 is the first owned element.
    pub(crate) first: isize,
    /// Whether the sender's index decreases from element to element.
    pub(crate) backwards: bool,
}

/// A box of ghost elements that no neighbour fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The field's number in the exchange.
    pub field: usize,
    /// The side of the block beyond which the elements lie.
    pub side: Side,
    /// The ranges of indices along each dimension of the field.
    pub ranges: Vec<Range<usize>>,
    /// Whether it is a corner at which tiles meet but no cell lies, as at the eight corners of the cube. Otherwise it
    /// is a physical boundary.
    pub missing_corner: bool,
}

impl Fields {
    /// The fields of `quantities` on a rank: those of each of its blocks, block after block. Checks that their cells
    /// are those of the block, and that all blocks have the same fields.
    pub(crate) fn new(quantities: &[Quantity], topology: &Topology, rank: usize) -> Result<Self> {
        let blocks = topology.blocks_of(rank)?;
        let (count, per_block) = (blocks.len(), quantities.len() / blocks.len());
        if !quantities.len().is_multiple_of(count) {
            let message = format!(
                "{} quantities on rank {rank}, which has {count} blocks with the same quantities",
                quantities.len()
            );
            return Err(refuse(message));
        }
        let (mut specs, mut roles) = (Vec::new(), Vec::new());
        for (number, block) in blocks.iter().enumerate() {
            let start = specs.len();
            for quantity in &quantities[number * per_block..][..per_block] {
                let (first, kind) = (specs.len() - start, quantity.kind());
                for spec in quantity.components() {
                    roles.push(Role { name: spec.name().to_owned(), kind, first });
                    specs.push(match topology.owners() {
                        None => spec.clone(),
                        Some(_) => spec.clone().in_block(*block),
                    });
                }
            }
            check_block(&specs[start..], topology, rank, *block)?;
            let (own, all) = (specs.len() - start, specs.len());
            if own * (number + 1) != all {
                let others = start / number.max(1);
                let message = format!(
                    "rank {rank}: {own} fields of block {block}, {others} of block {}",
                    blocks[0]
                );
                return Err(refuse(message));
            }
        }
        Ok(Self { specs, roles, blocks })
    }

    /// The fields of a block of this rank. For any other block, the fields of the first block of this rank, which
    /// differ only in the numbers of cells and in their places in memory.
    pub(crate) fn of(&self, block: usize) -> BlockFields<'_> {
        let count = self.specs.len() / self.blocks.len();
        let first = count * self.blocks.binary_search(&block).unwrap_or(0);
        BlockFields {
            specs: &self.specs[first..][..count],
            roles: &self.roles[first..][..count],
            first,
        }
    }

    /// The same fields on another rank with these [placements](FieldSpec::placement), which hold those of its blocks,
    /// one after the other.
    pub(crate) fn placed(
        &self,
        topology: &Topology,
        rank: usize,
        mut placements: &[[i64; 3]],
    ) -> Result<Self> {
        let blocks = topology.blocks_of(rank)?;
        let own = self.of(self.blocks[0]);
        let (mut specs, mut roles) = (Vec::new(), Vec::new());
        for block in &blocks {
            let cells = topology.block(*block)?.cells;
            for spec in own.specs {
                let (of_field, rest) = placements.split_at(spec.dims().len());
                placements = rest;
                specs.push(spec.placed(cells, of_field)?);
            }
            roles.extend_from_slice(own.roles);
        }
        Ok(Self { specs, roles, blocks })
    }

    /// The blocks of the rank, in order.
    pub(crate) fn blocks(&self) -> &[usize] {
        &self.blocks
    }

    pub(crate) fn specs(&self) -> &[FieldSpec] {
        &self.specs
    }

    /// The widest halo.
    pub(crate) fn reach(&self) -> usize {
        let dims = self.specs.iter().flat_map(FieldSpec::dims);
        dims.flat_map(Dim::widths).max().unwrap_or(0)
    }

    /// Returns what `block` receives, in the order of fields and of sides, and the ghosts that no rank sends.
    pub(crate) fn incoming(
        &self,
        topology: &Topology,
        block: usize,
        pattern: Pattern,
    ) -> Result<(Vec<Transfer>, Vec<Edge>)> {
        let (mut transfers, mut edges) = (Vec::new(), Vec::new());
        let cells = topology.block(block)?.cells;
        let BlockFields { specs, first, .. } = self.of(block);
        // Several fields often have the same widths.
        let mut found: Vec<(Widths, Surroundings)> = Vec::new();
        for (field, spec) in specs.iter().enumerate() {
            let Some(widths) = widths(spec, topology.owner(block), pattern)? else { continue };
            let index = match found.iter().position(|(of, _)| *of == widths) {
                Some(index) => index,
                None => {
                    found.push((widths, topology.surroundings(block, &widths)?));
                    found.len() - 1
                }
            };
            let (pieces, gaps) = &found[index].1;
            if let Pattern::Axis(axis) = pattern {
                for piece in along(pieces, axis, &widths) {
                    transfers
                        .extend(self.transfer(topology, block, field, &piece, &widths, pattern)?);
                }
                continue;
            }
            let wanted =
                |side: Side| pattern != Pattern::Halo(Reach::Faces) || side.codimension() == 1;
            for piece in pieces.iter().filter(|piece| wanted(piece.side)) {
                transfers.extend(self.transfer(topology, block, field, piece, &widths, pattern)?);
            }
            for gap in gaps.iter().filter(|gap| wanted(gap.side)) {
                let ghosts: [Range<isize>; AXES] = std::array::from_fn(|axis| {
                    let block = cells[axis].cast_signed();
                    points(spec, axis, gap.side, &gap.cells[axis], block, pattern)
                });
                let ranges = spec.dims().iter().map(|dim| match dim.along() {
                    None => 0..dim.points(),
                    Some(axis) => {
                        index_of(dim, ghosts[axis].start)..index_of(dim, ghosts[axis].end)
                    }
                });
                let ranges = ranges.collect();
                let field = first + field;
                edges.push(Edge { field, side: gap.side, ranges, missing_corner: gap.is_corner });
            }
        }
        Ok((transfers, edges))
    }

    /// The transfer of a piece. `None` for shared points that the receiver owns.
    fn transfer(
        &self,
        topology: &Topology,
        block: usize,
        field: usize,
        piece: &Piece,
        widths: &Widths,
        pattern: Pattern,
    ) -> Result<Option<Transfer>> {
        let (cells, BlockFields { specs, roles, .. }) =
            (topology.block(block)?.cells, self.of(block));
        let spec = &specs[field];
        let (side, symmetry) = (piece.side, piece.map.symmetry);
        let rank = topology.owner(block);
        let place = || format!("field {}, side {side} of rank {rank}", spec.name());
        let neighbour = || {
            let rank = topology.owner(piece.block);
            let block = topology.owners().map(|_| format!("block {} of ", piece.block));
            format!("{}rank {rank}", block.unwrap_or_default())
        };
        for axis in (0..AXES).filter(|axis| side.0[*axis] != 0) {
            let width = widths[axis][usize::from(side.0[axis] > 0)];
            let limit = piece.neighbour_cells[symmetry.axis(axis).0];
            // A halo that exceeds a neighbour always exceeds the nearest one.
            let is_nearest =
                piece.cells[axis].end == 0 || piece.cells[axis].start == cells[axis].cast_signed();
            if width > limit && is_nearest {
                let message = format!(
                    "{}: a halo of {width} cells; its neighbour, {}, has {limit}",
                    place(),
                    neighbour()
                );
                return Err(refuse(message));
            }
        }
        let Role { kind, first, .. } = roles[field];
        let (component, negate) = kind.source(field - first, symmetry);
        let source = first + component;
        if negate && !spec.dtype().admits_negate() {
            let message = format!(
                "{}: elements of {} change their sign coming from {}, and have none",
                place(),
                spec.dtype(),
                neighbour()
            );
            return Err(refuse(message));
        }
        let staggered = |spec: &FieldSpec, axis| spec.along(axis).is_some_and(Dim::is_staggered);
        let not = |is: bool| if is { "" } else { " not" };
        for axis in 0..AXES {
            let (on, _) = symmetry.axis(axis);
            let other = &specs[source];
            if staggered(spec, axis) != staggered(other, on) {
                let hint = match kind {
                    Kind::Scalar | Kind::PseudoScalar => {
                        "a field that is staggered along one axis needs a partner along the other, in a vector or an \
                         unsigned pair"
                            .to_owned()
                    }
                    _ => format!("as components of one {kind:?} they change places, and staggering with them"),
                };
                let message = format!(
                    "{}: its axis {axis}, along which it is{} staggered, lies along axis {on} of {}, along which \
                     field {} is{} staggered; {hint}",
                    place(),
                    not(staggered(spec, axis)),
                    neighbour(),
                    other.name(),
                    not(staggered(other, on))
                );
                return Err(refuse(message));
            }
        }
        if pattern == Pattern::Shared && !is_overwritten(spec, rank, block, piece)? {
            return Ok(None);
        }
        let target: [Range<isize>; AXES] = std::array::from_fn(|axis| {
            points(spec, axis, side, &piece.cells[axis], cells[axis].cast_signed(), pattern)
        });
        let origin = std::array::from_fn(|axis| {
            let (on, backwards) = symmetry.axis(axis);
            let (shift, start) = (piece.map.shift[on], target[axis].start);
            let first = match (backwards, staggered(spec, axis)) {
                (false, _) => start + shift,
                (true, true) => shift - start,
                (true, false) => shift - 1 - start,
            };
            Run { axis: on, first, backwards }
        });
        let (from, to) = (piece.block, block);
        Ok(Some(Transfer { from, to, side, field, source, negate, target, origin }))
    }
}

/// Whether the receiver's values of shared points are overwritten: at a high end that is joined to a low end, and
/// otherwise at the later of the two sides by block and side number.
fn is_overwritten(spec: &FieldSpec, rank: usize, block: usize, piece: &Piece) -> Result<bool> {
    let joined = piece.side.through(piece.map.symmetry);
    let is_high = |side: Side| side.0.contains(&1);
    if (block, piece.side) == (piece.block, joined) {
        let message = format!(
            "field {}, side {joined} of rank {rank}: joined to itself, so its points have no owner",
            spec.name()
        );
        return Err(refuse(message));
    }
    Ok(match (is_high(piece.side), is_high(joined)) {
        (true, false) => true,
        (false, true) => false,
        _ => (block, piece.side.id()) > (piece.block, joined.id()),
    })
}

/// Checks that names differ, and that cells are those of a block.
fn check_block(specs: &[FieldSpec], topology: &Topology, rank: usize, block: usize) -> Result<()> {
    for (index, spec) in specs.iter().enumerate() {
        let name = spec.name();
        if let Some(first) = specs[..index].iter().position(|other| other.name() == name) {
            let message =
                format!("fields {first} and {index} of rank {rank} are both named {name}");
            return Err(refuse(message));
        }
    }
    let block = topology.block(block)?;
    for spec in specs {
        for axis in 0..AXES {
            let what = || format!("field {} of rank {rank}", spec.name());
            let cells = spec.along(axis).map(Dim::cells);
            match (axis < topology.axes()).then_some(block.cells[axis]) {
                None if cells.is_some() => {
                    let message = format!(
                        "{} has a dimension along axis {axis}; the topology has {} axes",
                        what(),
                        topology.axes()
                    );
                    return Err(refuse(message));
                }
                Some(expected) if cells != Some(expected) => {
                    let message = match cells {
                        Some(cells) => format!(
                            "{} has {cells} cells along axis {axis}; its block (Topology::block) has {expected}",
                            what()
                        ),
                        None => format!("{} has no dimension along axis {axis}", what()),
                    };
                    return Err(refuse(message));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The pieces beyond the ends of an axis, extended by the ghosts that have a neighbour along earlier axes.
fn along(pieces: &[Piece], axis: usize, widths: &Widths) -> Vec<Piece> {
    let is_joined = |side: Side| pieces.iter().any(|piece| piece.side == side);
    let beyond = [-1, 1].map(|end| Side::face(axis, end));
    let mut along: Vec<Piece> =
        pieces.iter().filter(|piece| beyond.contains(&piece.side)).cloned().collect();
    for (earlier, [below, above]) in widths.iter().enumerate().take(axis) {
        let [below, above] = [(below, -1), (above, 1)].map(|(width, end)| {
            if is_joined(Side::face(earlier, end)) { width.cast_signed() } else { 0 }
        });
        for piece in &mut along {
            let cells = &mut piece.cells[earlier];
            *cells = cells.start - below..cells.end + above;
        }
    }
    along
}

/// The numbers of ghost cells of a field below and above along each axis. `None` if the field does not take part.
fn widths(spec: &FieldSpec, rank: usize, pattern: Pattern) -> Result<Option<Widths>> {
    let dim = |axis| spec.along(axis);
    match pattern {
        Pattern::Halo(_) | Pattern::Axis(_) => {
            Ok(Some(std::array::from_fn(|axis| dim(axis).map_or([0; 2], Dim::widths))))
        }
        Pattern::Shared => {
            let staggered = |axis: &usize| dim(*axis).is_some_and(Dim::is_staggered);
            match (0..AXES).filter(staggered).count() {
                0 => Ok(None),
                1 => Ok(Some(std::array::from_fn(|axis| [usize::from(staggered(&axis)); 2]))),
                axes => Err(refuse(format!(
                    "field {} of rank {rank} is staggered along {axes} axes: points that more than two ranks share are not synchronised",
                    spec.name()
                ))),
            }
        }
    }
}

/// The elements that correspond to cells: the cells themselves, or the points between them.
///
/// Beyond an end of the block, ghost points are those on the far side of each cell, and shared points are those on the
/// near side. Along the block, points are those before each cell, and the point after the last cell. If ghosts above
/// the block are included, so is the point after the last ghost.
fn points(
    spec: &FieldSpec,
    axis: usize,
    side: Side,
    cells: &Range<isize>,
    block: isize,
    pattern: Pattern,
) -> Range<isize> {
    if !spec.along(axis).is_some_and(Dim::is_staggered) {
        return cells.clone();
    }
    match (side.0[axis], pattern) {
        (0, _) => cells.start..cells.end + isize::from(cells.end >= block),
        (1, Pattern::Halo(_) | Pattern::Axis(_)) => cells.start + 1..cells.end + 1,
        (_, Pattern::Halo(_) | Pattern::Axis(_)) => cells.clone(),
        (1, Pattern::Shared) => cells.start..cells.end,
        (_, Pattern::Shared) => cells.start + 1..cells.end + 1,
    }
}

/// The index along a dimension of the element at this distance from the first owned element.
pub(crate) fn index_of(dim: &Dim, from_owned: isize) -> usize {
    // Transfers stay inside the allocation, because the widths were checked.
    dim.below().wrapping_add_signed(from_owned)
}

pub(crate) fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "halo plan", message)
}
