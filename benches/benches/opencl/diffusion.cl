/* A cell per work-item; one step of diffusion of a patch of cells, whose `sides` say beyond which sides there are
 * more cells. Work-items beyond the patch do nothing. */

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#else
#error "the device has no double precision"
#endif

/* A fused multiplication would round the flux through an edge differently on its two sides. */
#pragma OPENCL FP_CONTRACT OFF

#define WEST 1
#define EAST 2
#define NORTH 4
#define SOUTH 8

kernel void diffuse(global double *next, global const double *z, ulong next_at, ulong z_at, ulong pitch, ulong columns,
                    ulong rows, ulong sides, double ax, double ay)
{
    size_t column = get_global_id(0);
    size_t row = get_global_id(1);
    if (column >= columns || row >= rows)
        return;
    /* A cell at the end of the terrain is its own neighbour: without a slope there is no flux. */
    global const double *here = z + z_at + row * pitch + column;
    double centre = *here;
    double west = column > 0 || sides & WEST ? here[-1] : centre;
    double east = column + 1 < columns || sides & EAST ? here[1] : centre;
    double north = row > 0 || sides & NORTH ? *(here - pitch) : centre;
    double south = row + 1 < rows || sides & SOUTH ? here[pitch] : centre;
    double along_x = ax * (east - centre) - ax * (centre - west);
    double along_y = ay * (south - centre) - ay * (centre - north);
    next[next_at + row * pitch + column] = centre + (along_x + along_y);
}
