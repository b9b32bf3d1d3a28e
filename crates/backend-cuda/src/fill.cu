// Fills `count` words with four of them over and over: those patterns of 8 and 16 bytes that the driver cannot fill with.
extern "C" __global__ void fill(
    unsigned *to, unsigned long long count, unsigned a, unsigned b, unsigned c, unsigned d
) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    // The step is a multiple of four, so that a thread writes one of the words alone.
    const unsigned word = first % 4 == 0 ? a : first % 4 == 1 ? b : first % 4 == 2 ? c : d;
    for (unsigned long long i = first; i < count; i += step)
        to[i] = word;
}
