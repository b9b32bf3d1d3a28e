/* One step of diffusion on an embedded processor, which goes through the cells itself; the arithmetic and its order are
 * those of the Rust function in kernel.rs, and so are the parameters. `cargo xtask firmware` compiles it, without fused
 * multiplications: one would round the flux through an edge differently on its two sides. */

#include "kernel.h"

#define WEST 1
#define EAST 2
#define NORTH 4
#define SOUTH 8

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

KERNEL(diffuse, double *next, const double *z, uint64_t next_at, uint64_t z_at, uint64_t pitch, uint64_t columns,
       uint64_t rows, uint64_t sides, double ax, double ay)
{
    uint64_t across = least(columns, work_items(launch, 0)), down = least(rows, work_items(launch, 1));
    for (uint64_t row = 0; row < down; row++) {
        const double *here = z + z_at + row * pitch;
        /* A cell at the end of the terrain is its own neighbour: without a slope there is no flux. */
        const double *north = row > 0 || sides & NORTH ? here - pitch : here;
        const double *south = row + 1 < rows || sides & SOUTH ? here + pitch : here;
        for (uint64_t column = 0; column < across; column++) {
            double centre = here[column];
            double west = column > 0 || sides & WEST ? *(here + column - 1) : centre;
            double east = column + 1 < columns || sides & EAST ? here[column + 1] : centre;
            double along_x = ax * (east - centre) - ax * (centre - west);
            double along_y = ay * (south[column] - centre) - ay * (centre - north[column]);
            next[next_at + row * pitch + column] = centre + (along_x + along_y);
        }
    }
}
