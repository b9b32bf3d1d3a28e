// What scale.spv holds; built by
//   clang-15 -cl-std=CL1.2 -target spir64 -O2 -Xclang -finclude-default-header -emit-llvm -c scale.cl -o scale.bc
//   llvm-spirv-15 --spirv-max-version=1.0 scale.bc -o scale.spv
kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }
