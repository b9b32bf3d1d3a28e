//! Compiled stencils: by a C compiler, and by rustc, from what the translator makes and from plain Rust.

use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libloading::Library;
use stencil_translator::{Dialect, LEVELS, Stencil, Type};

use crate::generate::Program;

/// A library with a function for each program of a batch.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    library: Library,
}

/// What a function of [`c`] and [`rows`] takes: the struct of arguments, the fields, and the number of rows.
pub(crate) type Whole = unsafe extern "C" fn(*const u8, *const *mut u8, usize);

/// What a function of [`plain`] takes: the place, the extents and the ends of a column, where it reads and where it sets the elements of a
/// point, strides, and scalars as bits.
pub(crate) type Single =
    unsafe extern "C" fn(*const [[i64; 3]; 3], *const [*mut u8; 2], *const [i64; 3], *const u64);

impl Engine {
    pub(crate) fn function<F: Copy>(&self, program: &Program) -> F {
        let name = format!("run_{}", program.name);
        // SAFETY: the library was made here, and its functions have the type that belongs to it.
        unsafe { *self.library.get::<F>(name.as_bytes()).unwrap() }
    }
}

/// A library that is being compiled.
pub(crate) struct Build {
    name: &'static str,
    library: PathBuf,
    compiler: Child,
}

impl Build {
    fn start(
        name: &'static str,
        folder: &Path,
        extension: &str,
        text: &str,
        command: &mut Command,
    ) -> Self {
        let (source, library) =
            (folder.join(name).with_extension(extension), folder.join(format!("lib{name}.so")));
        fs::write(&source, text).unwrap();
        command.arg(&source).arg("-o").arg(&library).stderr(Stdio::piped());
        Self { name, library, compiler: command.spawn().unwrap() }
    }

    pub(crate) fn finish(self) -> Engine {
        let output = self.compiler.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:\n{log}", self.name);
        // SAFETY: loading it runs nothing.
        Engine { name: self.name, library: unsafe { Library::new(&self.library).unwrap() } }
    }
}

/// Whether there is a C compiler.
pub(crate) fn has_gcc() -> bool {
    Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success())
}

pub(crate) fn c(folder: &Path, batch: &[(Program, Stencil)]) -> Build {
    let mut text = String::new();
    for (program, stencil) in batch {
        text += &stencil.source(Dialect::C);
        let name = &program.name;
        let fields: Vec<_> = (0..program.fields.len()).map(|field| format!("p[{field}]")).collect();
        let _ = write!(
            text,
            "void run_{name}(const void *args, void *const *p, long rows)\n{{\n    {}({}, args);\n}}\n\n",
            stencil.kernel_name(),
            fields.join(", ")
        );
    }
    let mut gcc = Command::new("gcc");
    gcc.args(Dialect::C.flags()).args(["-O2", "-shared", "-fPIC", "-w"]);
    Build::start("c", folder, "c", &text, gcc.arg("-lm"))
}

fn rustc() -> Command {
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-Ccodegen-units=2"]);
    rustc
}

/// Each program is compiled for one level of this processor, which depends on its name, and so on its seed alone.
pub(crate) fn rows(folder: &Path, batch: &[(Program, Stencil)]) -> Build {
    let mut text = String::from("#![deny(warnings)]\n#![allow(unused_imports)]\n");
    let levels = LEVELS.iter().filter(|level| level.is_present());
    let levels = levels.map(|level| format!("#[target_feature(enable = \"{}\")]", level.features));
    let levels: Vec<String> = iter::once(String::new()).chain(levels).collect();
    for (program, stencil) in batch {
        let number: usize = program.name.bytes().map(usize::from).sum();
        let level = &levels[number % levels.len()];
        let name = &program.name;
        let fields: Vec<_> =
            (0..program.fields.len()).map(|field| format!("(*p.add({field})).cast()")).collect();
        let _ = write!(
            text,
            "mod {name} {{ {} }}
#[unsafe(no_mangle)]
{level}
extern \"C\" fn run_{name}(args: *const u8, p: *const *mut u8, rows: usize) {{
    unsafe {{ {name}::{name}_rows(&*args.cast(), {}, 0..rows) }}
}}\n",
            stencil.to_rust(),
            fields.join(", "),
        );
    }
    Build::start("rows", folder, "rs", &text, rustc().arg("-Copt-level=2"))
}

pub(crate) fn plain(folder: &Path, batch: &[(Program, Stencil)]) -> Build {
    let mut text = String::from(include_str!("plain.rs"));
    for (program, _) in batch {
        let name = &program.name;
        let mut arguments: Vec<_> = (0..program.fields.len())
            .map(|field| format!("View::new(*p.add({field}), strides.add({field}))"))
            .collect();
        let values = program.reduction.and_then(|_| arguments.pop());
        arguments.extend(program.scalars.iter().enumerate().map(|(scalar, ty)| match ty {
            Type::F32 => format!("f32::from_bits(*s.add({scalar}) as u32)"),
            Type::F64 => format!("f64::from_bits(*s.add({scalar}))"),
            Type::Bool => format!("*s.add({scalar}) != 0"),
            ty => format!("*s.add({scalar}) as {ty}"),
        }));
        let call = format!("{name}(&*ctx, {})", arguments.join(", "));
        let call = match (values, program.fields.last()) {
            (Some(values), Some((_, ty))) => {
                format!("let values: Out<{ty}, {}> = {values}; values.set({call})", program.rank)
            }
            _ => call,
        };
        let _ = write!(
            text,
            "{}
#[unsafe(no_mangle)]
unsafe extern \"C\" fn run_{name}(ctx: *const Ctx, p: *const [*mut u8; 2], strides: *const [i64; 3], s: *const u64) {{
    unsafe {{ {call} }}
}}\n",
            program.rust(),
        );
    }
    Build::start(
        "plain",
        folder,
        "rs",
        &text,
        rustc().args(["-Copt-level=0", "-Coverflow-checks=off"]),
    )
}
