//! The terrain example from its users' point of view: results, and messages when something is wrong.
#![cfg(all(feature = "npy", feature = "picture", feature = "host"))]
#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;
#[cfg(feature = "mpi")]
#[path = "../../halo-mpi/tests/launcher/mod.rs"]
mod launcher;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ndarray::{Array1, Array2, Array3, ArrayD, ShapeBuilder, s};
use ndarray_npy::{WritableElement, WriteNpyExt, read_npy, write_npy};
use tempfile::TempDir;

/// A folder for one test, and runs of the example in it.
struct Demo {
    folder: TempDir,
}

impl Demo {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn output(&self) -> PathBuf {
        self.path("out")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(common::example("terrain"));
        command
            .env_remove("RUNTIME_DEVICE")
            .arg("--quiet")
            .arg("--output")
            .arg(self.output())
            .args(args);
        command
    }

    /// Runs the example, which must succeed. Returns the smoothed terrain.
    fn smoothed(&self, args: &[&str]) -> Array2<f64> {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        let mut files: Vec<_> =
            fs::read_dir(self.output()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, ["progress.png", "smoothed.npy", "terrain.png"]);
        read_npy(self.output().join("smoothed.npy")).unwrap()
    }

    /// Runs the example, which must succeed. Returns the closing table.
    fn report(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs the example, which must fail and leave no files. Returns its single line of output.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(
            !self.output().is_dir(),
            "{:?}",
            fs::read_dir(self.output()).unwrap().collect::<Vec<_>>()
        );
        complaint(&output)
    }

    /// Writes an input file.
    fn input<T: WritableElement>(&self, array: &ArrayD<T>) -> String {
        let path = self.path("input.npy");
        write_npy(&path, array).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn input_bytes(&self, bytes: &[u8]) -> String {
        let path = self.path("input.npy");
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn complaint(output: &Output) -> String {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(line.starts_with("terrain: "), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Hills of 24 × 20 cells without any symmetry.
fn hills() -> Array2<f64> {
    Array2::from_shape_fn((24, 20), |(row, column)| {
        let (y, x) = (row as f64, column as f64);
        300.0
            + 40.0 * (0.7 * x).sin() * (0.4 * y).cos()
            + 3.0 * x
            + ((7 * row + 13 * column) % 11) as f64
    })
}

/// A reference computation, one step after the other and cell by cell.
fn by_hand(mut z: Array2<f64>, steps: usize) -> Array2<f64> {
    let (x, y) = (1.0 / (74.4 * 74.4), 1.0 / (92.7 * 92.7));
    let (ax, ay) = (0.125 * x / (x + y), 0.125 * y / (x + y));
    for _ in 0..steps {
        let old = z.clone();
        let (rows, columns) = z.dim();
        for ((row, column), new) in z.indexed_iter_mut() {
            let mut edge = |a: f64, other: Option<(usize, usize)>| {
                if let Some(other) = other.filter(|(row, column)| *row < rows && *column < columns)
                {
                    *new += a * (old[other] - old[(row, column)]);
                }
            };
            edge(ax, column.checked_sub(1).map(|column| (row, column)));
            edge(ax, Some((row, column + 1)));
            edge(ay, row.checked_sub(1).map(|row| (row, column)));
            edge(ay, Some((row + 1, column)));
        }
    }
    z
}

fn assert_close(a: &Array2<f64>, b: &Array2<f64>) {
    assert_eq!(a.dim(), b.dim());
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-10, "{apart:e}");
}

#[test]
fn the_built_in_terrain_is_smoothed_and_drawn() {
    let demo = Demo::new();
    let before: Array2<i16> = read_npy(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/terrain/data/jacksboro_fault_dem.npy"
    ))
    .unwrap();
    let before = before.mapv(f64::from);
    let after = demo.smoothed(&["--steps", "3"]);
    assert_close(&after, &by_hand(before.clone(), 3));
    assert!((after.sum() - before.sum()).abs() < 1e-12 * before.sum());

    let (width, height) = picture(demo.output().join("terrain.png"));
    assert!(width > 3 * 400 && height > 400, "{width} x {height}");
    let (width, height) = picture(demo.output().join("progress.png"));
    assert!(width.max(height) == 320 && width.min(height) > 250, "{width} x {height}");
}

/// The width and height of a picture, which must be complete and not all of one colour.
fn picture(path: PathBuf) -> (u32, u32) {
    let png = png::Decoder::new(std::io::BufReader::new(File::open(path).unwrap()));
    let mut reader = png.read_info().unwrap();
    let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut rgb).unwrap();
    assert!(rgb.chunks(3).any(|pixel| pixel != &rgb[..3]));
    (info.width, info.height)
}

#[test]
fn a_run_can_be_watched() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    let path = demo.output().join("progress.png");
    let args = ["--steps", "1000000000000", "--picture-every", "1000", "--input", &input];
    let mut run = demo.command(&args).spawn().unwrap();
    let began = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 3 && began.elapsed() < Duration::from_secs(60) {
        // The file may not exist yet, but must never be incomplete.
        if path.exists() {
            picture(path.clone());
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            if seen.last() != Some(&written) {
                seen.push(written);
            }
        }
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(seen.len(), 3, "the picture stays as it was");
}

#[test]
fn no_picture_is_drawn_where_none_is_asked_for() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    for args in [["--picture-every", "0"], ["--picture-every", "7"], ["--picture-every", "8"]] {
        demo.report(&[&args[..], &["--steps", "7", "--input", &input]].concat());
        assert!(!demo.output().join("progress.png").exists(), "{args:?}");
    }
}

#[test]
fn the_report_lists_transfers_and_checks() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    let report = demo.report(&["--steps", "7", "--input", &input]);
    for part in [
        "host:0",
        "7 steps",
        "┆ 6 in ",
        "0 bytes in 0 transfers",
        "cells per second",
        "mass kept",
        "equals reference",
    ] {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }
}

