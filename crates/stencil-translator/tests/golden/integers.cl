#pragma OPENCL FP_CONTRACT OFF

struct integers_args {
    long double_first;
    long hash_first;
    long int_first;
    long extents[1];
    long first[1];
    long grid[1];
    uint seed_value;
    uint pad;
};

static inline int to_integers_i32_from_f32(float x)
{
    return x != x ? 0 : x <= -2147483648.0f ? (-2147483647 - 1) : x >= 2147483648.0f ? 2147483647 : (int)x;
}

__kernel void integers_kernel(__global long *restrict p_double, __global uint *restrict p_hash, __global const int *restrict p_int, const struct integers_args args)
{
    const long i0 = (long)get_global_id(0);
    if (i0 >= args.extents[0])
        return;
    __global long *const at_double = p_double + (args.double_first + i0);
    __global uint *const at_hash = p_hash + (args.hash_first + i0);
    __global const int *const at_int = p_int + (args.int_first + i0);
    long out_double;
    uint out_hash;
    const long v0_wide = (long)((ulong)((long)((ulong)((long)at_int[-1]) * (ulong)((-9223372036854775807L - 1)))) + (ulong)(args.first[0] + i0));
    const int v1_abs = at_int[0];
    uint v2_bits = (args.seed_value ^ ((uint)((v1_abs < 0) ? (int)(0u - (uint)v1_abs) : v1_abs) & 65535u)) | 1u;
    v2_bits = v2_bits * 2654435761u;
    v2_bits = v2_bits % 1000u;
    const int v3_scaled = (int)((uint)((int)(0u - (uint)to_integers_i32_from_f32((float)at_int[0] * 0.1f))) - (uint)((-2147483647 - 1)));
    const long v4_a = at_double[0];
    out_double = (long)((ulong)((long)((ulong)(((v4_a > v0_wide) ? v4_a : v0_wide) / 7L) - (ulong)((long)(0u - (ulong)v0_wide)))) + (ulong)((long)v3_scaled));
    out_hash = ~v2_bits;
    at_double[0] = out_double;
    at_hash[0] = out_hash;
}
