//! Steps with a kernel that the program brings, compared with a stencil.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![expect(unsafe_code, reason = "kernels are brought along")]

#[path = "../../halo/tests/altered/mod.rs"]
mod altered;
#[path = "../../halo/tests/devices/mod.rs"]
#[macro_use]
mod devices;
mod messages;

use std::cell::Cell;
use std::mem::swap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use halo::communicator::ThreadCommunicator;
use messages::by_messages;
use ndarray::ArrayD;
use runtime_core::{
    Arg, Device, Grid as Cores, HostModule, ImageFormat, Kernel, ModuleBundle, ModuleImage, Stream,
};
use stencil::{Boundary, ErrorKind, Field, Grid, In, Out, Part, Result, Use, stencil, sweep};

#[stencil]
fn west(next: Out<f64, 2>, t: In<f64, 2>) {
    next.set(t.at(-1, 0));
}

/// Ghosts that were fresh are stale after a panic in the work of a sweep that exchanges, and are filled again.
#[test]
fn a_panic_in_the_work_of_a_sweep_leaves_fields_that_can_be_used() -> Result<()> {
    let device = Device::new(backend_host::HostDevice::with_threads(0, 1)?)?;
    let sums = ThreadCommunicator::run(2, |ranks| -> Result<f64> {
        let stream = device.default_stream();
        let grid = Grid::cartesian([8, 8]).periodic([false, true]).ranks(by_messages(ranks));
        let grid = grid.timeout(Duration::from_secs(10)).build(&device)?;
        let t = grid.field("t").boundary(Boundary::Clamp).from_fn(|[i, _]| i as f64)?;
        let mut out = t.like("out")?;
        west(&mut out, &t).run(&stream)?;
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let mut lost = t.like("lost").unwrap();
            sweep(&stream, [Use::write(&mut lost), Use::read(&t, [1, 1])], |_, _| {
                panic!("on purpose")
            })
        }));
        assert!(panics.is_err());
        west(&mut out, &t).run(&stream)?;
        Ok(out.read_host()?.sum())
    })?;
    let sums: Vec<f64> = sums.into_iter().collect::<Result<_>>()?;
    assert_eq!(sums, [24.0, 144.0]);
    Ok(())
}

/// An error of the work, while values are in transit, is the work's own.
#[test]
fn errors_of_the_work_are_passed_on() -> Result<()> {
    let device = Device::new(backend_host::HostDevice::with_threads(0, 1)?)?;
    let results = ThreadCommunicator::run(2, |ranks| -> Result<()> {
        let grid = Grid::cartesian([8, 8]).periodic([true; 2]).ranks(by_messages(ranks));
        let grid = grid.build(&device)?;
        let t = grid.field("t").filled(1.0)?;
        let mut out = t.like("out")?;
        let fields = [Use::write(&mut out), Use::read(&t, [1, 1])];
        sweep(&device.default_stream(), fields, |_, _| {
            Err(runtime_core::Error::new(ErrorKind::InvalidArgument, "user", "on purpose"))
        })
    })?;
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("on purpose") && !error.contains("ghosts"), "{error}");
    }
    Ok(())
}

/// Sums with diagonals, so that corners matter.
#[stencil]
fn sums(next: Out<f64, 2>, t: In<f64, 2>, a: f64) {
    next.set(t.at(0, 0) + a * (t.at(-1, -1) + t.at(1, 1)) + a * (t.at(0, 1) + t.at(1, 0)));
}

#[expect(clippy::too_many_arguments, reason = "those of the kernel in other languages")]
fn brought(
    _: &Cores<'_>,
    next: &mut [f64],
    t: &[f64],
    next_at: u64,
    next_row: u64,
    t_at: u64,
    t_row: u64,
    rows: u64,
    columns: u64,
    a: f64,
) {
    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        let at = |down: i64, across: i64| {
            let index = (t_at + i * t_row + j).cast_signed() + down * t_row.cast_signed() + across;
            t[usize::try_from(index).unwrap()]
        };
        next[usize::try_from(next_at + i * next_row + j).unwrap()] =
            at(0, 0) + a * (at(-1, -1) + at(1, 1)) + a * (at(0, 1) + at(1, 0));
    }
}

const BODY: &str = "
    if (i >= rows || j >= columns)
        return;
    t += t_at + i * t_row + j;
    next[next_at + i * next_row + j] = t[0] + a * (*(t - t_row - 1) + t[t_row + 1]) + a * (t[1] + t[t_row]);
}";
const NUMBERS: &str = "next_at, L next_row, L t_at, L t_row, L rows, L columns, double a)\n{\n";

