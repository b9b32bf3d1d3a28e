// Executes one launch of lowered region copies. OpenCL C 1.2, CUDA C++ and HIP C++ compile this text behind a prologue
// that defines the types u8 … u64 and i8 … i64, the names in capitals, and the layout of the words. No headers.

// What an operation needs to know about the element type, besides its size.
typedef struct {
    u64 flip, carry; // (x ^ flip) - carry negates: all ones twice for integers, the sign bit and 0 for floats
    u64 bias;        // brings elements into the order of signed integers, reversed for a maximum
    u64 infinity;    // floats: the bits of +infinity
} Rule;

// ---- What happens to one element: `there` is what the destination has, `x` what arrives ------------------------

#define NEGATED(T, x) ((T)(((T)(x) ^ (T)rule.flip) - (T)rule.carry))

// Floats compare as integers, which is exact where the device flushes subnormal numbers too. Both zeros are 0.
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

// A binary16 number; exact, and no subnormal float is met. A product with 2^-24 is exact, fused with a sum or not.
DEVICE float widen_f16(u16 bits) {
    const u32 sign = (u32)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude < 0x0400)
        return AS_FLOAT(sign | AS_U32((float)magnitude * 5.9604644775390625e-8f));
    return AS_FLOAT(sign | ((magnitude << 13) + (magnitude < 0x7c00 ? 0x38000000u : 0x70000000u)));
}

// The nearest binary16 number, ties to even; a NaN stays one.
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

// The nearest bfloat16 number, ties to even; a NaN stays one.
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

#define EXTENT(dim) copy[DIMS + 3 * (dim)]
#define TO_STRIDE(dim) ((i64)copy[DIMS + 3 * (dim) + 1])
#define FROM_STRIDE(dim) ((i64)copy[DIMS + 3 * (dim) + 2])

// ---- Boxes of rows and columns -----------------------------------------------------------------------------------

// Strides are in bytes.
typedef struct {
    u64 rows, columns;
    i64 to_row, from_row, to_column, from_column;
} Box;

#define TO(T, row, column) (*(GLOBAL T *)(to + (i64)(row) * box.to_row + (i64)(column) * box.to_column))
#define FROM(T, row, column) (*(GLOBAL const T *)(from + (i64)(row) * box.from_row + (i64)(column) * box.from_column))

#if LANES

typedef struct {
    i64 to, from;
} Place;

// Where an element of a copy is, whose rows have so many columns.
DEVICE Place place_of(GLOBAL const u64 *copy, Box box, u64 element) {
    const u64 rank = copy[RANK];
    u64 rest = element / box.columns;
    const i64 column = (i64)(element - rest * box.columns);
    Place place;
    place.to = column * box.to_column;
    place.from = column * box.from_column;
    ROLLED
    for (u64 dim = 1; dim < rank; ++dim) {
        // The last dimension is what is left.
        const u64 extent = EXTENT(dim), outer = dim + 1 < rank ? rest / extent : 0;
        const i64 index = (i64)(rest - outer * extent);
        place.to += index * TO_STRIDE(dim);
        place.from += index * FROM_STRIDE(dim);
        rest = outer;
    }
    return place;
}

// Neighbouring work-items have neighbouring elements. Each reads several before it writes them, since it takes many
// reads under way to keep memory busy.
#define AT_ONCE 4

#define MOVES(T)                                                                                                    \
    DEVICE void move_lanes_##T(GLOBAL u8 *to, GLOBAL const u8 *from, const Place *places, u32 count) {              \
        T values[AT_ONCE];                                                                                          \
        UNROLL                                                                                                      \
        for (u32 i = 0; i < AT_ONCE; ++i)                                                                           \
            if (i < count) values[i] = *(GLOBAL const T *)(from + places[i].from);                                  \
        UNROLL                                                                                                      \
        for (u32 i = 0; i < AT_ONCE; ++i)                                                                           \
            if (i < count) *(GLOBAL T *)(to + places[i].to) = values[i];                                            \
    }
