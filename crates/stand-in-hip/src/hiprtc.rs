//! The compiler of HIP C. Its codes are its own.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use stand_in::abi::{Buffer, Handle, In, Out, Text};
use stand_in::ptx::Module;
use stand_in::{Code, Result, abi, process};

use crate::code::{self, ARCHITECTURE};
use crate::device::{int, version};
use crate::metadata::{self, Pointers};
use crate::nvrtc::{self, Source};
use crate::options::translate;

const INVALID_INPUT: Code = Code(3);
const INVALID_PROGRAM: Code = Code(4);
const COMPILATION: Code = Code(6);
const NAMES_AFTER_COMPILATION: Code = Code(8);
const NAMES_BEFORE_COMPILATION: Code = Code(9);
const NAME_NOT_VALID: Code = Code(10);
const INTERNAL: Code = Code(11);

/// Names of the codes, from 0 on.
const NAMES: [&CStr; 12] = [
    c"HIPRTC_SUCCESS",
    c"HIPRTC_ERROR_OUT_OF_MEMORY",
    c"HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
    c"HIPRTC_ERROR_INVALID_INPUT",
    c"HIPRTC_ERROR_INVALID_PROGRAM",
    c"HIPRTC_ERROR_INVALID_OPTION",
    c"HIPRTC_ERROR_COMPILATION",
    c"HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
    c"HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
    c"HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
    c"HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
    c"HIPRTC_ERROR_INTERNAL_ERROR",
];