fn kernel(device: &Device) -> Kernel {
    let opencl = format!(
        "#pragma OPENCL FP_CONTRACT OFF\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#define L ulong\n\
         kernel void sums(global double *next, global const double *t, L {NUMBERS}\
         L j = get_global_id(0), i = get_global_id(1);{BODY}"
    );
    let cuda = format!(
        "#define L unsigned long long\n\
         extern \"C\" __global__ void sums(double *next, const double *t, L {NUMBERS}\
         L j = (L)blockIdx.x * blockDim.x + threadIdx.x, i = (L)blockIdx.y * blockDim.y + threadIdx.y;{BODY}"
    );
    let functions = HostModule::new().with("sums", brought);
    let hip = ModuleImage::source(ImageFormat::HipC, cuda.clone());
    let cuda = ModuleImage::source(ImageFormat::CudaC, cuda).with_options(["--fmad=false"]);
    let bundle = ModuleBundle::new()
        .with(&functions)
        .with(ModuleImage::source(ImageFormat::OpenClC, opencl))
        .with(cuda)
        .with(hip.with_options(["-ffp-contract=off"]));
    device.module_load_bundle(&bundle).unwrap().kernel("sums").unwrap()
}

fn initial([i, j]: [usize; 2]) -> f64 {
    (i as f64 * 0.3).sin() + (j as f64 * 0.7).cos()
}

type Step<'s> = &'s (dyn Fn(&mut Field<f64, 2>, &Field<f64, 2>) -> Result<()> + Sync);

/// The values after some steps, and the number of exchanges.
fn run(device: &Device, ranks: usize, step: Step<'_>) -> (ArrayD<f64>, u64) {
    let ended = ThreadCommunicator::run(ranks, |rank| {
        let grid = Grid::cartesian([19, 14]).periodic([true, false]).ranks(by_messages(rank));
        let grid = grid.build(device)?;
        let mut t = grid.field("T").boundary(Boundary::Mirror).from_fn(initial)?;
        let mut next = t.like("next")?;
        for _ in 0..3 {
            step(&mut next, &t)?;
            swap(&mut t, &mut next);
        }
        Ok((t.gather(0)?, grid.exchanges()))
    });
    let ended: Result<Vec<_>> = ended.unwrap().into_iter().collect();
    let (values, exchanges) = ended.unwrap().swap_remove(0);
    (values.unwrap(), exchanges)
}

