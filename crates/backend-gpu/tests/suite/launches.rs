//! Launches: shared memory, blocks, cooperation.

use runtime_core::{Device, ErrorKind, Kernel, Launch, args};

use crate::common::{open_with_compiler, run, source};

fn kernel(device: &Device, text: &str) -> Kernel {
    device.module_load(source(text)).unwrap().kernel("k").unwrap()
}

#[test]
fn a_kernel_gets_all_the_shared_memory_of_a_block() {
    let Some(device) = open_with_compiler("") else { return };
    let stream = device.default_stream();
    let kernel = kernel(
        &device,
        "extern __shared__ unsigned shared[];
        extern \"C\" __global__ void k(unsigned *x, unsigned last) {
            if (threadIdx.x == 0) shared[last] = 41;
            __syncthreads();
            x[threadIdx.x] = shared[last] + 1;
        }",
    );
    let most = device.info().limits.max_shared_bytes;
    let mut x = device.memory_allocate::<u32>(64).unwrap();
    for bytes in [256, 32 << 10, most.min(48 << 10), most] {
        let launch = Launch::new([1; 3], [64, 1, 1]).with_shared(bytes);
        x.fill(&stream, 0_u32).unwrap();
        run(&kernel, &launch, args![&mut x, bytes / 4 - 1]).unwrap();
        assert_eq!(x.to_vec(&stream).unwrap(), [42; 64], "{bytes} bytes");
    }
}

#[test]
fn static_shared_memory_counts_against_the_limit() {
    let Some(device) = open_with_compiler("") else { return };
    let kernel = kernel(
        &device,
        "extern \"C\" __global__ void k(unsigned *x) {
            __shared__ unsigned declared[1024];
            declared[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = declared[63 - threadIdx.x];
        }",
    );
    let most = device.info().limits.max_shared_bytes;
    let mut x = device.memory_allocate::<u32>(64).unwrap();
    let launch = Launch::new([1; 3], [64, 1, 1]).with_shared(most);
    let error = run(&kernel, &launch, args![&mut x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains(&(most - 4096).to_string()), "{error}");
    run(&kernel, &launch.with_shared(most - 4096), args![&mut x]).unwrap();
}

#[test]
fn the_block_limit_of_a_kernel_is_respected() {
    let Some(device) = open_with_compiler("") else { return };
    let kernel = kernel(
        &device,
        "extern \"C\" __global__ void __launch_bounds__(128) k(unsigned *x) { x[threadIdx.x] = 1; }",
    );
    let mut x = device.memory_allocate::<u32>(256).unwrap();
    let error = run(&kernel, &Launch::cover(256, 256), args![&mut x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("256") && error.message().contains("128"), "{error}");
    run(&kernel, &Launch::cover(128, 128), args![&mut x]).unwrap();
}

#[test]
fn wrong_arguments_are_refused_before_they_are_read() {
    let Some(device) = open_with_compiler("") else { return };
    let kernel = kernel(&device, "extern \"C\" __global__ void k(unsigned *x, float by) {}");
    let mut x = device.memory_allocate::<u32>(4).unwrap();
    let launch = Launch::cover(4, 4);
    for args in [args![&mut x], args![2.0_f32, 2.0_f32], args![1_u64, 2_u32], args![1_u64, 2.0_f64]]
    {
        let error = run(&kernel, &launch, args).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{args:?}");
    }
    run(&kernel, &launch, args![&mut x, 2.0_f32]).unwrap();
}

#[test]
fn values_of_any_type_and_place_are_passed() {
    let Some(device) = open_with_compiler("") else { return };
    let stream = device.default_stream();
    let kernel = kernel(
        &device,
        "struct S { double a; float b; unsigned short c; };
        extern \"C\" __global__ void k(double *out, S s, char d) {
            out[0] = s.a; out[1] = s.b; out[2] = s.c; out[3] = d;
        }",
    );
    let mut out = device.memory_allocate::<f64>(4).unwrap();
    let mut bytes = [0_u8; 17];
    bytes[1..9].copy_from_slice(&1.5_f64.to_ne_bytes());
    bytes[9..13].copy_from_slice(&2.5_f32.to_ne_bytes());
    bytes[13..15].copy_from_slice(&3_u16.to_ne_bytes());
    let value = runtime_core::Arg::bytes(&bytes[1..]);
    run(&kernel, &Launch::cover(1, 1), &[(&mut out).into(), value, (-4_i8).into()]).unwrap();
    assert_eq!(out.to_vec(&stream).unwrap(), [1.5, 2.5, 3.0, -4.0]);
}

#[test]
fn more_blocks_than_fit_do_not_cooperate() {
    let Some(device) = open_with_compiler("") else { return };
    let kernel =
        kernel(&device, "extern \"C\" __global__ void k(unsigned *x) { x[blockIdx.x] = 1; }");
    let mut x = device.memory_allocate::<u32>(8).unwrap();
    let launch = Launch::cover(8, 1).cooperative();
    let ran = run(&kernel, &launch, args![&mut x]);
    let is_there = device.capabilities().cooperative_launch == runtime_core::Support::Native;
    assert_eq!(ran.is_ok(), is_there, "{ran:?}");
    if is_there {
        let most = device.info().limits.max_grid[0];
        let launch = Launch::new([most, 1, 1], [1024, 1, 1]).cooperative();
        let mut x = device.memory_allocate::<u32>(1).unwrap();
        let error = run(&kernel, &launch, args![&mut x]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

/// However often it is asked for, a driver may have one function of a name, and one limit for it.
#[test]
fn kernels_of_one_name_do_not_take_shared_memory_from_each_other() {
    let Some(device) = open_with_compiler("") else { return };
    let text = "extern __shared__ unsigned shared[];
        extern \"C\" __global__ void k(unsigned *x) { shared[0] = 1; x[0] = shared[0]; }";
    let module = device.module_load(source(text)).unwrap();
    let [one, other] = [(); 2].map(|()| module.kernel("k").unwrap());
    let most = device.info().limits.max_shared_bytes;
    let mut x = device.memory_allocate::<u32>(1).unwrap();
    for (kernel, bytes) in [(&one, most), (&other, most - 1024), (&one, most)] {
        run(kernel, &Launch::new([1; 3], [1; 3]).with_shared(bytes), args![&mut x]).unwrap();
    }
    device.synchronize().unwrap();
}
