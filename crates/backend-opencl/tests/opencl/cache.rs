//! Programs that are cached on disk.

use std::path::Path;
use std::{env, fs, process};

use runtime_core::{Launch, args};

use crate::{open, run, source};

const TEXT: &str = "kernel void fill(global uint *x) { x[get_global_id(0)] = 7; }";
/// Set in the processes that a test starts: the cache that they share.
const SHARED: &str = "OPENCL_TEST_CACHE";

fn build_and_run(folder: &Path) -> bool {
    let Some(device) = open(&format!("?cache-dir={}", folder.display())) else { return false };
    let stream = device.default_stream();
    let kernel = device.module_load(source(TEXT)).unwrap().kernel("fill").unwrap();
    let parameters = kernel.parameters().expect("the driver reports the parameters");
    assert_eq!(parameters.len(), 1);
    let mut x = device.memory_allocate::<u32>(16).unwrap();
    run(&kernel, &Launch::cover(16, 1), args![&mut x]).unwrap();
    assert_eq!(x.view().to_vec(&stream).unwrap(), [7; 16]);
    true
}

fn entries(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
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
    let Some(device) = open(&format!("?cache-dir={}", path.display())) else { return };
    device.module_load(source(TEXT)).unwrap();
    device.module_load(source(TEXT).with_options(["-DA"])).unwrap();
    device.module_load(source("kernel void other() {}")).unwrap();
    assert_eq!(entries(path).len(), 3);
}

#[test]
fn other_options_in_the_environment_are_another_program() {
    if let Some(folder) = env::var_os(SHARED) {
        build_and_run(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    if !build_and_run(folder.path()) {
        return;
    }
    let test = "cache::other_options_in_the_environment_are_another_program";
    for (variable, options, entries_then) in [
        ("POCL_EXTRA_BUILD_FLAGS", "-DA", 2),
        ("AMD_OCL_BUILD_OPTIONS", "-DA", 3),
        ("AMD_OCL_BUILD_OPTIONS_APPEND", "-DA", 4),
        ("AMD_OCL_BUILD_OPTIONS_APPEND", "-include file", 4),
    ] {
        let status = process::Command::new(env::current_exe().unwrap())
            .args(["--exact", test])
            .env(SHARED, folder.path())
            .env(variable, options)
            .stdout(process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
        assert_eq!(entries(folder.path()).len(), entries_then, "{variable}={options}");
    }
}

/// The cache key does not cover included files.
#[test]
fn a_source_that_includes_files_is_not_cached() {
    let (folder, headers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(device) = open(&format!("?cache-dir={}", folder.path().display())) else { return };
    let stream = device.default_stream();
    let text = "#include \"value.h\"\nkernel void k(global int *x) { x[0] = VALUE; }";
    for value in [5, 50] {
        fs::write(headers.path().join("value.h"), format!("#define VALUE {value}\n")).unwrap();
        let image = source(text).with_options([format!("-I{}", headers.path().display())]);
        let kernel = device.module_load(image).unwrap().kernel("k").unwrap();
        let mut x = device.memory_allocate::<i32>(1).unwrap();
        run(&kernel, &Launch::cover(1, 1), args![&mut x]).unwrap();
        assert_eq!(x.view().to_vec(&stream).unwrap(), [value]);
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

#[test]
fn a_cache_that_cannot_be_written_costs_nothing_but_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    build_and_run(&file);
}

#[test]
fn several_processes_share_it() {
    if let Some(folder) = env::var_os(SHARED) {
        build_and_run(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "cache::several_processes_share_it";
    let start = || {
        process::Command::new(env::current_exe().unwrap())
            .args(["--exact", test])
            .env(SHARED, folder.path())
            .stdout(process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let left = entries(folder.path());
    assert!(left.len() <= 1, "{left:?}");
}
