//! Launches: arguments, geometry, and results of kernels.

use std::time::Duration;

use runtime_core::contract::ParamKind;
use runtime_core::{Arg, DType, ErrorKind, Kernel, Launch, Layout, Support, args};

use crate::data::elements;
use crate::kernels::{REQUIRED, host_module};
use crate::outcome::{Outcome, check, check_eq, needed, refused, same};
use crate::setup::attempt;
use crate::{Ability, Fixture};

/// Kernels compute correct results, also if the number of elements is not a multiple of the block size.
pub fn kernels_compute(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let (stream, kernels) = (&setup.stream, &setup.kernels);
    for (len, count) in [(1, 1_u16), (63, 63), (64, 64), (1000, 1000), (5001, 5001)] {
        let small: Vec<f32> = (0..count).map(f32::from).collect();
        let x = setup.upload(&small)?;
        let mut y = setup.upload(&vec![1.0_f32; len])?;
        kernels.saxpy(stream, y.view_mut(), x.view(), 2.0)?;
        let expected: Vec<f32> = small.iter().map(|x| 2.0 * x + 1.0).collect();
        same(&setup.download(&y)?, &expected, format_args!("saxpy of {len} elements"))?;

        let wide: Vec<f64> = (0..count).map(|i| f64::from(i) + 0.1).collect();
        let x = setup.upload(&wide)?;
        let mut y = setup.device.memory_allocate::<f64>(len)?;
        kernels.scale_f64(stream, y.view_mut(), x.view(), -1.5)?;
        let expected: Vec<f64> = wide.iter().map(|x| -1.5 * x).collect();
        same(&setup.download(&y)?, &expected, format_args!("scaling {len} elements"))?;

        let (left, right) = (elements::<u32>(1, len), elements::<u32>(2, len));
        let (a, b) = (setup.upload(&left)?, setup.upload(&right)?);
        let mut sum = setup.device.memory_allocate::<u32>(len)?;
        kernels.add(stream, sum.view_mut(), a.view(), b.view())?;
        let expected: Vec<u32> = left.iter().zip(&right).map(|(a, b)| a.wrapping_add(*b)).collect();
        same(&setup.download(&sum)?, &expected, format_args!("adding {len} elements"))?;
    }
    Ok(())
}

/// Values of every size and memory reach the kernel in order; a dozen arguments are passed.
pub fn launches_take_many_arguments(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("many_arguments")?;
    let x = setup.upload(&[2.5_f64])?;
    let mut out = setup.upload(&[-1.0_f64; 12])?;
    let arguments = args![
        &mut out,
        -5_i8,
        250_u8,
        -30_000_i16,
        60_000_u16,
        -2_000_000_000_i32,
        4_000_000_000_u32,
        -(1_i64 << 50),
        1_u64 << 52,
        0.5_f32,
        -1.0e300_f64,
        &x,
    ];
    attempt(&kernel, &setup.stream, &Launch::cover(1, 1), arguments)?;
    let expected = [
        -5.0,
        250.0,
        -30_000.0,
        60_000.0,
        -2.0e9,
        4.0e9,
        -1_125_899_906_842_624.0,
        4_503_599_627_370_496.0,
        0.5,
        -1.0e300,
        2.5,
        -1.0,
    ];
    same(&setup.download(&out)?, &expected, "arguments as the kernel got them")
}

/// A launch copies its values: the host may change them afterwards.
pub fn values_are_captured_at_the_launch(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let mut memory = setup.upload(&[0_u32; 400])?;
    let _busy = setup.spin(&setup.stream, Duration::from_millis(30))?;
    let mut bytes;
    for (index, start) in (0..40).zip((0_u32..).step_by(100)) {
        let part = memory.view_mut().slice(index * 10..index * 10 + 10)?;
        bytes = start.to_ne_bytes();
        let arguments = &[Arg::from(part), Arg::bytes(&bytes), Arg::from(10_u32)];
        attempt(&kernel, &setup.stream, &setup.kernels.cover(10), arguments)?;
        bytes.fill(0xFF);
        check_eq!(bytes, [0xFF; 4], "the host's own bytes");
    }
    let expected: Vec<u32> = (0_u32..).step_by(100).take(40).flat_map(|s| s..s + 10).collect();
    same(&setup.download(&memory)?, &expected, "the values that forty launches wrote")
}

