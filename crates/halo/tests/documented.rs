//! The tests that `docs/halo.md` names exist.
#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::fs;
use std::path::{Path, PathBuf};

/// The Rust files in a folder and below it.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_test_that_is_named_is_there() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let folders = ["src", "tests", "examples"].map(|folder| here.join(folder));
    let others = ["compile-fail/tests", "halo-mpi/tests", "runtime/tests", "runtime/examples"]
        .map(|folder| here.join("..").join(folder));
    folders.iter().chain(&others).for_each(|folder| sources(folder, &mut files));
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let page = fs::read_to_string(here.join("../../docs/halo.md")).unwrap();
    let tables = page.split_once("## Tests by name").unwrap().1;
    let is_name = |word: &&str| {
        word.contains('_')
            && word.chars().all(|c| c == '_' || c.is_ascii_digit() || c.is_ascii_lowercase())
    };
    let named: Vec<&str> = tables.split('`').skip(1).step_by(2).filter(is_name).collect();
    for name in &named {
        assert!(code.contains(&format!("fn {name}(")), "no test {name}");
    }
    assert!(named.len() > 60, "{} names", named.len());
}
