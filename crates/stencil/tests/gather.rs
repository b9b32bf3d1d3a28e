//! Fields on one rank: gathered, scattered, and in files.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;

use std::sync::Arc;
use std::time::Duration;

use halo::communicator::{Communicator, ThreadCommunicator};
use ndarray::{Array2, Array3, ArrayD};
use runtime_core::Device;
use stencil::{ErrorKind, Field, Grid, InOut, Location, Result, stencil};

#[stencil]
fn double(value: InOut<f64, 3>) {
    value.set(2.0 * value.at(0, 0, 0));
}

const N: [usize; 3] = [7, 9, 5];

fn number([i, j, k]: [usize; 3]) -> f64 {
    (100 * i + 10 * j + k) as f64
}

/// What number each point has, times `by`.
fn numbers(points: [usize; 3], by: f64) -> ArrayD<f64> {
    Array3::from_shape_fn(points, |(i, j, k)| by * number([i, j, k])).into_dyn()
}

fn grid(ranks: impl Communicator + 'static, device: &Device) -> Result<Grid<3>> {
    let timeout = Duration::from_secs(10);
    Grid::cartesian(N).ranks(Arc::new(ranks)).timeout(timeout).build(device)
}

fn ranks<R: Send>(
    count: usize,
    work: impl Fn(ThreadCommunicator) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    ThreadCommunicator::run(count, work).unwrap()
}

fn one_rank_gets_the_values_of_all(device: &Device) {
    for (count, location) in [
        (1, Location::Centre),
        (4, Location::Centre),
        (6, Location::Face(1)),
        (6, Location::Corner),
    ] {
        let gathered = ranks(count, |ranks| {
            let grid = grid(ranks, device)?;
            let mut field = grid.field("field").at(location).from_fn(number)?;
            double(&mut field).run(&device.default_stream())?;
            let points = field.points();
            let last = field.gather(count - 1)?;
            assert_eq!(last.is_some(), grid.rank() == count - 1);
            Ok((field.gather(0)?, last, points))
        });
        let gathered: Result<Vec<_>> = gathered.into_iter().collect();
        let gathered = gathered.unwrap();
        let expected = numbers(gathered[0].2, 2.0);
        assert_eq!(gathered[0].0, Some(expected.clone()));
        assert_eq!(gathered[count - 1].1, Some(expected));
    }
}

/// The own points of a rank.
fn own(field: &mut Field<f64, 3>) -> Result<bool> {
    let first = field.first();
    let guard = field.read_host()?;
    let mut all = guard.indexed_iter();
    Ok(all.all(|(at, value)| *value == number(std::array::from_fn(|axis| first[axis] + at[axis]))))
}

fn all_ranks_get_the_values_of_one(device: &Device) {
    for location in [Location::Centre, Location::Face(2)] {
        for right in ranks(6, |ranks| {
            let grid = grid(ranks, device)?;
            let mut field = grid.field("field").at(location).uninit()?;
            let points = field.points();
            field.scatter(2, || {
                assert_eq!(grid.rank(), 2);
                Ok(numbers(points, 1.0))
            })?;
            assert!(own(&mut field)?);
            let mut field = grid.field("field").at(location).uninit()?;
            field.set_from_array(&numbers(points, 1.0))?;
            own(&mut field)
        }) {
            assert!(right.unwrap());
        }
    }
}

on_all_devices!(one_rank_gets_the_values_of_all, all_ranks_get_the_values_of_one);

#[test]
fn values_beyond_one_message_arrive() {
    let device = devices::host();
    let cells = [3, 400_001];
    let value = |[i, j]: [usize; 2]| (i * cells[1] + j) as f64;
    let arrays = ranks(2, |ranks| {
        let grid = Grid::cartesian(cells).ranks(Arc::new(ranks)).build(&device)?;
        let mut field = grid.field("field").from_fn(value)?;
        let whole = field.gather(1)?;
        let mut copy = grid.field("copy").uninit()?;
        copy.scatter(1, || Ok(whole.unwrap()))?;
        copy.gather(0)
    });
    let whole = arrays.into_iter().next().unwrap().unwrap().unwrap();
    assert!(whole.indexed_iter().all(|(at, found)| *found == value([at[0], at[1]])));
}

#[test]
fn misuse_is_refused_on_all_ranks() {
    let device = devices::host();
    let refused =
        |part: &str, misuse: &(dyn Fn(&Grid<3>, &mut Field<f64, 3>) -> Result<()> + Sync)| {
            for (rank, ended) in ranks(3, |ranks| {
                let grid = grid(ranks, &device)?;
                let mut field = grid.field("field").from_fn(number)?;
                let error = misuse(&grid, &mut field);
                assert!(own(&mut field)?);
                // The next call is in step.
                field.gather(0)?;
                Ok((field.read_host().is_ok(), error))
            })
            .into_iter()
            .enumerate()
            {
                let (has_values, error) = ended.unwrap();
                let error = error.unwrap_err();
                assert!(
                    has_values && error.kind() == ErrorKind::InvalidArgument,
                    "{rank}: {error}"
                );
                assert!(error.to_string().contains(part), "{rank}: {error}");
            }
        };
    refused("rank 3; there are 3", &|_, field| field.gather(3).map(drop));
    refused("rank 3; there are 3", &|_, field| field.scatter(3, || Ok(numbers(N, 1.0))));
    refused("on rank 0", &|grid, field| field.gather(grid.rank().min(1)).map(drop));
    // Names that differ behind what a message has room for.
    refused("", &|grid, _| {
        let name = "long".repeat(50) + &grid.rank().to_string();
        grid.field(name).filled(1.0)?.gather(0).map(drop)
    });
    refused("[7, 9]", &|_, field| field.set_from_array(&Array2::zeros([7, 9])));
    refused("", &|_, field| field.scatter(1, || Ok(Array2::zeros([7, 9]))));
}

