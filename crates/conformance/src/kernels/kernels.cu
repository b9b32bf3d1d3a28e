/* The kernels of the conformance suite in CUDA C and HIP C, without headers; the table in mod.rs says what each does. */

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define INDEX(dim) ((u64)blockIdx.dim * blockDim.dim + threadIdx.dim)

KERNEL fill_index(u32 *out, u32 start, u32 n)
{
    u64 i = INDEX(x);
    if (i < n)
        out[i] = start + (u32)i;
}

KERNEL add_one(u32 *data, u32 n)
{
    u64 i = INDEX(x);
    if (i < n)
        data[i] += 1;
}

KERNEL add(u32 *out, const u32 *a, const u32 *b, u32 n)
{
    u64 i = INDEX(x);
    if (i < n)
        out[i] = a[i] + b[i];
}

KERNEL saxpy(float *y, const float *x, float a, u32 n)
{
    u64 i = INDEX(x);
    if (i < n)
        y[i] += a * x[i];
}

KERNEL scale_f64(double *y, const double *x, double a, u32 n)
{
    u64 i = INDEX(x);
    if (i < n)
        y[i] = a * x[i];
}

KERNEL index_3d(u32 *out, u32 nx, u32 ny, u32 nz)
{
    u64 x = INDEX(x);
    u64 y = INDEX(y);
    u64 z = INDEX(z);
    if (x < nx && y < ny && z < nz)
        out[(z * ny + y) * nx + x] = (u32)(x + 1000 * y + 1000000 * z);
}

KERNEL many_arguments(double *out, i8 a, u8 b, short c, u16 d, int e, u32 f, long long g, u64 h, float p, double q,
                      const double *x)
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

/* The variable is volatile, so that no compiler can join rounds or leave the loop out. */
KERNEL spin(u32 *out, u64 rounds)
{
    volatile u32 v = 0;
    for (u64 round = 0; round < rounds; ++round)
        v = v * 1664525u + 1013904223u;
    out[0] = v;
}

/* A trap, which need not end the process. Where the compiler is no vendor's, a trap may do nothing: nothing is at this address. */
KERNEL fault(u32 *out)
{
#if defined __AMDGCN__
    __builtin_trap();
#elif defined __CUDA_ARCH__
    asm volatile("trap;");
#else
    *(volatile u32 *)64 = 1;
#endif
    out[0] = 1;
}

/* All blocks meet, each of one thread. The rounds are bounded, so that blocks that run one after the other end as well. */
KERNEL meet(u32 *arrived, u32 *posted, u32 *seen, u32 n)
{
    u32 own = blockIdx.x;
    u32 next = own + 1 == n ? 0 : own + 1;
    u32 count = 0;
    ((volatile u32 *)posted)[own] = own + 1;
    __threadfence();
    atomicAdd(arrived, 1u);
    for (u32 round = 0; round < 1u << 22 && count < n; ++round)
        count = atomicAdd(arrived, 0u);
    __threadfence();
    seen[own] = count == n ? ((volatile u32 *)posted)[next] : 0;
}
