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
    const unsigned int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0] || i1 >= (unsigned int)args.extents[1])
        return;
    float *const at_u1 = p_u1 + (args.u1_first + i0 * args.u1_strides[0] + i1);
    float *const at_v1 = p_v1 + (args.v1_first + i0 * args.v1_strides[0] + i1);
    const float *const at_u = p_u + (args.u_first + i0 * args.u_strides[0] + i1);
    const float *const at_v = p_v + (args.v_first + i0 * args.v_strides[0] + i1);
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