#[test]
fn a_scaled_run_is_the_mirrored_tile() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    let large = demo.smoothed(&["--steps", "30", "--scale", "3", "--input", &input]);
    let small = by_hand(hills(), 30);
    assert_eq!(large.dim(), (72, 60));
    assert_close(&large.slice(s![..24, ..20]).to_owned(), &small);
    assert_close(&large.slice(s![..24, 20..40;-1]).to_owned(), &small);
    assert_close(&large.slice(s![24..48;-1, 20..40;-1]).to_owned(), &small);
    assert_close(&large.slice(s![48.., 40..]).to_owned(), &small);
}

#[test]
fn every_readable_type_and_order_is_read() {
    let whole = Array2::from_shape_fn((11, 13), |(row, column)| {
        i16::try_from((row * row * 31 + column * 17) % 900).unwrap() - 100
    });
    let expected = by_hand(whole.mapv(f64::from), 4);
    let run = |write: &dyn Fn(&Demo) -> String| {
        let demo = Demo::new();
        let input = write(&demo);
        assert_close(&demo.smoothed(&["--steps", "4", "--input", &input]), &expected);
    };
    run(&|demo| demo.input(&whole.clone().into_dyn()));
    run(&|demo| demo.input(&whole.mapv(i32::from).into_dyn()));
    run(&|demo| demo.input(&whole.mapv(f32::from).into_dyn()));
    run(&|demo| {
        let mut columns_first = Array2::zeros(whole.dim().f());
        columns_first.assign(&whole);
        demo.input(&columns_first.into_dyn())
    });
    run(&|demo| {
        let header =
            format!("{{'descr': '>i2', 'fortran_order': False, 'shape': {:?}, }}\n", whole.dim());
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        npy.extend(header.as_bytes());
        npy.extend(whole.iter().flat_map(|z| z.to_be_bytes()));
        demo.input_bytes(&npy)
    });
}

#[test]
fn flat_and_tiny_terrain_is_smoothed() {
    let demo = Demo::new();
    let flat = Array2::<f32>::zeros((3, 3));
    let input = demo.input(&flat.into_dyn());
    assert_eq!(demo.smoothed(&["--steps", "5", "--input", &input]), Array2::<f64>::zeros((3, 3)));
}

