/* The kernels of the conformance suite. */

#include "kernel.h"

/* Elements that have a work-item and lie below n. */
static uint32_t reached(const struct launch *launch, uint32_t n)
{
    uint64_t items = work_items(launch, 0);
    return items < n ? (uint32_t)items : n;
}

KERNEL(fill_index, uint32_t *out, uint32_t start, uint32_t n)
{
    for (uint32_t i = 0, end = reached(launch, n); i < end; i++)
        out[i] = start + i;
}

KERNEL(add_one, uint32_t *data, uint32_t n)
{
    for (uint32_t i = 0, end = reached(launch, n); i < end; i++)
        data[i]++;
}

KERNEL(add, uint32_t *out, const uint32_t *a, const uint32_t *b, uint32_t n)
{
    for (uint32_t i = 0, end = reached(launch, n); i < end; i++)
        out[i] = a[i] + b[i];
}

KERNEL(saxpy, float *y, const float *x, float a, uint32_t n)
{
    for (uint32_t i = 0, end = reached(launch, n); i < end; i++)
        y[i] += a * x[i];
}

KERNEL(scale_f64, double *y, const double *x, double a, uint32_t n)
{
    for (uint32_t i = 0, end = reached(launch, n); i < end; i++)
        y[i] = a * x[i];
}

KERNEL(index_3d, uint32_t *out, uint32_t nx, uint32_t ny, uint32_t nz)
{
    for (uint32_t z = 0; z < nz && z < work_items(launch, 2); z++)
        for (uint32_t y = 0; y < ny && y < work_items(launch, 1); y++)
            for (uint32_t x = 0; x < nx && x < work_items(launch, 0); x++)
                out[(z * ny + y) * nx + x] = x + 1000 * y + 1000000 * z;
}

KERNEL(many_arguments, double *out, int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f, int64_t g,
       uint64_t h, float p, double q, const double *x)
{
    (void)launch;
    const double values[] = {a, b, c, d, e, f, (double)g, (double)h, p, q, x[0]};
    for (int i = 0; i < 11; i++)
        out[i] = values[i];
}

KERNEL(spin, uint32_t *out, uint64_t rounds)
{
    (void)launch;
    uint32_t value = 0;
    while (rounds-- > 0)
        value = value * 1664525 + 1013904223;
    out[0] = value;
}

KERNEL(fault, uint32_t *out)
{
    (void)launch;
    out[0] = 1;
    __builtin_trap();
}