#define APPLIES(T, apply)                                                                                           \
    DEVICE void box_##apply(GLOBAL u8 *RESTRICT to, GLOBAL const u8 *RESTRICT from, Box box, Rule rule) {           \
        TO(T, 0, 0) = apply(TO(T, 0, 0), FROM(T, 0, 0), rule);                                                      \
    }

#else

#define THIN(T, count, body)                                                                                        \
    case count:                                                                                                     \
        for (u64 row = 0; row < box.rows; ++row) { body }                                                           \
        return;
#define MOVE(T, column) TO(T, row, column) = FROM(T, row, column);

// Rows of a few elements are unrolled; long contiguous ones are plain copies in words that a compiler can vectorise.
#define MOVES(T)                                                                                                    \
    DEVICE void move_box_##T(GLOBAL u8 *RESTRICT to, GLOBAL const u8 *RESTRICT from, Box box) {                     \
        switch (box.columns) {                                                                                      \
            THIN(T, 1, MOVE(T, 0))                                                                                  \
            THIN(T, 2, MOVE(T, 0) MOVE(T, 1))                                                                       \
            THIN(T, 3, MOVE(T, 0) MOVE(T, 1) MOVE(T, 2))                                                            \
            THIN(T, 4, MOVE(T, 0) MOVE(T, 1) MOVE(T, 2) MOVE(T, 3))                                                 \
        }                                                                                                           \
        if (box.to_column == (i64)sizeof(T) && box.from_column == (i64)sizeof(T)) {                                           \
            for (u64 row = 0; row < box.rows; ++row) {                                                              \
                if (sizeof(T) < sizeof(u64)) {                                                                      \
                    GLOBAL T *out = &TO(T, row, 0);                                                                 \
                    GLOBAL const T *in = &FROM(T, row, 0);                                                          \
                    for (u64 i = 0; i < box.columns; ++i) out[i] = in[i];                                           \
                } else {                                                                                            \
                    GLOBAL u64 *out = &TO(u64, row, 0);                                                             \
                    GLOBAL const u64 *in = &FROM(u64, row, 0);                                                      \
                    for (u64 i = 0; i < box.columns * (sizeof(T) / sizeof(u64)); ++i) out[i] = in[i];               \
                }                                                                                                   \
            }                                                                                                       \
            return;                                                                                                 \
        }                                                                                                           \
        for (u64 row = 0; row < box.rows; ++row)                                                                    \
            for (u64 column = 0; column < box.columns; ++column) MOVE(T, column)                                    \
    }

#define APPLIES(T, apply)                                                                                           \
    DEVICE void box_##apply(GLOBAL u8 *RESTRICT to, GLOBAL const u8 *RESTRICT from, Box box, Rule rule) {           \
        if (box.to_column == (i64)sizeof(T) && box.from_column == (i64)sizeof(T)) {                                           \
            for (u64 row = 0; row < box.rows; ++row) {                                                              \
                GLOBAL T *out = &TO(T, row, 0);                                                                     \
                GLOBAL const T *in = &FROM(T, row, 0);                                                              \
                for (u64 i = 0; i < box.columns; ++i) out[i] = apply(out[i], in[i], rule);                          \
            }                                                                                                       \
            return;                                                                                                 \
        }                                                                                                           \
        for (u64 row = 0; row < box.rows; ++row)                                                                    \
            for (u64 column = 0; column < box.columns; ++column)                                                    \
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

