//! The library as a program meets it: loaded, and called by the names of its functions.
#![expect(clippy::unwrap_used, reason = "a library that cannot be used fails its test")]

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use libloading::{Library, Symbol};

/// Tells the process that a test starts what it is for.
const ROLE: &str = "STAND_IN_TEST_ROLE";

/// With names that only HIP has.
const SOURCE: &CStr = c"
#include <hip/hip_runtime.h>
#if !defined __HIP_PLATFORM_AMD__ || defined __CUDACC__ || defined __CUDA_ARCH__
#error not HIP
#endif
struct pair { int a, b; };
extern \"C\" __global__ void store(unsigned *out, unsigned long long value, pair add)
{
    unsigned sum = __shfl(hipThreadIdx_x, 0) + (unsigned)value;
    out[hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x] = sum + add.a + add.b;
}
template <typename T> __global__ void twice(T *data) { data[threadIdx.x] *= 2; }
";

/// The library that cargo built beside this test.
fn library() -> Library {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = libloading::library_filename("standin_hip");
    // SAFETY: it does nothing when it is loaded.
    unsafe { Library::new(folder.join(name)) }.unwrap()
}

/// Calls a function of the library, which answers a code.
macro_rules! call {
    ($library:expr, $name:ident($($arg:expr => $type:ty),* $(,)?)) => {{
        // SAFETY: the types are those of the function, and pointers go to what lives through the call.
        unsafe {
            let name = stringify!($name);
            let function: Symbol<'_, unsafe extern "C" fn($($type),*) -> u32> =
                $library.get(name).unwrap();
            function($($arg),*)
        }
    }};
}

/// As `call`, where the code must be 0.
macro_rules! must {
    ($library:expr, $name:ident($($args:tt)*)) => {
        assert_eq!(call!($library, $name($($args)*)), 0, stringify!($name))
    };
}

/// Runs one test of this file in a process of its own, and gives its report and what it says.
fn in_a_process(test: &str, variables: &[(&str, &str)]) -> (String, String) {
    let report = env::temp_dir().join(format!("stand-in-{test}-{}", std::process::id()));
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, test)
        .env("STAND_IN_REPORT", &report)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let text = fs::read_to_string(&report).unwrap_or_default();
    let _none = fs::remove_file(&report);
    (text, errors)
}

fn has_role(test: &str) -> bool {
    env::var(ROLE).is_ok_and(|role| role == test)
}

/// Whether there is a compiler; says so where there is none.
fn can_compile() -> bool {
    let named = env::var_os("BACKEND_CUDA_NVRTC").is_some();
    if !named {
        eprintln!("skipped: BACKEND_CUDA_NVRTC does not name the library of a compiler");
    }
    named
}

/// The code and the log of a compilation, and the program.
fn compile(
    library: &Library,
    source: &CStr,
    options: &[&CStr],
    kernel: Option<&CStr>,
) -> (u32, String, u64) {
    let mut program = 0_u64;
    must!(library, hiprtcCreateProgram(
        &mut program => &mut u64, source.as_ptr() => *const c_char, c"test.hip".as_ptr() => *const c_char,
        0 => c_int, ptr::null() => *const *const c_char, ptr::null() => *const *const c_char));
    if let Some(kernel) = kernel {
        must!(library, hiprtcAddNameExpression(program => u64, kernel.as_ptr() => *const c_char));
    }
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = c_int::try_from(options.len()).unwrap();
    let code = call!(library, hiprtcCompileProgram(
        program => u64, count => c_int, options.as_ptr() => *const *const c_char));
    let mut len = 0;
    must!(library, hiprtcGetProgramLogSize(program => u64, &mut len => &mut usize));
    let mut log = vec![0_u8; len];
    must!(library, hiprtcGetProgramLog(program => u64, log.as_mut_ptr() => *mut u8));
    (code, CString::from_vec_with_nul(log).unwrap().into_string().unwrap(), program)
}

fn code_of(library: &Library, program: u64) -> Vec<u8> {
    let mut len = 0;
    must!(library, hiprtcGetCodeSize(program => u64, &mut len => &mut usize));
    let mut code = vec![0_u8; len];
    must!(library, hiprtcGetCode(program => u64, code.as_mut_ptr() => *mut u8));
    code
}

