#ifdef __clang__
#pragma clang fp contract(off)
#endif

struct integral_args {
    long long sum_first;
    long long sum_strides[2];
    long long count_first;
    long long count_strides[2];
    long long w_first;
    long long w_strides[2];
    long long extents[3];
    long long first[3];
    long long grid[3];
};

extern "C" __global__ void integral_kernel(float *__restrict__ p_sum, int *__restrict__ p_count, const float *__restrict__ p_w, const struct integral_args args)
{
    const unsigned int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= (unsigned int)args.extents[0] || i1 >= (unsigned int)args.extents[1])
        return;
    float previous_sum = 0;
    int previous_count = 0;
    for (long long i2 = args.extents[2] - 1; i2 >= 0; i2--) {
        float *const at_sum = p_sum + (args.sum_first + i0 * args.sum_strides[0] + i1 * args.sum_strides[1] + i2);
        int *const at_count = p_count + (args.count_first + i0 * args.count_strides[0] + i1 * args.count_strides[1] + i2);
        const float *const at_w = p_w + (args.w_first + i0 * args.w_strides[0] + i1 * args.w_strides[1] + i2);
        float out_sum;
        int out_count;
        if (i2 == args.extents[2] - 1) {
            out_sum = at_sum[0] * at_w[0];
            out_count = 1;
        } else {
            out_sum = previous_sum + at_sum[0] * at_w[1];
            out_count = (int)((unsigned int)previous_count + (unsigned int)((int)(args.first[2] + i2)));
        }
        at_sum[0] = out_sum;
        at_count[0] = out_count;
        previous_sum = out_sum;
        previous_count = out_count;
    }
}