// Carries out the operation `code` on elements of 2^unit bytes.
DEVICE void run_box(u64 code, u64 unit, GLOBAL u8 *to, GLOBAL const u8 *from, Box box, Rule rule) {
    switch (code * 8 + unit) {
#if !LANES
    case MOVE_CODE * 8 + 0: move_box_u8(to, from, box); break;
    case MOVE_CODE * 8 + 1: move_box_u16(to, from, box); break;
    case MOVE_CODE * 8 + 2: move_box_u32(to, from, box); break;
    case MOVE_CODE * 8 + 3: move_box_u64(to, from, box); break;
    case MOVE_CODE * 8 + 4: move_box_u128(to, from, box); break;
#endif
    case NEGATE_CODE * 8 + 0: box_negate_u8(to, from, box, rule); break;
    case NEGATE_CODE * 8 + 1: box_negate_u16(to, from, box, rule); break;
    case NEGATE_CODE * 8 + 2: box_negate_u32(to, from, box, rule); break;
    case NEGATE_CODE * 8 + 3: box_negate_u64(to, from, box, rule); break;
    case ADD_CODE * 8 + 0: box_add_u8(to, from, box, rule); break;
    case ADD_CODE * 8 + 1: box_add_u16(to, from, box, rule); break;
    case ADD_CODE * 8 + 2: box_add_u32(to, from, box, rule); break;
    case ADD_CODE * 8 + 3: box_add_u64(to, from, box, rule); break;
    case ADD_F16_CODE * 8 + 1: box_add_f16(to, from, box, rule); break;
    case ADD_BF16_CODE * 8 + 1: box_add_bf16(to, from, box, rule); break;
    case ADD_F32_CODE * 8 + 2: box_add_f32(to, from, box, rule); break;
#if HAS_F64
    case ADD_F64_CODE * 8 + 3: box_add_f64(to, from, box, rule); break;
#endif
    case ORDER_CODE * 8 + 0: box_order_u8(to, from, box, rule); break;
    case ORDER_CODE * 8 + 1: box_order_u16(to, from, box, rule); break;
    case ORDER_CODE * 8 + 2: box_order_u32(to, from, box, rule); break;
    case ORDER_CODE * 8 + 3: box_order_u64(to, from, box, rule); break;
    case ORDER_FLOAT_CODE * 8 + 1: box_order_float_u16(to, from, box, rule); break;
    case ORDER_FLOAT_CODE * 8 + 2: box_order_float_u32(to, from, box, rule); break;
    case ORDER_FLOAT_CODE * 8 + 3: box_order_float_u64(to, from, box, rule); break;
    }
}

// ---- Copies ------------------------------------------------------------------------------------------------------