#[test]
fn results_are_replaced_and_neighbours_are_kept() {
    let demo = Demo::new();
    fs::create_dir(demo.output()).unwrap();
    fs::write(demo.output().join("smoothed.npy"), "old").unwrap();
    fs::write(demo.output().join("keep"), "mine").unwrap();
    let input = demo.input(&hills().into_dyn());
    let output = demo.command(&["--steps", "1", "--input", &input]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Array2<f64> = read_npy(demo.output().join("smoothed.npy")).unwrap();
    assert_close(&result, &by_hand(hills(), 1));
    assert_eq!(fs::read(demo.output().join("keep")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(demo.output()).unwrap().count(), 3);
}

#[test]
fn unknown_devices_are_named_with_those_there_are() {
    let demo = Demo::new();
    let line = demo.refused(&["--device", "abacus:3"]);
    assert!(line.contains("abacus") && line.contains("host"), "{line}");
    assert!(demo.refused(&["--device", "host:first"]).contains("host:first"));
    assert!(demo.refused(&["--device", "host?threads"]).contains("threads"));

    let output = demo.command(&[]).env("RUNTIME_DEVICE", "sundial").output().unwrap();
    assert!(complaint(&output).contains("sundial"));
}

#[test]
fn usage_errors_name_the_value() {
    let demo = Demo::new();
    for args in [
        ["--steps", "0"],
        ["--steps", "many"],
        ["--picture-every", "-1"],
        ["--scale", "0"],
        ["--scale", "4294967296"],
        ["--dx", "-74"],
        ["--dy", "NaN"],
        ["--diffusivity", "0"],
        ["--ranks", "0"],
        ["--ranks", "1025"],
    ] {
        let output = demo.command(&[&args.join("=")]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let line = text(&output.stderr);
        assert!(args.iter().all(|word| line.contains(word)), "{line}");
        assert!(!demo.output().exists());
    }
}

#[test]
fn files_that_are_no_terrain_are_refused() {
    let demo = Demo::new();
    let refused = |input: String, parts: &[&str]| {
        let line = demo.refused(&["--input", &input]);
        assert!(line.contains(&input) && parts.iter().all(|part| line.contains(part)), "{line}");
    };
    refused(demo.path("nowhere.npy").to_str().unwrap().to_owned(), &[]);
    refused(demo.folder.path().to_str().unwrap().to_owned(), &[]);
    refused(demo.input_bytes(b""), &[]);
    refused(demo.input_bytes(b"elevation,36.6,-84.2\n"), &["npy"]);
    refused(demo.input(&Array1::<f64>::zeros(9).into_dyn()), &["[9]"]);
    refused(demo.input(&Array3::<f64>::zeros((4, 5, 6)).into_dyn()), &["[4, 5, 6]"]);
    refused(demo.input(&Array2::<f64>::zeros((0, 7)).into_dyn()), &["[0, 7]"]);
    refused(demo.input(&Array2::<f64>::zeros((9, 2)).into_dyn()), &["[9, 2]"]);
    refused(demo.input(&Array2::<u64>::zeros((4, 4)).into_dyn()), &["<u8", "i2"]);

    let mut npy = Vec::new();
    hills().write_npy(&mut npy).unwrap();
    refused(demo.input_bytes(&npy[..npy.len() - 1]), &["3839 bytes", "3840"]);
    refused(demo.input_bytes(&npy[..100]), &[]);
    npy.push(0);
    refused(demo.input_bytes(&npy), &["3841 bytes", "3840"]);

    // Headers that claim more data than the file contains, and more than is possible.
    for shape in ["(100000000000, 3)", "(9223372036854775807, 9223372036854775807)"] {
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        npy.extend(header.as_bytes());
        refused(demo.input_bytes(&npy), &["0 bytes"]);
    }
}

#[test]
fn the_first_infinite_height_is_named() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let demo = Demo::new();
        let mut heights = hills();
        heights[(5, 11)] = value;
        heights[(17, 2)] = value;
        let line = demo.refused(&["--input", &demo.input(&heights.into_dyn())]);
        assert!(line.contains(&format!("{value} in row 5, column 11")), "{line}");
    }
}

#[test]
fn terrain_that_does_not_fit_is_refused() {
    let demo = Demo::new();
    for scale in ["20000", "4294967295"] {
        let line = demo.refused(&["--scale", scale]);
        assert!(line.contains(scale), "{line}");
    }
}

#[test]
fn an_output_that_is_no_folder_is_refused() {
    let demo = Demo::new();
    fs::write(demo.output(), "a file").unwrap();
    assert!(demo.refused(&["--steps", "1"]).contains("out"));
    assert_eq!(fs::read(demo.output()).unwrap(), b"a file");
}

#[test]
fn when_one_file_cannot_be_written_neither_is() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    fs::create_dir_all(demo.output().join("terrain.png")).unwrap();
    let output = demo.command(&["--steps", "1", "--input", &input]).output().unwrap();
    assert!(complaint(&output).contains("terrain.png"));
    assert_eq!(fs::read_dir(demo.output()).unwrap().count(), 1);
}

