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
    const unsigned int i0 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0])
        return;
    long long *const at_double = p_double + (args.double_first + i0);
    unsigned int *const at_hash = p_hash + (args.hash_first + i0);
    const int *const at_int = p_int + (args.int_first + i0);
    long long out_double;
    unsigned int out_hash;
    const long long v0_wide = (long long)((unsigned long long)((long long)((unsigned long long)((long long)at_int[-1]) * (unsigned long long)((-9223372036854775807LL - 1)))) + (unsigned long long)(args.first[0] + i0));
    const int v1_abs = at_int[0];
    unsigned int v2_bits = (args.seed_value ^ ((unsigned int)((v1_abs < 0) ? (int)(0u - (unsigned int)v1_abs) : v1_abs) & 65535u)) | 1u;
    v2_bits = v2_bits * 2654435761u;
    v2_bits = v2_bits % 1000u;
    const int v3_scaled = (int)((unsigned int)((int)(0u - (unsigned int)to_integers_i32_from_f32((float)at_int[0] * 0.1f))) - (unsigned int)((-2147483647 - 1)));
    const long long v4_a = at_double[0];
    out_double = (long long)((unsigned long long)((long long)((unsigned long long)(((v4_a > v0_wide) ? v4_a : v0_wide) / 7LL) - (unsigned long long)((long long)(0u - (unsigned long long)v0_wide)))) + (unsigned long long)((long long)v3_scaled));
    out_hash = ~v2_bits;
    at_double[0] = out_double;
    at_hash[0] = out_hash;
}
