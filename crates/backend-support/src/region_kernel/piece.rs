//! Converts a copy to the pieces that the kernel runs. A piece is a simple operation on elements of 1 to 16 bytes, in a
//! box whose dimensions are ordered to suit memory.

use runtime_core::{Combine, DType, LoweredCopy};

use super::words::{Code, MAX_RANK};

/// Largest element that is moved at once.
pub(super) const MAX_UNIT: u64 = 16;

/// Largest extent of a dimension for which it is better to run it innermost than a long dimension.
const THIN: u64 = 4;

/// Minimum number of elements per block along the destination's dense dimension, and along the source's: a cache line
/// of `f64`, and few enough rows that the page translations of all rows can be kept at once.
const BLOCK: (u64, u64) = (8, 32);

/// Number of bytes in a cache line.
pub(super) const LINE: u64 = 64;

/// A dimension that does not fit into a slab, and of which the slab has room for fewer steps than this, is moved
/// outwards.
const MANY: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) extent: u64,
    /// Distance in bytes from one element to the next.
    pub(super) to: i64,
    pub(super) from: i64,
}

impl Dim {
    const ONE: Self = Self { extent: 1, to: 0, from: 0 };
}

/// How elements are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) code: Code,
    pub(super) flip: u64,
    pub(super) carry: u64,
    pub(super) bias: u64,
    pub(super) infinity: u64,
}

/// A box of elements to copy from one slot to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) to_slot: usize,
    pub(super) to_offset: u64,
    pub(super) from_slot: usize,
    pub(super) from_offset: u64,
    pub(super) rule: Rule,
    /// Size of an element in bytes.
    pub(super) unit: u64,
    /// Every element size and every address is a multiple of this many bytes, wherever the slots begin. If it is
    /// smaller than the unit, dimension 0 is contiguous on both sides.
    pub(super) word: u64,
    /// Innermost first. At least two dimensions, or at least one for lanes.
    dims: [Dim; MAX_RANK],
    rank: usize,
}

impl Rule {
    pub(super) fn new(dtype: DType, combine: Combine, negate: bool) -> Self {
        use DType::{BF16, Bool, C64, C128, F16, F32, F64, U8, U16, U32, U64};
        let sign = 1 << (dtype.align() * 8 - 1);
        let infinity = match dtype {
            F16 => Some(0x7c00),
            BF16 => Some(0x7f80),
            F32 | C64 => Some(0x7f80_0000),
            F64 | C128 => Some(0x7ff0_0000_0000_0000),
            _ => None,
        };
        let is_unsigned = matches!(dtype, Bool | U8 | U16 | U32 | U64);
        let code = match combine {
            Combine::Replace if negate => Code::Negate,
            Combine::Replace => Code::Move,
            Combine::Sum => match dtype {
                F16 => Code::AddF16,
                BF16 => Code::AddBf16,
                F32 | C64 => Code::AddF32,
                F64 | C128 => Code::AddF64,
                _ => Code::Add,
            },
            Combine::Min | Combine::Max if infinity.is_some() => Code::OrderFloat,
            Combine::Min | Combine::Max => Code::Order,
        };
        let (flip, carry) = match infinity {
            _ if !negate => (0, 0),
            Some(_) => (sign, 0),
            None => (u64::MAX, u64::MAX),
        };
        // To reverse the order of floats, flip the sign; of integers, flip all bits.
        let bias = match (combine, infinity) {
            (Combine::Max, Some(_)) => sign,
            (Combine::Min, None) if is_unsigned => sign,
            (Combine::Max, None) if is_unsigned => !sign,
            (Combine::Max, None) => u64::MAX,
            _ => 0,
        };
        Self { code, flip, carry, bias, infinity: infinity.unwrap_or(0) }
    }
}

/// The inner dimensions of a piece, which lanes count with 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub(super) rank: usize,
    pub(super) elements: u64,
    /// The reach that is left for further dimensions.
    reach: Reach,
}

/// The number of bytes that a slab can extend on the side of the destination and of the source.
#[derive(Clone, Copy, Debug)]
struct Reach([u64; 2]);

impl Reach {
    /// The distance from the first element of `unit` bytes to the last within `most` bytes.
    fn new(most: u64, unit: u64) -> Self {
        Self([most.saturating_sub(unit); 2])
    }

    /// The reach that is left after a whole dimension, if the dimension fits.
    fn beside(self, dim: &Dim) -> Option<Self> {
        let steps = dim.extent - 1;
        let [to, from] = self.0;
        let to = to.checked_sub(steps * dim.to.unsigned_abs())?;
        Some(Self([to, from.checked_sub(steps * dim.from.unsigned_abs())?]))
    }