/// Arguments that differ from the loaded kernel's parameters in number, kind, type, size or access are refused, and
/// nothing runs. If the driver does not report the parameters, they are not checked.
pub fn wrong_arguments_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let parameters = needed(kernel.parameters(), Ability::Parameters)?;
    let expected = elements::<u32>(3, 8);
    let mut memory = setup.upload(&expected)?;
    let mut floats = setup.upload(&[0.0_f32; 8])?;
    let launch = setup.kernels.cover(8);
    let refuse = |what: &str, arguments: &[Arg<'_>]| -> Outcome {
        let launched = attempt(&kernel, &setup.stream, &launch, arguments);
        let error = refused(launched, ErrorKind::InvalidArgument, what)?;
        check!(error.message().contains("fill_index"), "{error} does not name the kernel");
        Ok(())
    };
    refuse("no argument", args![])?;
    refuse("an argument too few", args![&mut memory, 0_u32])?;
    refuse("an argument too many", args![&mut memory, 0_u32, 8_u32, 8_u32])?;
    if parameters[1].kind != ParamKind::Unknown {
        refuse("memory for a value", args![&mut memory, &floats, 8_u32])?;
    }
    if parameters[0].kind != ParamKind::Unknown {
        refuse("a value for memory", args![0_u64, 0_u32, 8_u32])?;
    }
    if parameters[1].size.is_some() {
        refuse("8 bytes for a u32", args![&mut memory, 0_u64, 8_u32])?;
        refuse(
            "2 bytes for a u32",
            &[Arg::from(&mut memory), Arg::bytes(&[1, 2]), Arg::from(8_u32)],
        )?;
    }
    refuse("no byte", &[Arg::from(&mut memory), Arg::bytes(&[]), Arg::from(8_u32)])?;
    if parameters[1].dtype.is_some() {
        refuse("an f32 for a u32", args![&mut memory, 0.0_f32, 8_u32])?;
    }
    if parameters[0].dtype.is_some() {
        refuse("memory of f32 for memory of u32", args![&mut floats, 0_u32, 8_u32])?;
    }
    if parameters[0].access.is_some() {
        refuse("memory to read for memory that is written", args![&memory, 0_u32, 8_u32])?;
    }
    same(&setup.download(&memory)?, &expected, "memory after refused launches")
}

/// The parameters that a driver reports for a kernel are correct, and the same at every call.
pub fn reported_parameters_are_those_of_the_kernel(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let module = host_module();
    for name in REQUIRED {
        let kernel = setup.kernels.kernel(name)?;
        check_eq!(kernel.name(), *name, "the kernel's name");
        let Some(parameters) = kernel.parameters() else { continue };
        check_eq!(kernel.parameters(), Some(parameters), "the parameters at a second call");
        let expected = module.kernel(name)?;
        let expected = expected.parameters();
        check_eq!(parameters.len(), expected.len(), "{name}: the number of parameters");
        for (index, (found, expected)) in parameters.iter().zip(expected).enumerate() {
            let right = (found.kind == ParamKind::Unknown || found.kind == expected.kind)
                && (found.size.is_none() || expected.size.is_none() || found.size == expected.size)
                && (found.dtype.is_none() || found.dtype == expected.dtype)
                && (found.access.is_none() || found.access == expected.access);
            check!(right, "{name}: parameter {index} is {found:?}, the table says {expected:?}");
        }
    }
    Ok(())
}

/// A launch with a zero in its geometry runs nothing.
pub fn empty_launches_run_nothing(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let expected = elements::<u32>(4, 8);
    let mut memory = setup.upload(&expected)?;
    for dim in 0..3 {
        for (mut grid, mut block) in [([1; 3], [1; 3]), ([2; 3], [1; 3])] {
            grid[dim] = 0;
            let arguments = args![&mut memory, 0_u32, 8_u32];
            attempt(&kernel, &setup.stream, &Launch::new(grid, block), arguments)?;
            grid[dim] = 1;
            block[dim] = 0;
            let arguments = args![&mut memory, 0_u32, 8_u32];
            attempt(&kernel, &setup.stream, &Launch::new(grid, block), arguments)?;
        }
    }
    same(&setup.download(&memory)?, &expected, "memory after empty launches")
}

