// The rows of rows.rs, for gcc.
#include <stddef.h>

struct row {
    size_t points, steps[2];
    double *outputs[2];
    const double *inputs[2];
    double scalars[2];
};

struct row_f32 {
    size_t points, steps[2];
    float *outputs[2];
    const float *inputs[2];
    float scalars[2];
};

void copy(const struct row *row)
{
    double *restrict next = row->outputs[0];
    const double *restrict t = row->inputs[0];
    const size_t points = row->points;
    for (size_t x = 0; x < points; x++)
        next[x] = t[x];
}

void five_point(const struct row *row)
{
    const ptrdiff_t points = row->points, step = row->steps[1];
    double *restrict next = row->outputs[0];
    const double *restrict t = row->inputs[0];
    const double a = row->scalars[0];
    for (ptrdiff_t x = 0; x < points; x++) {
        const double around = t[x - step] + t[x + step] + t[x - 1] + t[x + 1];
        next[x] = t[x] + a * (around - 4.0 * t[x]);
    }
}

void seven_point(const struct row *row)
{
    const ptrdiff_t points = row->points, plane = row->steps[0], step = row->steps[1];
    double *restrict next = row->outputs[0];
    const double *restrict t = row->inputs[0];
    const double a = row->scalars[0];
    for (ptrdiff_t x = 0; x < points; x++) {
        const double around =
            t[x - plane] + t[x + plane] + t[x - step] + t[x + step] + t[x - 1] + t[x + 1];
        next[x] = t[x] + a * (around - 6.0 * t[x]);
    }
}

static inline double laplacian(const double *q, ptrdiff_t step)
{
    return 4.0 * q[0] - (q[1] + q[-1] + (q[step] + q[-step]));
}

static inline double limited(double flux, double slope)
{
    return flux * slope > 0.0 ? 0.0 : flux;
}

void hdiff(const struct row *row)
{
    const ptrdiff_t points = row->points, step = row->steps[1];
    double *restrict next = row->outputs[0];
    const double *restrict in = row->inputs[0];
    const double *restrict coefficient = row->inputs[1];
    for (ptrdiff_t x = 0; x < points; x++) {
        const double *q = in + x;
        const double here = laplacian(q, step);
        const double south = limited(laplacian(q + step, step) - here, q[step] - q[0]);
        const double north = limited(here - laplacian(q - step, step), q[0] - q[-step]);
        const double east = limited(laplacian(q + 1, step) - here, q[1] - q[0]);
        const double west = limited(here - laplacian(q - 1, step), q[0] - q[-1]);
        next[x] = q[0] - coefficient[x] * ((east - west) + (south - north));
    }
}

static inline float laplacian_9(const float *f, ptrdiff_t step)
{
    const float sides = f[-step] + f[step] + f[-1] + f[1];
    const float corners = f[-step - 1] + f[-step + 1] + f[step - 1] + f[step + 1];
    return 0.2f * sides + 0.05f * corners - f[0];
}

// gcc knows that parameters are apart, and checks at run time only for few other pointers.
__attribute__((noinline)) static void
gray_scott_row(ptrdiff_t points, ptrdiff_t step, float *restrict u_next, float *restrict v_next,
               const float *restrict u, const float *restrict v, float feed, float kill)
{
    for (ptrdiff_t x = 0; x < points; x++) {
        const float eaten = u[x] * v[x] * v[x];
        u_next[x] = u[x] + laplacian_9(u + x, step) - eaten + feed * (1.0f - u[x]);
        v_next[x] = v[x] + 0.5f * laplacian_9(v + x, step) + eaten - (feed + kill) * v[x];
    }
}

void gray_scott(const struct row_f32 *row)
{
    gray_scott_row(row->points, row->steps[1], row->outputs[0], row->outputs[1], row->inputs[0],
                   row->inputs[1], row->scalars[0], row->scalars[1]);
}
