//! The library, loaded at run time, and called by the names of its functions.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libloading::Library;

#[path = "../../stand-in/tests/support/library.rs"]
mod support;

use support::{call, has_role, in_a_process, load, must};

const PTX: &CStr = c"
.version 8.0
.target sm_60
.address_size 64

.visible .entry store(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r1;
    ret;
}
";

/// The library, initialised, with the context of its first device current.
fn ready() -> (Library, u64) {
    let library = load("standin_cuda");
    must!(library, cuInit(0 => u32));
    let mut context = 0;
    must!(library, cuDevicePrimaryCtxRetain(&mut context => &mut u64, 0 => c_int));
    must!(library, cuCtxSetCurrent(context => u64));
    (library, context)
}

#[test]
fn a_kernel_runs_and_its_results_are_copied_back() {
    const THREADS: usize = 64;
    let (library, _) = ready();
    let (mut stream, mut module, mut function, mut memory) = (0_u64, 0_u64, 0_u64, 0_u64);
    must!(library, cuStreamCreate(&mut stream => &mut u64, 1 => u32));
    must!(library, cuModuleLoadData(&mut module => &mut u64, PTX.as_ptr() => *const c_char));
    let name = c"store".as_ptr();
    must!(library, cuModuleGetFunction(&mut function => &mut u64, module => u64, name => *const c_char));
    must!(library, cuMemAlloc_v2(&mut memory => &mut u64, THREADS * 4 => usize));
    let (mut offset, mut size) = (0, 0);
    must!(library, cuFuncGetParamInfo(
        function => u64, 1 => usize, &mut offset => &mut usize, &mut size => &mut usize));
    assert_eq!((offset, size), (8, 4));
    let value = 77_u32;
    let mut arguments = [(&raw const memory).cast::<c_void>(), (&raw const value).cast()];
    must!(library, cuLaunchKernel(
        function => u64, 1 => u32, 1 => u32, 1 => u32, 64 => u32, 1 => u32, 1 => u32,
        0 => u32, stream => u64, arguments.as_mut_ptr() => *mut *const c_void,
        ptr::null_mut() => *mut *const c_void));
    let mut results = [0_u32; THREADS];
    let bytes = size_of_val(&results);
    must!(library, cuMemcpyDtoHAsync_v2(
        results.as_mut_ptr() => *mut u32, memory => u64, bytes => usize, stream => u64));
    assert_eq!(results, [77; THREADS]);
    must!(library, cuMemFree_v2(memory => u64));
    must!(library, cuModuleUnload(module => u64));
    must!(library, cuStreamDestroy_v2(stream => u64));
}

#[test]
fn the_device_name_says_that_there_is_no_gpu() {
    let (library, _) = ready();
    let mut name = [0_u8; 64];
    must!(library, cuDeviceGetName(name.as_mut_ptr() => *mut u8, 64 => c_int, 0 => c_int));
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    assert_eq!(name, "stand-in for a CUDA device (no GPU)");
}

#[test]
fn codes_have_the_names_of_the_driver() {
    let library = load("standin_cuda");
    for (code, expected) in [(0, c"CUDA_SUCCESS"), (700, c"CUDA_ERROR_ILLEGAL_ADDRESS")] {
        let mut name: *const c_char = ptr::null();
        must!(library, cuGetErrorName(code => u32, &mut name => &mut *const c_char));
        // SAFETY: a name that was found is text that stays.
        assert_eq!(unsafe { CStr::from_ptr(name) }, expected);
    }
    let mut name: *const c_char = ptr::null();
    assert_eq!(call!(library, cuGetErrorName(123_456 => u32, &mut name => &mut *const c_char)), 1);
}

#[test]
fn invalid_images_are_refused_with_the_driver_s_codes() {
    const LOG: u32 = 5;
    const LOG_BYTES: u32 = 6;
    let (library, _) = ready();
    let mut module = 0_u64;
    for (image, code) in [(c"\x7fELF", 209), (c"nonsense", 200), (c".version 8.0 nonsense", 218)] {
        let mut log = [0_u8; 256];
        let (options, mut values) =
            ([LOG, LOG_BYTES], [log.as_mut_ptr().cast(), 256 as *mut c_void]);
        let answer = call!(library, cuModuleLoadDataEx(
            &mut module => &mut u64, image.as_ptr() => *const c_char, 2 => u32,
            options.as_ptr() => *const u32, values.as_mut_ptr() => *mut *mut c_void));
        assert_eq!(answer, code, "{image:?}");
        let log = CStr::from_bytes_until_nul(&log).unwrap();
        assert_eq!(log.is_empty(), code != 218, "{log:?}");
    }
}

#[test]
fn calls_need_an_initialised_driver_and_a_context() {
    let test = "calls_need_an_initialised_driver_and_a_context";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_VERSION", "13000"), ("STAND_IN_DEVICES", "3")]);
        return;
    }
    let library = load("standin_cuda");
    let mut number = 0;
    must!(library, cuDriverGetVersion(&mut number => &mut c_int));
    assert_eq!(number, 13_000);
    assert_eq!(call!(library, cuDeviceGetCount(&mut number => &mut c_int)), 3);
    must!(library, cuInit(0 => u32));
    must!(library, cuDeviceGetCount(&mut number => &mut c_int));
    assert_eq!(number, 3);
    let mut memory = 0_u64;
    assert_eq!(call!(library, cuMemAlloc_v2(&mut memory => &mut u64, 8 => usize)), 201);
}

#[test]
fn the_report_has_leaks_and_violations() {
    let test = "the_report_has_leaks_and_violations";
    if has_role(test) {
        let (library, _) = ready();
        let (mut stream, mut memory) = (0_u64, 0_u64);
        must!(library, cuStreamCreate(&mut stream => &mut u64, 1 => u32));
        must!(library, cuMemAlloc_v2(&mut memory => &mut u64, 8 => usize));
        assert_eq!(
            call!(library, cuMemsetD8Async(memory => u64, 0 => u8, 8 => usize, 0 => u64)),
            400
        );
        must!(library, cuDevicePrimaryCtxRelease_v2(0 => c_int));
        return;
    }
    let (report, errors) = in_a_process(test, &[]);
    for line in [
        r#"{"kind":"violation","rule":"default stream","message":"stream 0 is a default stream of the driver"}"#,
        r#"{"kind":"leak","device":0,"object":"memory","count":1}"#,
        r#"{"kind":"leak","device":0,"object":"stream","count":1}"#,
    ] {
        assert!(report.lines().any(|entry| entry == line), "{line} is not in\n{report}");
        assert!(errors.contains(line), "{line} is not in\n{errors}");
    }
    let calls = r#"{"kind":"calls","class":"fill","count":1}"#;
    assert!(report.contains(calls) && !errors.contains(calls), "{report}");
}

#[test]
fn calls_fail_as_planned() {
    let test = "calls_fail_as_planned";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_FAULTS", "alloc:2")]);
        return;
    }
    let (library, _) = ready();
    let mut memory = 0_u64;
    for code in [0, 2, 0] {
        assert_eq!(call!(library, cuMemAlloc_v2(&mut memory => &mut u64, 8 => usize)), code);
    }
}