/// Geometry above a limit is refused, the error names the limit, and nothing runs.
pub fn launches_beyond_a_limit_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let limits = &setup.device.info().limits;
    let expected = elements::<u32>(5, 8);
    let mut memory = setup.upload(&expected)?;
    let mut refuse = |launch: Launch, limit: u32| -> Outcome {
        let launched = attempt(&kernel, &setup.stream, &launch, args![&mut memory, 0_u32, 8_u32]);
        let error = refused(launched, ErrorKind::InvalidArgument, format_args!("{launch:?}"))?;
        check!(error.message().contains(&limit.to_string()), "{error} does not say {limit}");
        Ok(())
    };
    for dim in 0..3 {
        if let Some(over) = limits.max_grid[dim].checked_add(1) {
            let mut grid = [1; 3];
            grid[dim] = over;
            refuse(Launch::new(grid, [1; 3]), limits.max_grid[dim])?;
        }
        if let Some(over) = limits.max_block[dim].checked_add(1) {
            let mut block = [1; 3];
            block[dim] = over;
            refuse(Launch::new([1; 3], block), limits.max_block[dim])?;
        }
    }
    let product: u128 = limits.max_block.iter().map(|extent| u128::from(*extent)).product();
    if product > limits.max_block_threads.into() {
        refuse(Launch::new([1; 3], limits.max_block), limits.max_block_threads)?;
    }
    if let Some(over) = limits.max_shared_bytes.checked_add(1) {
        refuse(Launch::cover(8, 1).with_shared(over), limits.max_shared_bytes)?;
    }
    if setup.device.capabilities().cooperative_launch == Support::Absent {
        let arguments = args![&mut memory, 0_u32, 8_u32];
        let launched =
            attempt(&kernel, &setup.stream, &Launch::cover(8, 1).cooperative(), arguments);
        refused(launched, ErrorKind::Unsupported, "a cooperative launch")?;
    }
    same(&setup.download(&memory)?, &expected, "memory after refused launches")
}

/// A launch with more arguments than the device supports is refused.
pub fn too_many_arguments_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("fill_index")?;
    let limits = &setup.device.info().limits;
    let launch = Launch::new([0; 3], [1; 3]);
    if limits.max_arguments < 10_000 {
        let many: Vec<Arg<'_>> = (0..=limits.max_arguments).map(|_| Arg::from(0_u8)).collect();
        let launched = attempt(&kernel, &setup.stream, &launch, &many);
        refused(launched, ErrorKind::InvalidArgument, "an argument more than the limit")?;
    }
    if limits.max_argument_bytes < 1 << 20 {
        let large = vec![0_u8; limits.max_argument_bytes + 1];
        let launched = attempt(&kernel, &setup.stream, &launch, &[Arg::bytes(&large)]);
        refused(launched, ErrorKind::InvalidArgument, "a byte of arguments more than the limit")?;
    }
    Ok(())
}

