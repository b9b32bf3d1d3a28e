/* The kernels of the conformance suite in OpenCL C 1.2; the table in mod.rs says what each does. `fault` is missing:
 * a runtime whose device is the processor lives in the tested process, which a trap would end. */

kernel void fill_index(global uint *out, uint start, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        out[i] = start + (uint)i;
}

kernel void add_one(global uint *data, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        data[i] += 1;
}

kernel void add(global uint *out, global const uint *a, global const uint *b, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        out[i] = a[i] + b[i];
}

kernel void saxpy(global float *y, global const float *x, float a, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        y[i] += a * x[i];
}

kernel void index_3d(global uint *out, uint nx, uint ny, uint nz)
{
    size_t x = get_global_id(0);
    size_t y = get_global_id(1);
    size_t z = get_global_id(2);
    if (x < nx && y < ny && z < nz)
        out[(z * ny + y) * nx + x] = (uint)(x + 1000 * y + 1000000 * z);
}

/* The variable is volatile, so that no compiler can join rounds or leave the loop out. */
kernel void spin(global uint *out, ulong rounds)
{
    volatile uint v = 0;
    for (ulong round = 0; round < rounds; ++round)
        v = v * 1664525u + 1013904223u;
    out[0] = v;
}

/* Devices without double precision lack these two. */
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

kernel void scale_f64(global double *y, global const double *x, double a, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        y[i] = a * x[i];
}

kernel void many_arguments(global double *out, char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h,
                           float p, double q, global const double *x)
{
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
    out[4] = e;
    out[5] = f;
    out[6] = g;
    out[7] = h;
    out[8] = p;
    out[9] = q;
    out[10] = x[0];
}

#endif
