/* A cell per work-item; the arithmetic and its order are those of the Rust function in diffusion.rs. Work-items beyond
 * the grid do nothing. */

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#else
#error "the device has no double precision"
#endif

/* A fused multiplication would round the flux through an edge differently on its two sides. */
#pragma OPENCL FP_CONTRACT OFF

kernel void diffuse(global double *next, global const double *z, ulong width, ulong height, double ax, double ay)
{
    size_t column = get_global_id(0);
    size_t row = get_global_id(1);
    if (column >= width || row >= height)
        return;
    /* A cell at the boundary is its own neighbour: without a slope there is no flux. */
    global const double *here = z + row * width;
    global const double *north = row > 0 ? here - width : here;
    global const double *south = row + 1 < height ? here + width : here;
    double centre = here[column];
    double west = column > 0 ? here[column - 1] : centre;
    double east = column + 1 < width ? here[column + 1] : centre;
    double along_x = ax * (east - centre) - ax * (centre - west);
    double along_y = ay * (south[column] - centre) - ay * (centre - north[column]);
    next[row * width + column] = centre + (along_x + along_y);
}