/// The grid and block geometry reaches the kernel in all three dimensions, also for launches smaller than the memory.
pub fn the_geometry_reaches_the_kernel(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let limits = &setup.device.info().limits;
    let kernel = setup.kernels.kernel("index_3d")?;
    let block = [2, 2, 1].map(|extent: u32| extent.min(limits.max_block_threads));
    let block: [u32; 3] = std::array::from_fn(|dim| block[dim].min(limits.max_block[dim]));
    let grid: [u32; 3] = std::array::from_fn(|dim| [3, 2, 4][dim].min(limits.max_grid[dim]));
    let (nx, ny, nz) = (7_u32, 3_u32, 5_u32);
    let mut memory = setup.upload(&[u32::MAX; 7 * 3 * 5])?;
    let arguments = args![&mut memory, nx, ny, nz];
    attempt(&kernel, &setup.stream, &Launch::new(grid, block), arguments)?;
    let reach: [u32; 3] = std::array::from_fn(|dim| grid[dim] * block[dim]);
    let mut expected = Vec::new();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let there = x < reach[0] && y < reach[1] && z < reach[2];
                expected.push(if there { x + 1000 * y + 1_000_000 * z } else { u32::MAX });
            }
        }
    }
    let what = format_args!("{grid:?} blocks of {block:?} on {nx} × {ny} × {nz} elements");
    same(&setup.download(&memory)?, &expected, what)?;

    let kernel = setup.kernels.kernel("fill_index")?;
    let mut memory = setup.upload(&[9_u32; 100])?;
    for (blocks, n, reached) in [(5, 100_u32, 5), (100, 30, 30)] {
        memory.view_mut().fill(&setup.stream, 9_u32)?;
        let launch = Launch::new([blocks, 1, 1], [1; 3]);
        attempt(&kernel, &setup.stream, &launch, args![&mut memory, 50_u32, n])?;
        let mut expected = vec![9_u32; 100];
        expected.iter_mut().zip(50..).take(reached).for_each(|(value, index)| *value = index);
        let what = format_args!("{blocks} work-items for {n} of 100 elements");
        same(&setup.download(&memory)?, &expected, what)?;
    }
    Ok(())
}

/// A block of the largest size within the limits runs.
pub fn the_largest_block_runs(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let limits = &setup.device.info().limits;
    let block = limits.max_block[0].min(limits.max_block_threads).min(1 << 16);
    let kernel = setup.kernels.kernel("fill_index")?;
    let len = 2 * block as usize - 1;
    let n = 2 * block - 1;
    let mut memory = setup.upload(&vec![0_u32; len])?;
    let launch = Launch::new([2, 1, 1], [block, 1, 1]);
    attempt(&kernel, &setup.stream, &launch, args![&mut memory, 1_u32, n])?;
    let expected: Vec<u32> = (1..=n).collect();
    same(&setup.download(&memory)?, &expected, format_args!("two blocks of {block}"))
}

/// A block of the suggested size is within the limits and runs. A covering launch with it reaches every element.
pub fn suggested_blocks_run(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let limits = &setup.device.info().limits;
    for name in REQUIRED {
        let kernel = setup.kernels.kernel(name)?;
        let block = kernel.suggested_block(0)?;
        let most = limits.max_block[0].min(limits.max_block_threads);
        check!((1..=most).contains(&block), "{name}: a block of {block}; the device has {most}");
        check_eq!(kernel.suggested_block(0)?, block, "{name}: the block asked for again");
    }
    let kernel = setup.kernels.kernel("fill_index")?;
    for count in [1_u32, 63, 5001] {
        let len = count as usize;
        let launch = kernel.cover(len)?;
        check_eq!(launch, Launch::cover(len, kernel.suggested_block(0)?), "the launch");
        let mut memory = setup.upload(&vec![0_u32; len + 10])?;
        attempt(&kernel, &setup.stream, &launch, args![memory.view_mut(), 1_u32, count])?;
        let expected: Vec<u32> = (1..=count).chain([0; 10]).collect();
        same(&setup.download(&memory)?, &expected, format_args!("{count} elements covered"))?;
    }
    check!(kernel.cover(0)?.is_empty(), "a launch that covers nothing");
    if let Some(beyond) = limits.max_shared_bytes.checked_add(1) {
        let suggested = kernel.suggested_block(beyond);
        refused(suggested, ErrorKind::InvalidArgument, "more shared memory than there is")?;
    }
    Ok(())
}

