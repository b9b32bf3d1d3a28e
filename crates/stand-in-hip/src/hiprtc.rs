//! hiprtc, the compiler of HIP C, which has codes of its own.
#![expect(unsafe_code, reason = "exports a function by name")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use parking_lot::Mutex;
use stand_in::abi::{Buffer, Handle, In, Out, Text, name_of};
use stand_in::nvrtc::{Compiled, Nvrtc, Source};
use stand_in::ptx::Module;
use stand_in::{Code, Result, abi, process};

use crate::code::{self, ARCHITECTURE};
use crate::device::int;
use crate::metadata::{self, Pointers};
use crate::options::translate;
use crate::versions::version;

/// The codes of hiprtc that the stand-in returns, and their names.
const NAMES: &[(u32, &CStr)] = &[
    (0, c"HIPRTC_SUCCESS"),
    (3, c"HIPRTC_ERROR_INVALID_INPUT"),
    (4, c"HIPRTC_ERROR_INVALID_PROGRAM"),
    (6, c"HIPRTC_ERROR_COMPILATION"),
    (11, c"HIPRTC_ERROR_INTERNAL_ERROR"),
];
const INVALID_INPUT: Code = Code(3);
const INVALID_PROGRAM: Code = Code(4);
const COMPILATION: Code = Code(6);
const INTERNAL: Code = Code(11);
/// The oldest architecture that NVRTC 12 and 13 support.
const NVRTC_ARCHITECTURE: &str = "--gpu-architecture=compute_75";

/// Headers that a source may include. They are empty, because the prologue has their contents.
const HEADERS: [&CStr; 2] = [c"hip/hip_runtime.h", c"hip/hip_runtime_api.h"];
/// The text before every source.
const PROLOGUE: (&CStr, &CStr) = (
    c"stand_in_prologue.h",
    match CStr::from_bytes_with_nul(concat!(include_str!("prologue.h"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a prologue with a NUL"),
    },
);

/// A program of a caller.
struct Program {
    source: Source,
    log: String,
    /// The code object, once it is compiled.
    code: Option<Vec<u8>>,
}

/// The live programs.
struct Programs {
    next: Handle,
    alive: BTreeMap<Handle, Arc<Mutex<Program>>>,
}

static PROGRAMS: Mutex<Programs> = Mutex::new(Programs { next: 1, alive: BTreeMap::new() });

/// Returns the code of a function. hiprtc has another code for null pointers.
fn answer(call: impl FnOnce() -> Result<()>) -> u32 {
    let nulls = |code| if code == Code::INVALID_VALUE { INVALID_INPUT } else { code };
    abi::answer(|| call().map_err(nulls))
}

/// Calls `call` with a program.
fn with(handle: Handle, call: impl FnOnce(&mut Program) -> Result<()>) -> Result<()> {
    let program = PROGRAMS.lock().alive.get(&handle).cloned().ok_or(INVALID_PROGRAM)?;
    call(&mut program.lock())
}

fn owned(text: Text) -> Result<CString> {
    CString::new(text.bytes()?).map_err(|_| INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: u32) -> *const c_char {
    name_of(NAMES, code).unwrap_or(c"HIPRTC_ERROR_UNKNOWN").as_ptr()
}

stand_in::functions! {
    hiprtcVersion(major: Out<i32>, minor: Out<i32>) = {
        // Without a compiler, the stand-in behaves as if there were no hiprtc.
        Nvrtc::named().map_err(|why| {
            process::complain(&why);
            INTERNAL
        })?;
        let version = version()?;
        major.put(int(version / 10_000_000))?;
        minor.put(int(version / 100_000 % 100))
    };
    hiprtcCreateProgram(
        program: Out<Handle>, text: Text, name: Text, headers: i32, texts: In<Text>, names: In<Text>
    ) = {
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
        };
        let created = Arc::new(Mutex::new(Program { source, log: String::new(), code: None }));
        let programs = &mut *PROGRAMS.lock();
        program.put(programs.next)?;
        programs.alive.insert(programs.next, created);
        programs.next += 1;
        Ok(())
    };
    hiprtcDestroyProgram(program: Buffer) = {
        let handle = program.holding::<Handle>().get()?;
        PROGRAMS.lock().alive.remove(&handle).ok_or(INVALID_PROGRAM)?;
        program.of::<Handle>().put(0)
    };
    hiprtcCompileProgram(program: Handle, count: i32, options: In<Text>) = with(program, |program| {
        let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
        let options = options.take(count)?.into_iter().map(owned);
        let (code, log, built) = match build(&program.source, &options.collect::<Result<Vec<_>>>()?) {
            Ok((built, log)) => (Ok(()), log, Some(built)),
            Err((code, log)) => (Err(code), log, None),
        };
        (program.log, program.code) = (log, built);
        code
    });
    hiprtcGetProgramLogSize(program: Handle, bytes: Out<usize>) =
        with(program, |program| bytes.put(program.log.len() + 1));
    hiprtcGetProgramLog(program: Handle, log: Buffer) =
        with(program, |program| log.put_text(&program.log, program.log.len() + 1));
    hiprtcGetCodeSize(program: Handle, bytes: Out<usize>) =
        with(program, |program| bytes.put(program.code.as_ref().ok_or(INVALID_PROGRAM)?.len()));
    hiprtcGetCode(program: Handle, code: Buffer) =
        with(program, |program| code.put_bytes(program.code.as_ref().ok_or(INVALID_PROGRAM)?));
}

/// Returns a code object and the log of the compiler, or a code and a log.
fn build(source: &Source, options: &[CString]) -> Result<(Vec<u8>, String), (Code, String)> {
    let given: Vec<_> = options.iter().map(|option| option.to_string_lossy()).collect();
    let (architecture, options) = translate(given.iter().map(AsRef::as_ref));
    let architecture = architecture.unwrap_or(ARCHITECTURE);
    let machine = code::machine(architecture).ok_or_else(|| {
        (COMPILATION, format!("error: unsupported HIP gpu architecture: {architecture}"))
    })?;
    let mut source = source.clone();
    let own = HEADERS.map(|name| (name, c"")).into_iter().chain([PROLOGUE]);
    source.headers.extend(own.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let own = ["--pre-include=stand_in_prologue.h", NVRTC_ARCHITECTURE].map(str::to_owned);
    let options = options.into_iter().chain(own);
    source.options = options.filter_map(|option| CString::new(option).ok()).collect();
    let Compiled { ptx, log } = compile(&source)?;
    let mangled = compile(&with_cpp_linkage(&source))?.ptx;
    let written = write(&ptx, &mangled, architecture, machine);
    let code = written.map_err(|why| (INTERNAL, format!("{log}stand-in: error: {why}")))?;
    Ok((code, log))
}

fn compile(source: &Source) -> Result<Compiled, (Code, String)> {
    let nvrtc = Nvrtc::named().map_err(|why| (INTERNAL, format!("stand-in: error: {why}")))?;
    nvrtc.compile(source).map_err(|log| (COMPILATION, log))
}

/// The same program with C++ linkage: the names of its kernels contain the types of their parameters.
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
