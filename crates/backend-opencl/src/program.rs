//! Building programs, and caching the results.
#![expect(unsafe_code, reason = "creates programs through the driver and reads their binaries")]

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::ptr;

use backend_support::{
    Builds, CacheKey, DiskCache, Intermediates, headline, not_taken, reads_files,
};
use cl3::load_library;
use opencl3::error_codes::DLOPEN_FUNCTION_NOT_AVAILABLE;
use opencl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_DEVICES,
    create_program_with_binary, create_program_with_il, create_program_with_source,
    get_program_build_data, get_program_data,
};
use opencl3::types::{cl_int, cl_program};
use runtime_core::{Error, ErrorKind, ImageCode, ImageFormat, ModuleImage, Result};

use crate::OpenClConfig;
use crate::compile::build;
use crate::handle::{self, Handle};
use crate::info::fingerprint;
use crate::open_device::OpenDevice;
use crate::platform::{integer, text};
use crate::signature::Signatures;
use crate::sizes;

const OPERATION: &str = "module_load";
/// Makes the driver store the parameters of kernels, against which launches are checked.
const ARGUMENT_INFO: &str = "-cl-kernel-arg-info";
/// The first word of every SPIR-V module.
const SPIRV_MAGIC: u32 = 0x0723_0203;

/// Variables with options that PoCL and AMD's runtime add to those of a build, or use instead of them.
const ADDED: [&str; 3] =
    ["POCL_EXTRA_BUILD_FLAGS", "AMD_OCL_BUILD_OPTIONS", "AMD_OCL_BUILD_OPTIONS_APPEND"];

/// The input of a program.
#[derive(Clone, Copy)]
enum Code<'a> {
    Source(&'a str),
    SpirV(&'a [u8]),
}

/// Builds programs for one device.
#[derive(Debug)]
pub(crate) struct Builder {
    builds: Builds,
    /// Compiler options for every module of a user's.
    options: String,
    fingerprint: String,
}

/// A built program, and the folder with its intermediate files, if there is one.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) program: Handle<handle::Program>,
    /// `None` if the driver does not report them.
    pub(crate) signatures: Option<Signatures>,
    /// Removed with the program.
    pub(crate) _folder: Option<Intermediates>,
}

impl Builder {
    pub(crate) fn new(config: &OpenClConfig, shared: &OpenDevice) -> Result<Self> {
        let mut config = config.clone();
        let builds = Builds::new(&shared.id, &config.build_options_mut())?;
        Ok(Self { builds, options: config.build_options, fingerprint: fingerprint(&shared.found) })
    }

    /// Builds a user's image, or loads an earlier build of it.
    pub(crate) fn build(&self, shared: &OpenDevice, image: &ModuleImage<'_>) -> Result<Built> {
        self.build_with(shared, image, &self.options)
    }

    /// Builds an image of this backend. The result must not depend on the user's options.
    pub(crate) fn build_own(&self, shared: &OpenDevice, image: &ModuleImage<'_>) -> Result<Built> {
        self.build_with(shared, image, "")
    }

    fn build_with(
        &self,
        shared: &OpenDevice,
        image: &ModuleImage<'_>,
        options: &str,
    ) -> Result<Built> {
        let code = code(image)?;
        let options = join(options, image, code)?;
        let file = match code {
            Code::Source(source) => ("program.cl", source.as_bytes()),
            Code::SpirV(words) => ("program.spv", words),
        };
        let folder = self.builds.intermediates(&[file, ("options", options.to_bytes())])?;
        // A work folder must show this build, so the cache is not used. The cache key does not cover files that a
        // source includes.
        let added = ADDED.map(|name| env::var_os(name).unwrap_or_default());
        let added = added.each_ref().map(|text| text.to_string_lossy());
        // None of the texts contains a NUL.
        let every = format!("{}\0{}", options.to_string_lossy(), added.join("\0"));
        let cache = self.builds.cache().filter(|_| folder.is_none() && !code.reads_files(&every));
        let key = CacheKey::new()
            .with(image.format().name())
            .with(match code {
                Code::Source(source) => source.as_bytes(),
                Code::SpirV(words) => words,
            })
            .with(&every)
            .with(&self.fingerprint);
        if let Some((program, signatures)) =
            cache.and_then(|cache| cached(cache, shared, &key, &options))
        {
            tracing::debug!(device = %shared.id, "program loaded from the cache");
            return Ok(Built { program, signatures, _folder: folder });
        }
        let compiled = create(shared, code).and_then(|p| self.compile(shared, p, &options));
        let log = match &compiled {
            Ok((_, log)) => log,
            Err(error) => error.log().unwrap_or_default(),
        };
        if let Some(folder) = &folder {
            folder.write("build.log", log.as_bytes());
        }
        let (program, _) = compiled?;
        let mut signatures = Signatures::of(program.raw());
        if let (Code::Source(source), Some(signatures)) = (code, &mut signatures) {
            sizes::find(shared, source, &options, signatures);
        }
        if (cache.is_some() || folder.is_some())
            && let Ok(binary) = binary(program.raw(), shared)
        {
            if let Some(folder) = &folder {
                folder.write("program.bin", &binary);
            }
            if cache.is_some() {
                self.builds.keep(&key, &pack(signatures.as_ref(), &binary));
            }
        }
        Ok(Built { program, signatures, _folder: folder })
    }

