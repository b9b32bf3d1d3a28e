//! Conversion of module images to code that the runtime can load.

use std::env;
use std::ffi::{CStr, CString};

use backend_gpu::{Code, Programs, Recipe, refused};
use runtime_core::{ImageCode, ImageFormat, ModuleImage, Result};

use crate::code_object::{self, Metadata};
use crate::hip::Hip;
use crate::hiprtc::{Compiled, Compiler, compiler};
use crate::library::Version;

/// Variables with options that hiprtc adds to its given options.
const APPENDED: [&str; 2] = ["HIPRTC_COMPILE_OPTIONS_APPEND", "HIPRTC_LINK_OPTIONS_APPEND"];

/// A device and its runtime.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Target {
    /// The architecture, such as `gfx90a:sramecc+:xnack-`. If it is not known, the compiler uses that of the current
    /// device.
    pub(crate) architecture: Option<String>,
    pub(crate) runtime: Version,
}

impl Programs<Self> for Hip {
    type Target = Target;
    type Signatures = Metadata;
    type Compiler = &'static Compiler;

    const SOURCE: ImageFormat = ImageFormat::HipC;
    const SOURCE_FILE: &'static str = "program.hip";

    fn ready(target: &Target, image: &ModuleImage<'_>) -> Result<Option<Code<Self>>> {
        match (image.format(), image.code()) {
            (ImageFormat::CodeObject, ImageCode::Bytes(bytes)) => {
                Self::code(target, bytes.to_vec()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn recipe(target: &Target, mut options: Vec<String>) -> Result<Recipe<Self>> {
        let compiler = compiler(target.runtime).map_err(refused)?;
        let names = ["--offload-arch", "--gpu-architecture"];
        let is_named =
            options.iter().any(|option| names.iter().any(|name| option.starts_with(name)));
        if let Some(architecture) = &target.architecture
            && !is_named
        {
            options.push(format!("--offload-arch={architecture}"));
        }
        let added = APPENDED.iter().map(|name| env::var(name).unwrap_or_default()).collect();
        let versions = format!("{} {:?}", target.runtime, compiler.version);
        let depends = vec![versions, compiler.files.clone()];
        // If the architecture is not known, the key does not contain the target of the code.
        let is_known = target.architecture.is_some();
        Ok(Recipe { compiler, options, added, depends, is_known })
    }

    fn compile(
        compiler: &&'static Compiler,
        source: &CStr,
        options: &[CString],
    ) -> Result<(Vec<u8>, String)> {
        let Compiled { code, log } = compiler.compile(source, options)?;
        Ok((code, log))
    }

    fn code(target: &Target, compiled: Vec<u8>) -> Result<Code<Self>> {
        let architecture = target.architecture.as_deref().unwrap_or_default();
        let signatures = code_object::read(&compiled, architecture).map_err(refused)?;
        Ok(Code { image: compiled, signatures })
    }

    fn files(compiled: &[u8]) -> Vec<(&'static str, &[u8])> {
        vec![("program.hsaco", compiled)]
    }
}