/// All files that a run writes.
fn files(demo: &Demo) -> Vec<Vec<u8>> {
    let read = |name| fs::read(demo.output().join(name)).unwrap();
    ["progress.png", "smoothed.npy", "terrain.png"].map(read).into()
}

/// Runs with 1 to 6 ranks on a device write identical files, and so do runs with as many ranks as cells.
fn any_number_of_ranks_gives_the_same(device: &str) {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    // Blocks of 1 to 24 rows and columns, of different sizes.
    let tiny = demo.path("tiny.npy");
    write_npy(&tiny, &hills().slice(s![..3, ..4]).to_owned()).unwrap();
    let tiny = tiny.to_str().unwrap();
    for (input, scale, ranks) in [
        (&*input, "1", &["2", "3", "4", "5", "6", "7"][..]),
        (&*input, "2", &["4", "6"]),
        (tiny, "1", &["2", "3", "4", "6", "12"]),
    ] {
        let args = ["--device", device, "--steps", "25", "--input", input, "--scale", scale];
        demo.smoothed(&args);
        let expected = files(&demo);
        for ranks in ranks {
            demo.smoothed(&[&args[..], &["--ranks", ranks]].concat());
            assert!(files(&demo) == expected, "{ranks} ranks at scale {scale}");
        }
    }
}

#[test]
fn any_number_of_ranks_gives_the_same_on_the_host() {
    any_number_of_ranks_gives_the_same("host:0?threads=1");
}

#[test]
fn more_ranks_than_blocks_are_refused() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    let line = demo.refused(&["--input", &input, "--ranks", "29"]);
    assert!(line.contains("29 ranks") && line.contains("[24, 20] cells"), "{line}");
}

#[test]
fn the_report_lists_the_messages_of_ranks() {
    let demo = Demo::new();
    let input = demo.input(&hills().into_dyn());
    let report = demo.report(&["--steps", "7", "--input", &input, "--ranks", "6"]);
    // Of 3 x 2 blocks, 7 pairs are neighbours. Along the seams there are 2 x 20 and 24 cells. A message ends with 8
    // bytes of overhead.
    let bytes = 7 * 2 * 8 * (2 * 20 + 24 + 7);
    for part in
        ["6, threads of this process, in 3 x 2 blocks", &format!("{bytes} bytes in 98 messages")]
    {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }
}

#[cfg(feature = "sim")]
mod simulated {
    use super::*;

    #[test]
    fn any_number_of_ranks_gives_the_same_on_a_simulated_device() {
        any_number_of_ranks_gives_the_same("sim:0?seed=5");
    }

    #[test]
    fn ranks_take_the_devices_of_a_backend_in_turn() {
        any_number_of_ranks_gives_the_same("sim?seed=5");
    }

