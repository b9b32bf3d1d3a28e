//! Stencils in Rust files, and their texts for devices.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use quote::ToTokens;
use stencil_translator::{Dialect, Module, Stencil};
use syn::{Attribute, Item};

/// A text of a stencil.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// OpenCL C.
    Opencl,
    /// CUDA C.
    Cuda,
    /// HIP C.
    Hip,
    /// C99.
    C,
    /// C for embedded devices.
    Embedded,
}

/// Prints the texts of the stencils in a file, or of one of them.
pub(crate) fn print(file: &Path, name: Option<&str>, format: Format) -> Result<()> {
    let mut stencils = all(file)?;
    ensure!(!stencils.is_empty(), "{} has no stencil", file.display());
    if let Some(name) = name {
        let names: Vec<String> = stencils.iter().map(Stencil::name).collect();
        stencils.retain(|stencil| stencil.name() == name);
        ensure!(!stencils.is_empty(), "{name} is not one of {}", names.join(", "));
    }
    let text = |stencil: &Stencil| match format {
        Format::Opencl => stencil.source(Dialect::OpenCl),
        Format::Cuda => stencil.source(Dialect::Cuda),
        Format::Hip => stencil.source(Dialect::Hip),
        Format::C => stencil.source(Dialect::C),
        Format::Embedded => stencil.embedded_source(),
    };
    let texts: Vec<String> = stencils.iter().map(text).collect();
    stdout().write_all(texts.join("\n").as_bytes()).context("standard output")
}

/// The stencil of this name in a Rust file.
pub(crate) fn named(file: &Path, name: &str) -> Result<Stencil> {
    let stencil = all(file)?.into_iter().find(|stencil| stencil.name() == name);
    stencil.with_context(|| format!("{} has no stencil {name}", file.display()))
}

/// The stencils of a Rust file, also those within modules of it.
fn all(file: &Path) -> Result<Vec<Stencil>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let items = syn::parse_file(&text).with_context(|| file.display().to_string())?.items;
    let mut stencils = Vec::new();
    find(items, &mut stencils).with_context(|| file.display().to_string())?;
    Ok(stencils)
}

fn find(items: Vec<Item>, found: &mut Vec<Stencil>) -> Result<()> {
    for item in items {
        match item {
            Item::Fn(function)
                if ["stencil", "column", "reduction"]
                    .iter()
                    .any(|name| has(&function.attrs, name)) =>
            {
                let name = function.sig.ident.to_string();
                let stencil = Stencil::parse(function.into_token_stream());
                found.push(stencil.map_err(|errors| anyhow!("stencil {name}: {errors}"))?);
            }
            Item::Mod(module) if has(&module.attrs, "stencils") => {
                let name = module.ident.to_string();
                match Module::parse(module.into_token_stream()) {
                    Ok(module) => found.extend(module.into_stencils()),
                    Err(errors) => bail!("module {name}: {errors}"),
                }
            }
            Item::Mod(module) => {
                find(module.content.map(|(_, items)| items).unwrap_or_default(), found)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::root;

    #[test]
    fn stencils_of_functions_and_modules_are_found() {
        for (file, name) in [
            ("crates/stencil/tests/heat.rs", "diffuse"),
            ("crates/stencil/tests/ghosts.rs", "diagonals"),
        ] {
            let stencil = named(&root().join(file), name).unwrap();
            assert!(stencil.source(Dialect::Cuda).contains(&format!("{name}_kernel")));
        }
        let error = named(&root().join("crates/stencil/tests/heat.rs"), "other").unwrap_err();
        assert!(error.to_string().contains("has no stencil other"), "{error}");
    }
}
