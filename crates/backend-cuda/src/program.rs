//! Conversion of module images to code that the driver can load.

use std::ffi::{CStr, CString};

use backend_gpu::{Code, Programs, Recipe, refused, text};
use runtime_core::{ImageCode, ImageFormat, ModuleImage, Result};

use crate::binary;
use crate::cuda::Cuda;
use crate::library::Version;
use crate::nvrtc::{self, Compiled, compiler};
use crate::signature::Signatures;

/// A device and its driver.
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Target {
    /// The architecture; 90 is `sm_90`.
    pub(crate) architecture: u32,
    pub(crate) driver: Version,
}

/// NVRTC, and whether it makes a binary in addition to PTX.
#[derive(Debug)]
#[expect(unnameable_types, reason = "of the implementation of a trait")]
pub struct Compiler {
    nvrtc: &'static nvrtc::Compiler,
    wants_cubin: bool,
}

impl Programs<Self> for Cuda {
    type Target = Target;
    /// Known if the code is PTX or was compiled to PTX.
    type Signatures = Option<Signatures>;
    type Compiler = Compiler;

    const SOURCE: ImageFormat = ImageFormat::CudaC;
    const SOURCE_FILE: &'static str = "program.cu";

    fn ready(_: &Target, image: &ModuleImage<'_>) -> Result<Option<Code<Self>>> {
        match (image.format(), image.code()) {
            (ImageFormat::Ptx, code) => Ok(Some(ptx(text(code)?))),
            (ImageFormat::Cubin, ImageCode::Bytes(bytes)) => {
                binary::check(bytes).map_err(refused)?;
                Ok(Some(Code { image: bytes.to_vec(), signatures: None }))
            }
            _ => Ok(None),
        }
    }

    fn recipe(target: &Target, mut options: Vec<String>) -> Result<Recipe<Self>> {
        let nvrtc = compiler(target.driver).map_err(refused)?;
        let wants_cubin = match named_architecture(&options) {
            Some(named) => named.starts_with("sm_") && nvrtc.is_newer_than(target.driver),
            None => {
                let made = nvrtc.target(target.architecture, target.driver)?;
                options.push(match made {
                    nvrtc::Target::Ptx(number) => format!("--gpu-architecture=compute_{number}"),
                    nvrtc::Target::Cubin(number) => format!("--gpu-architecture=sm_{number}"),
                });
                matches!(made, nvrtc::Target::Cubin(_))
            }
        };
        let result = if wants_cubin { "cubin" } else { "PTX" };
        let depends = vec![nvrtc.version.to_string(), nvrtc.file.clone(), result.to_owned()];
        let compiler = Compiler { nvrtc, wants_cubin };
        Ok(Recipe { compiler, options, added: Vec::new(), depends, is_known: true })
    }

    fn compile(
        compiler: &Compiler,
        source: &CStr,
        options: &[CString],
    ) -> Result<(Vec<u8>, String)> {
        let compiled = compiler.nvrtc.compile(source, options, compiler.wants_cubin)?;
        Ok((pack(&compiled), compiled.log))
    }

    fn code(_: &Target, compiled: Vec<u8>) -> Result<Code<Self>> {
        match unpack(&compiled) {
            Some((text, [])) => Ok(ptx(text)),
            Some((text, cubin)) => {
                binary::check(cubin).map_err(refused)?;
                Ok(Code { image: cubin.to_vec(), signatures: Some(Signatures::of(text)) })
            }
            None => Err(refused("the entry of the cache is not whole")),
        }
    }

    fn files(compiled: &[u8]) -> Vec<(&'static str, &[u8])> {
        match unpack(compiled) {
            Some((text, [])) => vec![("program.ptx", text.as_bytes())],
            Some((text, cubin)) => {
                vec![("program.ptx", text.as_bytes()), ("program.cubin", cubin)]
            }
            None => Vec::new(),
        }
    }
}

/// Code from PTX, with a NUL at the end.
fn ptx(text: &str) -> Code<Cuda> {
    let image = [text.as_bytes(), b"\0"].concat();
    Code { image, signatures: Some(Signatures::of(text)) }
}

/// The architecture that options name, such as `sm_90`. NVRTC uses the last of several, and so does this. The name
/// follows `=`, or is the next option.
fn named_architecture<'a>(options: &'a [String]) -> Option<&'a str> {
    let named = |(at, option): (usize, &'a String)| {
        let rest = ["--gpu-architecture", "-arch"].iter().find_map(|o| option.strip_prefix(o))?;
        let next = || options.get(at + 1).map(String::as_str);
        Some(rest.strip_prefix('=').or_else(next).unwrap_or_default())
    };
    options.iter().enumerate().rev().find_map(named)
}

/// Builds an entry of the cache: the length of the PTX, the PTX, and the binary.
fn pack(compiled: &Compiled) -> Vec<u8> {
    let length = (compiled.ptx.len() as u64).to_le_bytes();
    [&length, compiled.ptx.as_bytes(), &compiled.cubin].concat()
}

fn unpack(entry: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = entry.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (ptx, cubin) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(ptx).ok()?, cubin))
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
    fn cache_entries_are_decoded() {
        let compiled =
            Compiled { ptx: ".version 8.0".to_owned(), cubin: vec![1, 2], log: String::new() };
        let entry = pack(&compiled);
        assert_eq!(unpack(&entry), Some((".version 8.0", &[1, 2][..])));
        assert_eq!(unpack(&entry[..10]), None);
        assert_eq!(unpack(&[]), None);
    }
}
