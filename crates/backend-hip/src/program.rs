//! From a module's image to code that the runtime loads: compiling HIP C, and what was compiled before.

use std::env;
use std::ffi::CString;
use std::fs;

use backend_support::{CacheKey, DiskCache, reads_files};
use runtime_core::{Error, ErrorKind, ImageCode, ImageFormat, ModuleImage, Result};
use tempfile::TempDir;

use crate::HipConfig;
use crate::code_object::{self, Metadata};
use crate::hiprtc::{Compiled, compiler};
use crate::library::Version;

const OPERATION: &str = "module_load";

/// Variables with options that hiprtc adds to those it is given.
const APPENDED: [&str; 2] = ["HIPRTC_COMPILE_OPTIONS_APPEND", "HIPRTC_LINK_OPTIONS_APPEND"];

/// Makes code for one device.
#[derive(Debug)]
pub(crate) struct Builder {
    config: HipConfig,
    cache: Option<DiskCache>,
    /// Such as `gfx90a:sramecc+:xnack-`; where it is not known, the compiler takes that of the current device.
    architecture: Option<String>,
    runtime: Version,
}

/// Code that the runtime loads, and the folder with what it was made from, if there is one.
#[derive(Debug)]
pub(crate) struct Built {
    /// A binary that was found to be whole.
    pub(crate) image: Vec<u8>,
    pub(crate) metadata: Metadata,
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
    pub(crate) fn new(
        config: &HipConfig,
        architecture: Option<String>,
        runtime: Version,
    ) -> Result<Self> {
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
            None => DiskCache::of_user("hip"),
        };
        Ok(Self { config: config.clone(), cache, architecture, runtime })
    }

    pub(crate) fn build(&self, image: &ModuleImage<'_>) -> Result<Built> {
        match (image.format(), image.code()) {
            (ImageFormat::HipC, code) => self.compile(text(code)?, image),
            (ImageFormat::CodeObject, ImageCode::Bytes(bytes)) => self.built(bytes.to_vec(), None),
            (format, _) => Err(refused(format!("an image of {format} with code of another kind"))),
        }
    }

    /// Code that was found to be whole.
    fn built(&self, image: Vec<u8>, folder: Option<TempDir>) -> Result<Built> {
        let architecture = self.architecture.as_deref().unwrap_or_default();
        let metadata = code_object::read(&image, architecture).map_err(refused)?;
        Ok(Built { image, metadata, folder, entry: None })
    }

    fn compile(&self, source: &str, image: &ModuleImage<'_>) -> Result<Built> {
        let compiler = compiler(self.runtime).map_err(refused)?;
        let options = self.options(image);
        let folder = self.intermediates(source, &options)?;
        // Whoever wants intermediates wants those of this build; what a source includes is in no key, and neither is the
        // device for which code is that no option names one for.
        let appended = APPENDED.map(|name| env::var(name).unwrap_or_default());
        let words = options.iter().map(String::as_str);
        let reads = reads_files(source, words.chain(appended.iter().flat_map(|o| o.split(' '))));
        let known = self.architecture.is_some() && folder.is_none() && !reads;
        let cache = self.cache.as_ref().filter(|_| known);
        let key = CacheKey::new()
            .with(source)
            .with(format!("{} {:?}", self.runtime, compiler.version))
            .with(&compiler.files)
            .with(format!("{} options", options.len()));
        let key = options.iter().chain(&appended).fold(key, CacheKey::with);
        if let Some(code) = cache.and_then(|cache| cache.get(&key)) {
            tracing::debug!("program taken from the cache");
            return self.built(code, folder);
        }
        let [source] = [source].map(CString::new);
        let source = source.map_err(|_| refused("the source has a NUL"))?;
        let words: Vec<CString> = options
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| refused("an option has a NUL"))?;
        let compiled = compiler.compile(&source, &words);
        let log = match &compiled {
            Ok(compiled) => compiled.log.as_str(),
            Err(error) => error.log().unwrap_or_default(),
        };
        write(folder.as_ref(), "build.log", log.as_bytes());
        let Compiled { code, log } = compiled?;
        match (log.is_empty(), self.config.verbose) {
            (true, _) => {}
            (false, true) => tracing::info!(log, "compiler log"),
            (false, false) => tracing::debug!(log, "compiler log"),
        }
        write(folder.as_ref(), "program.hsaco", &code);
        let entry = cache.map(|_| Entry { key, content: code.clone() });
        Ok(Built { entry, ..self.built(code, folder)? })
    }

    /// Keeps a program on disk, which has turned out to load.
    pub(crate) fn keep(&self, entry: &Entry) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(&entry.key, &entry.content)
        {
            tracing::warn!(%error, folder = %cache.folder().display(), "a program could not be cached");
        }
    }

    /// The options of a build: the user's for every module, the image's own, and the architecture unless they name one.
    fn options(&self, image: &ModuleImage<'_>) -> Vec<String> {
        let common = self.config.build_options.split_whitespace().map(str::to_owned);
        let own = image.options().iter().map(|option| option.clone().into_owned());
        let mut options: Vec<String> = common.chain(own).collect();
        let names = ["--offload-arch", "--gpu-architecture"];
        let is_named =
            options.iter().any(|option| names.iter().any(|name| option.starts_with(name)));
        if let Some(architecture) = &self.architecture
            && !is_named
        {
            options.push(format!("--offload-arch={architecture}"));
        }
        options
    }

    /// A private folder with what is built, if the user wants one.
    fn intermediates(&self, source: &str, options: &[String]) -> Result<Option<TempDir>> {
        let Some(parent) = &self.config.work_dir else { return Ok(None) };
        let mut named = tempfile::Builder::new();
        named.prefix("hip-");
        #[cfg(unix)]
        named.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let mut folder = named.tempdir_in(parent).map_err(|error| {
            let message = format!("no folder for intermediates in {}", parent.display());
            Error::new(ErrorKind::InvalidArgument, OPERATION, message).with_source(error)
        })?;
        folder.disable_cleanup(self.config.keep);
        write(Some(&folder), "program.hip", source.as_bytes());
        write(Some(&folder), "options", options.join("\n").as_bytes());
        Ok(Some(folder))
    }
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

/// Intermediates are for people to look at: one that cannot be written does not fail the build.
fn write(folder: Option<&TempDir>, name: &str, content: &[u8]) {
    let Some(folder) = folder else { return };
    if let Err(error) = fs::write(folder.path().join(name), content) {
        tracing::warn!(%error, name, "an intermediate could not be written");
    }
}
