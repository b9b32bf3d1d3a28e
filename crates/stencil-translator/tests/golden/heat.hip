#ifdef __clang__
#pragma clang fp contract(off)
#endif

struct heat_args {
    long long next_first;
    long long next_strides[1];
    long long t_first;
    long long t_strides[1];
    long long extents[2];
    long long first[2];
    long long grid[2];
    double ax_value;
    double ay_value;
};

extern "C" __global__ void heat_kernel(double *__restrict__ p_next, const double *__restrict__ p_t, const struct heat_args args)
{
    const long long i0 = (long long)blockIdx.y * blockDim.y + threadIdx.y;
    const long long i1 = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= args.extents[0] || i1 >= args.extents[1])
        return;
    const long long at_next = args.next_first + i0 * args.next_strides[0] + i1;
    const long long at_t = args.t_first + i0 * args.t_strides[0] + i1;
    double out_next;
    const double v0_c = p_t[at_t];
    out_next = v0_c + args.ax_value * (p_t[at_t - args.t_strides[0]] - 2.0 * v0_c + p_t[at_t + args.t_strides[0]]) + args.ay_value * (p_t[at_t - 1] - 2.0 * v0_c + p_t[at_t + 1]);
    p_next[at_next] = out_next;
}
