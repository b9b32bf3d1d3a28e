//! The source of the kernel: a prologue per dialect, and the text that all dialects share.

use std::fmt::Write;

use super::{Binding, Mapping, RegionKernel, words};

/// The language that the kernel's source is compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenCL C 1.2 and later.
    OpenClC,
    /// CUDA C++, as NVRTC compiles it.
    CudaC,
    /// HIP C++, as hiprtc compiles it.
    HipC,
}

const KERNEL: &str = include_str!("region_copy.cl.h");

const OPENCL: &str = "\
#if HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef uint4 u128;
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
#define KERNEL __kernel
#define DEVICE static inline
#define GLOBAL __global
#define RESTRICT restrict
#define SIZE size_t
#define UNROLL
#define ROLLED
#define AS_FLOAT(bits) as_float(bits)
#define AS_U32(value) as_uint(value)
#define AS_DOUBLE(bits) as_double(bits)
#define AS_U64(value) as_ulong(value)
#define HIGH_PRODUCT(a, b) mul_hi((u32)(a), (u32)(b))
#if LANES
#define WORKER get_group_id(0)
#define WORKER_COUNT get_num_groups(0)
#define LANE ((u32)get_local_id(0))
#define LANE_COUNT ((u32)get_local_size(0))
#else
#define WORKER get_global_id(0)
#define WORKER_COUNT get_global_size(0)
#endif
";

const CPLUSPLUS: &str = "\
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef uint4 u128;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
#define KERNEL extern \"C\" __global__
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define RESTRICT __restrict__
#define SIZE size_t
#define UNROLL _Pragma(\"unroll\")
#define ROLLED _Pragma(\"unroll 1\")
#define AS_FLOAT(bits) __uint_as_float(bits)
#define AS_U32(value) __float_as_uint(value)
#define AS_DOUBLE(bits) __longlong_as_double((i64)(bits))
#define AS_U64(value) ((u64)__double_as_longlong(value))
#define HIGH_PRODUCT(a, b) __umulhi(a, b)
#if LANES
#define WORKER ((u64)blockIdx.x)
#define WORKER_COUNT ((u64)gridDim.x)
#define LANE threadIdx.x
#define LANE_COUNT blockDim.x
#else
#define WORKER ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define WORKER_COUNT ((u64)gridDim.x * blockDim.x)
#endif
";

pub(super) fn source(kernel: &RegionKernel, dialect: Dialect) -> String {
    let mut text = String::with_capacity(KERNEL.len() + (8 << 10));
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a String takes whatever is written");
    };
    let lanes = u8::from(kernel.mapping == Mapping::Lanes);
    line(format_args!("#define LANES {lanes}"));
    line(format_args!("#define HAS_F64 {}", u8::from(kernel.has_f64)));
    for (name, value) in words::DEFINES {
        line(format_args!("#define {name} {value}"));
    }
    line(format_args!("{}", if dialect == Dialect::OpenClC { OPENCL } else { CPLUSPLUS }));
    match kernel.binding {
        Binding::Parameters(slots) => {
            let parameters: Vec<String> = (0..slots)
                .map(|slot| format!("GLOBAL u8 *base_{slot}, u64 offset_{slot}"))
                .collect();
            let cases: Vec<String> = (0..slots)
                .map(|slot| format!("case {slot}: pointer = base_{slot} + offset_{slot}; break;"))
                .collect();
            line(format_args!("#define SLOT_NONE base_0"));
            let arguments: Vec<String> =
                (0..slots).map(|slot| format!("base_{slot}, offset_{slot}")).collect();
            line(format_args!("#define SLOT_PARAMETERS {}", parameters.join(", ")));
            line(format_args!("#define SLOT_ARGUMENTS {}", arguments.join(", ")));
            line(format_args!(
                "#define FIND_SLOT(pointer, slot) switch (slot) {{ {} }}",
                cases.join(" ")
            ));
        }
        Binding::List(slots) => {
            line(format_args!("{}", addresses(slots)));
            line(format_args!("#define SLOT_PARAMETERS const Addresses addresses"));
            line(format_args!("#define SLOT_ARGUMENTS addresses"));
            line(format_args!("{}", by_address("addresses.at")));
        }
        Binding::Table => {
            line(format_args!("#define SLOT_PARAMETERS GLOBAL const u64 *table"));
            line(format_args!("#define SLOT_ARGUMENTS table"));
            line(format_args!("{}", by_address("table")));
        }
    }
    text.push_str(KERNEL);
    text
}

/// The source of the kernel that sets a table, in CUDA C++ and HIP C++.
pub(super) fn setter() -> String {
    let addresses = addresses(RegionKernel::MAX_LISTED);
    format!(
        "typedef unsigned long long u64;
{addresses}
extern \"C\" __global__ void {}(u64 *table, u64 count, const Addresses addresses) {{
    for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) table[i] = addresses.at[i];
}}
",
        RegionKernel::SETTER
    )
}

/// The type of a parameter that contains addresses.
fn addresses(count: usize) -> String {
    format!("typedef struct {{ u64 at[{count}]; }} Addresses;")
}

/// The macros that find a slot whose address is in an array.
fn by_address(array: &str) -> String {
    format!(
        "#define SLOT_NONE (GLOBAL u8 *)0\n#define FIND_SLOT(pointer, slot) pointer = (GLOBAL u8 *)(SIZE){array}[slot];"
    )
}
