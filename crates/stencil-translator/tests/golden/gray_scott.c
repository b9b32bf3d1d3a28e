#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "floats must be rounded after each operation"
#endif

struct gray_scott_args {
    int64_t u1_first;
    int64_t u1_strides[1];
    int64_t v1_first;
    int64_t v1_strides[1];
    int64_t u_first;
    int64_t u_strides[1];
    int64_t v_first;
    int64_t v_strides[1];
    int64_t extents[2];
    int64_t first[2];
    int64_t grid[2];
    float feed_value;
    float kill_value;
};

void gray_scott_kernel(float *restrict p_u1, float *restrict p_v1, const float *restrict p_u, const float *restrict p_v, const struct gray_scott_args *restrict args)
{
    for (int64_t i0 = 0; i0 < args->extents[0]; i0++) {
        for (int64_t i1 = 0; i1 < args->extents[1]; i1++) {
            float *const at_u1 = p_u1 + (args->u1_first + i0 * args->u1_strides[0] + i1);
            float *const at_v1 = p_v1 + (args->v1_first + i0 * args->v1_strides[0] + i1);
            const float *const at_u = p_u + (args->u_first + i0 * args->u_strides[0] + i1);
            const float *const at_v = p_v + (args->v_first + i0 * args->v_strides[0] + i1);
            float out_u1;
            float out_v1;
            const float v0_reaction = at_u[0] * at_v[0] * at_v[0];
            const float v1_laplacian = at_u[-args->u_strides[0]] + at_u[args->u_strides[0]] + at_u[-1] + at_u[1] - 4.0f * at_u[0];
            out_u1 = at_u[0] + 0.2f * v1_laplacian - v0_reaction + args->feed_value * (1.0f - at_u[0]);
            const float v2_laplacian = at_v[-args->v_strides[0]] + at_v[args->v_strides[0]] + at_v[-1] + at_v[1] - 4.0f * at_v[0];
            out_v1 = at_v[0] + 0.1f * v2_laplacian + v0_reaction - (args->feed_value + args->kill_value) * at_v[0];
            at_u1[0] = out_u1;
            at_v1[0] = out_v1;
        }
    }
}
