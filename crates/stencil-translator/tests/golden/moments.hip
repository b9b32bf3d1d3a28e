#ifdef __clang__
#pragma clang fp contract(off)
#endif

struct moments_args {
    long long density_first;
    long long density_strides[1];
    long long momentum_first;
    long long momentum_strides[1];
    long long f_first;
    long long f_strides[1];
    long long extents[2];
    long long first[2];
    long long grid[2];
};

extern "C" __global__ void moments_kernel(double *__restrict__ p_density, double *__restrict__ p_momentum, const double *__restrict__ p_f, const struct moments_args args)
{
    const unsigned int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0] || i1 >= (unsigned int)args.extents[1])
        return;
    double *const at_density = p_density + (args.density_first + i0 * args.density_strides[0] + i1);
    double *const at_momentum = p_momentum + (args.momentum_first + i0 * args.momentum_strides[0] + i1);
    const double *const at_f = p_f + (args.f_first + i0 * args.f_strides[0] + i1);
    double out_density;
    double out_momentum;
    double v0_sum = 0.0;
    double v1_along = 0.0;
    const double v2_value = 0.4444444444444444 * at_f[0];
    v0_sum = v0_sum + v2_value;
    const double v3_value = 0.1111111111111111 * at_f[-args.f_strides[0]];
    v0_sum = v0_sum + v3_value;
    v1_along = v1_along + (double)1LL * v3_value;
    const double v4_value = 0.1111111111111111 * at_f[-1];
    v0_sum = v0_sum + v4_value;
    const double v5_value = 0.1111111111111111 * at_f[args.f_strides[0]];
    v0_sum = v0_sum + v5_value;
    v1_along = v1_along + (double)(-1LL) * v5_value;
    const double v6_value = 0.1111111111111111 * at_f[1];
    v0_sum = v0_sum + v6_value;
    const double v7_value = 0.027777777777777776 * at_f[-args.f_strides[0] - 1];
    v0_sum = v0_sum + v7_value;
    v1_along = v1_along + (double)1LL * v7_value;
    const double v8_value = 0.027777777777777776 * at_f[args.f_strides[0] - 1];
    v0_sum = v0_sum + v8_value;
    v1_along = v1_along + (double)(-1LL) * v8_value;
    const double v9_value = 0.027777777777777776 * at_f[args.f_strides[0] + 1];
    v0_sum = v0_sum + v9_value;
    v1_along = v1_along + (double)(-1LL) * v9_value;
    const double v10_value = 0.027777777777777776 * at_f[-args.f_strides[0] + 1];
    v0_sum = v0_sum + v10_value;
    v1_along = v1_along + (double)1LL * v10_value;
    out_density = v0_sum;
    out_momentum = v1_along;
    at_density[0] = out_density;
    at_momentum[0] = out_momentum;
}
