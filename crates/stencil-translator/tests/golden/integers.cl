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
    const long at_double = args.double_first + i0;
    const long at_hash = args.hash_first + i0;
    const long at_int = args.int_first + i0;
    long out_double;
    uint out_hash;
    const long v0_wide = (long)((ulong)((long)((ulong)((long)p_int[at_int - 1]) * (ulong)((-9223372036854775807L - 1)))) + (ulong)(args.first[0] + i0));
    const int v1_abs = p_int[at_int];
    uint v2_bits = (args.seed_value ^ ((uint)((v1_abs < 0) ? (int)(0u - (uint)v1_abs) : v1_abs) & 65535u)) | 1u;
    v2_bits = v2_bits * 2654435761u;
    v2_bits = v2_bits % 1000u;
    const int v3_scaled = (int)((uint)((int)(0u - (uint)to_integers_i32_from_f32((float)p_int[at_int] * 0.1f))) - (uint)((-2147483647 - 1)));
    const long v4_a = p_double[at_double];
    out_double = (long)((ulong)((long)((ulong)(((v4_a > v0_wide) ? v4_a : v0_wide) / 7L) - (ulong)((long)(0u - (ulong)v0_wide)))) + (ulong)((long)v3_scaled));
    out_hash = ~v2_bits;
    p_double[at_double] = out_double;
    p_hash[at_hash] = out_hash;
}
