/* What a kernel of an embedded device is made with.
 *
 *     #include "kernel.h"
 *
 *     KERNEL(scale, float *x, float by, uint32_t n)
 *     {
 *         for (uint32_t i = 0; i < n && i < work_items(launch, 0); i++)
 *             x[i] *= by;
 *     }
 *
 * A kernel is called once for each launch, with the launch's geometry, and goes through the work-items itself. Parameters
 * are pointers, numbers of stdint.h, float, double and bool; the launch is checked against them. An array, as in
 * `float x[]`, is a pointer. `const` on a pointer says that its memory is read only, and restrict may be added; what a
 * pointer points to is an element type, or anything. */

#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks, and work-items of a block, along x, y, z; all at least 1. */
struct launch {
    uint32_t grid[3];
    uint32_t block[3];
};

/* Defines a kernel, and declares it to the loader in a section that takes no memory on the device. */
#define KERNEL(name, ...)                                                                \
    __asm__(".pushsection .kernels,\"\",%progbits\n"                                     \
            ".asciz \"" #name "(" #__VA_ARGS__ ")\"\n"                                   \
            ".popsection");                                                              \
    __attribute__((used, visibility("default")))                                         \
    void name(const struct launch *launch __VA_OPT__(, ) __VA_ARGS__)

/* Work-items along a dimension: 0 for x, 1 for y, 2 for z. */
static inline uint64_t work_items(const struct launch *launch, int dimension)
{
    return (uint64_t)launch->grid[dimension] * launch->block[dimension];
}

#endif
