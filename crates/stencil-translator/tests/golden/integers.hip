#ifdef __clang__
#pragma clang fp contract(off)
#endif

struct integers_args {
    long long double_first;
    long long hash_first;
    long long int_first;
    long long extents[1];
    long long first[1];
    long long grid[1];
    unsigned int seed_value;
    unsigned int pad;
};

static __device__ inline int to_integers_i32_from_f32(float x)
{
    return x != x ? 0 : x <= -2147483648.0f ? (-2147483647 - 1) : x >= 2147483648.0f ? 2147483647 : (int)x;
}

extern "C" __global__ void integers_kernel(long long *__restrict__ p_double, unsigned int *__restrict__ p_hash, const int *__restrict__ p_int, const struct integers_args args)
{
    const long long i0 = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= args.extents[0])
        return;
    const long long at_double = args.double_first + i0;
    const long long at_hash = args.hash_first + i0;
    const long long at_int = args.int_first + i0;
    long long out_double;
    unsigned int out_hash;
    const long long v0_wide = (long long)((unsigned long long)((long long)((unsigned long long)((long long)p_int[at_int - 1]) * (unsigned long long)((-9223372036854775807LL - 1)))) + (unsigned long long)(args.first[0] + i0));
    const int v1_abs = p_int[at_int];
    unsigned int v2_bits = (args.seed_value ^ ((unsigned int)((v1_abs < 0) ? (int)(0u - (unsigned int)v1_abs) : v1_abs) & 65535u)) | 1u;
    v2_bits = v2_bits * 2654435761u;
    v2_bits = v2_bits % 1000u;
    const int v3_scaled = (int)((unsigned int)((int)(0u - (unsigned int)to_integers_i32_from_f32((float)p_int[at_int] * 0.1f))) - (unsigned int)((-2147483647 - 1)));
    const long long v4_a = p_double[at_double];
    out_double = (long long)((unsigned long long)((long long)((unsigned long long)(((v4_a > v0_wide) ? v4_a : v0_wide) / 7LL) - (unsigned long long)((long long)(0u - (unsigned long long)v0_wide)))) + (unsigned long long)((long long)v3_scaled));
    out_hash = ~v2_bits;
    p_double[at_double] = out_double;
    p_hash[at_hash] = out_hash;
}
