#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

struct heat_args {
    long next_first;
    long next_strides[1];
    long t_first;
    long t_strides[1];
    long extents[2];
    long first[2];
    long grid[2];
    double ax_value;
    double ay_value;
};

__kernel void heat_kernel(__global double *restrict p_next, __global const double *restrict p_t, const struct heat_args args)
{
    const long i0 = (long)get_global_id(1);
    const long i1 = (long)get_global_id(0);
    if (i0 >= args.extents[0] || i1 >= args.extents[1])
        return;
    __global double *const at_next = p_next + (args.next_first + i0 * args.next_strides[0] + i1);
    __global const double *const at_t = p_t + (args.t_first + i0 * args.t_strides[0] + i1);
    double out_next;
    const double v0_c = at_t[0];
    out_next = v0_c + args.ax_value * (at_t[-args.t_strides[0]] - 2.0 * v0_c + at_t[args.t_strides[0]]) + args.ay_value * (at_t[-1] - 2.0 * v0_c + at_t[1]);
    at_next[0] = out_next;
}