fn launch(
    kernel: &Kernel,
    stream: &Stream,
    part: &Part<2, 2>,
    [next, t]: [Arg<'_>; 2],
) -> Result<()> {
    let Part { extents, elements, strides, .. } = part;
    let numbers = [elements[0], strides[0][0], elements[1], strides[1][0]];
    let numbers = numbers.into_iter().chain(*extents).map(Arg::from);
    let args: Vec<Arg<'_>> = [next, t].into_iter().chain(numbers).chain([0.1.into()]).collect();
    // SAFETY: the kernel takes these arguments, writes the part, and reads one point around it.
    unsafe { kernel.launch(stream, &part.geometry, &args) }
}

fn a_kernel_has_the_bits_of_a_stencil_and_exchanges_as_often(device: &Device) {
    let (stream, kernel) = (device.default_stream(), kernel(device));
    for ranks in [1, 4] {
        let expected = run(device, ranks, &|next, t| sums(next, t, 0.1).run(&stream));
        let found = run(device, ranks, &|next, t| {
            let fields = [Use::write(next), Use::read(t, [1, 1])];
            sweep(&stream, fields, |part, fields| launch(&kernel, &stream, part, fields))
        });
        let bits =
            |(values, exchanges): (ArrayD<f64>, u64)| (values.map(|z| z.to_bits()), exchanges);
        assert!(bits(found) == bits(expected), "{ranks} ranks");
    }
}

on_all_devices!(a_kernel_has_the_bits_of_a_stencil_and_exchanges_as_often);

#[test]
fn parts_are_the_points_of_a_rank_and_inner_ones_come_first() {
    let device = devices::host();
    let (stream, kernel) = (device.default_stream(), kernel(&device));
    let parts = ThreadCommunicator::run(4, |rank| {
        let grid = Grid::cartesian([12, 10]).ranks(by_messages(rank)).build(&device)?;
        let t = grid.field("T").boundary(Boundary::Clamp).from_fn(initial)?;
        let mut next = t.like("next")?;
        let mut parts = Vec::new();
        sweep(&stream, [Use::write(&mut next), Use::read(&t, [1, 1])], |part, fields| {
            parts.push((part.first, part.extents));
            launch(&kernel, &stream, part, fields)
        })?;
        Ok::<_, stencil::Error>((grid.block(), parts))
    });
    for (rank, parts) in parts.unwrap().into_iter().enumerate() {
        let (block, parts) = parts.unwrap();
        let mut times = vec![0; 12 * 10];
        for (first, extents) in &parts {
            for i in first[0]..first[0] + extents[0] {
                for j in first[1]..first[1] + extents[1] {
                    times[usize::try_from(i * 10 + j).unwrap()] += 1;
                }
            }
        }
        let expected = (0..120)
            .map(|at| i32::from(block[0].contains(&(at / 10)) && block[1].contains(&(at % 10))));
        assert!(parts.len() > 1 && times.iter().copied().eq(expected), "{rank}: {parts:?}");
        assert!(parts[0].1.iter().all(|n| *n > 1), "the inner points: {parts:?}");
    }
}

#[test]
fn misuse_is_refused_before_a_kernel_runs() {
    let device = devices::host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([12, 10]).build(&device).unwrap();
    let t = grid.field("T").from_fn(initial).unwrap();
    let mut next = t.like("next").unwrap();
    let ran = Cell::new(false);
    let mut refused = |reach, part: &str| {
        let fields = [Use::write(&mut next), Use::read(&t, reach)];
        let error = sweep(&stream, fields, |_, _| {
            ran.set(true);
            Ok(())
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
    };
    refused([1, 0], "no boundary");
    refused([0, 2], "halo of 1");
    refused([0, usize::MAX], "halo of 1");
    let none = sweep(&stream, [Use::read(&t, [0, 0])], |_, _| Ok(())).unwrap_err();
    assert!(none.to_string().contains("no output"), "{none}");
    assert!(!ran.get());
}

#[test]
fn an_error_of_a_kernel_leaves_outputs_that_must_be_set_again() {
    let device = devices::host();
    let stream = device.default_stream();
    let grid = Grid::cartesian([12, 10]).build(&device).unwrap();
    let mut t = grid.field("T").from_fn(initial).unwrap();
    let error = stencil::Error::new(ErrorKind::Unsupported, "mine", "not today");
    let failed = sweep(&stream, [Use::update(&mut t)], |_, _| Err(error.clone()));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unsupported);
    t.set_from_fn(initial).unwrap();
    assert!(t.read_host().is_ok());
}

/// The work of a sweep may use its grid. A launch that needs an exchange is refused while one is in progress.
#[test]
fn the_work_of_a_sweep_uses_its_grid() {
    let device = devices::host();
    let (stream, kernel) = (device.default_stream(), kernel(&device));
    let ended = ThreadCommunicator::run(2, |rank| {
        let grid = Grid::cartesian([19, 14]).periodic([true, false]).ranks(by_messages(rank));
        let grid = grid.build(&device)?;
        let field = |name| grid.field(name).boundary(Boundary::Mirror).from_fn(initial);
        let (t, other, mut next, mut sum) =
            (field("t")?, field("other")?, field("next")?, field("sum")?);
        let mut kinds = Vec::new();
        let fields = [Use::write(&mut next), Use::read(&t, [1, 1])];
        sweep(&stream, fields, |part, fields| {
            let nested = sums(&mut sum, &other, 0.1).run(&stream);
            kinds.push((grid.exchanges(), nested.map_err(|error| error.kind())));
            launch(&kernel, &stream, part, fields)
        })?;
        Ok::<_, stencil::Error>(kinds)
    });
    for kinds in ended.unwrap() {
        let kinds = kinds.unwrap();
        assert_eq!(kinds[0], (1, Err(ErrorKind::Conflict)));
        assert_eq!(kinds[1], (2, Ok(())));
    }
}

/// Such launches would change, or read, what the sweep has lent.
#[test]
fn the_work_of_a_sweep_cannot_launch_what_needs_ghosts_of_its_own_fields() {
    let device = devices::host();
    let (stream, kernel) = (device.default_stream(), kernel(&device));
    let grid = Grid::cartesian([19, 14]).periodic([true, true]).build(&device).unwrap();
    let field = |name| grid.field(name).from_fn(initial);
    let (t, mut next, mut sum) =
        (field("t").unwrap(), field("next").unwrap(), field("sum").unwrap());
    let mut kinds = Vec::new();
    let fields = [Use::write(&mut next), Use::read(&t, [0, 0])];
    let swept = sweep(&stream, fields, |part, fields| {
        let nested = sums(&mut sum, &t, 0.1).run(&stream);
        kinds.push(nested.map_err(|error| error.kind()));
        launch(&kernel, &stream, part, fields)
    });
    swept.unwrap();
    assert_eq!(kinds[0], Err(ErrorKind::Conflict));
}

/// The thread would wait for the exchange, and the exchange for the thread.
#[test]
fn a_thread_that_exchanges_in_the_work_of_a_sweep_gets_an_error_in_time() {
    let device = devices::host();
    let (stream, kernel) = (device.default_stream(), kernel(&device));
    let ended = ThreadCommunicator::run(2, |rank| {
        let grid = Grid::cartesian([19, 14]).periodic([true, false]).ranks(by_messages(rank));
        let grid = grid.timeout(Duration::from_secs(2)).build(&device)?;
        let field = |name| grid.field(name).boundary(Boundary::Mirror).from_fn(initial);
        let (t, mut other, mut next, mut sum) =
            (field("t")?, field("other")?, field("next")?, field("sum")?);
        let mut kinds = Vec::new();
        let fields = [Use::write(&mut next), Use::read(&t, [1, 1])];
        drop(sweep(&stream, fields, |part, fields| {
            let (sum, other, stream) = (&mut sum, &mut other, &stream);
            let nested = thread::scope(|scope| {
                scope.spawn(move || sums(sum, other, 0.1).run(stream)).join().unwrap()
            });
            kinds.push(nested.map_err(|error| error.kind()));
            launch(&kernel, stream, part, fields)
        }));
        Ok::<_, stencil::Error>(kinds)
    });
    for kinds in ended.unwrap() {
        assert_eq!(kinds.unwrap()[0], Err(ErrorKind::Timeout));
    }
}