    /// The number of elements of a dimension that fit.
    fn room(self, dim: &Dim) -> u64 {
        let sides = self.0.into_iter().zip([dim.to, dim.from].map(i64::unsigned_abs));
        let steps = sides.filter_map(|(reach, stride)| reach.checked_div(stride));
        steps.map(|steps| steps + 1).fold(dim.extent, u64::min)
    }
}

impl Piece {
    /// Adds the pieces of a copy, one to three.
    pub(super) fn add(copy: &LoweredCopy, pieces: &mut Vec<Self>) {
        let mut piece = Self::components(copy);
        piece.widen();
        let rests = piece.order();
        pieces.push(piece);
        pieces.extend(rests.into_iter().flatten());
    }

    /// Adds the pieces of a copy for lanes. A piece larger than a slab has whole slabs as its outer dimensions.
    pub(super) fn add_slabs(copy: &LoweredCopy, slab: u64, pieces: &mut Vec<Self>) {
        let mut next = pieces.len();
        Self::add(copy, pieces);
        while let Some(piece) = pieces.get_mut(next) {
            let rest = piece.cut_to_slabs(slab);
            pieces.extend(rest);
            next += 1;
        }
    }

    /// Dimensions, innermost first.
    pub(super) fn dims(&self) -> &[Dim] {
        &self.dims[..self.rank]
    }

    pub(super) fn elements(&self) -> u64 {
        self.dims().iter().map(|dim| dim.extent).product()
    }

    /// The inner dimensions that make up a slab of at most `most` bytes reach.
    pub(super) fn slab(&self, most: u64) -> Slab {
        let mut slab = Slab { rank: 0, elements: 1, reach: Reach::new(most, self.unit) };
        for dim in self.dims() {
            let Some(reach) = slab.reach.beside(dim) else { break };
            let elements = slab.elements * dim.extent;
            slab = Slab { rank: slab.rank + 1, elements, reach };
        }
        slab
    }

    /// Bytes of memory traffic per element. Whole lines are counted where neighbours in a line are not touched
    /// together.
    pub(super) fn cost(&self) -> u64 {
        let side = |stride: fn(&Dim) -> i64| {
            let strides = self.dims().iter().filter(|dim| dim.extent > 1).map(stride);
            let nearest = strides.map(i64::unsigned_abs).min().unwrap_or(self.unit);
            nearest.clamp(self.unit, LINE.max(self.unit))
        };
        side(|dim| dim.to) + side(|dim| dim.from)
    }

    /// The copy, element by element. A complex number is two adjacent elements.
    fn components(copy: &LoweredCopy) -> Self {
        let dtype = copy.dtype();
        let word = dtype.align() as u64;
        let mut piece = Self {
            to_slot: copy.destination_slot(),
            to_offset: copy.destination_offset() as u64,
            from_slot: copy.source_slot(),
            from_offset: copy.source_offset() as u64,
            rule: Rule::new(dtype, copy.combine(), copy.negate()),
            unit: word,
            word,
            dims: [Dim::ONE; MAX_RANK],
            rank: 0,
        };
        let stride = word.cast_signed();
        let parts = Dim { extent: dtype.size() as u64 / word, to: stride, from: stride };
        piece.push(parts);
        let strides = copy.destination_strides().iter().zip(copy.source_strides());
        for (&extent, (&to, &from)) in copy.extents().iter().zip(strides).rev() {
            piece.push(Dim { extent: extent as u64, to: to as i64, from: from as i64 });
        }
        piece.rank = piece.rank.max(2);
        piece
    }

    /// Adds an outer dimension, or merges it with the last dimension if the two form a single dimension in memory.
    fn push(&mut self, dim: Dim) {
        if let Some(last) = self.dims[..self.rank].last_mut() {
            let count = last.extent.cast_signed();
            if last.extent == 1 {
                return *last = dim;
            }
            if dim.to == last.to * count && dim.from == last.from * count {
                last.extent *= dim.extent;
                return;
            }
        }
        self.dims[self.rank] = dim;
        self.rank += 1;
    }

