// What kernels of users do: shared memory, barriers, atomics, warps, local arrays, vectors, calls, variables.

extern "C" __global__ void reduce(float *out, const float *x, int n)
{
    extern __shared__ float sums[];
    int thread = threadIdx.x;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + thread; i < n; i += gridDim.x * blockDim.x)
        sum += x[i];
    sums[thread] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half)
            sums[thread] += sums[thread + half];
        __syncthreads();
    }
    if (thread == 0)
        atomicAdd(out, sums[0]);
}

extern "C" __global__ void transpose(double *out, const double *in, int n)
{
    __shared__ double tile[8][9];
    int column = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (column < n && row < n)
        tile[threadIdx.y][threadIdx.x] = in[row * n + column];
    __syncthreads();
    column = blockIdx.y * 8 + threadIdx.x;
    row = blockIdx.x * 8 + threadIdx.y;
    if (column < n && row < n)
        out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}

// One word per operation; everything is independent of the order.
extern "C" __global__ void atomics(unsigned *words, unsigned long long *wide, float *floats, double *doubles)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&words[0], i);
    atomicMax(&words[1], i);
    atomicMin(&words[2], i);
    atomicMax((int *)&words[3], -(int)i - 1);
    atomicAnd(&words[4], ~(1u << (i % 5)));
    atomicOr(&words[5], 1u << (i % 7));
    atomicXor(&words[6], i);
    atomicInc(&words[7], 9);
    atomicDec(&words[8], 9);
    if (atomicCAS(&words[9], 0, 1) == 0)
        atomicAdd(&words[10], 1);
    if (atomicExch(&words[11], 1) == 0)
        atomicAdd(&words[12], 1);
    atomicAdd(&wide[0], (unsigned long long)i << 33);
    atomicMax(&wide[1], (unsigned long long)i << 33);
    if (atomicCAS(&wide[2], 0ull, 1ull) == 0)
        atomicAdd(&wide[3], 1ull);
    atomicAdd(floats, 0.5f);
    atomicAdd(doubles, 0.25);
    __shared__ unsigned count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    atomicAdd(&count, 1u);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(&words[13], count);
}

extern "C" __global__ void warps(unsigned *out, const unsigned *in)
{
    unsigned i = threadIdx.x, all = 0xffffffff;
    unsigned sum = in[i];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(all, sum, step);
    out[i * 8] = sum;
    out[i * 8 + 1] = __shfl_up_sync(all, in[i], 3);
    out[i * 8 + 2] = __shfl_down_sync(all, in[i], 5, 8);
    out[i * 8 + 3] = __shfl_sync(all, in[i], i / 2);
    out[i * 8 + 4] = __ballot_sync(all, in[i] & 1);
    out[i * 8 + 5] = __any_sync(all, in[i] == 7) * 2 + __all_sync(all, in[i] < 1000);
    __syncwarp();
    out[i * 8 + 6] = __syncthreads_count(in[i] & 1) * 4 + __syncthreads_or(in[i] == 7) * 2 + __syncthreads_and(in[i] < 1000);
    out[i * 8 + 7] = i % 32;
}

// A sort of a few numbers in local memory, which a call has, too.
__device__ __noinline__ unsigned median(const uint4 *values, int count)
{
    unsigned sorted[16];
    for (int i = 0; i < count; ++i) {
        uint4 four = values[i];
        sorted[4 * i] = four.x;
        sorted[4 * i + 1] = four.y;
        sorted[4 * i + 2] = four.z;
        sorted[4 * i + 3] = four.w;
    }
    for (int i = 1; i < 4 * count; ++i)
        for (int j = i; j > 0 && sorted[j - 1] > sorted[j]; --j) {
            unsigned swapped = sorted[j];
            sorted[j] = sorted[j - 1];
            sorted[j - 1] = swapped;
        }
    return sorted[2 * count];
}

__device__ int launches = 5;
__constant__ int powers[5] = { 1, 10, 100, 1000, 10000 };

extern "C" __global__ void medians(uint2 *out, const uint4 *values, int count)
{
    int i = threadIdx.x;
    uint2 found;
    found.x = median(values + count * i, count);
    found.y = powers[i % 5] + (atomicAdd(&launches, 1) & 0);
    out[i] = found;
}

extern "C" __global__ void counted(int *out) { *out = launches; }

// A function has shared memory, and so has the kernel.
__device__ __noinline__ int mirrored(int value)
{
    __shared__ int values[32];
    values[threadIdx.x] = value;
    __syncthreads();
    return values[31 - threadIdx.x];
}

extern "C" __global__ void mirror(int *out, short added)
{
    __shared__ short first;
    if (threadIdx.x == 0)
        first = added;
    int value = mirrored(threadIdx.x);
    out[threadIdx.x] = value + first;
}

// Half of the threads leave before the barrier; the rest meets there.
extern "C" __global__ void __launch_bounds__(64) leaving(int *out)
{
    if (threadIdx.x % 2)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

// A thread waits for what the last one of the block does.
extern "C" __global__ void flag(volatile int *out)
{
    if (threadIdx.x == blockDim.x - 1)
        out[0] = 1;
    else
        while (out[0] == 0)
            ;
    out[1 + threadIdx.x] = 1;
}

extern "C" __global__ void deadlock(int *out)
{
    if (threadIdx.x == 0)
        asm volatile("bar.sync 1;");
    else
        asm volatile("bar.sync 2;");
    *out = 1;
}

extern "C" __global__ void beyond(int *out, int index)
{
    __shared__ int few[4];
    few[threadIdx.x] = index;
    __syncthreads();
    *out = few[index];
}

extern "C" __global__ void mathematics(double *out, const double *x)
{
    int i = threadIdx.x;
    double a = x[i];
    float b = (float)a;
    out[i * 12] = sin(a);
    out[i * 12 + 1] = exp(a);
    out[i * 12 + 2] = log(a);
    out[i * 12 + 3] = pow(a, 1.7);
    out[i * 12 + 4] = cbrt(a);
    out[i * 12 + 5] = fmod(a, 0.7);
    out[i * 12 + 6] = sinf(b);
    out[i * 12 + 7] = expf(b);
    out[i * 12 + 8] = logf(b);
    out[i * 12 + 9] = powf(b, 1.7f);
    out[i * 12 + 10] = tanhf(b);
    out[i * 12 + 11] = fmodf(b, 0.7f);
}