// The elements [first, end) of a copy, counted along dimension 0 first. `narrow` tells how many times its innermost
// elements are halved, which lie side by side then.
DEVICE void run_elements(
    GLOBAL const u64 *copy, GLOBAL u8 *to, GLOBAL const u8 *from, u64 first, u64 end, u32 narrow
) {
    Rule rule;
    rule.flip = copy[FLIP];
    rule.carry = copy[CARRY];
    rule.bias = copy[BIAS];
    rule.infinity = copy[INFINITY_BITS];
    const u64 code = copy[CODE], unit = copy[UNIT] - narrow;
    const u64 columns = EXTENT(0) << narrow;
    Box box;
    box.to_column = narrow ? (i64)1 << unit : TO_STRIDE(0);
    box.from_column = narrow ? (i64)1 << unit : FROM_STRIDE(0);
    box.to_row = TO_STRIDE(1);
    box.from_row = FROM_STRIDE(1);
#if LANES
    box.rows = 1;
    box.columns = columns;
    if (code == MOVE_CODE) {
        for (u64 element = first + LANE; element < end; element += AT_ONCE * LANE_COUNT) {
            const u64 left = (end - element - 1) / LANE_COUNT + 1;
            const u32 count = left < AT_ONCE ? (u32)left : AT_ONCE;
            Place places[AT_ONCE];
            UNROLL
            for (u32 i = 0; i < AT_ONCE; ++i)
                if (i < count) places[i] = place_of(copy, box, element + i * LANE_COUNT);
            switch (unit) {
            case 0: move_lanes_u8(to, from, places, count); break;
            case 1: move_lanes_u16(to, from, places, count); break;
            case 2: move_lanes_u32(to, from, places, count); break;
            case 3: move_lanes_u64(to, from, places, count); break;
            case 4: move_lanes_u128(to, from, places, count); break;
            }
        }
        return;
    }
    for (u64 element = first + LANE; element < end; element += LANE_COUNT) {
        const Place place = place_of(copy, box, element);
        run_box(code, unit, to + place.to, from + place.from, box, rule);
    }
#else
    const u64 rank = copy[RANK];
    u64 index[MAX_RANK];
    u64 rest = first / columns, column = first - rest * columns, left = end - first;
    for (u64 dim = 1; dim < rank; ++dim) {
        const u64 extent = EXTENT(dim), outer = rest / extent;
        index[dim] = rest - outer * extent;
        to += (i64)index[dim] * TO_STRIDE(dim);
        from += (i64)index[dim] * FROM_STRIDE(dim);
        rest = outer;
    }
    while (left > 0) {
        // As many whole rows as there are side by side, or a piece of one.
        const u64 room = columns - column;
        if (column == 0 && left >= columns) {
            const u64 enough = left / columns, rows = EXTENT(1) - index[1];
            box.rows = enough < rows ? enough : rows;
            box.columns = columns;
        } else {
            box.rows = 1;
            box.columns = left < room ? left : room;
        }
        run_box(code, unit, to + (i64)column * box.to_column, from + (i64)column * box.from_column, box, rule);
        left -= box.rows * box.columns;
        column = 0;
        index[1] += box.rows;
        to += (i64)box.rows * box.to_row;
        from += (i64)box.rows * box.from_row;
        for (u64 dim = 1; dim + 1 < rank && index[dim] == EXTENT(dim); ++dim) {
            to += TO_STRIDE(dim + 1) - (i64)index[dim] * TO_STRIDE(dim);
            from += FROM_STRIDE(dim + 1) - (i64)index[dim] * FROM_STRIDE(dim);
            index[dim] = 0;
            index[dim + 1] += 1;
        }
    }
#endif
}

// One launch, whose header is at word `start`. A chunk of a copy is the work of one work-item, or of one group of them
// if work-items are lanes; whoever has done one takes the next beyond the end of the grid.
KERNEL void region_copy(GLOBAL const u64 *words, u64 start, SLOT_PARAMETERS) {
    GLOBAL const u64 *header = words + start;
    const u64 copies = header[COPIES], chunks = header[CHUNKS], record = header[RECORD];
    GLOBAL const u64 *first_chunks = header + HEADER;
    for (u64 chunk = WORKER; chunk < chunks; chunk += WORKER_COUNT) {
        u64 low = 0, high = copies; // the copy is in [low, high)
        while (high - low > 1) {
            const u64 middle = low + (high - low) / 2;
            if (first_chunks[middle] <= chunk)
                low = middle;
            else
                high = middle;
        }
        GLOBAL const u64 *copy = first_chunks + copies + low * record;
        GLOBAL u8 *to = SLOT_NONE, *from = SLOT_NONE;
        switch (copy[TO_SLOT]) { SLOT_CASES(to) }
        switch (copy[FROM_SLOT]) { SLOT_CASES(from) }
        if (!to || !from) continue; // without memory
        to += copy[TO_OFFSET];
        from += copy[FROM_OFFSET];
        // Elements were joined as if slots began at multiples of 16 bytes.
        const u64 misaligned = (((u64)(SIZE)to) | ((u64)(SIZE)from)) & (((u64)1 << copy[UNIT]) - 1);
        const u32 narrow = misaligned ? (u32)(copy[UNIT] - copy[WORD]) : 0;
        const u64 first = (chunk - first_chunks[low]) * copy[CHUNK], elements = copy[ELEMENTS];
        const u64 end = elements - first < copy[CHUNK] ? elements : first + copy[CHUNK];
        run_elements(copy, to, from, first << narrow, end << narrow, narrow);
    }
}
