/* One step of diffusion on an embedded processor, which goes through the cells itself; the arithmetic and its order are
 * those of the Rust function in diffusion.rs. `cargo xtask firmware` compiles it, without fused multiplications: one would
 * round the flux through an edge differently on its two sides. */

#include "kernel.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

KERNEL(diffuse, double *next, const double *z, uint64_t width, uint64_t height, double ax, double ay)
{
    uint64_t columns = least(width, work_items(launch, 0)), rows = least(height, work_items(launch, 1));
    for (uint64_t row = 0; row < rows; row++) {
        /* A cell at the boundary is its own neighbour: without a slope there is no flux. */
        const double *here = z + row * width;
        const double *north = row > 0 ? here - width : here;
        const double *south = row + 1 < height ? here + width : here;
        for (uint64_t column = 0; column < columns; column++) {
            double centre = here[column];
            double west = column > 0 ? here[column - 1] : centre;
            double east = column + 1 < width ? here[column + 1] : centre;
            double along_x = ax * (east - centre) - ax * (centre - west);
            double along_y = ay * (south[column] - centre) - ay * (centre - north[column]);
            next[row * width + column] = centre + (along_x + along_y);
        }
    }
}
