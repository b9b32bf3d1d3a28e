//! Libraries that cannot be used, and constants that must be those of the headers.
//!
//! Each case runs in a process of its own, for which the test starts itself again.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what a test does not expect ends it")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use halo::Error;
use tempfile::TempDir;

/// What `halo_mpi::run` said in a process with these variables: nothing if it succeeded.
fn said(name: &str, variables: &[(&str, &str)]) -> String {
    if env::var_os("HALO_MPI_TEST").is_some() {
        // These are loaded before, as by a module of Python.
        let loaded = env::var("HALO_MPI_TEST_LOADED").unwrap_or_default();
        for path in loaded.split(':').filter(|path| !path.is_empty()) {
            load(path);
        }
        if let Err(error) = halo_mpi::run(|_| Ok::<(), Error>(())) {
            println!("said: {:?}: {error}", error.kind());
        }
        std::process::exit(0);
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    // The process is no rank of a job.
    for (variable, _) in env::vars_os() {
        if ["OMPI_", "PMI", "HALO_MPI_"].iter().any(|of| variable.to_string_lossy().starts_with(of))
        {
            command.env_remove(variable);
        }
    }
    command.env("HALO_MPI_TEST", name).envs(variables.iter().copied());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    text.lines().filter_map(|line| line.split_once("said: ")).map(|(_, said)| said).collect()
}

#[expect(unsafe_code, reason = "loads a library that this test has compiled")]
fn load(path: &str) {
    // SAFETY: it has no initialisers.
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    std::mem::forget(library);
}

/// Compiles a library from these functions.
fn compile(folder: &TempDir, name: &str, functions: &str) -> String {
    let source = folder.path().join(format!("{name}.c"));
    let library = folder.path().join(format!("{name}.so"));
    fs::write(&source, functions).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-nostdlib", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().unwrap().success());
    library.display().to_string()
}

/// The functions by which a library is known, with this description.
fn known(version: &str) -> String {
    format!(
        "int PMPI_Init_thread(void) {{ return 1; }}
        int MPI_Get_library_version(char *text, int *length) {{
            static const char version[] = \"{version}\";
            for (*length = 0; version[*length]; ++*length) text[*length] = version[*length];
            return 0;
        }}"
    )
}

fn contains(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

#[test]
fn a_library_that_does_not_load_is_named_with_the_reason() {
    const NAME: &str = "a_library_that_does_not_load_is_named_with_the_reason";
    let folder = TempDir::new().unwrap();
    // The first bytes of a library for a processor of 32 bits, and for one with the other order of bytes.
    let narrow = [0x7f, b'E', b'L', b'F', 1, 1, 1];
    let reversed = [0x7f, b'E', b'L', b'F', 2, 2, 1];
    let mut cases = vec![("/nowhere/libmpi.so".to_owned(), "No such file")];
    for (name, start, why) in
        [("narrow", narrow, "ELF class"), ("reversed", reversed, "cannot open shared object file")]
    {
        let path = folder.path().join(name);
        fs::write(&path, start.into_iter().chain([0; 4096]).collect::<Vec<u8>>()).unwrap();
        cases.push((path.display().to_string(), why));
    }
    cases.push(("libc.so.6".to_owned(), "no MPI library"));
    for (path, why) in cases {
        let said = said(NAME, &[("HALO_MPI_LIBRARY", &path)]);
        contains(&said, &["Unavailable", "HALO_MPI_LIBRARY", &path, why]);
    }
}

#[test]
fn an_unknown_library_is_named_with_its_version() {
    const NAME: &str = "an_unknown_library_is_named_with_its_version";
    let folder = TempDir::new().unwrap();
    let path = compile(&folder, "libmpi_other", &known("Other MPI 1.2, for tests"));
    let said = said(NAME, &[("HALO_MPI_LIBRARY", &path)]);
    contains(&said, &["Unavailable", &path, "ABI", "Other MPI 1.2, for tests"]);
}

#[test]
fn a_library_without_a_needed_function_is_named_with_the_function() {
    const NAME: &str = "a_library_without_a_needed_function_is_named_with_the_function";
    let folder = TempDir::new().unwrap();
    let standard =
        "int MPI_Abi_get_version(int *major, int *minor) { *major = 1; *minor = 0; return 0; }
        int MPI_Initialized(void) { return 1; }";
    for (name, functions, lacks) in [
        ("libmpi_mpich", known("MPICH Version: 9"), "MPI_Initialized"),
        ("libmpi_standard", known("New MPI 7") + standard, "MPI_Finalized"),
        ("libmpi_open", known("Open MPI v9") + "int ompi_mpi_comm_world;", "ompi_mpi_comm_null"),
        (
            "libmpi_mute",
            "int PMPI_Init_thread(void) { return 1; }".to_owned(),
            "MPI_Get_library_version",
        ),
    ] {
        let path = compile(&folder, name, &functions);
        let said = said(NAME, &[("HALO_MPI_LIBRARY", &path)]);
        contains(&said, &["Unavailable", &path, "lacks the", lacks]);
    }
}

#[test]
fn two_libraries_in_a_process_are_both_named() {
    const NAME: &str = "two_libraries_in_a_process_are_both_named";
    let folder = TempDir::new().unwrap();
    let one = compile(&folder, "libmpi_one", &known("MPICH Version: 8"));
    let two = compile(&folder, "libmpi_two", &known("MPICH Version: 9"));
    let both = said(NAME, &[("HALO_MPI_TEST_LOADED", &format!("{one}:{two}"))]);
    contains(&both, &["Conflict", &one, &two]);
    let other = said(NAME, &[("HALO_MPI_TEST_LOADED", &one), ("HALO_MPI_LIBRARY", &two)]);
    contains(&other, &["Conflict", &one, &two]);
    // One that is loaded is used, whatever others there are.
    let loaded = said(NAME, &[("HALO_MPI_TEST_LOADED", &one)]);
    contains(&loaded, &["Unavailable", &one, "MPICH Version: 8", "lacks the function"]);
}

/// The libraries that are installed here.
fn installed() -> impl Iterator<Item = &'static str> {
    let is_there = |name: &&str| {
        let folders = ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
        folders.iter().any(|folder| Path::new(folder).join(name).exists())
    };
    ["libmpi.so.40", "libmpich.so.12"].into_iter().filter(is_there)
}

#[test]
fn ranks_that_the_launcher_of_another_mpi_has_started_are_an_error() {
    const NAME: &str = "ranks_that_the_launcher_of_another_mpi_has_started_are_an_error";
    for (library, variable, launcher) in [
        ("libmpi.so.40", "PMI_SIZE", "MPICH's or Intel's mpiexec"),
        ("libmpich.so.12", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"),
    ] {
        if installed().any(|name| name == library) {
            let said = said(NAME, &[("HALO_MPI_LIBRARY", library), (variable, "6")]);
            contains(&said, &["Conflict", launcher, "6 ranks", variable, library]);
        }
    }
    // Also in a process that is a rank of this test.
    said(NAME, &[("HALO_MPI_LIBRARY", "/nowhere")]);
}

/// Folders with the headers of libraries, and how the ABI of each is called in `src/library/abi.rs`.
fn headers() -> Vec<(PathBuf, &'static str, &'static str)> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mpi");
    let machine = format!("{}-linux-gnu", env::consts::ARCH);
    let all = [
        (format!("/usr/lib/{machine}/openmpi/include").into(), "mpi.h", "OPEN_MPI"),
        (format!("/usr/include/{machine}/mpich").into(), "mpi.h", "MPICH"),
        (target.join("openmpi/include"), "mpi.h", "OPEN_MPI"),
        (target.join("mpich/include"), "mpi.h", "MPICH"),
        (target.join("mpich/include"), "mpi_abi.h", "STANDARD"),
    ];
    all.into_iter().filter(|(folder, file, _)| folder.join(file).exists()).collect()
}

/// What a compiler makes of a program with the headers of a folder.
fn compiled(headers: &Path, options: &[&str], program: &Path) -> String {
    let mut compiler = Command::new("cc");
    compiler.args(options).arg("-I").arg(headers).arg(program);
    let output = compiler.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", headers.display());
    String::from_utf8(output.stdout).unwrap()
}

/// The constants of an ABI, as the source has them: a number, or the name of an object.
fn constants(abi: &str) -> impl Fn(&str) -> String {
    let source = include_str!("../src/library/abi.rs");
    let start = match abi {
        "OPEN_MPI" => "fn open_mpi(",
        "MPICH" => "const MPICH: Constants",
        _ => "const STANDARD: Constants",
    };
    let text = source.split_once(start).unwrap().1.split_once("\n}").unwrap().0;
    move |name| {
        let value =
            text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        match value {
            Some(value) => value.replace("Raw(", "").replace(['_', ')', ','], ""),
            None => {
                let objects = source.split('"').filter(|word| word.starts_with("ompi_"));
                let found = objects.filter(|object| object.ends_with(&format!("_{name}")));
                found.map(str::to_owned).next().unwrap()
            }
        }
    }
}

#[test]
fn constants_are_those_of_the_headers() {
    let names = [
        ("comm_world", "MPI_COMM_WORLD"),
        ("comm_null", "MPI_COMM_NULL"),
        ("byte", "MPI_BYTE"),
        ("request_null", "MPI_REQUEST_NULL"),
        ("errors_return", "MPI_ERRORS_RETURN"),
        ("status_ignore", "MPI_STATUS_IGNORE"),
        ("any_tag", "MPI_ANY_TAG"),
        ("tag_ub", "MPI_TAG_UB"),
        ("keyval_invalid", "MPI_KEYVAL_INVALID"),
        ("thread_serialized", "MPI_THREAD_SERIALIZED"),
        ("thread_multiple", "MPI_THREAD_MULTIPLE"),
        ("tag_in_status", "offsetof(MPI_Status, MPI_TAG) / sizeof(int)"),
    ];
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("checks.c"), folder.path().join("checks"));
    for (headers, file, abi) in headers() {
        let value = constants(abi);
        let mut checks = format!("#include <stdio.h>\n#include <stddef.h>\n#include <{file}>\n");
        checks += "int main(void) {\n";
        let (numbers, objects): (Vec<_>, Vec<_>) =
            names.iter().partition(|(name, _)| !value(name).starts_with("ompi_"));
        for (name, theirs) in numbers {
            let ours = value(name);
            checks += &format!(
                "if ((int)(size_t)({theirs}) != (int)({ours})) printf(\"{theirs} is not {ours}\\n\");\n"
            );
        }
        let handle = if abi == "MPICH" { "int" } else { "void *" };
        for fact in [
            format!("sizeof(MPI_Comm) == sizeof({handle})"),
            format!("sizeof(MPI_Request) == sizeof({handle})"),
            format!("sizeof(MPI_Message) == sizeof({handle})"),
            "sizeof(MPI_Status) <= 8 * sizeof(int)".to_owned(),
            "_Alignof(MPI_Status) <= 8".to_owned(),
            "MPI_SUCCESS == 0".to_owned(),
            "MPI_MAX_ERROR_STRING <= 1024".to_owned(),
            "MPI_MAX_LIBRARY_VERSION_STRING <= 8192".to_owned(),
        ] {
            checks += &format!("if (!({fact})) printf(\"not {fact}\\n\");\n");
        }
        fs::write(&source, checks + "return 0; }\n").unwrap();
        compiled(&headers, &["-o", program.to_str().unwrap()], &source);
        let wrong = Command::new(&program).output().unwrap().stdout;
        assert_eq!(String::from_utf8(wrong).unwrap(), "", "{}", headers.display());
        assert_eq!(objects.len(), if abi == "OPEN_MPI" { 5 } else { 0 });
        for (name, theirs) in objects {
            fs::write(&source, format!("#include <{file}>\nlast: {theirs}\n")).unwrap();
            let text = compiled(&headers, &["-E", "-P"], &source);
            let (_, expanded) = text.rsplit_once("last:").unwrap();
            let ours = value(name);
            assert!(expanded.contains(&ours), "{}: {theirs} is {expanded}", headers.display());
        }
    }
}
