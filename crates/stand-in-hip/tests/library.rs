//! The library, loaded at run time, and called by the names of its functions.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::ptr;
use std::thread;

use libloading::{Library, Symbol};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, Sym as _};

#[path = "../../stand-in/tests/support/library.rs"]
mod support;

use support::{call, has_role, in_a_process, library_path, load, must};

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
extern \"C\" __global__ void twice(unsigned *data) { data[threadIdx.x] *= 2; }
";

/// Whether there is a compiler; says so where there is none.
fn can_compile() -> bool {
    let named = env::var_os("BACKEND_CUDA_NVRTC").is_some();
    if !named {
        eprintln!("skipped: BACKEND_CUDA_NVRTC does not name the library of a compiler");
    }
    named
}

/// The code and the log of a compilation, and the program.
fn compile(library: &Library, source: &CStr, options: &[&CStr]) -> (u32, String, u64) {
    let mut program = 0_u64;
    must!(library, hiprtcCreateProgram(
        &mut program => &mut u64, source.as_ptr() => *const c_char, c"test.hip".as_ptr() => *const c_char,
        0 => c_int, ptr::null() => *const *const c_char, ptr::null() => *const *const c_char));
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
fn a_kernel_is_compiled_and_runs_and_its_results_are_copied_back() {
    const THREADS: usize = 64;
    if !can_compile() {
        return;
    }
    let library = load("standin_hip");
    let options = [c"--offload-arch=gfx1030", c"-O3", c"-std=c++17"];
    let (code, log, program) = compile(&library, SOURCE, &options);
    assert_eq!((code, log.as_str()), (0, ""));
    let image = code_of(&library, program);
    let (mut stream, mut module, mut memory) = (0_u64, 0_u64, 0_u64);
    let (mut store, mut double) = (0_u64, 0_u64);
    must!(library, hipStreamCreateWithPriority(&mut stream => &mut u64, 1 => u32, 0 => c_int));
    must!(library, hipModuleLoadData(&mut module => &mut u64, image.as_ptr() => *const u8));
    let name = c"store".as_ptr();
    must!(library, hipModuleGetFunction(&mut store => &mut u64, module => u64, name => *const c_char));
    let name = c"twice".as_ptr();
    must!(library, hipModuleGetFunction(&mut double => &mut u64, module => u64, name => *const c_char));
    must!(library, hiprtcDestroyProgram(&mut { program } => &mut u64));
    must!(library, hipMalloc(&mut memory => &mut u64, THREADS * 4 => usize));
    let (value, pair) = (70_u64, [3_i32, 4]);
    let mut arguments =
        [(&raw const memory).cast::<c_void>(), (&raw const value).cast(), (&raw const pair).cast()];
    must!(library, hipModuleLaunchKernel(
        store => u64, 2 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32,
        0 => u32, stream => u64, arguments.as_mut_ptr() => *mut *const c_void,
        ptr::null_mut() => *mut *const c_void));
    must!(library, hipModuleLaunchKernel(
        double => u64, 1 => u32, 1 => u32, 1 => u32, 64 => u32, 1 => u32, 1 => u32,
        0 => u32, stream => u64, arguments.as_mut_ptr() => *mut *const c_void,
        ptr::null_mut() => *mut *const c_void));
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
fn code_objects_describe_the_parameters_of_kernels() {
    if !can_compile() {
        return;
    }
    let library = load("standin_hip");
    let (code, log, program) = compile(&library, SOURCE, &[c"--offload-arch=gfx90a"]);
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
fn the_log_of_the_compiler_has_errors_with_their_lines() {
    if !can_compile() {
        return;
    }
    let library = load("standin_hip");
    let (code, log, program) = compile(&library, c"int a;\nint b = c;\n", &[]);
    assert_eq!(code, 6);
    assert!(log.contains("test.hip(2)") && log.contains("\"c\""), "{log}");
    let mut len = 0;
    assert_eq!(call!(library, hiprtcGetCodeSize(program => u64, &mut len => &mut usize)), 4);
    let (code, log, _) = compile(&library, c"int a;", &[c"--offload-arch=gfx1"]);
    assert!(code == 6 && log.contains("gfx1"), "{code} {log}");
    let (code, log, _) = compile(&library, c"int a;", &[c"--unheard-of"]);
    assert!(code == 6 && log.contains("--unheard-of"), "{code} {log}");
    let (name, none) = (c"test.hip".as_ptr(), ptr::null::<*const c_char>());
    let mut program = 0_u64;
    let code = call!(library, hiprtcCreateProgram(
        &mut program => &mut u64, c"".as_ptr() => *const c_char, name => *const c_char,
        0 => c_int, none => *const *const c_char, none => *const *const c_char));
    assert_eq!(code, 3, "a source of nothing");
}

#[test]
fn the_device_name_says_that_there_is_no_gpu() {
    let library = load("standin_hip");
    let mut name = [0_u8; 64];
    must!(library, hipDeviceGetName(name.as_mut_ptr() => *mut u8, 64 => c_int, 0 => c_int));
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    assert_eq!(name, "stand-in for a HIP device (no GPU)");
}

#[test]
fn codes_have_the_names_of_the_runtime() {
    let library = load("standin_hip");
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
fn each_thread_has_a_current_device() {
    let test = "each_thread_has_a_current_device";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_DEVICES", "3"), ("STAND_IN_HIP_VERSION", "50221153")]);
        return;
    }
    let library = load("standin_hip");
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
            assert_eq!(number, 0);
        });
    });
}

