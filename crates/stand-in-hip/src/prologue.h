// What HIP has and CUDA has not, or has by other names.
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIPCC_RTC__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_PLATFORM_HCC__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define __AMDGCN__ 1
#define __AMDGCN_WAVEFRONT_SIZE 32

#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

#define __builtin_trap() __trap()
#define abort() __trap()
#define unsafeAtomicAdd(address, value) atomicAdd(address, value)

// All lanes of a wavefront take part.
#define __shfl(...) __shfl_sync(~0u, __VA_ARGS__)
#define __shfl_up(...) __shfl_up_sync(~0u, __VA_ARGS__)
#define __shfl_down(...) __shfl_down_sync(~0u, __VA_ARGS__)
#define __shfl_xor(...) __shfl_xor_sync(~0u, __VA_ARGS__)
#define __any(predicate) __any_sync(~0u, predicate)
#define __all(predicate) __all_sync(~0u, predicate)
#define __ballot(predicate) ((unsigned long long)__ballot_sync(~0u, predicate))
