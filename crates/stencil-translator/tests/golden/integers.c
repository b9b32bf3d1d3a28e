#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "floats must be rounded after each operation"
#endif

struct integers_args {
    int64_t double_first;
    int64_t hash_first;
    int64_t int_first;
    int64_t extents[1];
    int64_t first[1];
    int64_t grid[1];
    uint32_t seed_value;
    uint32_t pad;
};

static inline int32_t to_integers_i32_from_f32(float x)
{
    return x != x ? 0 : x <= -2147483648.0f ? (-2147483647 - 1) : x >= 2147483648.0f ? 2147483647 : (int32_t)x;
}

void integers_kernel(int64_t *restrict p_double, uint32_t *restrict p_hash, const int32_t *restrict p_int, const struct integers_args *restrict args)
{
    for (int64_t i0 = 0; i0 < args->extents[0]; i0++) {
        int64_t *const at_double = p_double + (args->double_first + i0);
        uint32_t *const at_hash = p_hash + (args->hash_first + i0);
        const int32_t *const at_int = p_int + (args->int_first + i0);
        int64_t out_double;
        uint32_t out_hash;
        const int64_t v0_wide = (int64_t)((uint64_t)((int64_t)((uint64_t)((int64_t)at_int[-1]) * (uint64_t)((-9223372036854775807LL - 1)))) + (uint64_t)(args->first[0] + i0));
        const int32_t v1_abs = at_int[0];
        uint32_t v2_bits = (args->seed_value ^ ((uint32_t)((v1_abs < 0) ? (int32_t)(0u - (uint32_t)v1_abs) : v1_abs) & 65535u)) | 1u;
        v2_bits = v2_bits * 2654435761u;
        v2_bits = v2_bits % 1000u;
        const int32_t v3_scaled = (int32_t)((uint32_t)((int32_t)(0u - (uint32_t)to_integers_i32_from_f32((float)at_int[0] * 0.1f))) - (uint32_t)((-2147483647 - 1)));
        const int64_t v4_a = at_double[0];
        out_double = (int64_t)((uint64_t)((int64_t)((uint64_t)(((v4_a > v0_wide) ? v4_a : v0_wide) / 7LL) - (uint64_t)((int64_t)(0u - (uint64_t)v0_wide)))) + (uint64_t)((int64_t)v3_scaled));
        out_hash = ~v2_bits;
        at_double[0] = out_double;
        at_hash[0] = out_hash;
    }
}
