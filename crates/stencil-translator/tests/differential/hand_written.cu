// Kernels written by hand. They take what the kernels of the stencils take.

struct five_point_args {
    long long next_first, next_strides[1], t_first, t_strides[1], extents[2], first[2], grid[2];
    double a;
};

extern "C" __global__ void five_point(double *__restrict__ next, const double *__restrict__ t, const five_point_args args)
{
    const unsigned i = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (unsigned)args.extents[0] || j >= (unsigned)args.extents[1])
        return;
    const long long step = args.t_strides[0];
    t += args.t_first + i * step + j;
    next += args.next_first + i * args.next_strides[0] + j;
    const double here = t[0], around = t[-step] + t[step] + t[-1] + t[1];
    next[0] = here + args.a * (around - 4.0 * here);
}

struct seven_point_args {
    long long next_first, next_strides[2], t_first, t_strides[2], extents[3], first[3], grid[3];
    double a;
};

extern "C" __global__ void seven_point(double *__restrict__ next, const double *__restrict__ t, const seven_point_args args)
{
    const unsigned k = blockIdx.z * blockDim.z + threadIdx.z;
    const unsigned i = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned j = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= (unsigned)args.extents[0] || i >= (unsigned)args.extents[1] || j >= (unsigned)args.extents[2])
        return;
    const long long plane = args.t_strides[0], step = args.t_strides[1];
    t += args.t_first + k * plane + i * step + j;
    next += args.next_first + k * args.next_strides[0] + i * args.next_strides[1] + j;
    const double here = t[0], around = t[-plane] + t[plane] + t[-step] + t[step] + t[-1] + t[1];
    next[0] = here + args.a * (around - 6.0 * here);
}