    #[test]
    fn each_rank_moves_its_own_cells_once() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        let report = demo.report(&["--device=sim:0", "--input", &input, "--ranks=6", "--steps=10"]);
        // Up once, and down for 9 pictures and the result.
        assert!(report.contains("42240 bytes in 66 transfers: the fewest"), "{report}");
        assert!(report.contains("transfers of rank 0"), "{report}");
    }

    #[test]
    fn a_rank_that_fails_ends_the_run() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        for (fault, part) in
            [("fail-launch=50", "SIM_LAUNCH_FAILED"), ("fail-allocation=3", "SIM_OUT_OF_MEMORY")]
        {
            for device in ["sim:0", "sim"] {
                let device = format!("{device}?{fault}");
                let line = demo.refused(&[
                    "--input",
                    &input,
                    "--steps=200",
                    "--ranks=4",
                    "--device",
                    &device,
                ]);
                assert!(line.contains("sim:") && line.contains(part), "{line}");
            }
        }
    }

    #[test]
    fn host_and_simulated_device_agree_to_the_last_bit() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        let host = demo.smoothed(&["--steps", "25", "--input", &input]);
        for device in ["sim:0", "sim:1?seed=7"] {
            assert_eq!(
                demo.smoothed(&["--steps", "25", "--input", &input, "--device", device]),
                host
            );
        }
    }

    #[test]
    fn a_field_is_moved_to_the_device_once_and_back_for_every_picture_and_the_result() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        // After odd and even numbers of steps, the heights are in different grids.
        for (steps, every, pictures) in [(10, 3, 3), (9, 3, 2), (12, 2, 5), (4, 1, 3), (10, 0, 0)] {
            let report = demo.report(&[
                "--device=sim:0?seed=3",
                &format!("--steps={steps}"),
                &format!("--picture-every={every}"),
                &format!("--input={input}"),
            ]);
            // From, to, transfers, bytes, wanted by, last written by.
            let rows: Vec<Vec<&str>> = report
                .lines()
                .map(|line| line.split(['│', '┆']).map(str::trim).collect())
                .collect();
            let between = |from: &str, to: &str| {
                let is = |row: &&Vec<&str>| row.len() == 8 && row[1] == from && row[2] == to;
                rows.iter().filter(is).map(|row| row[3..].to_vec()).collect::<Vec<_>>()
            };
            let up = between("host", "sim:0");
            assert!(up.len() == 1 && up[0][..2] == ["1", "3840"], "{report}");
            assert!(up[0][3].starts_with("write on host at ") && up[0][3].contains("model.rs:"));

            let down = between("sim:0", "host");
            let moved: Vec<_> =
                down.iter().map(|row| [row[0], row[1]].map(str::to_owned)).collect();
            let shown = (pictures > 0).then(|| [pictures, 3840 * pictures].map(|n| n.to_string()));
            let result = ["1", "3840"].map(str::to_owned);
            assert_eq!(moved, shown.into_iter().chain([result]).collect::<Vec<_>>(), "{report}");
            for row in down {
                assert!(row[2].starts_with("read on host at ") && row[2].contains("model.rs:"));
                assert!(row[3].starts_with("write on sim:0 at ") && row[3].contains("model.rs:"));
            }
        }
    }

    #[test]
    fn a_device_that_fails_half_way_leaves_nothing_behind() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        for (fault, part) in [
            ("fail-launch=50", "SIM_LAUNCH_FAILED"),
            ("fail-launch=50:late", "SIM_LAUNCH_FAILED"),
            ("fail-copy=1", "copy 1"),
            ("fail-copy=2", "copy 2"),
            ("fail-copy=2:late", "copy 2"),
            ("fail-copy=5", "copy 5"),
            ("fail-allocation=2", "SIM_OUT_OF_MEMORY"),
            ("lose=60", "SIM_DEVICE_LOST"),
        ] {
            let device = format!("sim:0?{fault}");
            let line = demo.refused(&["--input", &input, "--steps", "200", "--device", &device]);
            assert!(line.contains("sim:0") && line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_failure_ends_a_long_run_early() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        let years = "1000000000000";
        let line = demo.refused(&[
            "--input",
            &input,
            "--steps",
            years,
            "--device",
            "sim:0?fail-launch=50:late",
        ]);
        assert!(line.contains("SIM_LAUNCH_FAILED"), "{line}");
    }

    #[test]
    fn a_device_with_too_little_memory_is_refused() {
        let line = Demo::new().refused(&["--device", "sim:0?memory=1MiB"]);
        assert!(line.contains("scale 1: ") && line.contains("SIM_OUT_OF_MEMORY"), "{line}");
    }
}

