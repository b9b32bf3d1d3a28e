// Executes one launch of lowered region copies and indexed copies. This text is compiled as OpenCL C 1.2, CUDA C++ or HIP C++ after a
// prologue that defines the types u8 … u64 and i8 … i64, the names in capitals, and the layout of the words. It needs
// no headers.

// Parameters of an operation that depend on the element type, except for its size.
typedef struct {
    u64 flip, carry; // (x ^ flip) - carry negates: both all ones for integers; the sign bit and 0 for floats
    u64 bias;        // brings elements into the order of signed integers, reversed for a maximum
    u64 infinity;    // floats: the bits of +infinity
} Rule;

// ---- Operations on one element: `there` is the element at the destination, `x` the incoming element ------------

#define NEGATED(T, x) ((T)(((T)(x) ^ (T)rule.flip) - (T)rule.carry))

// Floats are compared as integers. This is exact even if the device flushes subnormal numbers. Both zeros are 0.
#define FLOAT_KEY(T, S, sign, x) (((x) ^ (T)rule.bias) & (sign) ? (S)(-(S)((x) & ~(sign))) : (S)((x) & ~(sign)))
#define IS_NAN(T, sign, x) (((x) & (T)~(sign)) > (T)rule.infinity)

#define INTEGERS(T, S)                                                                                              \
    DEVICE T negate_##T(T there, T x, Rule rule) { return NEGATED(T, x); }                                          \
    DEVICE T add_##T(T there, T x, Rule rule) { return (T)(there + NEGATED(T, x)); }                                \
    DEVICE T order_##T(T there, T x, Rule rule) {                                                                   \
        x = NEGATED(T, x);                                                                                          \
        return (S)(T)(x ^ (T)rule.bias) < (S)(T)(there ^ (T)rule.bias) ? x : there;                                 \
    }

#define FLOATS(T, S, sign)                                                                                          \
    DEVICE T order_float_##T(T there, T x, Rule rule) {                                                             \
        x = NEGATED(T, x);                                                                                          \
        return IS_NAN(T, sign, x)                                                                                   \
                || (!IS_NAN(T, sign, there) && FLOAT_KEY(T, S, sign, x) < FLOAT_KEY(T, S, sign, there))             \
            ? x                                                                                                     \
            : there;                                                                                                \
    }

INTEGERS(u8, i8)
INTEGERS(u16, i16)
INTEGERS(u32, i32)
INTEGERS(u64, i64)
FLOATS(u16, i16, (u16)0x8000)
FLOATS(u32, i32, (u32)0x80000000)
FLOATS(u64, i64, (u64)1 << 63)

// Converts a binary16 number to a float. Exact; no subnormal float occurs. A product with 2^-24 is exact, whether or
// not it is fused with a sum.
DEVICE float widen_f16(u16 bits) {
    const u32 sign = (u32)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude < 0x0400)
        return AS_FLOAT(sign | AS_U32((float)magnitude * 5.9604644775390625e-8f));
    return AS_FLOAT(sign | ((magnitude << 13) + (magnitude < 0x7c00 ? 0x38000000u : 0x70000000u)));
}

// The nearest binary16 number, ties to even. A NaN remains a NaN.
DEVICE u16 narrow_f16(float value) {
    const u32 bits = AS_U32(value), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
    if (magnitude > 0x7f800000u)
        return (u16)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) // 65520 and more
        return (u16)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) // 2^-14 and more: normal
        return (u16)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
    if (magnitude < 0x33000000u) // below 2^-25
        return (u16)sign;
    const u32 shift = 126u - (magnitude >> 23), significand = (magnitude & 0x7fffffu) | 0x800000u;
    return (u16)(sign | ((significand + (1u << (shift - 1u)) - 1u + ((significand >> shift) & 1u)) >> shift));
}

DEVICE float widen_bf16(u16 bits) { return AS_FLOAT((u32)bits << 16); }

