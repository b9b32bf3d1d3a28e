//! Programs of the guide that are examples, too: they print what the guide shows, on any number of ranks.
#![cfg(all(feature = "sim", feature = "stencil"))]
#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;
#[cfg(feature = "mpi")]
#[path = "../../halo-mpi/tests/launcher/mod.rs"]
mod launcher;

use std::fs;
use std::process::{Command, Output};

/// The first block of a page of the guide in a language.
fn block(page: &str, language: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide");
    let text = fs::read_to_string(format!("{folder}/{page}.md")).unwrap();
    let (_, rest) = text.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn assert_is_shown(page: &str, example: &str) {
    let file = format!("{}/examples/{example}.rs", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(fs::read_to_string(&file).unwrap(), block(page, "rust"), "{page}.md and {file}");
}

fn heat() -> Command {
    let mut command = Command::new(common::example("heat"));
    command.env_remove("RUNTIME_DEVICE");
    command
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn threads_print_the_heat_that_the_guide_shows() {
    assert_is_shown("ranks", "heat");
    for ranks in ["", "1", "4", "6"] {
        let arguments = (!ranks.is_empty()).then_some(ranks);
        let output = heat().args(arguments).output().unwrap();
        assert_eq!(printed(&output), block("ranks", "text"), "{ranks} ranks");
    }
}

#[test]
fn the_report_is_that_of_the_guide() {
    /// Without the frame of the table.
    fn words(text: &str) -> Vec<&str> {
        let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
        text.split_whitespace().filter(is_word).collect()
    }
    assert_is_shown("arrays", "transfers");
    let mut command = Command::new(common::example("transfers"));
    let output = printed(&command.env_remove("RUNTIME_DEVICE").output().unwrap());
    let output = output.replace("crates/runtime/examples/transfers.rs", "src/main.rs");
    assert_eq!(words(&output), words(&block("arrays", "text")));
}

#[cfg(feature = "mpi")]
mod mpi {
    use super::*;

    #[test]
    fn processes_print_the_heat_that_the_guide_shows() {
        for ranks in [1, 4, 6] {
            let mut job = launcher::mpiexec(ranks);
            job.arg(heat().get_program()).env_remove("RUNTIME_DEVICE");
            let Some(output) = launcher::output(&mut job, "heat") else { return };
            assert_eq!(printed(&output), block("ranks", "text"), "{ranks} processes");
        }
    }
}
