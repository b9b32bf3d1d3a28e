#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "floats must be rounded after each operation"
#endif

struct heat_args {
    int64_t next_first;
    int64_t next_strides[1];
    int64_t t_first;
    int64_t t_strides[1];
    int64_t extents[2];
    int64_t first[2];
    int64_t grid[2];
    double ax_value;
    double ay_value;
};

void heat_kernel(double *restrict p_next, const double *restrict p_t, const struct heat_args *restrict args)
{
    for (int64_t i0 = 0; i0 < args->extents[0]; i0++) {
        for (int64_t i1 = 0; i1 < args->extents[1]; i1++) {
            double *const at_next = p_next + (args->next_first + i0 * args->next_strides[0] + i1);
            const double *const at_t = p_t + (args->t_first + i0 * args->t_strides[0] + i1);
            double out_next;
            const double v0_c = at_t[0];
            out_next = v0_c + args->ax_value * (at_t[-args->t_strides[0]] - 2.0 * v0_c + at_t[args->t_strides[0]]) + args->ay_value * (at_t[-1] - 2.0 * v0_c + at_t[1]);
            at_next[0] = out_next;
        }
    }
}