// The nearest bfloat16 number, ties to even. A NaN remains a NaN.
DEVICE u16 narrow_bf16(float value) {
    const u32 bits = AS_U32(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

DEVICE u16 add_f16(u16 there, u16 x, Rule rule) { return narrow_f16(widen_f16(there) + widen_f16(NEGATED(u16, x))); }
DEVICE u16 add_bf16(u16 there, u16 x, Rule rule) { return narrow_bf16(widen_bf16(there) + widen_bf16(NEGATED(u16, x))); }
DEVICE u32 add_f32(u32 there, u32 x, Rule rule) { return AS_U32(AS_FLOAT(there) + AS_FLOAT(NEGATED(u32, x))); }
#if HAS_F64
DEVICE u64 add_f64(u64 there, u64 x, Rule rule) { return AS_U64(AS_DOUBLE(there) + AS_DOUBLE(NEGATED(u64, x))); }
#endif

DEVICE Rule rule_of(GLOBAL const u64 *copy) {
    Rule rule;
    rule.flip = copy[FLIP];
    rule.carry = copy[CARRY];
    rule.bias = copy[BIAS];
    rule.infinity = copy[INFINITY_BITS];
    return rule;
}

#define EXTENT(dim) copy[DIMS + PER_DIM * (dim)]
#define TO_STRIDE(dim) ((i64)copy[DIMS + PER_DIM * (dim) + 1])
#define FROM_STRIDE(dim) ((i64)copy[DIMS + PER_DIM * (dim) + 2])
// A list of numbers of 4 bytes.
#define LIST(field) ((GLOBAL const u32 *)(words + copy[field]))
#define RECIPROCAL(dim) copy[DIMS + PER_DIM * (dim) + 3]

#if LANES

// ---- Elements of a work-item: several. All are read before any is written, because only many reads in flight keep
// ---- memory busy --------------------------------------------------------------------------------------------------

// Byte offsets from the first element of a slab to the elements of this work-item, and the number of elements in its
// chunk from the first of them on. Elements beyond the end have the offsets of the first element: they are read, but
// not written.
typedef struct {
    i32 to[AT_ONCE], from[AT_ONCE];
    u32 left;
} Work;

#define TO(T, i) (*(GLOBAL T *)(to + work.to[i]))
#define FROM(T, i) (*(GLOBAL const T *)(from + work.from[i]))
#define EACH                                                                                                        \
    UNROLL                                                                                                          \
    for (u32 i = 0; i < AT_ONCE; ++i)
#define EACH_THERE EACH if (i * LANE_COUNT < work.left)

#define MOVES(T)                                                                                                    \
    DEVICE void run_move_##T(GLOBAL u8 *to, GLOBAL const u8 *from, Work work) {                                     \
        T x[AT_ONCE];                                                                                               \
        EACH x[i] = FROM(T, i);                                                                                     \
        EACH_THERE TO(T, i) = x[i];                                                                                 \
    }
#define APPLIES(T, apply)                                                                                           \
    DEVICE void run_##apply(GLOBAL u8 *to, GLOBAL const u8 *from, Work work, Rule rule) {                           \
        T there[AT_ONCE], x[AT_ONCE];                                                                               \
        EACH there[i] = TO(T, i), x[i] = FROM(T, i);                                                                \
        EACH_THERE TO(T, i) = apply(there[i], x[i], rule);                                                          \
    }

#else

// ---- Boxes of rows and columns -----------------------------------------------------------------------------------

// Strides are in bytes.
typedef struct {
    u64 rows, columns;
    i64 to_row, from_row, to_column, from_column;
} Work;

#define TO(T, row, column) (*(GLOBAL T *)(to + (i64)(row) * work.to_row + (i64)(column) * work.to_column))
#define FROM(T, row, column) (*(GLOBAL const T *)(from + (i64)(row) * work.from_row + (i64)(column) * work.from_column))

