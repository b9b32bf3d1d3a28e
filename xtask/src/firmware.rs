//! Compiles the programs for embedded processors: the monitors, the kernels of examples and the test programs.
//!
//! The binaries are kept in the repository, so only those who change the source need the compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use stencil_translator::Dialect;

use crate::cargo::{must, root};
use crate::stencils;

/// A processor, and how code for it is compiled.
struct Target {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// The source of the monitor, which calls functions on it.
    monitor: &'static str,
}

const TARGETS: [Target; 3] = [
    Target {
        name: "riscv64",
        compiler: "riscv64-linux-gnu-gcc",
        flags: &["-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"],
        monitor: "crates/backend-embedded/firmware/monitor/riscv64.S",
    },
    Target {
        name: "cortex-m7",
        compiler: "arm-none-eabi-gcc",
        flags: &["-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard", "-mthumb"],
        monitor: "crates/backend-embedded/firmware/monitor/cortex-m.S",
    },
    Target {
        name: "cortex-m3",
        compiler: "arm-none-eabi-gcc",
        flags: &["-mcpu=cortex-m3", "-mthumb"],
        monitor: "crates/backend-embedded/firmware/monitor/cortex-m.S",
    },
];

/// Flags for all programs: no differences between machines, and no padding to pages.
const COMMON: &[&str] = &[
    "-nostdlib",
    "-Wl,--build-id=none,--no-warn-rwx-segments",
    "-Wl,-z,max-page-size=64",
    "-Wl,--strip-debug",
];
const C: &[&str] = &[
    "-O2",
    "-std=gnu17",
    "-ffreestanding",
    "-ffp-contract=off",
    // Otherwise the compiler turns copy loops into calls of memcpy, which does not exist here.
    "-fno-tree-loop-distribute-patterns",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,-e,0",
];
/// Linked to an address.
const FIXED: &[&str] = &["-fno-pie", "-no-pie", "-static"];
/// Linked to be loaded anywhere.
const ANYWHERE: &[&str] = &["-fPIE", "-static-pie", "-Wl,-pie,--no-dynamic-linker,-z,notext"];

/// The largest size of a monitor in bytes.
const MONITOR_BYTES: u64 = 4096;
/// The version of the compilers that made the binaries in the repository.
const VERSION: &str = "12.2";

/// `cargo xtask firmware`: compiles everything. With `check`, only compares the binaries in the repository with their
/// source.
pub(crate) fn firmware(check: bool) -> Result<()> {
    if !check {
        return build(&root());
    }
    let folder = root().join("target/firmware");
    build(&folder)?;
    for file in files() {
        let [kept, built] = [root().join(&file), folder.join(&file)]
            .map(|path| fs::read(&path).with_context(|| format!("cannot read {}", path.display())));
        let what = "is not what its source gives; `cargo xtask firmware` compiles it";
        ensure!(kept? == built?, "{} {what}", file.display());
    }
    Ok(())
}