    fn compile(
        &self,
        shared: &OpenDevice,
        program: Handle<handle::Program>,
        options: &CStr,
    ) -> Result<(Handle<handle::Program>, String)> {
        let device = shared.found.id();
        let built = build(program.raw(), device, options);
        let log = get_program_build_data(program.raw(), device, CL_PROGRAM_BUILD_LOG)
            .map(text)
            .unwrap_or_default();
        if let Err(code) = built {
            return Err(refused(shared, code, headline(&log)).with_log(log));
        }
        self.builds.report(&log);
        Ok((program, log))
    }
}

/// Returns an earlier build, if it still loads.
fn cached(
    cache: &DiskCache,
    shared: &OpenDevice,
    key: &CacheKey,
    options: &CStr,
) -> Option<(Handle<handle::Program>, Option<Signatures>)> {
    let entry = cache.get(key)?;
    let (signatures, binary) = unpack(&entry)?;
    let load = || -> Result<Handle<handle::Program>, cl_int> {
        // SAFETY: the device belongs to the context.
        let raw = unsafe {
            create_program_with_binary(shared.context.raw(), &[shared.found.id()], &[binary])
        }?;
        // SAFETY: the program was just created.
        let program = unsafe { Handle::own(raw, &shared.failures) };
        build(raw, shared.found.id(), options)?;
        Ok(program)
    };
    match load() {
        Ok(program) => Some((program, signatures)),
        Err(code) => {
            tracing::debug!(device = %shared.id, code, "a cached program cannot be loaded");
            cache.remove(key);
            None
        }
    }
}

impl Code<'_> {
    /// Whether the build may depend on other files.
    fn reads_files(self, options: &str) -> bool {
        let options = options.split(|c: char| c.is_whitespace() || c == '\0');
        matches!(self, Self::Source(text) if reads_files(text, options))
    }
}

/// The options of a build: those of this crate, the user's options for every module, and the image's own.
fn join(common: &str, image: &ModuleImage<'_>, code: Code<'_>) -> Result<CString> {
    let mut words: Vec<&str> = Vec::new();
    if matches!(code, Code::Source(_)) {
        words.push(ARGUMENT_INFO);
    }
    words.extend(common.split_whitespace());
    words.extend(image.options().iter().map(AsRef::as_ref));
    // PoCL reads past the end of the options.
    let last = words.iter().flat_map(|words| words.split_whitespace()).next_back();
    if let Some(option @ ("-D" | "-I")) = last {
        let message = format!("the last option is {option}, which needs a value");
        return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, message));
    }
    CString::new(words.join(" ")).map_err(|error| {
        Error::new(ErrorKind::InvalidArgument, OPERATION, "an option contains a NUL")
            .with_source(error)
    })
}

/// The code of an image in one of the two formats.
fn code<'a>(image: &'a ModuleImage<'_>) -> Result<Code<'a>> {
    let refuse = |message: &str| Err(Error::new(ErrorKind::InvalidModule, OPERATION, message));
    let source = |text: &'a str| match text.find('\0') {
        Some(at) => refuse(&format!("the source has a NUL at byte {at}")),
        None => Ok(Code::Source(text)),
    };
    match (image.format(), image.code()) {
        (ImageFormat::OpenClC, ImageCode::Text(text)) => source(text),
        (ImageFormat::OpenClC, ImageCode::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => source(text),
            Err(_) => refuse("the source is no UTF-8 text"),
        },
        // Some drivers crash on data that is not SPIR-V.
        (ImageFormat::SpirV, ImageCode::Bytes(bytes)) => match bytes.first_chunk::<4>() {
            Some(first) if bytes.len().is_multiple_of(4) && is_magic(*first) => {
                Ok(Code::SpirV(bytes))
            }
            _ => refuse(
                "the image does not start with the SPIR-V magic number, or its length is not a multiple of 4",
            ),
        },
        (format, _) => refuse(&format!("an image of {format} with code of another kind")),
    }
}