#define THIN(T, count, body)                                                                                        \
    case count:                                                                                                     \
        for (u64 row = 0; row < work.rows; ++row) { body }                                                          \
        return;
#define MOVE(T, column) TO(T, row, column) = FROM(T, row, column);

// Rows of a few elements are unrolled. Long contiguous rows are plain copies in words, which a compiler can vectorise.
#define MOVES(T)                                                                                                    \
    DEVICE void run_move_##T(GLOBAL u8 *RESTRICT to, GLOBAL const u8 *RESTRICT from, Work work) {                   \
        switch (work.columns) {                                                                                     \
            THIN(T, 1, MOVE(T, 0))                                                                                  \
            THIN(T, 2, MOVE(T, 0) MOVE(T, 1))                                                                       \
            THIN(T, 3, MOVE(T, 0) MOVE(T, 1) MOVE(T, 2))                                                            \
            THIN(T, 4, MOVE(T, 0) MOVE(T, 1) MOVE(T, 2) MOVE(T, 3))                                                 \
        }                                                                                                           \
        if (work.to_column == (i64)sizeof(T) && work.from_column == (i64)sizeof(T)) {                               \
            for (u64 row = 0; row < work.rows; ++row) {                                                             \
                if (sizeof(T) < sizeof(u64)) {                                                                      \
                    GLOBAL T *out = &TO(T, row, 0);                                                                 \
                    GLOBAL const T *in = &FROM(T, row, 0);                                                          \
                    for (u64 i = 0; i < work.columns; ++i) out[i] = in[i];                                          \
                } else {                                                                                            \
                    GLOBAL u64 *out = &TO(u64, row, 0);                                                             \
                    GLOBAL const u64 *in = &FROM(u64, row, 0);                                                      \
                    for (u64 i = 0; i < work.columns * (sizeof(T) / sizeof(u64)); ++i) out[i] = in[i];              \
                }                                                                                                   \
            }                                                                                                       \
            return;                                                                                                 \
        }                                                                                                           \
        for (u64 row = 0; row < work.rows; ++row)                                                                   \
            for (u64 column = 0; column < work.columns; ++column) MOVE(T, column)                                   \
    }

#define APPLIES(T, apply)                                                                                           \
    DEVICE void run_##apply(GLOBAL u8 *RESTRICT to, GLOBAL const u8 *RESTRICT from, Work work, Rule rule) {         \
        if (work.to_column == (i64)sizeof(T) && work.from_column == (i64)sizeof(T)) {                               \
            for (u64 row = 0; row < work.rows; ++row) {                                                             \
                GLOBAL T *out = &TO(T, row, 0);                                                                     \
                GLOBAL const T *in = &FROM(T, row, 0);                                                              \
                for (u64 i = 0; i < work.columns; ++i) out[i] = apply(out[i], in[i], rule);                         \
            }                                                                                                       \
            return;                                                                                                 \
        }                                                                                                           \
        for (u64 row = 0; row < work.rows; ++row)                                                                   \
            for (u64 column = 0; column < work.columns; ++column)                                                   \
                TO(T, row, column) = apply(TO(T, row, column), FROM(T, row, column), rule);                         \
    }

#endif

MOVES(u8)
MOVES(u16)
MOVES(u32)
MOVES(u64)
MOVES(u128)
APPLIES(u8, negate_u8)
APPLIES(u16, negate_u16)
APPLIES(u32, negate_u32)
APPLIES(u64, negate_u64)
APPLIES(u8, add_u8)
APPLIES(u16, add_u16)
APPLIES(u32, add_u32)
APPLIES(u64, add_u64)
APPLIES(u8, order_u8)
APPLIES(u16, order_u16)
APPLIES(u32, order_u32)
APPLIES(u64, order_u64)
APPLIES(u16, order_float_u16)
APPLIES(u32, order_float_u32)
APPLIES(u64, order_float_u64)
APPLIES(u16, add_f16)
APPLIES(u16, add_bf16)
APPLIES(u32, add_f32)
#if HAS_F64
APPLIES(u64, add_f64)
#endif

