/* An embedded processor goes through the elements itself. */
#include "kernel.h"

KERNEL(saxpy, float *y, const float *x, float a, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < work_items(launch, 0); i++)
        y[i] += a * x[i];
}
