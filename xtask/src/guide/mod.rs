//! `cargo xtask guide`: the book that `docs/SUMMARY.md` lists.

mod look;
mod markdown;
mod pages;
mod program;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Subcommand;

use crate::cargo::{must, root};
use crate::install;
use crate::test::totals::Totals;

/// What to do with the guide, instead of opening it.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Builds the guide and checks its links. If there is a Chromium, also looks at each page: errors, pictures, search,
    /// and whether it fits into 400 pixels.
    Check,
    /// Runs the program with which a chapter begins, in a package of its own.
    Run {
        /// Runs it in an MPI job with this number of ranks, started by mpiexec.
        #[arg(long, value_name = "RANKS", value_parser = clap::value_parser!(u32).range(1..))]
        mpi: Option<u32>,
        /// The page, such as `memory` or `from/cuda`.
        page: String,
        /// Arguments of the program.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// `cargo xtask guide`.
pub(crate) fn guide(action: Option<Action>) -> Result<()> {
    match action {
        Some(Action::Run { mpi, page, arguments }) => return program::run(mpi, &page, &arguments),
        None | Some(Action::Check) if install::mdbook().is_none() => install::install_mdbook()?,
        None | Some(Action::Check) => {}
    }
    build()?;
    let first = book().join("index.html");
    if action.is_some() {
        return match look::absence() {
            None => look::look(&book()),
            Some(why) => {
                println!("nothing has looked at the pages: {why}");
                Ok(())
            }
        };
    }
    println!("{}", first.display());
    let open = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    // Without a screen, the path above is the result.
    drop(Command::new(open).arg(&first).stdout(Stdio::null()).stderr(Stdio::null()).spawn());
    Ok(())
}

/// The steps of `cargo xtask test`.
pub(crate) fn test(totals: &mut Totals) {
    if install::mdbook().is_none() {
        return totals.skip("guide", "no mdbook; --install installs it");
    }
    totals.step("guide", build);
    match look::absence() {
        None => totals.step("guide in a browser", || look::look(&book())),
        Some(why) => totals.skip("guide in a browser", why),
    }
}

/// The folder of the built book.
fn book() -> PathBuf {
    root().join("target/guide/book")
}

/// Builds the book, and checks and corrects its links.
fn build() -> Result<()> {
    let program = install::mdbook().unwrap_or_else(|| "mdbook".into());
    must(Command::new(program).arg("build").arg(root().join("docs/guide")))?;
    let links = pages::connect(&book())?;
    println!("{links} links of the guide lead somewhere");
    Ok(())
}