// Performs the operation `code` on elements of 2^unit bytes.
DEVICE void run(GLOBAL const u64 *copy, u32 unit, GLOBAL u8 *to, GLOBAL const u8 *from, Work work) {
    switch ((u32)copy[CODE] * 8 + unit) {
    case MOVE_CODE * 8 + 0: run_move_u8(to, from, work); break;
    case MOVE_CODE * 8 + 1: run_move_u16(to, from, work); break;
    case MOVE_CODE * 8 + 2: run_move_u32(to, from, work); break;
    case MOVE_CODE * 8 + 3: run_move_u64(to, from, work); break;
    case MOVE_CODE * 8 + 4: run_move_u128(to, from, work); break;
    case NEGATE_CODE * 8 + 0: run_negate_u8(to, from, work, rule_of(copy)); break;
    case NEGATE_CODE * 8 + 1: run_negate_u16(to, from, work, rule_of(copy)); break;
    case NEGATE_CODE * 8 + 2: run_negate_u32(to, from, work, rule_of(copy)); break;
    case NEGATE_CODE * 8 + 3: run_negate_u64(to, from, work, rule_of(copy)); break;
    case ADD_CODE * 8 + 0: run_add_u8(to, from, work, rule_of(copy)); break;
    case ADD_CODE * 8 + 1: run_add_u16(to, from, work, rule_of(copy)); break;
    case ADD_CODE * 8 + 2: run_add_u32(to, from, work, rule_of(copy)); break;
    case ADD_CODE * 8 + 3: run_add_u64(to, from, work, rule_of(copy)); break;
    case ADD_F16_CODE * 8 + 1: run_add_f16(to, from, work, rule_of(copy)); break;
    case ADD_BF16_CODE * 8 + 1: run_add_bf16(to, from, work, rule_of(copy)); break;
    case ADD_F32_CODE * 8 + 2: run_add_f32(to, from, work, rule_of(copy)); break;
#if HAS_F64
    case ADD_F64_CODE * 8 + 3: run_add_f64(to, from, work, rule_of(copy)); break;
#endif
    case ORDER_CODE * 8 + 0: run_order_u8(to, from, work, rule_of(copy)); break;
    case ORDER_CODE * 8 + 1: run_order_u16(to, from, work, rule_of(copy)); break;
    case ORDER_CODE * 8 + 2: run_order_u32(to, from, work, rule_of(copy)); break;
    case ORDER_CODE * 8 + 3: run_order_u64(to, from, work, rule_of(copy)); break;
    case ORDER_FLOAT_CODE * 8 + 1: run_order_float_u16(to, from, work, rule_of(copy)); break;
    case ORDER_FLOAT_CODE * 8 + 2: run_order_float_u32(to, from, work, rule_of(copy)); break;
    case ORDER_FLOAT_CODE * 8 + 3: run_order_float_u64(to, from, work, rule_of(copy)); break;
    }
}

// The result of the operation `code` for one element of 2^unit bytes.
DEVICE u64 combined(u32 code_and_unit, u64 there, u64 x, Rule rule) {
    switch (code_and_unit) {
    case ADD_CODE * 8 + 0: return add_u8((u8)there, (u8)x, rule);
    case ADD_CODE * 8 + 1: return add_u16((u16)there, (u16)x, rule);
    case ADD_CODE * 8 + 2: return add_u32((u32)there, (u32)x, rule);
    case ADD_CODE * 8 + 3: return add_u64(there, x, rule);
    case ADD_F16_CODE * 8 + 1: return add_f16((u16)there, (u16)x, rule);
    case ADD_BF16_CODE * 8 + 1: return add_bf16((u16)there, (u16)x, rule);
    case ADD_F32_CODE * 8 + 2: return add_f32((u32)there, (u32)x, rule);
#if HAS_F64
    case ADD_F64_CODE * 8 + 3: return add_f64(there, x, rule);
#endif
    case ORDER_CODE * 8 + 0: return order_u8((u8)there, (u8)x, rule);
    case ORDER_CODE * 8 + 1: return order_u16((u16)there, (u16)x, rule);
    case ORDER_CODE * 8 + 2: return order_u32((u32)there, (u32)x, rule);
    case ORDER_CODE * 8 + 3: return order_u64(there, x, rule);
    case ORDER_FLOAT_CODE * 8 + 1: return order_float_u16((u16)there, (u16)x, rule);
    case ORDER_FLOAT_CODE * 8 + 2: return order_float_u32((u32)there, (u32)x, rule);
    case ORDER_FLOAT_CODE * 8 + 3: return order_float_u64(there, x, rule);
    }
    return there;
}

