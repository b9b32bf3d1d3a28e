//! The rows of `rows.c`, compiled by gcc when the benchmark runs.

use std::process::Command;

use libloading::Library;

use crate::rows::Compute;

/// The options of gcc. Nothing is contracted, as in stencils. Without traps, it computes both sides of a condition.
#[rustfmt::skip]
const OPTIONS: [&str; 6] =
    ["-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math", "-shared", "-fPIC"];

pub(crate) struct Gcc(Library);

impl Gcc {
    /// Compiles the rows. `None` if there is no gcc.
    pub(crate) fn compile() -> Option<Self> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/stencil/rows.c");
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("librows.so");
        let status =
            Command::new("gcc").args(OPTIONS).arg(source).arg("-o").arg(&library).status().ok()?;
        assert!(status.success(), "gcc does not compile {source}");
        // SAFETY: loading it runs nothing.
        Some(Self(unsafe { Library::new(&library) }.expect("the library of gcc")))
    }

    /// The function with this name, for rows of `T`.
    ///
    /// # Safety
    ///
    /// It takes rows of `T`, and is not called after this library is dropped.
    pub(crate) unsafe fn row<T>(&self, name: &str) -> Compute<T> {
        // SAFETY: the functions there take a row.
        *unsafe { self.0.get::<Compute<T>>(name.as_bytes()) }.expect("a function of rows.c")
    }
}