/// If a device reports how many blocks are resident at once, it reports at least one block of the suggested size.
pub fn resident_blocks_are_reported_correctly(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let limits = &setup.device.info().limits;
    for name in REQUIRED {
        let kernel = setup.kernels.kernel(name)?;
        let suggested = kernel.suggested_block(0)?;
        let resident = kernel.resident_blocks(suggested, 0)?;
        check!(resident != Some(0), "{name}: no block of the suggested {suggested} is resident");
        let least = kernel.resident_blocks(1, 0)?;
        check_eq!(least.is_some(), resident.is_some(), "{name}: whether it is reported");
        check!(least >= resident, "{name}: {least:?} blocks of 1, {resident:?} of {suggested}");
        for wrong in [0, limits.max_block_threads.saturating_add(1)] {
            let error = refused(
                kernel.resident_blocks(wrong, 0),
                ErrorKind::InvalidArgument,
                format_args!("a block of {wrong}"),
            )?;
            check!(error.message().contains(&wrong.to_string()), "{error} does not name {wrong}");
        }
    }
    Ok(())
}

/// One memory can be passed twice for reading, and in two disjoint parts for reading and for writing.
pub fn arguments_may_share_a_memory(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let data = elements::<u32>(6, 300);
    let doubled: Vec<u32> = data.iter().map(|value| value.wrapping_add(*value)).collect();
    let source = setup.upload(&data)?;
    let mut sum = setup.device.memory_allocate::<u32>(300)?;
    setup.kernels.add(&setup.stream, sum.view_mut(), source.view(), source.view())?;
    same(&setup.download(&sum)?, &doubled, "a memory added to itself")?;
    let mut memory = setup.upload(&data)?;
    let (read, write) = memory.view_mut().split_at(100)?;
    let (write, rest) = write.split_at(100)?;
    setup.kernels.add(&setup.stream, write, read.as_view(), rest.as_view())?;
    let mut expected = data.clone();
    for index in 0..100 {
        expected[100 + index] = data[index].wrapping_add(data[200 + index]);
    }
    same(&setup.download(&memory)?, &expected, "a sum of two parts written to a third")
}

/// A kernel that gets a part of a memory starts at the first element of the part and does not change the rest.
pub fn views_reach_kernels_with_their_offset(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut expected = vec![7_u32; 100];
    let mut memory = setup.upload(&expected)?;
    for (start, len) in [(1, 1), (3, 40), (99, 1), (50, 13)] {
        let part = memory.view_mut().slice(start..start + len)?;
        setup.kernels.fill_index(&setup.stream, part, 1000)?;
        expected[start..start + len].iter_mut().zip(1000..).for_each(|(v, index)| *v = index);
        let what = format_args!("a kernel on elements {start} to {}", start + len);
        same(&setup.download(&memory)?, &expected, what)?;
    }
    Ok(())
}

/// A kernel that writes a view does not touch the gaps between the view's elements; other work may write the gaps at
/// the same time. A device whose kernels do not support such views refuses them.
pub fn gaps_in_a_written_view_are_not_written(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let other = setup.new_stream()?;
    for first in [0, 1] {
        let mut memory = setup.upload(&[1_u32; 64])?;
        let written = memory.view_mut().reshape(&[32, 2])?.region(&[0..32, first..first + 1])?;
        let launched = setup.kernels.spin_on(&setup.stream, Duration::from_millis(30), written)?;
        if let Err(error) = launched {
            check_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}; its kind");
            continue;
        }
        // The element after the first one of the view, while the kernel runs.
        let gap = first + 1;
        memory.view_mut().slice(gap..gap + 1)?.fill(&other, 9_u32)?;
        other.synchronize()?;
        setup.stream.synchronize()?;
        let found = setup.download(&memory)?;
        check_eq!(found[gap], 9, "an element between those of a view that a kernel wrote");
        check_eq!(found[gap + 1..], [1; 64][gap + 1..], "unwritten elements");
    }
    Ok(())
}

/// Interleaved views of one memory, one of them written, can be arguments of one launch, which writes only elements of
/// that view. A device whose kernels do not support such views refuses them.
pub fn interleaved_views_share_a_launch(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel = setup.kernels.kernel("add")?;
    let data = elements::<u32>(8, 64);
    let b = setup.upload(&[5_u32])?;
    for first in [0, 1] {
        let mut memory = setup.upload(&data)?;
        // Two rows of a matrix in column-major order: every second element.
        let matrix = Layout::new(DType::U32, &[2, 32], &[1, 2])?;
        let (zero, one) = memory.view_mut().with_layout(0, &matrix)?.split_at(1)?;
        let (write, read) = if first == 0 { (zero, one) } else { (one, zero) };
        // One work-item, because kernels do not know strides.
        let arguments = runtime_core::args![write, read.as_view(), &b, 1_u32];
        let launched = attempt(&kernel, &setup.stream, &Launch::cover(1, 1), arguments);
        let mut expected = data.clone();
        match launched {
            Ok(()) => expected[first] = data[1 - first].wrapping_add(5),
            Err(error) => {
                check_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}; its kind");
            }
        }
        same(&setup.download(&memory)?, &expected, "memory whose elements two views share")?;
    }
    Ok(())
}

