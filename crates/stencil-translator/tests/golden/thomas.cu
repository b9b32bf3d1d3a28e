struct thomas_args {
    long long c_first;
    long long c_strides[1];
    long long d_first;
    long long d_strides[1];
    long long t_first;
    long long t_strides[1];
    long long r_first;
    long long r_strides[1];
    long long extents[2];
    long long first[2];
    long long grid[2];
};

extern "C" __global__ void thomas_kernel(double *__restrict__ p_c, double *__restrict__ p_d, const double *__restrict__ p_t, const double *__restrict__ p_r, const struct thomas_args args)
{
    const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i1 >= (unsigned int)args.extents[1])
        return;
    double previous_c = 0;
    double previous_d = 0;
    for (long long i0 = 0; i0 < args.extents[0]; i0++) {
        double *const at_c = p_c + (args.c_first + i0 * args.c_strides[0] + i1);
        double *const at_d = p_d + (args.d_first + i0 * args.d_strides[0] + i1);
        const double *const at_t = p_t + (args.t_first + i0 * args.t_strides[0] + i1);
        const double *const at_r = p_r + (args.r_first + i0 * args.r_strides[0] + i1);
        double out_c;
        double out_d;
        if (i0 == 0) {
            const double v0_b = 1.0 + at_r[args.r_strides[0]];
            out_c = -at_r[args.r_strides[0]] / v0_b;
            out_d = at_t[0] / v0_b;
        } else if (i0 == args.extents[0] - 1) {
            const double v0_below = at_r[0];
            const double v1_above = 0.0;
            const double v2_b = 1.0 + v0_below + v1_above + v0_below * previous_c;
            out_c = -v1_above / v2_b;
            out_d = (at_t[0] + v0_below * previous_d) / v2_b;
        } else {
            const double v0_below = at_r[0];
            const double v1_above = at_r[args.r_strides[0]];
            const double v2_b = 1.0 + v0_below + v1_above + v0_below * previous_c;
            out_c = -v1_above / v2_b;
            out_d = (at_t[0] + v0_below * previous_d) / v2_b;
        }
        at_c[0] = out_c;
        at_d[0] = out_d;
        previous_c = out_c;
        previous_d = out_d;
    }
}
