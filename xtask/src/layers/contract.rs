//! Methods of the contract with a default body. A backend could omit such a method and would still compile.

use std::fs;

use anyhow::{Context, Result, ensure};
use syn::{Item, TraitItem};

use crate::cargo::root;

/// The methods of all traits in the folder `contract` that have a default body.
pub(super) fn violations() -> Result<Vec<String>> {
    let folder = root().join("crates/runtime-core/src/contract");
    let (mut found, mut methods) = (Vec::new(), 0);
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let file =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        for (name, has_body) in file.items.iter().flat_map(methods_of) {
            methods += 1;
            if has_body {
                found.push(format!("{}: {name} has a default body", path.display()));
            }
        }
    }
    ensure!(methods > 0, "no trait in {}", folder.display());
    Ok(found)
}

/// The methods of a trait, and whether each has a default body.
fn methods_of(item: &Item) -> Vec<(String, bool)> {
    let Item::Trait(item) = item else { return Vec::new() };
    let methods = item.items.iter().filter_map(|method| match method {
        TraitItem::Fn(method) => {
            Some((format!("{}::{}", item.ident, method.sig.ident), method.default.is_some()))
        }
        _ => None,
    });
    methods.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_bodies_are_found() {
        let text = "trait Device { fn open(&self); fn close(&self) {} }";
        let file = syn::parse_file(text).unwrap();
        let expected = [("Device::open".to_owned(), false), ("Device::close".to_owned(), true)];
        assert_eq!(methods_of(&file.items[0]), expected);
    }
}