#[test]
fn a_kernel_is_compiled_and_runs_and_its_results_come_back() {
    const THREADS: usize = 64;
    if !can_compile() {
        return;
    }
    let library = library();
    let options = [c"--offload-arch=gfx1030", c"-O3", c"-std=c++17"];
    let (code, log, program) = compile(&library, SOURCE, &options, Some(c"twice<unsigned>"));
    assert_eq!((code, log.as_str()), (0, ""));
    let image = code_of(&library, program);
    let mut twice: *const c_char = ptr::null();
    let expression = c"twice<unsigned>".as_ptr();
    must!(library, hiprtcGetLoweredName(
        program => u64, expression => *const c_char, &mut twice => &mut *const c_char));
    let (mut stream, mut module, mut memory) = (0_u64, 0_u64, 0_u64);
    let (mut store, mut double) = (0_u64, 0_u64);
    must!(library, hipStreamCreateWithFlags(&mut stream => &mut u64, 1 => u32));
    must!(library, hipModuleLoadData(&mut module => &mut u64, image.as_ptr() => *const u8));
    let name = c"store".as_ptr();
    must!(library, hipModuleGetFunction(&mut store => &mut u64, module => u64, name => *const c_char));
    must!(library, hipModuleGetFunction(&mut double => &mut u64, module => u64, twice => *const c_char));
    must!(library, hiprtcDestroyProgram(&mut { program } => &mut u64));
    must!(library, hipMalloc(&mut memory => &mut u64, THREADS * 4 => usize));
    let (value, pair) = (70_u64, [3_i32, 4]);
    let mut arguments =
        [(&raw const memory).cast::<c_void>(), (&raw const value).cast(), (&raw const pair).cast()];
    must!(library, hipModuleLaunchKernel(
        store => u64, 2 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32,
        0 => u32, stream => u64, arguments.as_mut_ptr() => *mut *const c_void,
        ptr::null_mut() => *mut *const c_void));
    // The same by bytes that are put together: a pointer, their number, and the end.
    let bytes = size_of_val(&memory);
    let mut extra = [
        ptr::without_provenance(1),
        (&raw const memory).cast(),
        ptr::without_provenance(2),
        (&raw const bytes).cast(),
        ptr::without_provenance::<c_void>(3),
    ];
    must!(library, hipModuleLaunchKernel(
        double => u64, 1 => u32, 1 => u32, 1 => u32, 64 => u32, 1 => u32, 1 => u32,
        0 => u32, stream => u64, ptr::null_mut() => *mut *const c_void,
        extra.as_mut_ptr() => *mut *const c_void));
    let mut results = [0_u32; THREADS];
    let bytes = size_of_val(&results);
    must!(library, hipMemcpyDtoHAsync(
        results.as_mut_ptr() => *mut u32, memory => u64, bytes => usize, stream => u64));
    assert_eq!(results, [154; THREADS]);
    must!(library, hipFree(memory => u64));
    must!(library, hipModuleUnload(module => u64));
    must!(library, hipStreamDestroy(stream => u64));
}

#[test]
fn code_objects_say_what_kernels_take() {
    if !can_compile() {
        return;
    }
    let library = library();
    let (code, log, program) = compile(&library, SOURCE, &[c"--offload-arch=gfx90a"], None);
    assert_eq!(code, 0, "{log}");
    let image = code_of(&library, program);
    let note = image.windows(8).position(|owner| owner == b"AMDGPU\0\0").unwrap();
    let metadata = rmpv::decode::read_value_ref(&mut &image[note + 8..]).unwrap().to_string();
    for part in [
        r#""amdhsa.target": "amdgcn-amd-amdhsa--gfx90a""#,
        r#"{".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".address_space": "global"}"#,
        r#"{".offset": 8, ".size": 8, ".value_kind": "by_value"}"#,
        r#"{".offset": 16, ".size": 8, ".value_kind": "by_value"}"#,
        r#"{".offset": 24, ".size": 4, ".value_kind": "hidden_block_count_x"}"#,
    ] {
        assert!(metadata.contains(part), "{part} is not in\n{metadata}");
    }
    let mut module = 0_u64;
    let answer =
        call!(library, hipModuleLoadData(&mut module => &mut u64, image.as_ptr() => *const u8));
    assert_eq!(answer, 209);
}