#[test]
fn a_rank_without_values_is_named() {
    let device = devices::host();
    let ended = ranks(2, |ranks| {
        let grid = grid(ranks, &device)?;
        let mut field = grid.field::<f64>("field").uninit()?;
        if grid.rank() == 0 {
            field.write_host()?.fill(1.0);
        }
        field.gather(0).map(drop)
    });
    let kinds: Vec<_> = ended.iter().map(|ended| ended.as_ref().unwrap_err().kind()).collect();
    assert_eq!(kinds, [ErrorKind::InvalidArgument, ErrorKind::Uninitialized]);
    assert!(ended[0].as_ref().unwrap_err().to_string().contains("rank 1 failed"), "{ended:?}");
}

#[cfg(feature = "npy")]
mod files {
    use std::fs;
    use std::io::Cursor;

    use ndarray_npy::WriteNpyExt;
    use stencil::npy;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn fields_are_written_and_read() {
        let device = devices::host();
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("field.npy");
        for ended in ranks(4, |ranks| {
            let grid = grid(ranks, &device)?;
            grid.field("field").from_fn(number)?.write_npy(&path)?;
            let mut field = grid.field("field").uninit()?;
            field.read_npy(&path)?;
            own(&mut field)
        }) {
            assert!(ended.unwrap());
        }
        let read: ArrayD<f64> = ndarray_npy::read_npy(&path).unwrap();
        assert_eq!(read, numbers(N, 1.0));
    }

    #[test]
    fn files_that_cannot_be_read_or_written_are_refused_on_all_ranks() {
        let device = devices::host();
        for ended in ranks(2, |ranks| {
            let mut field = grid(ranks, &device)?.field("field").from_fn(number)?;
            let none = "/nowhere/field.npy";
            Ok([field.write_npy(none), field.read_npy(none)].map(Result::unwrap_err))
        })
        .into_iter()
        .enumerate()
        .map(|(rank, ended)| (rank, ended.unwrap()))
        {
            let (rank, errors): (usize, [stencil::Error; 2]) = ended;
            for error in errors {
                let part = if rank == 0 { "/nowhere/field.npy" } else { "rank 0 failed" };
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }

    #[test]
    fn types_whose_values_fit_are_converted() {
        let mut file = Vec::new();
        Array2::from_elem((2, 3), -7_i16).write_npy(&mut file).unwrap();
        assert_eq!(
            npy::read::<f32>(Cursor::new(&file)).unwrap(),
            ArrayD::from_elem(vec![2, 3], -7.0)
        );
        assert_eq!(
            npy::read::<i64>(Cursor::new(&file)).unwrap(),
            ArrayD::from_elem(vec![2, 3], -7)
        );
        let error = npy::read::<u32>(Cursor::new(&file)).unwrap_err();
        assert!(error.to_string().contains("\"<i2\"; u4, u2, u1 can be read as u32"), "{error}");
    }

    #[test]
    fn damaged_files_are_refused_before_memory_is_allocated() {
        let mut file = Vec::new();
        Array2::<f64>::zeros((4, 5)).write_npy(&mut file).unwrap();
        let refused = |bytes: &[u8], part: &str| {
            let error = npy::read::<f64>(Cursor::new(bytes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(part), "{error}");
        };
        refused(b"", "npy");
        refused(b"elevation,36.6,-84.2\n", "npy");
        refused(&file[..100], "npy");
        refused(&file[..file.len() - 1], "159 bytes of data; shape [4, 5] takes 160");
        for (shape, part) in [
            ("(100000000000, 3)", "0 bytes of data"),
            ("(9223372036854775807, 9223372036854775807, 99)", "0 bytes of data"),
            ("(0, 18446744073709551615)", "multiply to at most"),
            ("(9223372036854775807, 0, 9223372036854775807)", "multiply to at most"),
        ] {
            let header =
                format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
            let mut npy = b"\x93NUMPY\x01\x00".to_vec();
            npy.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
            npy.extend(header.as_bytes());
            refused(&npy, part);
        }
        // A parser of nested texts would need as much stack.
        let sum = format!("{{'descr': '<f8', 'shape': (4,{}1)}}", "1+".repeat(150_000));
        let mut npy = b"\x93NUMPY\x02\x00".to_vec();
        npy.extend(u32::try_from(sum.len()).unwrap().to_le_bytes());
        npy.extend(sum.as_bytes());
        refused(&npy, "a header of 300032 bytes; at most 1024");
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("short.npy"), &file[..20]).unwrap();
        let short = fs::File::open(folder.path().join("short.npy")).unwrap();
        assert!(npy::read::<f64>(short).is_err());
    }
}
