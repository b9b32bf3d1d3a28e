//! From a module's image to code that the driver loads: compiling CUDA C, and what was compiled before.

use std::ffi::CString;
use std::fs;

use backend_support::{CacheKey, DiskCache, reads_files};
use runtime_core::{Error, ErrorKind, ImageCode, ImageFormat, ModuleImage, Result};
use tempfile::TempDir;

use crate::CudaConfig;
use crate::binary;
use crate::library::Version;
use crate::nvrtc::{Compiled, Compiler, Target, compiler};
use crate::signature::Signatures;

const OPERATION: &str = "module_load";

/// Makes code for one device.
#[derive(Debug)]
pub(crate) struct Builder {
    config: CudaConfig,
    cache: Option<DiskCache>,
    /// 90 for an `sm_90`.
    architecture: u32,
    driver: Version,
}

/// Code that the driver loads, and the folder with what it was made from, if there is one.
#[derive(Debug)]
pub(crate) struct Built {
    /// PTX with a NUL behind it, or a binary that was found to be whole.
    pub(crate) image: Vec<u8>,
    /// As far as the code is text, or was made from it.
    pub(crate) signatures: Option<Signatures>,
    /// Removed with the module.
    pub(crate) folder: Option<TempDir>,
    /// What the cache does not have yet.
    pub(crate) entry: Option<Entry>,
}

/// A program to be kept on disk once it has turned out to load.
#[derive(Debug)]
pub(crate) struct Entry {
    key: CacheKey,
    content: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(config: &CudaConfig, architecture: u32, driver: Version) -> Result<Self> {
        let refuse = |message: String| Error::new(ErrorKind::InvalidArgument, "open", message);
        match &config.work_dir {
            Some(folder) => fs::create_dir_all(folder).map_err(|error| {
                refuse(format!("work-dir={}: no such folder can be made", folder.display()))
                    .with_source(error)
            })?,
            None if config.keep => {
                return Err(refuse("keep=on: nothing to keep without work-dir".to_owned()));
            }
            None => {}
        }
        let cache = match &config.cache_dir {
            _ if !config.cache => None,
            Some(folder) => Some(DiskCache::new(folder)),
            None => DiskCache::of_user("cuda"),
        };
        Ok(Self { config: config.clone(), cache, architecture, driver })
    }

    pub(crate) fn build(&self, image: &ModuleImage<'_>) -> Result<Built> {
        match (image.format(), image.code()) {
            (ImageFormat::CudaC, code) => self.compile(text(code)?, image),
            (ImageFormat::Ptx, code) => ptx(text(code)?, None),
            (ImageFormat::Cubin, ImageCode::Bytes(bytes)) => {
                binary::check(bytes).map_err(refused)?;
                Ok(Built { image: bytes.to_vec(), signatures: None, folder: None, entry: None })
            }
            (format, _) => Err(refused(format!("an image of {format} with code of another kind"))),
        }
    }

    fn compile(&self, source: &str, image: &ModuleImage<'_>) -> Result<Built> {
        let compiler = compiler(self.driver).map_err(refused)?;
        let (options, wants_cubin) = self.options(image, compiler)?;
        let folder = self.intermediates(source, &options)?;
        // Whoever wants intermediates wants those of this build; and what a source includes is in no key.
        let reads = reads_files(source, options.iter().map(String::as_str));
        let cache = self.cache.as_ref().filter(|_| folder.is_none() && !reads);
        let result = if wants_cubin { "cubin" } else { "PTX" };
        let key = CacheKey::new().with(source).with(compiler.version.to_string());
        let key = key.with(&compiler.file);
        let key = key.with(format!("{} options, {result}", options.len()));
        let key = options.iter().fold(key, CacheKey::with);
        if let Some(compiled) = cache.and_then(|cache| cache.get(&key)).and_then(|e| unpack(&e)) {
            tracing::debug!("program taken from the cache");
            return built(compiled, folder);
        }
        let [source] = [source].map(CString::new);
        let source = source.map_err(|_| refused("the source has a NUL"))?;
        let words: Vec<CString> = options
            .iter()
            .cloned()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| refused("an option has a NUL"))?;
        let compiled = compiler.compile(&source, &words, wants_cubin);
        let log = match &compiled {
            Ok(compiled) => compiled.log.as_str(),
            Err(error) => error.log().unwrap_or_default(),
        };
        write(folder.as_ref(), "build.log", log.as_bytes());
        let compiled = compiled?;
        match (compiled.log.is_empty(), self.config.verbose) {
            (true, _) => {}
            (false, true) => tracing::info!(log = compiled.log, "compiler log"),
            (false, false) => tracing::debug!(log = compiled.log, "compiler log"),
        }
        write(folder.as_ref(), "program.ptx", compiled.ptx.as_bytes());
        if !compiled.cubin.is_empty() {
            write(folder.as_ref(), "program.cubin", &compiled.cubin);
        }
        let entry = cache.map(|_| Entry { key, content: pack(&compiled) });
        Ok(Built { entry, ..built(compiled, folder)? })
    }

    /// Keeps a program on disk, which has turned out to load.
    pub(crate) fn keep(&self, entry: &Entry) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(&entry.key, &entry.content)
        {
            tracing::warn!(%error, folder = %cache.folder().display(), "a program could not be cached");
        }
    }

    /// The options of a build: the user's for every module, the image's own, and the architecture unless they name one;
    /// and whether a binary is wanted.
    fn options(&self, image: &ModuleImage<'_>, compiler: &Compiler) -> Result<(Vec<String>, bool)> {
        let common = self.config.build_options.split_whitespace().map(str::to_owned);
        let own = image.options().iter().map(|option| option.clone().into_owned());
        let mut options: Vec<String> = common.chain(own).collect();
        if let Some(named) = named_architecture(&options) {
            let wants_cubin = named.starts_with("sm_") && compiler.is_newer_than(self.driver);
            return Ok((options, wants_cubin));
        }
        let target = compiler.target(self.architecture, self.driver)?;
        options.push(match target {
            Target::Ptx(architecture) => format!("--gpu-architecture=compute_{architecture}"),
            Target::Cubin(architecture) => format!("--gpu-architecture=sm_{architecture}"),
        });
        Ok((options, matches!(target, Target::Cubin(_))))
    }

    /// A private folder with what is built, if the user wants one.
    fn intermediates(&self, source: &str, options: &[String]) -> Result<Option<TempDir>> {
        let Some(parent) = &self.config.work_dir else { return Ok(None) };
        let mut named = tempfile::Builder::new();
        named.prefix("cuda-");
        #[cfg(unix)]
        named.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let mut folder = named.tempdir_in(parent).map_err(|error| {
            let message = format!("no folder for intermediates in {}", parent.display());
            Error::new(ErrorKind::InvalidArgument, OPERATION, message).with_source(error)
        })?;
        folder.disable_cleanup(self.config.keep);
        write(Some(&folder), "program.cu", source.as_bytes());
        write(Some(&folder), "options", options.join("\n").as_bytes());
        Ok(Some(folder))
    }
}

