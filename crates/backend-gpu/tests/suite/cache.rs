//! Programs kept on disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runtime_core::{Launch, args};

use crate::common::{open_with_compiler, run, source};

const TEXT: &str = "extern \"C\" __global__ void fill(unsigned *x) { x[blockIdx.x] = 7; }";

pub(crate) fn build_and_run(folder: &Path) -> bool {
    let options = format!("?cache-dir={}", folder.display());
    let Some(device) = open_with_compiler(&options) else { return false };
    let stream = device.default_stream();
    let kernel = device.module_load(source(TEXT)).unwrap().kernel("fill").unwrap();
    assert_eq!(kernel.parameters().expect("the code declares the parameters").len(), 1);
    let mut x = device.memory_allocate::<u32>(16).unwrap();
    run(&kernel, &Launch::cover(16, 1), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [7; 16]);
    true
}

pub(crate) fn entries(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        (path, written)
    };
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(read).collect();
    entries.sort();
    entries
}

#[test]
fn a_program_is_built_once() {
    let folder = tempfile::tempdir().unwrap();
    if !build_and_run(folder.path()) {
        return;
    }
    let first = entries(folder.path());
    assert_eq!(first.len(), 1);
    assert!(build_and_run(folder.path()));
    assert_eq!(entries(folder.path()), first, "it was built again");
}

#[test]
fn other_options_are_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let Some(device) = open_with_compiler(&format!("?cache-dir={}", path.display())) else {
        return;
    };
    device.module_load(source(TEXT)).unwrap();
    device.module_load(source(TEXT).with_options(["-DA"])).unwrap();
    device.module_load(source("extern \"C\" __global__ void other() {}")).unwrap();
    assert_eq!(entries(path).len(), 3);
}

/// The cache finds a program by its source, and does not read the files that the source includes.
#[test]
fn a_source_that_includes_files_is_not_cached() {
    let (folder, headers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = format!("?cache-dir={}", folder.path().display());
    let Some(device) = open_with_compiler(&options) else { return };
    let stream = device.default_stream();
    let kernel = "extern \"C\" __global__ void k(int *x) { x[0] = VALUE; }";
    let sources = ["#include", "#inc\\\nlude"].map(|word| format!("{word} \"value.h\"\n{kernel}"));
    for (value, text) in
        [5, 50].into_iter().flat_map(|value| sources.each_ref().map(|s| (value, s)))
    {
        fs::write(headers.path().join("value.h"), format!("#define VALUE {value}\n")).unwrap();
        let image = source(text).with_options([format!("-I{}", headers.path().display())]);
        let kernel = device.module_load(image).unwrap().kernel("k").unwrap();
        let mut x = device.memory_allocate::<i32>(1).unwrap();
        run(&kernel, &Launch::cover(1, 1), args![&mut x]).unwrap();
        assert_eq!(x.view().to_vec(&stream).unwrap(), [value]);
    }
}

#[test]
pub(crate) fn entries_that_are_of_no_use_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    if !build_and_run(folder.path()) {
        return;
    }
    let (entry, _) = entries(folder.path()).pop().unwrap();
    for damage in [&b""[..], b"nonsense of more than thirty-two bytes, which no checksum fits"] {
        fs::write(&entry, damage).unwrap();
        assert!(build_and_run(folder.path()));
        assert!(fs::metadata(&entry).unwrap().len() > 100, "the entry was not replaced");
    }
}

/// Where one option ends matters: the second of these is a folder of headers with an odd name.
#[test]
fn programs_with_different_options_are_cached_separately() {
    let folder = tempfile::tempdir().unwrap();
    let options = format!("?cache-dir={}", folder.path().display());
    let Some(device) = open_with_compiler(&options) else { return };
    let stream = device.default_stream();
    let text = "
#ifndef B
#define B 0
#endif
extern \"C\" __global__ void k(int *x) { x[0] = B; }";
    for (options, expected) in [(vec!["-I/tmp", "-DB=7"], 7), (vec!["-I/tmp\n-DB=7"], 0)] {
        let image = source(text).with_options(options);
        let kernel = device.module_load(image).unwrap().kernel("k").unwrap();
        let mut x = device.memory_allocate::<i32>(1).unwrap();
        run(&kernel, &Launch::cover(1, 1), args![&mut x]).unwrap();
        assert_eq!(x.view().to_vec(&stream).unwrap(), [expected]);
    }
}