#[test]
fn a_version_refuses_later_functions_and_attributes() {
    const PCI_DOMAIN: u32 = 69;
    const MANAGED: u32 = 8;
    const INVALID_VALUE: u32 = 1;
    const NOT_SUPPORTED: u32 = 801;
    let test = "a_version_refuses_later_functions_and_attributes";
    if !has_role(test) {
        for version in ["50221153", "60000000"] {
            in_a_process(test, &[("STAND_IN_HIP_VERSION", version)]);
        }
        return;
    }
    let library = load("standin_hip");
    let is_new = env::var("STAND_IN_HIP_VERSION").unwrap() == "60000000";
    let refused = |code| if is_new { 0 } else { code };
    let (mut number, mut stream, mut memory) = (0, 0_u64, 0_u64);
    let code = call!(library, hipDeviceGetAttribute(
        &mut number => &mut c_int, PCI_DOMAIN => u32, 0 => c_int));
    assert_eq!(code, refused(INVALID_VALUE));
    must!(library, hipStreamCreateWithPriority(&mut stream => &mut u64, 1 => u32, 0 => c_int));
    let code = call!(library, hipStreamGetDevice(stream => u64, &mut number => &mut c_int));
    assert_eq!(code, refused(NOT_SUPPORTED));
    must!(library, hipStreamDestroy(stream => u64));
    let mut properties = [0_u8; 1472];
    let code =
        call!(library, hipGetDevicePropertiesR0600(properties.as_mut_ptr() => *mut u8, 0 => c_int));
    assert_eq!(code, refused(NOT_SUPPORTED));
    // Only one byte is written.
    must!(library, hipMallocManaged(&mut memory => &mut u64, 16 => usize, 1 => u32));
    let mut bytes = [7_u8; 8];
    must!(library, hipPointerGetAttribute(
        bytes.as_mut_ptr() => *mut u8, MANAGED => u32, memory => u64));
    assert_eq!(bytes, [1, 7, 7, 7, 7, 7, 7, 7]);
    must!(library, hipFree(memory => u64));
}

#[test]
fn without_a_device_every_call_fails() {
    let test = "without_a_device_every_call_fails";
    if !has_role(test) {
        in_a_process(test, &[("STAND_IN_DEVICES", "0")]);
        return;
    }
    let library = load("standin_hip");
    let (mut number, mut memory) = (7, 0_u64);
    assert_eq!(call!(library, hipInit(0 => u32)), 100);
    assert_eq!(call!(library, hipGetDeviceCount(&mut number => &mut c_int)), 100);
    assert_eq!(number, 0);
    assert_eq!(call!(library, hipMalloc(&mut memory => &mut u64, 8 => usize)), 100);
    must!(library, hipRuntimeGetVersion(&mut number => &mut c_int));
}

