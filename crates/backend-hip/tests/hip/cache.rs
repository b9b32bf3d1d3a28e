//! Programs kept on disk.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use runtime_core::{Launch, args};

use crate::{in_child, open_with_compiler, run, skip, source};

const TEXT: &str = "extern \"C\" __global__ void fill(unsigned *x) { x[blockIdx.x] = 7; }";

fn build_and_run(folder: &Path) -> bool {
    let options = format!("?cache-dir={}", folder.display());
    let Some(device) = open_with_compiler(&options) else { return false };
    let stream = device.default_stream();
    let kernel = device.module_load(source(TEXT)).unwrap().kernel("fill").unwrap();
    assert_eq!(kernel.parameters().expect("code objects tell the parameters").len(), 1);
    let mut x = device.memory_allocate::<u32>(16).unwrap();
    run(&kernel, &Launch::cover(16, 1), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec::<u32>(&stream).unwrap(), [7; 16]);
    true
}

fn entries(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
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

/// What a source includes is not part of what it is found by.
#[test]
fn a_source_that_includes_files_is_built_anew() {
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
        assert_eq!(x.view().to_vec::<i32>(&stream).unwrap(), [value]);
    }
}

/// What is found was made by the same compiler, with the options that it takes from the environment.
#[test]
fn another_compiler_makes_another_program() {
    const TEST: &str = "cache::another_compiler_makes_another_program";
    const FOLDER: &str = "HIP_TEST_CACHE";
    if let Some(folder) = env::var_os(FOLDER) {
        build_and_run(Path::new(&folder));
        return;
    }
    let (cache, libraries) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if !build_and_run(cache.path()) {
        return;
    }
    let library = PathBuf::from(env::var_os("BACKEND_HIP_LIBRARY").unwrap_or_default());
    if !library.ends_with("libstandin_hip.so") {
        return skip("BACKEND_HIP_LIBRARY does not name the stand-in, a file that can be copied");
    }
    let copy = libraries.path().join("another.so");
    fs::copy(library, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let folder = cache.path().to_str().unwrap();
    for (variable, entries_then) in [
        ((FOLDER, folder), 1),
        (("HIPRTC_COMPILE_OPTIONS_APPEND", "-DA"), 2),
        (("HIPRTC_LINK_OPTIONS_APPEND", "-DA"), 3),
        (("BACKEND_HIPRTC_LIBRARY", copy), 4),
    ] {
        in_child(TEST, &[(FOLDER, folder), variable]);
        assert_eq!(entries(cache.path()).len(), entries_then, "{variable:?}");
    }
}

#[test]
fn entries_that_are_of_no_use_are_replaced() {
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