#[cfg(feature = "opencl")]
mod opencl {
    use runtime::ErrorKind;

    use super::*;

    #[test]
    fn host_and_opencl_device_agree_to_the_last_bit() {
        match runtime::registry().open("opencl:0") {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return eprintln!("skipped: {error}");
            }
            device => drop(device.unwrap()),
        }
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        for size in [["--scale", "1"], ["--scale", "3"]] {
            let args = ["--steps", "25", "--input", &input, size[0], size[1]];
            let host = demo.smoothed(&args);
            assert_eq!(demo.smoothed(&[&args[..], &["--device", "opencl:0"]].concat()), host);
        }
        let args = ["--steps", "25", "--input", &input, "--ranks", "6"];
        let host = demo.smoothed(&args);
        assert_eq!(demo.smoothed(&[&args[..], &["--device", "opencl:0"]].concat()), host);
    }
}

/// Ranks that are processes of an MPI job.
#[cfg(feature = "mpi")]
mod mpi {
    use std::sync::{Mutex, PoisonError};

    use super::launcher::{mpiexec, output};
    use super::*;

    /// Jobs take turns, because one job has more ranks than there are cores.
    static TURN: Mutex<()> = Mutex::new(());

    /// Runs the demo with these options in a job of this many ranks. `None` if there is no MPI.
    fn job(demo: &Demo, ranks: usize, args: &[&str]) -> Option<Output> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = demo.command(args);
        let mut job = mpiexec(ranks);
        job.arg(alone.get_program()).args(alone.get_args()).env_remove("RUNTIME_DEVICE");
        output(&mut job, "terrain")
    }

    #[test]
    fn any_number_of_processes_gives_the_same() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        let args = ["--steps", "25", "--input", &input];
        demo.smoothed(&args);
        let expected = files(&demo);
        let devices = if cfg!(feature = "sim") { &["host", "sim"][..] } else { &["host"] };
        for device in devices {
            for ranks in 1..=6 {
                fs::remove_dir_all(demo.output()).unwrap();
                let args = [&args[..], &["--device", device]].concat();
                let Some(output) = job(&demo, ranks, &args) else { return };
                let said = text(&[&output.stdout[..], &output.stderr[..]].concat());
                assert!(output.status.success(), "{ranks} ranks: {said}");
                assert!(files(&demo) == expected, "{ranks} ranks on {device}: {said}");
                if ranks > 1 {
                    assert!(said.contains(&format!("{ranks}, processes of an MPI job")), "{said}");
                }
            }
        }
    }

    #[test]
    fn another_number_of_ranks_than_the_jobs_is_refused() {
        let demo = Demo::new();
        let Some(output) = job(&demo, 2, &["--ranks", "3", "--steps", "1"]) else { return };
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("3 ranks; the MPI job has 2"), "{said}");
    }
}

#[cfg(all(feature = "embedded", target_os = "linux"))]
mod embedded {
    use runtime::ErrorKind;

    use super::*;

    #[test]
    fn host_and_embedded_devices_agree_to_the_last_bit() {
        let demo = Demo::new();
        let input = demo.input(&hills().into_dyn());
        let args = ["--steps", "25", "--input", &input];
        let host = demo.smoothed(&args);
        for device in ["embedded:qemu-riscv64", "embedded:qemu-cortex-m7"] {
            match runtime::registry().open(device) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    eprintln!("skipped: {error}");
                    continue;
                }
                opened => drop(opened.unwrap()),
            }
            assert_eq!(demo.smoothed(&[&args[..], &["--device", device]].concat()), host);
        }
    }
}