#[test]
fn properties_have_the_layout_of_hip_6() {
    let library = load("standin_hip");
    let text = |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).unwrap().to_owned();
    let mut properties = [0xff_u8; 1472];
    must!(library, hipGetDevicePropertiesR0600(properties.as_mut_ptr() => *mut u8, 0 => c_int));
    assert_eq!(text(&properties[1160..]).as_c_str(), c"gfx1030");
}

#[test]
fn queries_describe_every_kind_of_memory() {
    let library = load("standin_hip");
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
fn invalid_images_are_refused_with_the_runtime_s_codes() {
    let library = load("standin_hip");
    let mut module = 0_u64;
    for (image, code) in [(c"__CLANG_OFFLOAD_BUNDLE__", 209), (c"nonsense", 200)] {
        let answer = call!(library, hipModuleLoadData(
            &mut module => &mut u64, image.as_ptr() => *const c_char));
        assert_eq!(answer, code, "{image:?}");
    }
}

#[test]
fn the_report_has_live_objects_and_violations() {
    let test = "the_report_has_live_objects_and_violations";
    if has_role(test) {
        let library = load("standin_hip");
        let (mut stream, mut memory) = (0_u64, 0_u64);
        must!(library, hipStreamCreateWithPriority(&mut stream => &mut u64, 1 => u32, 0 => c_int));
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
        r#"{"kind":"violation","rule":"default stream","message":"stream 0 is a default stream of the driver"}"#,
        r#"{"kind":"violation","rule":"default stream","message":"stream 2 is a default stream of the driver"}"#,
    ] {
        assert!(errors.contains(line), "{line} is not in\n{errors}");
    }
    for line in [
        r#"{"kind":"alive","device":0,"object":"memory","count":1}"#,
        r#"{"kind":"alive","device":0,"object":"stream","count":1}"#,
    ] {
        assert!(report.lines().any(|entry| entry == line), "{line} is not in\n{report}");
    }
}

/// A program that finds such a function in HIP 5.2 could not have called it there, so the stand-in refuses the call.
#[test]
fn only_functions_with_a_version_check_are_missing_in_hip_5_2() {
    // SAFETY: loading the runtime needs no device.
    let Ok(runtime) = (unsafe { Library::new("libamdhip64.so.5") }) else {
        eprintln!("skipped: no libamdhip64.so.5");
        return;
    };
    let mut number = 0;
    must!(runtime, hipRuntimeGetVersion(&mut number => &mut c_int));
    if number / 100_000 != 502 {
        eprintln!("skipped: libamdhip64.so.5 is {number}");
        return;
    }
    let file = fs::read(library_path("standin_hip")).unwrap();
    let header = FileHeader64::<LittleEndian>::parse(&*file).unwrap();
    let sections = header.sections(LittleEndian, &*file).unwrap();
    let symbols = sections.symbols(LittleEndian, &*file, object::elf::SHT_DYNSYM).unwrap();
    let defined = symbols.iter().filter(|symbol| !symbol.is_undefined(LittleEndian));
    let names = defined.map(|symbol| symbol.name(LittleEndian, symbols.strings()).unwrap());
    let exported = names.filter(|name| name.starts_with(b"hip"));
    // SAFETY: the function is not called.
    let is_missing =
        |name: &&[u8]| unsafe { runtime.get::<unsafe extern "C" fn()>(*name) }.is_err();
    let mut missing: Vec<_> = exported.filter(is_missing).map(String::from_utf8_lossy).collect();
    missing.sort();
    let checked =
        ["hipGetDevicePropertiesR0600", "hipModuleLaunchCooperativeKernel", "hipStreamGetDevice"];
    assert_eq!(missing, checked);
}