#[test]
fn errors_of_a_source_are_told_with_their_lines() {
    if !can_compile() {
        return;
    }
    let library = library();
    let (code, log, program) = compile(&library, c"int a;\nint b = c;\n", &[], None);
    assert_eq!(code, 6);
    assert!(log.contains("test.hip(2)") && log.contains("\"c\""), "{log}");
    let mut len = 0;
    assert_eq!(call!(library, hiprtcGetCodeSize(program => u64, &mut len => &mut usize)), 4);
    let (code, log, _) = compile(&library, c"int a;", &[c"--offload-arch=gfx1"], None);
    assert!(code == 6 && log.contains("gfx1"), "{code} {log}");
    let (code, log, _) = compile(&library, c"int a;", &[c"--unheard-of"], None);
    assert!(code == 6 && log.contains("--unheard-of"), "{code} {log}");
    let (name, none) = (c"test.hip".as_ptr(), ptr::null::<*const c_char>());
    let mut program = 0_u64;
    let code = call!(library, hiprtcCreateProgram(
        &mut program => &mut u64, c"".as_ptr() => *const c_char, name => *const c_char,
        0 => c_int, none => *const *const c_char, none => *const *const c_char));
    assert_eq!(code, 3, "a source of nothing");
}

#[test]
fn it_claims_to_be_no_gpu() {
    let library = library();
    let mut name = [0_u8; 64];
    must!(library, hipDeviceGetName(name.as_mut_ptr() => *mut u8, 64 => c_int, 0 => c_int));
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    assert_eq!(name, "stand-in for a HIP device (no GPU)");
}

#[test]
fn codes_have_the_runtime_s_names() {
    let library = library();
    // SAFETY: the function has this type.
    let name: Symbol<'_, unsafe extern "C" fn(u32) -> *const c_char> =
        unsafe { library.get("hipGetErrorName") }.unwrap();
    for (code, expected) in
        [(0, c"hipSuccess"), (700, c"hipErrorIllegalAddress"), (123_456, c"hipErrorUnknown")]
    {
        // SAFETY: any code may be asked for.
        let name = unsafe { name(code) };
        // SAFETY: names are text that stays.
        assert_eq!(unsafe { CStr::from_ptr(name) }, expected);
    }
}

#[test]
fn each_thread_has_a_device_and_a_last_error() {
    let test = "each_thread_has_a_device_and_a_last_error";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_DEVICES", "3"), ("STAND_IN_HIP_VERSION", "50221153")]);
        return;
    }
    let library = library();
    let mut number = 0;
    must!(library, hipRuntimeGetVersion(&mut number => &mut c_int));
    assert_eq!(number, 50_221_153);
    must!(library, hipGetDeviceCount(&mut number => &mut c_int));
    assert_eq!(number, 3);
    must!(library, hipSetDevice(2 => c_int));
    assert_eq!(call!(library, hipSetDevice(3 => c_int)), 101);
    must!(library, hipGetDevice(&mut number => &mut c_int));
    assert_eq!(number, 2);
    thread::scope(|scope| {
        scope.spawn(|| {
            must!(library, hipGetDevice(&mut number => &mut c_int));
            assert_eq!((number, call!(library, hipGetLastError())), (0, 0));
        });
    });
    assert_eq!(call!(library, hipPeekAtLastError()), 101);
    assert_eq!([call!(library, hipGetLastError()), call!(library, hipGetLastError())], [101, 0]);
}

