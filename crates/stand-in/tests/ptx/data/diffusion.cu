/* A cell per thread; one step of diffusion of a patch of cells, whose `sides` say beyond which sides there are more cells.
 * Threads beyond the patch do nothing. Compile the text without headers. */

typedef unsigned long long u64;

/* A product that is never fused with a sum: that would round the flux through an edge differently on its two sides. */
#define TIMES(a, b) __dmul_rn(a, b)

#define WEST 1
#define EAST 2
#define NORTH 4
#define SOUTH 8

extern "C" __global__ void diffuse(double *next, const double *z, u64 next_at, u64 z_at, u64 pitch, u64 columns, u64 rows,
                                   u64 sides, double ax, double ay)
{
    u64 column = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= columns || row >= rows)
        return;
    /* A cell at the end of the terrain is its own neighbour: without a slope there is no flux. */
    const double *here = z + z_at + row * pitch + column;
    double centre = *here;
    double west = column > 0 || sides & WEST ? here[-1] : centre;
    double east = column + 1 < columns || sides & EAST ? here[1] : centre;
    double north = row > 0 || sides & NORTH ? *(here - pitch) : centre;
    double south = row + 1 < rows || sides & SOUTH ? here[pitch] : centre;
    double along_x = TIMES(ax, east - centre) - TIMES(ax, centre - west);
    double along_y = TIMES(ay, south - centre) - TIMES(ay, centre - north);
    next[next_at + row * pitch + column] = centre + (along_x + along_y);
}
