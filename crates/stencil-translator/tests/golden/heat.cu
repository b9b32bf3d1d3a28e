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
    const unsigned int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0] || i1 >= (unsigned int)args.extents[1])
        return;
    double *const at_next = p_next + (args.next_first + i0 * args.next_strides[0] + i1);
    const double *const at_t = p_t + (args.t_first + i0 * args.t_strides[0] + i1);
    double out_next;
    const double v0_c = at_t[0];
    out_next = v0_c + args.ax_value * (at_t[-args.t_strides[0]] - 2.0 * v0_c + at_t[args.t_strides[0]]) + args.ay_value * (at_t[-1] - 2.0 * v0_c + at_t[1]);
    at_next[0] = out_next;
}