#[test]
fn a_version_refuses_what_it_lacks() {
    const PCI_DOMAIN: u32 = 69;
    const MANAGED: u32 = 8;
    const HOST_POINTER: u32 = 4;
    const INVALID_VALUE: u32 = 1;
    const NOT_SUPPORTED: u32 = 801;
    let test = "a_version_refuses_what_it_lacks";
    if !has_role(test) {
        for version in ["50221153", "60000000"] {
            in_a_process(test, &[("STAND_IN_HIP_VERSION", version)]);
        }
        return;
    }
    let library = library();
    let is_new = env::var("STAND_IN_HIP_VERSION").unwrap() == "60000000";
    let refused = |code| if is_new { 0 } else { code };
    let (mut number, mut stream, mut memory) = (0, 0_u64, 0_u64);
    let code = call!(library, hipDeviceGetAttribute(
        &mut number => &mut c_int, PCI_DOMAIN => u32, 0 => c_int));
    assert_eq!(code, refused(INVALID_VALUE));
    must!(library, hipStreamCreateWithFlags(&mut stream => &mut u64, 1 => u32));
    let code = call!(library, hipStreamGetDevice(stream => u64, &mut number => &mut c_int));
    assert_eq!(code, refused(NOT_SUPPORTED));
    must!(library, hipStreamDestroy(stream => u64));
    let mut properties = [0_u8; 1472];
    let code =
        call!(library, hipGetDevicePropertiesR0600(properties.as_mut_ptr() => *mut u8, 0 => c_int));
    assert_eq!(code, refused(NOT_SUPPORTED));
    // No more is written than a byte, and before HIP 6 the host has a pointer to managed memory.
    must!(library, hipMallocManaged(&mut memory => &mut u64, 16 => usize, 1 => u32));
    let mut bytes = [7_u8; 8];
    must!(library, hipPointerGetAttribute(
        bytes.as_mut_ptr() => *mut u8, MANAGED => u32, memory => u64));
    assert_eq!(bytes, [1, 7, 7, 7, 7, 7, 7, 7]);
    let code = call!(library, hipPointerGetAttribute(
        bytes.as_mut_ptr() => *mut u8, HOST_POINTER => u32, memory => u64));
    assert_eq!(code, if is_new { INVALID_VALUE } else { 0 });
    must!(library, hipFree(memory => u64));
}

#[test]
fn no_devices_are_told_at_every_call() {
    let test = "no_devices_are_told_at_every_call";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_DEVICES", "0")]);
        return;
    }
    let library = library();
    let (mut number, mut memory) = (7, 0_u64);
    assert_eq!(call!(library, hipInit(0 => u32)), 100);
    assert_eq!(call!(library, hipGetDeviceCount(&mut number => &mut c_int)), 100);
    assert_eq!(number, 0);
    assert_eq!(call!(library, hipMalloc(&mut memory => &mut u64, 8 => usize)), 100);
    must!(library, hipRuntimeGetVersion(&mut number => &mut c_int));
}

#[test]
fn properties_have_the_layout_of_their_version() {
    let library = library();
    let text = |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap().to_owned();
    let mut properties = [0xff_u8; 1472];
    must!(library, hipGetDevicePropertiesR0600(properties.as_mut_ptr() => *mut u8, 0 => c_int));
    assert_eq!(text(&properties[1160..]).as_c_str(), c"gfx1030");
    assert_eq!(properties[308..312], 32_u32.to_le_bytes());
    let mut old = [0xff_u8; 792];
    must!(library, hipGetDeviceProperties(old.as_mut_ptr() => *mut u8, 0 => c_int));
    assert_eq!(text(&old[396..]).as_c_str(), c"gfx1030");
}

#[test]
fn memory_tells_what_it_is() {
    let library = library();
    let mut memory = [1_u64; 4];
    must!(library, hipMalloc(&mut memory[0] => &mut u64, 0 => usize));
    assert_eq!(memory[0], 0);
    must!(library, hipHostMalloc(&mut memory[1] => &mut u64, 16 => usize, 0 => u32));
    must!(library, hipMalloc(&mut memory[2] => &mut u64, 16 => usize));
    must!(library, hipMallocManaged(&mut memory[3] => &mut u64, 16 => usize, 1 => u32));
    for (kind, address) in [(1, memory[1]), (2, memory[2]), (3, memory[3])] {
        let (mut found, mut range) = (0_u32, (0_u64, 0_usize));
        must!(library, hipPointerGetAttribute(
            &mut found => &mut u32, 2 => u32, address => u64));
        assert_eq!(found, kind);
        must!(library, hipMemGetAddressRange(
            &mut range.0 => &mut u64, &mut range.1 => &mut usize, address + 3 => u64));
        assert_eq!(range, (address, 16));
    }
    must!(library, hipHostFree(memory[1] => u64));
    must!(library, hipFree(memory[2] => u64));
    must!(library, hipFree(memory[3] => u64));
    assert_eq!(call!(library, hipFree(memory[3] => u64)), 1);
}