/// Why the firmware cannot be checked here: the comparison is byte by byte, so it needs the same compilers.
pub(crate) fn absence() -> Option<String> {
    TARGETS.iter().find_map(|target| {
        let output = Command::new(target.compiler).arg("-dumpfullversion").output();
        let Ok(output) = output else {
            return Some(format!("no {}; --install installs it", target.compiler));
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let other =
            format!("{} {version}, not {VERSION}, which made the firmware", target.compiler);
        (!version.starts_with(VERSION)).then_some(other)
    })
}

/// A file to compile.
struct Piece {
    output: PathBuf,
    source: Source,
    flags: Vec<String>,
}

/// The source of a program.
enum Source {
    File(&'static str),
    /// The stencil of this name in a Rust file.
    Stencil(&'static str, &'static str),
}

impl Source {
    /// The C file. That of a stencil is written into `folder`.
    fn file(&self, folder: &Path) -> Result<PathBuf> {
        match self {
            Self::File(path) => Ok(root().join(path)),
            Self::Stencil(path, name) => {
                let stencil = stencils::named(&root().join(path), name)?;
                let file = folder.join(format!("{name}.c"));
                fs::create_dir_all(folder)?;
                fs::write(&file, stencil.embedded_source())?;
                Ok(file)
            }
        }
    }
}

const FIRMWARE: &str = "crates/backend-embedded/firmware";
const DEMO: &str = "crates/runtime/examples/terrain";

/// The files to compile for a processor. Only QEMU machines have a monitor and run examples.
fn pieces(target: &Target) -> Vec<Piece> {
    let name = target.name;
    let piece = |output: String, source, flags: &[&[&str]], more: &[String]| {
        let flags = flags.iter().copied().flatten().map(|flag| (*flag).to_owned());
        Piece { output: output.into(), source, flags: flags.chain(more.iter().cloned()).collect() }
    };
    let built = |what: &str| format!("{FIRMWARE}/built/{what}-{name}.elf");
    let script = |folder: &str| {
        let path = root().join(FIRMWARE).join(folder).join(format!("{name}.ld"));
        ["-T".to_owned(), path.display().to_string()]
    };
    let include = [format!("-I{}", root().join(FIRMWARE).join("include").display())];
    let mut pieces = vec![
        piece(
            built("stub"),
            Source::File(target.monitor),
            &[ANYWHERE, &["-DDEBUGGER", "-Wl,-e,start"]],
            &[],
        ),
        piece(
            built("calls"),
            Source::File("crates/backend-embedded/firmware/programs/calls.c"),
            &[C, FIXED],
            &script("programs"),
        ),
    ];
    if name != "cortex-m3" {
        let kernels = Source::File("crates/backend-embedded/firmware/programs/kernels.c");
        let demo = format!("{DEMO}/smooth-{name}.elf");
        let model = Source::Stencil("crates/runtime/examples/terrain/model.rs", "smooth");
        let saxpy = Source::File("crates/runtime/examples/kernels/saxpy.c");
        let brought = format!("crates/runtime/examples/kernels/saxpy-{name}.elf");
        // The headers use GNU C.
        let exact = [Dialect::C.flags(), &["-std=gnu99"]].concat();
        pieces.extend([
            piece(
                built("monitor"),
                Source::File(target.monitor),
                &[FIXED, &["-Wl,--strip-all"]],
                &script("monitor"),
            ),
            piece(built("kernels"), kernels, &[C, ANYWHERE], &include),
            piece(demo, model, &[C, &exact, ANYWHERE], &include),
            piece(brought, saxpy, &[C, ANYWHERE], &include),
        ]);
    }
    pieces
}

fn files() -> impl Iterator<Item = PathBuf> {
    TARGETS.iter().flat_map(|target| pieces(target).into_iter().map(|piece| piece.output))
}

/// Compiles everything into its place below `folder`.
fn build(folder: &Path) -> Result<()> {
    for target in &TARGETS {
        for Piece { output, source, flags } in pieces(target) {
            let output = folder.join(output);
            if let Some(parent) = output.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut compiler = Command::new(target.compiler);
            compiler.args(target.flags).args(COMMON).args(flags).arg("-o").arg(&output);
            let source = source.file(&root().join("target/firmware/source"))?;
            must(compiler.arg(source).arg("-lgcc"))?;
            // Linkers mark their output as executable.
            let bytes = fs::read(&output)?;
            fs::remove_file(&output)?;
            fs::write(&output, bytes)?;
        }
    }
    for target in ["riscv64", "cortex-m7"] {
        let monitor = folder.join(FIRMWARE).join(format!("built/monitor-{target}.elf"));
        let bytes = fs::metadata(&monitor)?.len();
        ensure!(bytes <= MONITOR_BYTES, "{} has {bytes} bytes", monitor.display());
    }
    Ok(())
}
