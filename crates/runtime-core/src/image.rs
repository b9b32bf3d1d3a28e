//! Module images: code in a named format.

use std::borrow::Cow;
use std::fmt;

use crate::{Error, ErrorKind, HostModule, Result};

/// The format of a [`ModuleImage`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// Rust functions, see [`HostModule`].
    HostFunctions,
    /// CUDA C++ source, compiled by NVRTC.
    CudaC,
    /// NVIDIA PTX text.
    Ptx,
    /// An NVIDIA cubin or fatbin.
    Cubin,
    /// HIP C++ source, compiled by hiprtc.
    HipC,
    /// An AMD code object.
    CodeObject,
    /// OpenCL C source.
    OpenClC,
    /// SPIR-V words as bytes.
    SpirV,
    /// An ELF executable for an embedded processor.
    Elf,
    /// A format of another backend, by its name. Two backends that mean the same format use the same name.
    Other(&'static str),
}

impl ImageFormat {
    /// The name used in messages and reports, such as `PTX`.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostFunctions => "host functions",
            Self::CudaC => "CUDA C",
            Self::Ptx => "PTX",
            Self::Cubin => "cubin",
            Self::HipC => "HIP C",
            Self::CodeObject => "code object",
            Self::OpenClC => "OpenCL C",
            Self::SpirV => "SPIR-V",
            Self::Elf => "ELF",
            Self::Other(name) => name,
        }
    }

    /// Whether the format is compiled and therefore takes compiler options: source and SPIR-V. For
    /// [`Other`](Self::Other) formats the device decides.
    pub fn takes_options(self) -> bool {
        match self {
            Self::CudaC | Self::HipC | Self::OpenClC | Self::SpirV | Self::Other(_) => true,
            Self::HostFunctions | Self::Ptx | Self::Cubin | Self::CodeObject | Self::Elf => false,
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The code itself.
#[derive(Clone, Debug)]
pub enum ImageCode<'a> {
    /// Source text.
    Text(Cow<'a, str>),
    /// A binary.
    Bytes(Cow<'a, [u8]>),
    /// Rust functions.
    Functions(HostModule),
}

/// Code in one format, with options for its compiler.
///
/// ```
/// use runtime_core::{ImageFormat, ModuleImage};
///
/// let image = ModuleImage::source(ImageFormat::OpenClC, "kernel void k(global float *x) { *x = 1; }")
///     .with_options(["-cl-fast-relaxed-math"]);
/// assert_eq!(image.format(), ImageFormat::OpenClC);
/// ```
#[derive(Clone, Debug)]
pub struct ModuleImage<'a> {
    format: ImageFormat,
    code: ImageCode<'a>,
    options: Vec<Cow<'a, str>>,
}

impl<'a> ModuleImage<'a> {
    /// Source text in `format`.
    pub fn source(format: ImageFormat, text: impl Into<Cow<'a, str>>) -> Self {
        Self { format, code: ImageCode::Text(text.into()), options: Vec::new() }
    }

    /// A binary in `format`.
    pub fn binary(format: ImageFormat, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { format, code: ImageCode::Bytes(bytes.into()), options: Vec::new() }
    }

    /// Rust functions.
    pub fn functions(module: &HostModule) -> Self {
        Self {
            format: ImageFormat::HostFunctions,
            code: ImageCode::Functions(module.clone()),
            options: Vec::new(),
        }
    }

    /// Adds options for the compiler, in its own syntax. Loading an image with options fails with `InvalidArgument` if
    /// its format [takes none](ImageFormat::takes_options).
    #[must_use]
    pub fn with_options<S: Into<Cow<'a, str>>>(
        mut self,
        options: impl IntoIterator<Item = S>,
    ) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// The format.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// The code.
    pub fn code(&self) -> &ImageCode<'a> {
        &self.code
    }

    /// Options for the compiler.
    pub fn options(&self) -> &[Cow<'a, str>] {
        &self.options
    }
}

impl From<&HostModule> for ModuleImage<'_> {
    fn from(module: &HostModule) -> Self {
        Self::functions(module)
    }
}

/// The same kernels in several formats. A device loads the format that it prefers.
#[derive(Clone, Debug, Default)]
pub struct ModuleBundle<'a> {
    images: Vec<ModuleImage<'a>>,
}

impl<'a> ModuleBundle<'a> {
    /// A bundle without images.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image.
    #[must_use]
    pub fn with(mut self, image: impl Into<ModuleImage<'a>>) -> Self {
        self.images.push(image.into());
        self
    }

    /// The images in the order they were added.
    pub fn images(&self) -> &[ModuleImage<'a>] {
        &self.images
    }

    /// The image that a device loads if it supports these `formats`, best first.
    ///
    /// # Errors
    ///
    /// `InvalidModule` if the bundle and the device have no format in common. The message names both lists.
    pub fn best_for(&self, formats: &[ImageFormat]) -> Result<&ModuleImage<'a>> {
        self.best_of(formats, &[])
    }

    /// As [`best_for`](Self::best_for). The error says why a format of the bundle is unavailable on the device.
    pub(crate) fn best_of(
        &self,
        formats: &[ImageFormat],
        absent: &[(ImageFormat, String)],
    ) -> Result<&ModuleImage<'a>> {
        let has = |format| self.images.iter().find(|image| image.format == format);
        formats.iter().find_map(|format| has(*format)).ok_or_else(|| {
            let names = |formats: &mut dyn Iterator<Item = ImageFormat>| {
                let names: Vec<_> = formats.map(ImageFormat::name).collect();
                if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
            };
            let what = if self.images.len() == 1 { "the image is" } else { "the bundle has" };
            let given = names(&mut self.images.iter().map(|image| image.format));
            let taken = names(&mut formats.iter().copied());
            let mut message = format!("{what} {given}; the device takes {taken}");
            for (format, why) in absent.iter().filter(|(format, _)| has(*format).is_some()) {
                message += &format!("; no {format} here: {why}");
            }
            Error::new(ErrorKind::InvalidModule, "module_load", message)
        })
    }
}