#[test]
fn images_are_refused_as_the_runtime_does() {
    let library = library();
    let mut module = 0_u64;
    for (image, code) in [(c"__CLANG_OFFLOAD_BUNDLE__", 209), (c"nonsense", 200)] {
        let answer = call!(library, hipModuleLoadData(
            &mut module => &mut u64, image.as_ptr() => *const c_char));
        assert_eq!(answer, code, "{image:?}");
    }
}

#[test]
fn callbacks_are_told_whether_work_failed() {
    let test = "callbacks_are_told_whether_work_failed";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_FAULTS", "fill:2=719")]);
        return;
    }
    unsafe extern "C" fn told(_stream: u64, status: u32, to: *mut c_void) {
        // SAFETY: the test passes a place that stays.
        unsafe { &*to.cast::<AtomicU32>() }.store(status, Ordering::Release);
    }
    type Told = unsafe extern "C" fn(u64, u32, *mut c_void);
    let library = library();
    let (mut stream, mut memory) = (0_u64, 0_u64);
    must!(library, hipStreamCreateWithFlags(&mut stream => &mut u64, 1 => u32));
    must!(library, hipMalloc(&mut memory => &mut u64, 8 => usize));
    for expected in [0, 719] {
        const UNTOLD: u32 = 7;
        let status: &AtomicU32 = Box::leak(Box::new(AtomicU32::new(UNTOLD)));
        must!(library, hipMemsetD8Async(memory => u64, 0 => u8, 8 => usize, stream => u64));
        // A failure may come before the callback is enqueued, which is refused then.
        let answer = call!(library, hipStreamAddCallback(
            stream => u64, told => Told, ptr::from_ref(status).cast_mut().cast() => *mut c_void, 0 => u32));
        assert_eq!(call!(library, hipStreamSynchronize(stream => u64)), expected);
        if answer != 0 {
            assert_eq!(answer, expected);
            continue;
        }
        // Of a context that has ended nobody waits for the work, which is told of all the same.
        let began = Instant::now();
        while status.load(Ordering::Acquire) == UNTOLD && began.elapsed().as_secs() < 30 {
            thread::yield_now();
        }
        assert_eq!(status.load(Ordering::Acquire), expected);
    }
    must!(library, hipDeviceReset());
    must!(library, hipMalloc(&mut memory => &mut u64, 8 => usize));
    must!(library, hipFree(memory => u64));
}

#[test]
fn what_is_left_and_what_was_wrong_is_told_at_the_end() {
    let test = "what_is_left_and_what_was_wrong_is_told_at_the_end";
    if has_role(test) {
        let library = library();
        let (mut stream, mut memory) = (0_u64, 0_u64);
        must!(library, hipStreamCreateWithFlags(&mut stream => &mut u64, 1 => u32));
        must!(library, hipMalloc(&mut memory => &mut u64, 8 => usize));
        for own in 0..3 {
            assert_eq!(
                call!(library, hipMemsetD8Async(memory => u64, 0 => u8, 8 => usize, own => u64)),
                400
            );
        }
        return;
    }
    let (report, errors) = in_a_process(test, &[]);
    for line in [
        r#"{"kind":"violation","rule":"default stream","message":"stream 0 is the driver's own"}"#,
        r#"{"kind":"violation","rule":"default stream","message":"stream 2 is the driver's own"}"#,
    ] {
        assert!(errors.contains(line), "{line} is not in\n{errors}");
    }
    for line in [
        r#"{"kind":"alive","device":0,"object":"memory","count":1}"#,
        r#"{"kind":"alive","device":0,"object":"stream","count":1}"#,
    ] {
        assert!(report.lines().any(|told| told == line), "{line} is not in\n{report}");
    }
}