/// The architecture that options name, such as `sm_90`: the last of several, as NVRTC takes it. Its name comes behind `=`, or
/// as an option of its own.
fn named_architecture<'a>(options: &'a [String]) -> Option<&'a str> {
    let named = |(at, option): (usize, &'a String)| {
        let rest = ["--gpu-architecture", "-arch"].iter().find_map(|o| option.strip_prefix(o))?;
        let next = || options.get(at + 1).map(String::as_str);
        Some(rest.strip_prefix('=').or_else(next).unwrap_or_default())
    };
    options.iter().enumerate().rev().find_map(named)
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModule, OPERATION, message)
}

/// The text of an image, which may come as bytes.
fn text<'a>(code: &'a ImageCode<'_>) -> Result<&'a str> {
    let text = match code {
        ImageCode::Text(text) => text,
        ImageCode::Bytes(bytes) => {
            std::str::from_utf8(bytes).map_err(|_| refused("the code is no UTF-8 text"))?
        }
        ImageCode::Functions(_) => return Err(refused("Rust functions in an image of text")),
    };
    match text.find('\0') {
        Some(at) => Err(refused(format!("the text has a NUL at byte {at}"))),
        None => Ok(text),
    }
}

fn ptx(text: &str, folder: Option<TempDir>) -> Result<Built> {
    let image = [text.as_bytes(), b"\0"].concat();
    Ok(Built { image, signatures: Some(Signatures::of(text)), folder, entry: None })
}

fn built(compiled: Compiled, folder: Option<TempDir>) -> Result<Built> {
    if compiled.cubin.is_empty() {
        return ptx(&compiled.ptx, folder);
    }
    binary::check(&compiled.cubin).map_err(refused)?;
    let signatures = Some(Signatures::of(&compiled.ptx));
    Ok(Built { image: compiled.cubin, signatures, folder, entry: None })
}

/// An entry of the cache: the length of the PTX, the PTX, and the binary.
fn pack(compiled: &Compiled) -> Vec<u8> {
    let length = (compiled.ptx.len() as u64).to_le_bytes();
    [&length, compiled.ptx.as_bytes(), &compiled.cubin].concat()
}

fn unpack(entry: &[u8]) -> Option<Compiled> {
    let (length, rest) = entry.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (ptx, cubin) = rest.split_at_checked(length)?;
    let ptx = std::str::from_utf8(ptx).ok()?.to_owned();
    Some(Compiled { ptx, cubin: cubin.to_vec(), log: String::new() })
}

/// Intermediates are for people to look at: one that cannot be written does not fail the build.
fn write(folder: Option<&TempDir>, name: &str, content: &[u8]) {
    let Some(folder) = folder else { return };
    if let Err(error) = fs::write(folder.path().join(name), content) {
        tracing::warn!(%error, name, "an intermediate could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_architecture_is_that_of_the_options() {
        let named = |options: &str| {
            let options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
            named_architecture(&options).map(str::to_owned)
        };
        assert_eq!(named("-O3 -DARCH=1"), None);
        assert_eq!(named("-arch=sm_90a -O3").as_deref(), Some("sm_90a"));
        assert_eq!(named("--gpu-architecture compute_80 -O3").as_deref(), Some("compute_80"));
        assert_eq!(named("-arch=sm_80 --gpu-architecture=sm_90").as_deref(), Some("sm_90"));
        assert_eq!(named("-arch").as_deref(), Some(""));
    }

    #[test]
    fn entries_of_the_cache_are_taken_apart_again() {
        let compiled =
            Compiled { ptx: ".version 8.0".to_owned(), cubin: vec![1, 2], log: String::new() };
        let entry = pack(&compiled);
        assert_eq!(unpack(&entry), Some(compiled));
        assert_eq!(unpack(&entry[..10]), None);
        assert_eq!(unpack(&[]), None);
    }
}