/// A kernel can be launched only on streams of its own device, and only with memory of that device.
pub fn launches_across_devices_are_refused(fixture: &Fixture) -> Outcome {
    let (setup, other) = (fixture.setup()?, fixture.other()?);
    let kernel = setup.kernels.kernel("add_one")?;
    let mut memory = setup.upload(&[1_u32; 8])?;
    let mut foreign = other.upload(&[2_u32; 8])?;
    let launch = setup.kernels.cover(8);
    let kind = ErrorKind::WrongDevice;
    let on_foreign_stream = attempt(&kernel, &other.stream, &launch, args![&mut memory, 8_u32]);
    refused(on_foreign_stream, kind, "a launch on a foreign stream")?;
    let both_foreign = attempt(&kernel, &other.stream, &launch, args![&mut foreign, 8_u32]);
    refused(both_foreign, kind, "a launch with stream and memory of another device")?;
    let with_foreign = attempt(&kernel, &setup.stream, &launch, args![&mut foreign, 8_u32]);
    let error = refused(with_foreign, kind, "a launch with foreign memory")?;
    check_eq!(error.device(), Some(setup.device.id()), "the device that refuses foreign memory");
    let owner = other.device.id().to_string();
    for word in ["argument 0", &owner] {
        check!(error.message().contains(word), "{error} does not name {word}");
    }
    same(&setup.download(&memory)?, &[1; 8], "own memory")?;
    same(&other.download(&foreign)?, &[2; 8], "foreign memory")
}

/// The blocks of a cooperative launch run at once, as many as are resident: all meet, and each then sees what another
/// has written before.
pub fn blocks_of_a_cooperative_launch_run_at_once(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let is_there = setup.device.capabilities().cooperative_launch != Support::Absent;
    needed(is_there.then_some(()), Ability::CooperativeLaunch)?;
    let kernel = setup.kernels.kernel("meet")?;
    let resident = kernel.resident_blocks(1, 0)?.unwrap_or(1);
    let blocks = resident.saturating_mul(setup.device.info().compute_units);
    let mut expected: Vec<u32> = (2..=blocks).collect();
    expected.push(1);
    let mut arrived = setup.upload(&[0_u32])?;
    let mut posted = setup.upload(&vec![0_u32; expected.len()])?;
    let mut seen = setup.upload(&vec![0_u32; expected.len()])?;
    let launch = Launch::new([blocks, 1, 1], [1; 3]).cooperative();
    let arguments = args![&mut arrived, &mut posted, &mut seen, blocks];
    attempt(&kernel, &setup.stream, &launch, arguments)?;
    same(&setup.download(&seen)?, &expected, format_args!("{blocks} blocks that meet"))
}

/// Several threads can use one kernel at once.
pub fn threads_launch_one_kernel(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let kernel: Kernel = setup.kernels.kernel("fill_index")?;
    let work = |start: u32| -> Outcome {
        let setup = setup.with_stream()?;
        let mut memory = setup.upload(&[0_u32; 500])?;
        for round in 0..20 {
            let arguments = args![&mut memory, start + round, 500_u32];
            attempt(&kernel, &setup.stream, &setup.kernels.cover(500), arguments)?;
        }
        let expected: Vec<u32> = (start + 19..start + 519).collect();
        same(&setup.download(&memory)?, &expected, "the values that one of several threads wrote")
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads = [0, 1000, 2000].map(|start| scope.spawn(move || work(start)));
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| crate::Stop::failed("a thread panicked"))?
        })
    })
}
