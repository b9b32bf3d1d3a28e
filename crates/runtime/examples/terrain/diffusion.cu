/* A cell per thread; the arithmetic and its order are those of the Rust function in diffusion.rs. Threads beyond the
 * grid do nothing. Compile the text without headers. */

typedef unsigned long long u64;

/* A product that is never fused with a sum: that would round the flux through an edge differently on its two sides. */
#define TIMES(a, b) __dmul_rn(a, b)

extern "C" __global__ void diffuse(double *next, const double *z, u64 width, u64 height, double ax, double ay)
{
    u64 column = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height)
        return;
    /* A cell at the boundary is its own neighbour: without a slope there is no flux. */
    const double *here = z + row * width;
    const double *north = row > 0 ? here - width : here;
    const double *south = row + 1 < height ? here + width : here;
    double centre = here[column];
    double west = column > 0 ? here[column - 1] : centre;
    double east = column + 1 < width ? here[column + 1] : centre;
    double along_x = TIMES(ax, east - centre) - TIMES(ax, centre - west);
    double along_y = TIMES(ay, south[column] - centre) - TIMES(ay, centre - north[column]);
    next[row * width + column] = centre + (along_x + along_y);
}
