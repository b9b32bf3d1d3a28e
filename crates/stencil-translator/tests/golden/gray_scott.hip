#ifdef __clang__
#pragma clang fp contract(off)
#endif

struct gray_scott_args {
    long long u1_first;
    long long u1_strides[1];
    long long v1_first;
    long long v1_strides[1];
    long long u_first;
    long long u_strides[1];
    long long v_first;
    long long v_strides[1];
    long long extents[2];
    long long first[2];
    long long grid[2];
    float feed_value;
    float kill_value;
};

extern "C" __global__ void gray_scott_kernel(float *__restrict__ p_u1, float *__restrict__ p_v1, const float *__restrict__ p_u, const float *__restrict__ p_v, const struct gray_scott_args args)
{
    const long long i0 = (long long)blockIdx.y * blockDim.y + threadIdx.y;
    const long long i1 = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= args.extents[0] || i1 >= args.extents[1])
        return;
    const long long at_u1 = args.u1_first + i0 * args.u1_strides[0] + i1;
    const long long at_v1 = args.v1_first + i0 * args.v1_strides[0] + i1;
    const long long at_u = args.u_first + i0 * args.u_strides[0] + i1;
    const long long at_v = args.v_first + i0 * args.v_strides[0] + i1;
    float out_u1;
    float out_v1;
    const float v0_reaction = p_u[at_u] * p_v[at_v] * p_v[at_v];
    const float v1_laplacian = p_u[at_u - args.u_strides[0]] + p_u[at_u + args.u_strides[0]] + p_u[at_u - 1] + p_u[at_u + 1] - 4.0f * p_u[at_u];
    out_u1 = p_u[at_u] + 0.2f * v1_laplacian - v0_reaction + args.feed_value * (1.0f - p_u[at_u]);
    const float v2_laplacian = p_v[at_v - args.v_strides[0]] + p_v[at_v + args.v_strides[0]] + p_v[at_v - 1] + p_v[at_v + 1] - 4.0f * p_v[at_v];
    out_v1 = p_v[at_v] + 0.1f * v2_laplacian + v0_reaction - (args.feed_value + args.kill_value) * p_v[at_v];
    p_u1[at_u1] = out_u1;
    p_v1[at_v1] = out_v1;
}