DEVICE u64 load(GLOBAL const u8 *at, u32 unit) {
    switch (unit) {
    case 0: return *at;
    case 1: return *(GLOBAL const u16 *)at;
    case 2: return *(GLOBAL const u32 *)at;
    }
    return *(GLOBAL const u64 *)at;
}

DEVICE void store(GLOBAL u8 *at, u32 unit, u64 bits) {
    switch (unit) {
    case 0: *at = (u8)bits; break;
    case 1: *(GLOBAL u16 *)at = (u16)bits; break;
    case 2: *(GLOBAL u32 *)at = (u32)bits; break;
    case 3: *(GLOBAL u64 *)at = bits; break;
    }
}

// ---- Copies ------------------------------------------------------------------------------------------------------

// The elements of one chunk of a copy, counted along dimension 0 first. `narrow` is the number of times that its
// innermost elements are halved; the halves are adjacent. Items of an indexed copy may have places in lists.
DEVICE void run_chunk(
    GLOBAL const u64 *words, GLOBAL const u64 *copy, GLOBAL u8 *to, GLOBAL const u8 *from, u64 chunk, u32 narrow
) {
    const bool listed = (copy[TO_LIST] | copy[FROM_LIST]) != 0;
    const u32 unit = (u32)copy[UNIT] - narrow;
    const u64 rank = copy[RANK];
    Work work;
#if LANES
    // A slab (the inner dimensions) is so small that 32 bits suffice for all offsets in it. The outer offsets are
    // computed once.
    const u32 slab_rank = (u32)copy[SLAB_RANK];
    if (slab_rank < rank) {
        u64 slab = chunk / copy[SLAB_CHUNKS];
        chunk -= slab * copy[SLAB_CHUNKS];
        ROLLED
        for (u64 dim = slab_rank; dim < rank; ++dim) {
            const u64 outer = slab / EXTENT(dim);
            const i64 index = (i64)(slab - outer * EXTENT(dim));
            to += index * TO_STRIDE(dim);
            from += index * FROM_STRIDE(dim);
            slab = outer;
        }
    }
    const u32 first = (u32)chunk * (u32)copy[CHUNK], rest = (u32)copy[ELEMENTS] - first;
    const u32 end = (first + (rest < (u32)copy[CHUNK] ? rest : (u32)copy[CHUNK])) << narrow;
    // Neighbouring work-items have neighbouring elements.
    for (u32 element = (first << narrow) + LANE; element < end; element += AT_ONCE * LANE_COUNT) {
        u32 left[AT_ONCE];
        work.left = end - element;
        UNROLL
        for (u32 i = 0; i < AT_ONCE; ++i) {
            const u32 at = i * LANE_COUNT < work.left ? element + i * LANE_COUNT : element;
            left[i] = at >> narrow;
            work.to[i] = work.from[i] = (i32)((at - (left[i] << narrow)) << unit);
        }
        ROLLED
        for (u32 dim = 0; dim < slab_rank; ++dim) {
            // The last dimension is the remainder, unless that is the item.
            const u32 extent = (u32)EXTENT(dim), factor = dim + 1 < slab_rank || listed ? (u32)RECIPROCAL(dim) : 0;
            const u32 shift = (u32)(RECIPROCAL(dim) >> 32);
            const i32 to_stride = (i32)TO_STRIDE(dim), from_stride = (i32)FROM_STRIDE(dim);
            UNROLL
            for (u32 i = 0; i < AT_ONCE; ++i) {
                const u32 outer = HIGH_PRODUCT(left[i], factor) >> shift;
                const i32 index = (i32)(left[i] - outer * extent);
                work.to[i] += index * to_stride;
                work.from[i] += index * from_stride;
                left[i] = outer;
            }
        }
        if (listed) {
            const i32 to_stride = (i32)TO_STRIDE(slab_rank), from_stride = (i32)FROM_STRIDE(slab_rank);
            UNROLL
            for (u32 i = 0; i < AT_ONCE; ++i) {
                work.to[i] += copy[TO_LIST] ? (i32)LIST(TO_LIST)[left[i]] : (i32)left[i] * to_stride;
                work.from[i] += copy[FROM_LIST] ? (i32)LIST(FROM_LIST)[left[i]] : (i32)left[i] * from_stride;
            }
        }
        run(copy, unit, to, from, work);
    }
#else
    if (listed) {
        // Chunks are whole items.
        const u64 first = chunk * copy[CHUNK], rest = copy[ELEMENTS] - first;
        const u64 end = first + (rest < copy[CHUNK] ? rest : copy[CHUNK]);
        work.rows = EXTENT(1);
        work.columns = EXTENT(0) << narrow;
        work.to_row = TO_STRIDE(1);
        work.from_row = FROM_STRIDE(1);
        work.to_column = work.from_column = (i64)1 << unit;
        for (u64 item = first; item < end; ++item)
            run(copy, unit, to + (copy[TO_LIST] ? (i64)LIST(TO_LIST)[item] : (i64)item * TO_STRIDE(2)),
                from + (copy[FROM_LIST] ? (i64)LIST(FROM_LIST)[item] : (i64)item * FROM_STRIDE(2)), work);
        return;
    }
    const u64 columns = EXTENT(0) << narrow, first = chunk * copy[CHUNK], rest = copy[ELEMENTS] - first;
    work.to_column = narrow ? (i64)1 << unit : TO_STRIDE(0);
    work.from_column = narrow ? (i64)1 << unit : FROM_STRIDE(0);
    work.to_row = TO_STRIDE(1);
    work.from_row = FROM_STRIDE(1);
    u64 index[MAX_RANK];
    u64 left = (rest < copy[CHUNK] ? rest : copy[CHUNK]) << narrow;
    u64 row = (first << narrow) / columns, column = (first << narrow) - row * columns;
    for (u64 dim = 1; dim < rank; ++dim) {
        const u64 extent = EXTENT(dim), outer = row / extent;
        index[dim] = row - outer * extent;
        to += (i64)index[dim] * TO_STRIDE(dim);
        from += (i64)index[dim] * FROM_STRIDE(dim);
        row = outer;
    }
    while (left > 0) {
        // As many whole consecutive rows as possible, or a part of one row.
        const u64 room = columns - column;
        if (column == 0 && left >= columns) {
            const u64 enough = left / columns, rows = EXTENT(1) - index[1];
            work.rows = enough < rows ? enough : rows;
            work.columns = columns;
        } else {
            work.rows = 1;
            work.columns = left < room ? left : room;
        }
        run(copy, unit, to + (i64)column * work.to_column, from + (i64)column * work.from_column, work);
        left -= work.rows * work.columns;
        column = 0;
        index[1] += work.rows;
        to += (i64)work.rows * work.to_row;
        from += (i64)work.rows * work.from_row;
        for (u64 dim = 1; dim + 1 < rank && index[dim] == EXTENT(dim); ++dim) {
            to += TO_STRIDE(dim + 1) - (i64)index[dim] * TO_STRIDE(dim);
            from += FROM_STRIDE(dim + 1) - (i64)index[dim] * FROM_STRIDE(dim);
            index[dim] = 0;
            index[dim + 1] += 1;
        }
    }
#endif
}