    /// Joins elements that are adjacent on both sides into larger elements, as far as all addresses are aligned for
    /// them.
    fn widen(&mut self) {
        let [inner, outer @ ..] = self.dims;
        let word = self.word.cast_signed();
        if self.rule.code != Code::Move || (inner.to, inner.from) != (word, word) {
            return;
        }
        let strides = outer.iter().flat_map(|dim| [dim.to.unsigned_abs(), dim.from.unsigned_abs()]);
        let bits = strides.fold(inner.extent * self.word, |bits, stride| bits | stride)
            | self.to_offset
            | self.from_offset
            | MAX_UNIT;
        self.unit = 1 << bits.trailing_zeros();
        let unit = self.unit.cast_signed();
        self.dims[0] = Dim { extent: inner.extent * self.word / self.unit, to: unit, from: unit };
    }

    /// Splits the dimension that makes a slab too large. The remainder after whole slabs is another piece, to be cut as
    /// well.
    fn cut_to_slabs(&mut self, most: u64) -> Option<Self> {
        self.put_near_first(most);
        let Slab { rank, reach, .. } = self.slab(most);
        let dim = self.dims().get(rank)?;
        let block = dim.extent / dim.extent.div_ceil(reach.room(dim));
        // Slabs begin at the same offset in a cache line.
        let block = if block > LINE { block / LINE * LINE } else { block };
        if block == 1 {
            return None;
        }
        self.split(rank, block, rank + 1)?
    }

    /// Removes dimensions of one element, which have no effect. Moves to the end those dimensions of which a slab would
    /// contain few steps and that would leave little room for the others.
    fn put_near_first(&mut self, most: u64) {
        let mut kept = 0;
        for dim in 0..self.rank {
            if self.dims[dim].extent != 1 {
                self.dims[kept] = self.dims[dim];
                kept += 1;
            }
        }
        self.rank = kept.max(1);
        // The others get at least an eighth.
        let mut reach = Reach::new(most - most / 8, self.unit);
        let mut near = 0;
        for _ in 0..kept {
            let dim = &self.dims[near];
            let left = reach.beside(dim);
            if left.is_none() && reach.room(dim) < MANY {
                self.dims[near..kept].rotate_left(1);
            } else {
                reach = left.unwrap_or(reach);
                near += 1;
            }
        }
    }

    /// Brings the dimensions along which either side is dense together, if these are two different dimensions. A thin
    /// one goes innermost. Two long ones are run in blocks, so that cache lines and pages of both sides are used
    /// completely while they are cached. The remainder after whole blocks becomes further pieces.
    fn order(&mut self) -> [Option<Self>; 2] {
        let unit = self.unit.cast_signed();
        // Rows that are contiguous on both sides stay whole. They are treated as elements here.
        let is_row = (self.dims[0].to, self.dims[0].from) == (unit, unit);
        let row = if is_row { self.dims[0].extent * self.unit } else { self.unit };
        let first = usize::from(is_row);
        let near = |dim: usize| self.dims[dim].from.unsigned_abs();
        let others = (first + 1..self.rank).filter(|dim| self.dims[*dim].extent > 1);
        let partner = others.min_by_key(|dim| near(*dim));
        let partner = partner.filter(|dim| row < LINE && near(*dim) < near(first).min(LINE));
        let Some(partner) = partner else { return [None, None] };
        if self.dims[partner].extent <= THIN {
            self.dims[first..=partner].rotate_right(1);
            return [None, None];
        }
        self.dims[first + 1..=partner].rotate_right(1);
        let line = LINE / row;
        let narrow = self.split(first, line.max(BLOCK.0), first + 2);
        let low =
            self.split(first + 1, line.max(BLOCK.1), first + 2 + usize::from(narrow.is_some()));
        [narrow.flatten(), low.flatten()]
    }

    /// Runs a dimension in blocks, which become the dimension `blocks`. The inner value is the remainder after whole
    /// blocks. Does nothing if there are fewer than two blocks.
    fn split(&mut self, dim: usize, block: u64, blocks: usize) -> Option<Option<Self>> {
        let Dim { extent, to, from } = self.dims[dim];
        let (count, left) = (extent / block, extent % block);
        if count < 2 {
            return None;
        }
        let rest = (left > 0).then(|| {
            let mut rest = *self;
            let skipped = (extent - left).cast_signed();
            rest.dims[dim].extent = left;
            rest.to_offset = rest.to_offset.wrapping_add_signed(skipped * to);
            rest.from_offset = rest.from_offset.wrapping_add_signed(skipped * from);
            rest
        });
        self.dims[dim].extent = block;
        self.dims[blocks..=self.rank].rotate_right(1);
        let step = block.cast_signed();
        self.dims[blocks] = Dim { extent: count, to: to * step, from: from * step };
        self.rank += 1;
        Some(rest)
    }
}
