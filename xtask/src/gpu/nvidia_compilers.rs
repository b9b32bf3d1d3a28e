//! NVIDIA's compilers, for tests on a machine without a GPU. The stand-in for the HIP runtime uses them, too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::root;

/// The variables that override where `backend-cuda` and its tests look for these.
const NVRTC: &str = "BACKEND_CUDA_NVRTC";
const PTXAS: &str = "BACKEND_CUDA_PTXAS";

/// The compilers. The wheels listed in [`install`](crate::install) put them under `target/venv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tools {
    /// The oldest run-time compiler that devices must support, and the newest that is tested.
    pub(crate) nvrtc: [PathBuf; 2],
    ptxas: PathBuf,
}

/// Returns the compilers, or an error that says what is missing.
pub(crate) fn tools() -> Result<Tools> {
    tools_in(&root().join("target/venv/lib"))
}

fn tools_in(lib: &Path) -> Result<Tools> {
    let packages = fs::read_dir(lib).into_iter().flatten().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let name = folder.file_name()?.to_str()?;
        name.starts_with("python").then(|| folder.join("site-packages/nvidia"))
    });
    let known: Vec<PathBuf> = packages.collect();
    let find = |file: &str| {
        known.iter().map(|folder| folder.join(file)).find(|path| path.exists()).with_context(|| {
            format!("no {file} in target/venv; `cargo xtask test --install` installs it")
        })
    };
    Ok(Tools {
        nvrtc: [find("cuda_nvrtc/lib/libnvrtc.so.12")?, find("cu13/lib/libnvrtc.so.13")?],
        ptxas: find("cu13/bin/ptxas")?,
    })
}

/// Makes tests use one of the compilers, unless the caller has chosen another.
pub(crate) fn compile_with<'a>(
    command: &'a mut Command,
    tools: &Tools,
    nvrtc: &Path,
) -> &'a mut Command {
    for (variable, path) in [(NVRTC, nvrtc), (PTXAS, &tools.ptxas)] {
        if env::var_os(variable).is_none() {
            command.env(variable, path);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_missing_compilers_says_how_to_install_them() {
        let error = tools_in(Path::new("/nowhere")).unwrap_err().to_string();
        for part in ["libnvrtc.so.12", "--install"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
