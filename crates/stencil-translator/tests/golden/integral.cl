#pragma OPENCL FP_CONTRACT OFF

struct integral_args {
    long sum_first;
    long sum_strides[2];
    long count_first;
    long count_strides[2];
    long w_first;
    long w_strides[2];
    long extents[3];
    long first[3];
    long grid[3];
};

__kernel void integral_kernel(__global float *restrict p_sum, __global int *restrict p_count, __global const float *restrict p_w, const struct integral_args args)
{
    const long i0 = (long)get_global_id(1);
    const long i1 = (long)get_global_id(0);
    if (i0 >= args.extents[0] || i1 >= args.extents[1])
        return;
    float previous_sum = 0;
    int previous_count = 0;
    for (long i2 = args.extents[2] - 1; i2 >= 0; i2--) {
        __global float *const at_sum = p_sum + (args.sum_first + i0 * args.sum_strides[0] + i1 * args.sum_strides[1] + i2);
        __global int *const at_count = p_count + (args.count_first + i0 * args.count_strides[0] + i1 * args.count_strides[1] + i2);
        __global const float *const at_w = p_w + (args.w_first + i0 * args.w_strides[0] + i1 * args.w_strides[1] + i2);
        float out_sum;
        int out_count;
        if (i2 == args.extents[2] - 1) {
            out_sum = at_sum[0] * at_w[0];
            out_count = 1;
        } else {
            out_sum = previous_sum + at_sum[0] * at_w[1];
            out_count = (int)((uint)previous_count + (uint)((int)(args.first[2] + i2)));
        }
        at_sum[0] = out_sum;
        at_count[0] = out_count;
        previous_sum = out_sum;
        previous_count = out_count;
    }
}
