//! Builds code that the library can load from a module's image, by compiling it or from the cache.

use std::ffi::CString;

use backend_support::{Builds, CacheKey, Intermediates, reads_files};
use runtime_core::{DeviceId, Error, ErrorKind, ImageCode, ModuleImage, Result};

use crate::config::Config;
use crate::vendor::{Code, Recipe, Vendor};

/// Builds code for one device.
#[derive(Debug)]
pub(crate) struct Builder<V: Vendor> {
    builds: Builds,
    /// Compiler options for every module.
    options: String,
    target: V::Target,
}

/// Code that the library can load, and the folder with its sources, if there is one.
#[derive(Debug)]
pub(crate) struct Built<V: Vendor> {
    pub(crate) code: Code<V>,
    /// Removed with the module.
    pub(crate) folder: Option<Intermediates>,
    /// A program that the cache does not have yet.
    pub(crate) entry: Option<Entry>,
}

/// A program to store on disk once it has been loaded.
#[derive(Debug)]
pub(crate) struct Entry {
    key: CacheKey,
    content: Vec<u8>,
}

impl<V: Vendor> Builder<V> {
    pub(crate) fn new(id: &DeviceId, config: &Config<V>, target: V::Target) -> Result<Self> {
        let mut config = config.clone();
        let builds = Builds::new(id, &config.build_options_mut())?;
        Ok(Self { builds, options: config.build_options, target })
    }

    pub(crate) fn build(&self, image: &ModuleImage<'_>) -> Result<Built<V>> {
        if image.format() == V::SOURCE {
            return self.compile(text(image.code())?, image);
        }
        match V::ready(&self.target, image)? {
            Some(code) => Ok(Built { code, folder: None, entry: None }),
            None => {
                let format = image.format();
                Err(refused(format!("an image of {format} with code of another kind")))
            }
        }
    }

    fn compile(&self, source: &str, image: &ModuleImage<'_>) -> Result<Built<V>> {
        // The user's options for every module, and the image's own.
        let common = self.options.split_whitespace().map(str::to_owned);
        let own = image.options().iter().map(|option| option.clone().into_owned());
        let Recipe { compiler, options, added, depends, is_known } =
            V::recipe(&self.target, common.chain(own).collect())?;
        let folder = self.builds.intermediates(&[
            (V::SOURCE_FILE, source.as_bytes()),
            ("options", options.join("\n").as_bytes()),
        ])?;
        // A user who sets a work folder needs the files of this build. And the key does not cover included files.
        let words = options.iter().map(String::as_str);
        let reads = reads_files(source, words.chain(added.iter().flat_map(|o| o.split(' '))));
        let cache = self.builds.cache().filter(|_| is_known && folder.is_none() && !reads);
        let key = CacheKey::new().with(source).with(format!("{} options", options.len()));
        let key = options.iter().chain(&added).chain(&depends).fold(key, CacheKey::with);
        // An incomplete entry is built again.
        let known = cache.and_then(|cache| cache.get(&key));
        if let Some(Ok(code)) = known.map(|known| V::code(&self.target, known)) {
            tracing::debug!("program taken from the cache");
            return Ok(Built { code, folder, entry: None });
        }
        let source = CString::new(source).map_err(|_| refused("the source has a NUL"))?;
        let words: Vec<CString> =
            options.into_iter().map(CString::new).collect::<Result<_, _>>().map_err(|error| {
                let message = "an option contains a NUL";
                Error::new(ErrorKind::InvalidArgument, "module_load", message).with_source(error)
            })?;
        let compiled = V::compile(&compiler, &source, &words);
        let log = match &compiled {
            Ok((_, log)) => log.as_str(),
            Err(error) => error.log().unwrap_or_default(),
        };
        if let Some(folder) = &folder {
            folder.write("build.log", log.as_bytes());
        }
        let (compiled, log) = compiled?;
        self.builds.report(&log);
        if let Some(folder) = &folder {
            V::files(&compiled).iter().for_each(|(name, content)| folder.write(name, content));
        }
        let entry = cache.map(|_| Entry { key, content: compiled.clone() });
        Ok(Built { code: V::code(&self.target, compiled)?, folder, entry })
    }

    /// Stores a program on disk after it has been loaded.
    pub(crate) fn keep(&self, entry: &Entry) {
        self.builds.keep(&entry.key, &entry.content);
    }
}

/// Creates the error for an image that is no module for the device.
pub fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModule, "module_load", message)
}

/// Returns the text of an image, which may be stored as bytes.
///
/// # Errors
///
/// `InvalidModule` if the image is no text, or a text with a NUL.
pub fn text<'a>(code: &'a ImageCode<'_>) -> Result<&'a str> {
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
