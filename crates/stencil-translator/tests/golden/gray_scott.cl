#pragma OPENCL FP_CONTRACT OFF

struct gray_scott_args {
    long u1_first;
    long u1_strides[1];
    long v1_first;
    long v1_strides[1];
    long u_first;
    long u_strides[1];
    long v_first;
    long v_strides[1];
    long extents[2];
    long first[2];
    long grid[2];
    float feed_value;
    float kill_value;
};

__kernel void gray_scott_kernel(__global float *restrict p_u1, __global float *restrict p_v1, __global const float *restrict p_u, __global const float *restrict p_v, const struct gray_scott_args args)
{
    const long i0 = (long)get_global_id(1);
    const long i1 = (long)get_global_id(0);
    if (i0 >= args.extents[0] || i1 >= args.extents[1])
        return;
    __global float *const at_u1 = p_u1 + (args.u1_first + i0 * args.u1_strides[0] + i1);
    __global float *const at_v1 = p_v1 + (args.v1_first + i0 * args.v1_strides[0] + i1);
    __global const float *const at_u = p_u + (args.u_first + i0 * args.u_strides[0] + i1);
    __global const float *const at_v = p_v + (args.v_first + i0 * args.v_strides[0] + i1);
    float out_u1;
    float out_v1;
    const float v0_reaction = at_u[0] * at_v[0] * at_v[0];
    const float v1_laplacian = at_u[-args.u_strides[0]] + at_u[args.u_strides[0]] + at_u[-1] + at_u[1] - 4.0f * at_u[0];
    out_u1 = at_u[0] + 0.2f * v1_laplacian - v0_reaction + args.feed_value * (1.0f - at_u[0]);
    const float v2_laplacian = at_v[-args.v_strides[0]] + at_v[args.v_strides[0]] + at_v[-1] + at_v[1] - 4.0f * at_v[0];
    out_v1 = at_v[0] + 0.1f * v2_laplacian + v0_reaction - (args.feed_value + args.kill_value) * at_v[0];
    at_u1[0] = out_u1;
    at_v1[0] = out_v1;
}
