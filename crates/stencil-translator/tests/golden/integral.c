#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "floats must be rounded after each operation"
#endif

struct integral_args {
    int64_t sum_first;
    int64_t sum_strides[2];
    int64_t count_first;
    int64_t count_strides[2];
    int64_t w_first;
    int64_t w_strides[2];
    int64_t extents[3];
    int64_t first[3];
    int64_t grid[3];
};

void integral_kernel(float *restrict p_sum, int32_t *restrict p_count, const float *restrict p_w, const struct integral_args *restrict args)
{
    for (int64_t i0 = 0; i0 < args->extents[0]; i0++) {
        for (int64_t i1 = 0; i1 < args->extents[1]; i1++) {
            float previous_sum = 0;
            int32_t previous_count = 0;
            for (int64_t i2 = args->extents[2] - 1; i2 >= 0; i2--) {
                float *const at_sum = p_sum + (args->sum_first + i0 * args->sum_strides[0] + i1 * args->sum_strides[1] + i2);
                int32_t *const at_count = p_count + (args->count_first + i0 * args->count_strides[0] + i1 * args->count_strides[1] + i2);
                const float *const at_w = p_w + (args->w_first + i0 * args->w_strides[0] + i1 * args->w_strides[1] + i2);
                float out_sum;
                int32_t out_count;
                if (i2 == args->extents[2] - 1) {
                    out_sum = at_sum[0] * at_w[0];
                    out_count = 1;
                } else {
                    out_sum = previous_sum + at_sum[0] * at_w[1];
                    out_count = (int32_t)((uint32_t)previous_count + (uint32_t)((int32_t)(args->first[2] + i2)));
                }
                at_sum[0] = out_sum;
                at_count[0] = out_count;
                previous_sum = out_sum;
                previous_count = out_count;
            }
        }
    }
}
