//! The program: the same output on any number of ranks, and messages when something is wrong.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(common::example("mesh"));
    command.env_remove("RUNTIME_DEVICE").args(args);
    command
}

/// What the example prints. It must succeed.
fn report(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The single line of an error.
fn complaint(args: &[&str]) -> String {
    let output = command(args).output().unwrap();
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(line.starts_with("mesh: ") && line.lines().count() == 1, "{line}");
    line
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines about the solution, which depend neither on ranks nor on the device.
fn solution(report: &str) -> Vec<&str> {
    let lines: Vec<_> =
        report.lines().filter(|line| !line.contains("ranks")).map(str::trim).collect();
    assert_eq!(lines.len(), 5, "{report}");
    lines
}

fn devices() -> &'static [&'static str] {
    if cfg!(feature = "sim") { &["host", "sim:0?seed=5", "sim"] } else { &["host"] }
}

#[test]
fn any_number_of_ranks_gives_the_same() {
    let one = report(&command(&[]).output().unwrap());
    assert!(one.contains("301 triangles, 188 nodes, 75 of them on the boundary"), "{one}");
    assert!(one.contains("0 bytes in 0 messages"), "{one}");
    for device in devices() {
        for ranks in ["1", "2", "4", "6"] {
            let args = ["--device", device, "--ranks", ranks];
            let several = report(&command(&args).output().unwrap());
            assert!(several.contains(&format!("ranks: {ranks}, threads of this")), "{several}");
            assert_eq!(solution(&several), solution(&one), "{ranks} ranks on {device}");
        }
    }
    // The checksum is one of the values.
    let more = report(&command(&["--steps", "51"]).output().unwrap());
    assert_ne!(solution(&more).last(), solution(&one).last());
}

#[test]
fn steps_make_the_residual_small() {
    let said = report(&command(&["--steps", "400", "--ranks", "2"]).output().unwrap());
    let number = |line: &str, end: &str| -> f64 {
        let line = said.lines().find(|words| words.starts_with(line)).unwrap();
        line.trim_end_matches(end).rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(number("residual", " after") < 1e-12, "{said}");
    // The error of the mesh, whose sides are about 0.25.
    assert!((1e-4..2e-2).contains(&number("difference", "")), "{said}");
}

#[test]
fn bad_input_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("input.msh");
    let input = path.to_str().unwrap();
    assert!(complaint(&["--input", input]).contains(input));
    for (bytes, part) in [
        (&b""[..], "line 0: the file ends, expected $MeshFormat"),
        (b"$MeshFormat\n2.2 0 8\n", "line 2: version 2.2"),
        (b"$MeshFormat\n4.1 1 8\n\x01\0\0\0\xff", "line 2: file type 1"),
    ] {
        fs::write(&path, bytes).unwrap();
        let line = complaint(&["--input", input, "--ranks", "2"]);
        assert!(line.contains(input) && line.contains(part), "{line}");
    }
    assert!(complaint(&["--device", "abacus:3"]).contains("abacus"));
}

/// Ranks that are processes of an MPI job.
#[cfg(feature = "mpi")]
mod mpi {
    use super::*;
    use crate::launcher::{mpiexec, output};

    #[test]
    fn any_number_of_processes_gives_the_same() {
        let one = report(&command(&[]).output().unwrap());
        for device in devices() {
            for ranks in [1, 2, 4, 6] {
                let alone = command(&["--device", device]);
                let mut job = mpiexec(ranks);
                job.arg(alone.get_program()).args(alone.get_args()).env_remove("RUNTIME_DEVICE");
                let Some(output) = output(&mut job, "mesh") else { return };
                let several = report(&output);
                assert_eq!(solution(&several), solution(&one), "{ranks} ranks on {device}");
                // A rank alone is an MPI job, too.
                let said = format!("ranks: {ranks}, processes of an MPI job");
                assert!(several.contains(&said), "{several}");
            }
        }
    }
}
