#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "floats must be rounded after each operation"
#endif

struct thomas_args {
    int64_t c_first;
    int64_t c_strides[1];
    int64_t d_first;
    int64_t d_strides[1];
    int64_t t_first;
    int64_t t_strides[1];
    int64_t r_first;
    int64_t r_strides[1];
    int64_t extents[2];
    int64_t first[2];
    int64_t grid[2];
};

void thomas_kernel(double *restrict p_c, double *restrict p_d, const double *restrict p_t, const double *restrict p_r, const struct thomas_args *restrict args)
{
    for (int64_t i1 = 0; i1 < args->extents[1]; i1++) {
        double previous_c = 0;
        double previous_d = 0;
        for (int64_t i0 = 0; i0 < args->extents[0]; i0++) {
            double *const at_c = p_c + (args->c_first + i0 * args->c_strides[0] + i1);
            double *const at_d = p_d + (args->d_first + i0 * args->d_strides[0] + i1);
            const double *const at_t = p_t + (args->t_first + i0 * args->t_strides[0] + i1);
            const double *const at_r = p_r + (args->r_first + i0 * args->r_strides[0] + i1);
            double out_c;
            double out_d;
            if (i0 == 0) {
                const double v0_b = 1.0 + at_r[args->r_strides[0]];
                out_c = -at_r[args->r_strides[0]] / v0_b;
                out_d = at_t[0] / v0_b;
            } else if (i0 == args->extents[0] - 1) {
                const double v0_below = at_r[0];
                const double v1_above = 0.0;
                const double v2_b = 1.0 + v0_below + v1_above + v0_below * previous_c;
                out_c = -v1_above / v2_b;
                out_d = (at_t[0] + v0_below * previous_d) / v2_b;
            } else {
                const double v0_below = at_r[0];
                const double v1_above = at_r[args->r_strides[0]];
                const double v2_b = 1.0 + v0_below + v1_above + v0_below * previous_c;
                out_c = -v1_above / v2_b;
                out_d = (at_t[0] + v0_below * previous_d) / v2_b;
            }
            at_c[0] = out_c;
            at_d[0] = out_d;
            previous_c = out_c;
            previous_d = out_d;
        }
    }
}
