struct upwind_args {
    long long next_first;
    long long next_strides[2];
    long long q_first;
    long long q_strides[2];
    long long extents[3];
    long long first[3];
    long long grid[3];
    double c_value;
    unsigned int is_limited_value;
    unsigned int pad;
};

extern "C" __global__ void upwind_kernel(double *__restrict__ p_next, const double *__restrict__ p_q, const struct upwind_args args)
{
    const unsigned int i0 = blockIdx.z * blockDim.z + threadIdx.z;
    const unsigned int i1 = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned int i2 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0] || i1 >= (unsigned int)args.extents[1] || i2 >= (unsigned int)args.extents[2])
        return;
    double *const at_next = p_next + (args.next_first + i0 * args.next_strides[0] + i1 * args.next_strides[1] + i2);
    const double *const at_q = p_q + (args.q_first + i0 * args.q_strides[0] + i1 * args.q_strides[1] + i2);
    double out_next;
    const double v0_half = 0.5 * (1.0 - fabs(args.c_value));
    const double v1_a = at_q[-1] - at_q[-2];
    const double v2_b = at_q[0] - at_q[-1];
    const double v3_a = fabs(v1_a);
    const double v4_b = fabs(v2_b);
    const double v5_slope = (v1_a * v2_b > 0.0) ? ((v3_a < v4_b) ? v3_a : v4_b) : 0.0;
    const double v6_inflow = at_q[-1] + v0_half * v5_slope;
    const double v7_a = at_q[0] - at_q[-1];
    const double v8_b = at_q[1] - at_q[0];
    const double v9_a = fabs(v7_a);
    const double v10_b = fabs(v8_b);
    const double v11_slope = (v7_a * v8_b > 0.0) ? ((v9_a < v10_b) ? v9_a : v10_b) : 0.0;
    const double v12_outflow = at_q[0] + v0_half * v11_slope;
    if (((args.is_limited_value != 0) && (args.first[2] + i2 > 0LL)) && (args.first[2] + i2 < (long long)((unsigned long long)args.grid[2] - (unsigned long long)1LL))) {
        out_next = at_q[0] - args.c_value * (v12_outflow - v6_inflow);
    } else {
        out_next = at_q[0] - args.c_value * (at_q[0] - at_q[-1]);
    }
    at_next[0] = out_next;
}