// The elements of one chunk of a fold: each combines with all elements that are read for it, in order.
DEVICE void fold_chunk(GLOBAL const u64 *words, GLOBAL const u64 *copy, GLOBAL u8 *to, u64 chunk, SLOT_PARAMETERS) {
    GLOBAL const u32 *starts = LIST(STARTS);
    GLOBAL const u64 *reads = words + copy[FROM_LIST], *sources = words + copy[SOURCES];
    const Rule rule = rule_of(copy);
    const u32 unit = (u32)copy[UNIT], operation = (u32)copy[CODE] * 8 + unit, parts = (u32)EXTENT(0);
    const u32 components = (u32)EXTENT(1);
    const u32 first = (u32)chunk * (u32)copy[CHUNK], rest = (u32)copy[ELEMENTS] - first;
    const u32 end = first + (rest < (u32)copy[CHUNK] ? rest : (u32)copy[CHUNK]);
#if LANES
    for (u32 element = first + LANE; element < end; element += LANE_COUNT) {
#else
    for (u32 element = first; element < end; ++element) {
#endif
        const u32 outer = element / parts, part = (element - outer * parts) << unit, item = outer / components;
        const i64 component = (i64)(outer - item * components);
        GLOBAL u8 *at = to + LIST(TO_LIST)[item] + part + component * TO_STRIDE(1);
        u64 there = load(at, unit);
        for (u32 i = starts[item]; i < starts[item + 1]; ++i) {
            GLOBAL const u64 *source = sources + PER_SOURCE * (u32)(reads[i] >> 32);
            GLOBAL u8 *from = SLOT_NONE;
            FIND_SLOT(from, source[0])
            if (!from) continue; // without memory
            from += (i64)source[1] + (i64)(u32)reads[i] + part + component * (i64)source[2];
            there = combined(operation, there, load(from, unit), rule);
        }
        store(at, unit, there);
    }
}

// Runs one launch, whose header is at word `start`. A chunk of a copy is the work of one work-item, or of one group of
// work-items if they are lanes. After a chunk, the work-item or group takes the next chunk beyond the end of the grid.
KERNEL void region_copy(GLOBAL const u64 *words, u64 start, SLOT_PARAMETERS) {
    GLOBAL const u64 *header = words + start;
    const u64 copies = header[COPIES], chunks = header[CHUNKS], record = header[RECORD];
    GLOBAL const u64 *first_chunks = header + HEADER;
    for (u64 chunk = WORKER; chunk < chunks; chunk += WORKER_COUNT) {
        u32 low = 0, high = (u32)copies; // the copy is in [low, high)
        while (high - low > 1) {
            const u32 middle = low + (high - low) / 2;
            if (first_chunks[middle] <= chunk)
                low = middle;
            else
                high = middle;
        }
        GLOBAL const u64 *copy = first_chunks + copies + (u64)low * record;
        GLOBAL u8 *to = SLOT_NONE, *from = SLOT_NONE;
        FIND_SLOT(to, copy[TO_SLOT])
        FIND_SLOT(from, copy[FROM_SLOT])
        if (!to || !from) continue; // without memory
        to += copy[TO_OFFSET];
        from += copy[FROM_OFFSET];
        // Elements were joined under the assumption that slots begin at multiples of 16 bytes.
        const u64 misaligned = (((u64)(SIZE)to) | ((u64)(SIZE)from)) & (((u64)1 << copy[UNIT]) - 1);
        const u32 narrow = misaligned ? (u32)(copy[UNIT] - copy[WORD]) : 0;
        if (copy[STARTS])
            fold_chunk(words, copy, to, chunk - first_chunks[low], SLOT_ARGUMENTS);
        else
            run_chunk(words, copy, to, from, chunk - first_chunks[low], narrow);
    }
}