/// Headers that a source may include, and has no need to.
const HEADERS: [&CStr; 2] = [c"hip/hip_runtime.h", c"hip/hip_runtime_api.h"];
/// What comes before every source.
const PROLOGUE: (&CStr, &CStr) = (
    c"stand_in_prologue.h",
    match CStr::from_bytes_with_nul(concat!(include_str!("prologue.h"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a prologue with a NUL"),
    },
);

/// A program, and what was made of it.
struct Program {
    source: Source,
    log: String,
    built: Option<Built>,
}

struct Built {
    code: Vec<u8>,
    /// The names of kernels, by the expressions for them.
    lowered: BTreeMap<CString, CString>,
}

/// The programs that are alive.
struct Programs {
    next: Handle,
    alive: BTreeMap<Handle, Arc<Mutex<Program>>>,
}

static PROGRAMS: Mutex<Programs> = Mutex::new(Programs { next: 1, alive: BTreeMap::new() });

/// What a function answers. Nulls have a code of their own here.
fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    let nulls = |code| if code == Code::INVALID_VALUE { INVALID_INPUT } else { code };
    abi::answer(|| call().map_err(nulls))
}

/// Does something with a program.
fn with(handle: Handle, call: impl FnOnce(&mut Program) -> Result<()>) -> u32 {
    answer(|| {
        let program = PROGRAMS.lock().alive.get(&handle).cloned().ok_or(INVALID_PROGRAM)?;
        call(&mut program.lock())
    })
}

fn owned(text: Text) -> Result<CString> {
    CString::new(text.bytes()?).map_err(|_| INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcVersion(major: Out<c_int>, minor: Out<c_int>) -> u32 {
    answer(|| {
        // Without a compiler it is as if there were no hiprtc.
        nvrtc::check().map_err(|why| {
            process::complain(&why);
            INTERNAL
        })?;
        let version = version()?;
        major.put(int(version / 10_000_000))?;
        minor.put(int(version / 100_000 % 100))
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: u32) -> *const c_char {
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    name.copied().unwrap_or(c"HIPRTC_ERROR_UNKNOWN").as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCreateProgram(
    program: Out<Handle>,
    text: Text,
    name: Text,
    headers: c_int,
    texts: In<Text>,
    names: In<Text>,
) -> u32 {
    answer(|| {
        let headers = usize::try_from(headers).map_err(|_| INVALID_INPUT)?;
        let text = owned(text)?;
        if text.is_empty() {
            return Err(INVALID_INPUT);
        }
        let header = |index| Ok((owned(names.at(index)?)?, owned(texts.at(index)?)?));
        let source = Source {
            name: owned(name).unwrap_or_else(|_| c"program.hip".to_owned()),
            text,
            headers: (0..headers).map(header).collect::<Result<_>>()?,
            options: Vec::new(),
            kernels: Vec::new(),
        };
        let made = Arc::new(Mutex::new(Program { source, log: String::new(), built: None }));
        let programs = &mut *PROGRAMS.lock();
        program.put(programs.next)?;
        programs.alive.insert(programs.next, made);
        programs.next += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcDestroyProgram(program: Buffer) -> u32 {
    answer(|| {
        let handle = program.holding::<Handle>().get()?;
        PROGRAMS.lock().alive.remove(&handle).ok_or(INVALID_PROGRAM)?;
        program.of::<Handle>().put(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcAddNameExpression(program: Handle, expression: Text) -> u32 {
    with(program, |program| {
        if program.built.is_some() {
            return Err(NAMES_AFTER_COMPILATION);
        }
        program.source.kernels.push(owned(expression)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetLoweredName(
    program: Handle,
    expression: Text,
    name: Out<*const c_char>,
) -> u32 {
    with(program, |program| {
        let built = program.built.as_ref().ok_or(NAMES_BEFORE_COMPILATION)?;
        let lowered = built.lowered.get(&owned(expression)?).ok_or(NAME_NOT_VALID)?;
        name.put(lowered.as_ptr())
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcCompileProgram(program: Handle, count: c_int, options: In<Text>) -> u32 {
    with(program, |program| {
        let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
        let options = (0..count).map(|index| owned(options.at(index)?));
        let options = options.collect::<Result<Vec<CString>>>()?;
        let (code, log, built) = match build(&program.source, &options) {
            Ok((built, log)) => (Ok(()), log, Some(built)),
            Err((code, log)) => (Err(code), log, None),
        };
        (program.log, program.built) = (log, built);
        code
    })
}

/// A code object and the compiler's log, or a code and a log.
fn build(source: &Source, options: &[CString]) -> Result<(Built, String), (Code, String)> {
    let given: Vec<_> = options.iter().map(|option| option.to_string_lossy()).collect();
    let (architecture, options) = translate(given.iter().map(AsRef::as_ref));
    let architecture = architecture.unwrap_or(ARCHITECTURE);
    let machine = code::machine(architecture).ok_or_else(|| {
        (COMPILATION, format!("error: unsupported HIP gpu architecture: {architecture}"))
    })?;
    let mut source = source.clone();
    let own = HEADERS.map(|name| (name, c"")).into_iter().chain([PROLOGUE]);
    source.headers.extend(own.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let options = options.into_iter().chain(["--pre-include=stand_in_prologue.h".to_owned()]);
    source.options = options.filter_map(|option| CString::new(option).ok()).collect();
    let (ptx, lowered, log) = compile(&source)?;
    let (mangled, _, _) = compile(&with_cpp_linkage(&source))?;
    let written = write(&ptx, &mangled, architecture, machine);
    let code = written.map_err(|why| (INTERNAL, format!("{log}stand-in: error: {why}")))?;
    let lowered = source.kernels.into_iter().zip(lowered).collect();
    Ok((Built { code, lowered }, log))
}

/// PTX, the names of kernels, and the compiler's log.
fn compile(source: &Source) -> Result<(String, Vec<CString>, String), (Code, String)> {
    let nvrtc::Compiled { outcome, log } =
        nvrtc::compile(source).map_err(|why| (INTERNAL, format!("stand-in: error: {why}")))?;
    match outcome {
        Ok((ptx, lowered)) => Ok((ptx, lowered, log)),
        Err(_) => Err((COMPILATION, log)),
    }
}

/// The same program, whose kernels all have names with the types of their parameters.
fn with_cpp_linkage(source: &Source) -> Source {
    let change = |text: &CString| {
        let changed = text.to_string_lossy().replace("\"C\"", "\"C++\"");
        CString::new(changed).unwrap_or_else(|_| text.clone())
    };
    let headers = source.headers.iter().map(|(name, text)| (name.clone(), change(text)));
    Source { text: change(&source.text), headers: headers.collect(), ..source.clone() }
}

fn write(ptx: &str, mangled: &str, architecture: &str, machine: u32) -> Result<Vec<u8>, String> {
    let pointers = Pointers::of(&Module::parse(mangled)?);
    let metadata = metadata::write(&Module::parse(ptx)?, &pointers, architecture)?;
    code::write(machine, &metadata, ptx)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetProgramLogSize(program: Handle, bytes: Out<usize>) -> u32 {
    with(program, |program| bytes.put(program.log.len() + 1))
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetProgramLog(program: Handle, log: Buffer) -> u32 {
    with(program, |program| log.put_text(&program.log, program.log.len() + 1))
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetCodeSize(program: Handle, bytes: Out<usize>) -> u32 {
    with(program, |program| bytes.put(program.built.as_ref().ok_or(INVALID_PROGRAM)?.code.len()))
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetCode(program: Handle, code: Buffer) -> u32 {
    with(program, |program| code.put_bytes(&program.built.as_ref().ok_or(INVALID_PROGRAM)?.code))
}
