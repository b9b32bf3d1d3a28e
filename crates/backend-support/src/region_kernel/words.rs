//! The words that the kernel reads: one header, the first chunk of every copy, and one record for each.

/// Most dimensions of a record: those of a copy, the two parts of a complex number, the blocks of a
/// transposition.
pub(super) const MAX_RANK: usize = runtime_core::MAX_REGION_RANK + 3;

/// Words per dimension: extent, stride of the destination, stride of the source.
pub(super) const PER_DIM: usize = 3;

/// What a record does; numbers that the kernel knows by the names in [`DEFINES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Bits as they are.
    Move,
    /// Negated, by the rule's `flip` and `carry`.
    Negate,
    /// Added to the integer that is there.
    Add,
    AddF16,
    AddBf16,
    AddF32,
    AddF64,
    /// The smaller or larger of two integers, by the rule's `bias`.
    Order,
    /// The smaller or larger of two floats, by the rule's `bias` and `infinity`.
    OrderFloat,
}

macro_rules! fields {
    ($($name:ident = $index:expr, $define:literal;)*) => {
        $(pub(super) const $name: usize = $index;)*

        /// The layout, as the kernel's text calls it.
        pub(super) const DEFINES: &[(&str, usize)] = &[
            $(($define, $name),)*
            ("MAX_RANK", MAX_RANK),
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
    // Size of an element, and of what it consists of with sure alignment, as powers of two.
    UNIT = 5, "UNIT";
    WORD = 6, "WORD";
    FLIP = 7, "FLIP";
    CARRY = 8, "CARRY";
    BIAS = 9, "BIAS";
    INFINITY = 10, "INFINITY_BITS";
    ELEMENTS = 11, "ELEMENTS";
    CHUNK = 12, "CHUNK";
    RANK = 13, "RANK";
    DIMS = 14, "DIMS";
}
