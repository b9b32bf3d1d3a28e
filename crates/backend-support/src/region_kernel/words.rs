//! The words that the kernel reads: one header, the first chunk of every copy, one record for each copy, and the lists
//! of indexed copies.

/// The most dimensions of a record: those of a copy, the two parts of a complex number, the blocks of a transposition,
/// and the slabs.
pub(super) const MAX_RANK: usize = runtime_core::MAX_REGION_RANK + 4;

/// Words per dimension: extent, stride of the destination, stride of the source, [`reciprocal`].
pub(super) const PER_DIM: usize = 4;

/// The most bytes that a slab spans.
pub(super) const MAX_SLAB: u64 = i32::MAX as u64;

/// Number of elements that a lane reads before it writes them.
pub(super) const AT_ONCE: usize = 4;

/// The factor and shift that the kernel uses to divide by an extent, from 2 to [`MAX_SLAB`]. For every `n` below 2^31,
/// `n / extent` is the upper half of `n * factor`, shifted right. The factor is in the lower half of the word, the
/// shift in the upper half. 0 for other extents, by which lanes do not divide.
///
/// With `2^shift < extent <= 2^(shift + 1)`, `factor * extent` exceeds `2^(32 + shift)` by at most `extent`, and so
/// `n * factor / 2^(32 + shift)` the quotient by less than `1 / extent`: it has the same integer part. (T. Granlund,
/// P. L. Montgomery: Division by Invariant Integers using Multiplication, 1994.)
pub(super) fn reciprocal(extent: u64) -> u64 {
    if !(2..=MAX_SLAB).contains(&extent) {
        return 0;
    }
    let shift = u64::from((extent - 1).ilog2());
    let factor = (1 << (32 + shift)) / extent + 1;
    (shift << 32) | factor
}

/// The most dimensions of an item: its components, and their elements.
pub(super) const ITEM_RANK: usize = 2;

/// Words of a source of a fold: slot, byte offset, stride of components.
pub(super) const PER_SOURCE: usize = 3;

/// The operation of a record. The kernel knows these numbers by the names in [`DEFINES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Moves bits unchanged.
    Move,
    /// Negates by the rule's `flip` and `carry`.
    Negate,
    /// Adds to the existing integer.
    Add,
    AddF16,
    AddBf16,
    AddF32,
    AddF64,
    /// Takes the smaller or larger of two integers, by the rule's `bias`.
    Order,
    /// Takes the smaller or larger of two floats, by the rule's `bias` and `infinity`.
    OrderFloat,
}

macro_rules! fields {
    ($($name:ident = $index:expr, $define:literal;)*) => {
        $(pub(super) const $name: usize = $index;)*

        /// The layout, under the names that the kernel's source uses.
        pub(super) const DEFINES: &[(&str, usize)] = &[
            $(($define, $name),)*
            ("MAX_RANK", MAX_RANK),
            ("PER_DIM", PER_DIM),
            ("AT_ONCE", AT_ONCE),
            ("PER_SOURCE", PER_SOURCE),
            ("MOVE_CODE", Code::Move as usize),
            ("NEGATE_CODE", Code::Negate as usize),
            ("ADD_CODE", Code::Add as usize),
            ("ADD_F16_CODE", Code::AddF16 as usize),
            ("ADD_BF16_CODE", Code::AddBf16 as usize),
            ("ADD_F32_CODE", Code::AddF32 as usize),
            ("ADD_F64_CODE", Code::AddF64 as usize),
            ("ORDER_CODE", Code::Order as usize),
            ("ORDER_FLOAT_CODE", Code::OrderFloat as usize),
        ];
    };
}

fields! {
    // The header of a launch.
    COPIES = 0, "COPIES";
    CHUNKS = 1, "CHUNKS";
    RECORD = 2, "RECORD";
    HEADER = 3, "HEADER";
    // A record.
    TO_SLOT = 0, "TO_SLOT";
    TO_OFFSET = 1, "TO_OFFSET";
    FROM_SLOT = 2, "FROM_SLOT";
    FROM_OFFSET = 3, "FROM_OFFSET";
    CODE = 4, "CODE";
    // Sizes of an element, and of its parts with guaranteed alignment, as powers of two.
    UNIT = 5, "UNIT";
    WORD = 6, "WORD";
    FLIP = 7, "FLIP";
    CARRY = 8, "CARRY";
    BIAS = 9, "BIAS";
    INFINITY = 10, "INFINITY_BITS";
    // Of the copy, or of each slab for lanes.
    ELEMENTS = 11, "ELEMENTS";
    CHUNK = 12, "CHUNK";
    RANK = 13, "RANK";
    // Number of dimensions of a slab, innermost first, and its number of chunks.
    SLAB_RANK = 14, "SLAB_RANK";
    SLAB_CHUNKS = 15, "SLAB_CHUNKS";
    // Lists of an indexed copy: the index of their first word, or 0. Dimensions 0 and 1 are those of an item, or lanes
    // have only those of several elements; the strides of items without a list are those of the next dimension.
    // Byte offsets of the items that are written, and of those that are read, of 4 bytes each.
    TO_LIST = 16, "TO_LIST";
    FROM_LIST = 17, "FROM_LIST";
    // For a fold: the first read of each item, of 4 bytes each; then the list of items that are read has a word for
    // each: the byte offset, and in the upper half the number of its source. A source has `PER_SOURCE` words.
    STARTS = 18, "STARTS";
    SOURCES = 19, "SOURCES";
    DIMS = 20, "DIMS";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_divide_exactly() {
        const END: u64 = 1 << 31;
        let powers = (1..=31).flat_map(|shift| [(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
        for extent in (2..1000).chain(powers).filter(|extent| (2..=MAX_SLAB).contains(extent)) {
            let word = reciprocal(extent);
            let (factor, shift) = (word & u64::from(u32::MAX), word >> 32);
            let last = (END - 1) / extent * extent;
            let numbers = [0, 1, extent - 1, extent, extent + 1, last - 1, last, END - 1];
            for number in numbers {
                assert_eq!(
                    ((number * factor) >> 32) >> shift,
                    number / extent,
                    "{number} / {extent}"
                );
            }
        }
    }

    #[test]
    fn other_extents_have_no_reciprocal() {
        assert_eq!([0, 1, MAX_SLAB + 1].map(reciprocal), [0; 3]);
    }
}