fn is_magic(first: [u8; 4]) -> bool {
    [u32::from_le_bytes(first), u32::from_be_bytes(first)].contains(&SPIRV_MAGIC)
}

fn create(shared: &OpenDevice, code: Code<'_>) -> Result<Handle<handle::Program>> {
    let context = shared.context.raw();
    let raw = match code {
        // In OpenCL, a length of 0 means text that ends with a NUL.
        Code::Source("") => create_program_with_source(context, &["\n"]),
        Code::Source(source) => create_program_with_source(context, &[source]),
        Code::SpirV(words) => create_program_with_il(context, words),
    };
    let raw = raw.map_err(|code| refused(shared, code, "the driver does not take the code"))?;
    // SAFETY: the program was just created.
    Ok(unsafe { Handle::own(raw, &shared.failures) })
}

/// The error of code that the driver refuses.
fn refused(shared: &OpenDevice, code: cl_int, about: &str) -> Error {
    not_taken(shared.error(OPERATION, code, about), about, &shared.id)
}

/// The program's binary for this device. The program has binaries for other devices of the context, too.
fn binary(program: cl_program, shared: &OpenDevice) -> Result<Vec<u8>, cl_int> {
    let word = size_of::<usize>();
    let devices = get_program_data(program, CL_PROGRAM_DEVICES)?;
    let sizes = get_program_data(program, CL_PROGRAM_BINARY_SIZES)?;
    let own = shared.found.id().expose_provenance() as u64;
    let place = devices.chunks_exact(word).position(|id| integer(id) == own);
    let size = place.and_then(|place| sizes.chunks_exact(word).nth(place)).map_or(0, integer);
    let mut binary = vec![0_u8; usize::try_from(size).unwrap_or(0)];
    let (Some(place), false) = (place, binary.is_empty()) else {
        return Err(DLOPEN_FUNCTION_NOT_AVAILABLE);
    };
    let mut places = vec![ptr::null_mut::<u8>(); devices.len() / word];
    places[place] = binary.as_mut_ptr();
    let library = load_library().as_ref().map_err(|_| DLOPEN_FUNCTION_NOT_AVAILABLE)?;
    let code = library.clGetProgramInfo(
        program,
        CL_PROGRAM_BINARIES,
        places.len() * word,
        places.as_mut_ptr().cast::<c_void>(),
        ptr::null_mut(),
    );
    match code {
        Some(0) => Ok(binary),
        Some(code) => Err(code),
        None => Err(DLOPEN_FUNCTION_NOT_AVAILABLE),
    }
}

/// The start of the text of signatures in the cache.
const SIGNATURES: &str = "\nsignatures\n";

/// Packs an entry of the cache: the length of the signatures' text, 0 if they are unknown, the text, and the binary.
fn pack(signatures: Option<&Signatures>, binary: &[u8]) -> Vec<u8> {
    // With its start, the text is never empty.
    let text = signatures.map_or(String::new(), |all| SIGNATURES.to_owned() + &all.to_text());
    [&(text.len() as u64).to_le_bytes(), text.as_bytes(), binary].concat()
}

fn unpack(entry: &[u8]) -> Option<(Option<Signatures>, &[u8])> {
    let (len, rest) = entry.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (text, binary) = rest.split_at_checked(len)?;
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() {
        return Some((None, binary));
    }
    let lines = text.strip_prefix(SIGNATURES)?;
    Some((Some(Signatures::from_text(lines)?), binary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_without_its_value_is_refused() {
        let image = ModuleImage::source(ImageFormat::OpenClC, "");
        let joined = |common: &str, own: &[&str]| {
            join(common, &image.clone().with_options(own.iter().copied()), Code::Source(""))
        };
        for (common, own) in [("-D", &[][..]), ("", &["-I"]), ("-D A", &["-cl-mad-enable -D"])] {
            let error = joined(common, own).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("needs a value"), "{error}");
        }
        for own in [&["-D", "A"], &["-DA", "-Ifolder"]] {
            joined("-D", own).unwrap();
        }
    }

    #[test]
    fn cache_entries_are_decoded() {
        let all = Signatures::from_text("k\tgw0:float*\n").unwrap();
        let entry = pack(Some(&all), b"binary");
        assert_eq!(unpack(&entry), Some((Some(all), &b"binary"[..])));
        assert_eq!(unpack(&pack(None, b"b")), Some((None, &b"b"[..])));
        assert_eq!(unpack(&entry[..10]), None);
        assert_eq!(unpack(&[]), None);
    }
}
