//! The compiler of HIP C, where it is installed.
#![expect(unsafe_code, reason = "binds and calls a C library")]
#![expect(non_snake_case, reason = "functions have the names of the library's headers")]

function_table! {
    /// The functions of the compiler.
    Functions:
    every version {
        hiprtcVersion(major: *mut c_int, minor: *mut c_int);
        hiprtcCreateProgram(
            program: *mut *mut c_void, source: *const c_char, name: *const c_char,
            headers: c_int, texts: *mut *const c_char, names: *mut *const c_char,
        );
        hiprtcDestroyProgram(program: *mut *mut c_void);
        hiprtcCompileProgram(program: *mut c_void, count: c_int, options: *mut *const c_char);
        hiprtcGetProgramLogSize(program: *mut c_void, bytes: *mut usize);
        hiprtcGetProgramLog(program: *mut c_void, log: *mut c_char);
        hiprtcGetCodeSize(program: *mut c_void, bytes: *mut usize);
        hiprtcGetCode(program: *mut c_void, code: *mut c_char);
    }
    newer versions {}
}
