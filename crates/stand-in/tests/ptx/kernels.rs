//! The kernels of the conformance suite and of examples, as shipped, against what Rust computes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::memory::{Memory, launch, line, p};
use runtime_core::{ImageCode, ImageFormat};
use stand_in::ptx::{Fault, Geometry, Module, run};

fn module() -> Module {
    let bundle = conformance::kernels::cuda_c();
    let image = bundle.best_for(&[ImageFormat::Ptx]).unwrap();
    let ImageCode::Text(text) = image.code() else { panic!("PTX is text") };
    Module::parse(text).unwrap()
}

#[test]
fn the_module_tells_version_and_target() {
    let module = module();
    assert_eq!((module.version(), module.target()), ((8, 0), 60));
    let entry = module.entry("many_arguments").unwrap();
    let places: Vec<usize> = entry.params().iter().map(|param| param.offset).collect();
    assert_eq!(places, [0, 8, 9, 10, 12, 16, 20, 24, 32, 40, 48, 56]);
    assert_eq!((entry.static_shared(), entry.max_threads()), (0, 1024));
    assert!(module.entry("fill_inde").is_none());
}

#[test]
fn integers_are_filled_counted_and_added() {
    let (module, memory) = (module(), Memory::default());
    let n = 10_000_u32;
    let out = memory.upload(&vec![0_u32; n as usize + 1]);
    let geometry = line(n.div_ceil(128), 128);
    let params = [p(out), p(u32::MAX - 5), p(n)];
    launch(&module, "fill_index", &geometry, &params, &memory).unwrap();
    launch(&module, "add_one", &geometry, &[p(out), p(n)], &memory).unwrap();
    let filled: Vec<u32> = memory.download(out, n as usize + 1);
    let mut expected: Vec<u32> = (0..n).map(|i| (u32::MAX - 4).wrapping_add(i)).collect();
    expected.push(0);
    assert_eq!(filled, expected);
    let sum = memory.upload(&vec![0_u32; n as usize]);
    launch(&module, "add", &geometry, &[p(sum), p(out), p(out), p(n)], &memory).unwrap();
    expected.pop();
    expected.iter_mut().for_each(|value| *value = value.wrapping_mul(2));
    assert_eq!(memory.download::<u32>(sum, n as usize), expected);
}

#[test]
fn floats_are_scaled_and_fused() {
    let (module, memory) = (module(), Memory::default());
    let x: Vec<f32> = (0..100).map(|i| 0.1 * i as f32).collect();
    let (at, y) = (memory.upload(&x), memory.upload(&vec![0.3_f32; 100]));
    launch(&module, "saxpy", &line(2, 64), &[p(y), p(at), p(1.7_f32), p(100_u32)], &memory)
        .unwrap();
    let expected: Vec<f32> = x.iter().map(|x| x.mul_add(1.7, 0.3)).collect();
    assert_eq!(memory.download::<f32>(y, 100), expected);
    let x: Vec<f64> = (0..100).map(|i| 0.1 * f64::from(i)).collect();
    let (at, y) = (memory.upload(&x), memory.upload(&[0.0_f64; 100]));
    let params = [p(y), p(at), p(-1.7_f64), p(100_u32)];
    launch(&module, "scale_f64", &line(2, 64), &params, &memory).unwrap();
    let expected: Vec<f64> = x.iter().map(|x| x * -1.7).collect();
    assert_eq!(memory.download::<f64>(y, 100), expected);
}

#[test]
fn threads_have_three_indices() {
    let (module, memory) = (module(), Memory::default());
    let out = memory.upload(&[9_u32; 5 * 7 * 3]);
    let geometry = Geometry::new([3, 2, 2], [2, 4, 2]);
    let params = [p(out), p(5_u32), p(7_u32), p(3_u32)];
    launch(&module, "index_3d", &geometry, &params, &memory).unwrap();
    let found = memory.download::<u32>(out, 5 * 7 * 3);
    for (i, found) in (0..).zip(found) {
        assert_eq!(found, i % 5 + 1000 * (i / 5 % 7) + 1_000_000 * (i / 35));
    }
}

#[test]
fn arguments_of_all_types_arrive() {
    let (module, memory) = (module(), Memory::default());
    let (out, x) = (memory.upload(&[0.0_f64; 11]), memory.upload(&[2.5_f64]));
    let params = [
        p(out),
        p(-8_i8),
        p(200_u8),
        p(-300_i16),
        p(60_000_u16),
        p(-70_000_i32),
        p(4_000_000_000_u32),
        p(i64::MIN + 1),
        p(u64::MAX),
        p(0.1_f32),
        p(0.1_f64),
        p(x),
    ];
    launch(&module, "many_arguments", &line(1, 1), &params, &memory).unwrap();
    let expected = [
        -8.0,
        200.0,
        -300.0,
        60_000.0,
        -70_000.0,
        4e9,
        i64::MIN as f64,
        u64::MAX as f64,
        f64::from(0.1_f32),
        0.1,
        2.5,
    ];
    assert_eq!(memory.download::<f64>(out, 11), expected);
}

#[test]
fn spinning_computes_its_value_and_stops_when_told() {
    let (module, memory) = (module(), Memory::default());
    let out = memory.upload(&[0_u32]);
    launch(&module, "spin", &line(1, 1), &[p(out), p(1003_u64)], &memory).unwrap();
    let step = |v: u32, _| v.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    assert_eq!(memory.download::<u32>(out, 1), [(0..1003).fold(0, step)]);

    let stop = AtomicBool::new(false);
    let params = [p(out), p(u64::MAX)].concat();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
        });
        run(&module, module.entry("spin").unwrap(), &line(1, 1), &params, &memory, &stop)
    });
    assert_eq!(outcome, Err(Fault::Stopped));
}

#[test]
fn faults_name_their_cause() {
    let (module, memory) = (module(), Memory::default());
    let out = memory.upload(&[7_u32; 4]);
    assert_eq!(launch(&module, "fault", &line(1, 1), &[p(out)], &memory), Err(Fault::Trap));
    assert_eq!(memory.download::<u32>(out, 4), [7; 4]);
    let fill = |address: u64, n: u32| {
        launch(&module, "fill_index", &line(1, 32), &[p(address), p(0_u32), p(n)], &memory)
    };
    assert_eq!(fill(out + 2, 4), Err(Fault::Misaligned(out + 2)));
    assert_eq!(fill(out, 5), Err(Fault::IllegalAddress(out + 16)));
    assert_eq!(fill(0, 1), Err(Fault::IllegalAddress(0)));
    assert_eq!(fill(1 << 60, 1), Err(Fault::IllegalAddress(1 << 60)));
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let (module, memory) = (module(), Memory::default());
    let entry = module.entry("fault").unwrap();
    let stop = AtomicBool::new(false);
    for (geometry, params) in
        [(line(0, 1), 8), (line(1, 0), 8), (line(1, 1025), 8), (line(1, 1), 7)]
    {
        let outcome = run(&module, entry, &geometry, &vec![0; params], &memory, &stop);
        assert!(matches!(outcome, Err(Fault::IllegalInstruction(_))), "{geometry:?}: {outcome:?}");
    }
}

#[test]
fn diffusion_is_that_of_the_host_to_the_last_bit() {
    let ptx = include_str!("data/diffusion.ptx");
    let (module, memory) = (Module::parse(ptx).unwrap(), Memory::default());
    let (ax, ay) = (0.1234567, 0.2345671);
    // 23 rows of 37 cells, in the midst of rows 40 elements apart, with all sides and without any.
    let (width, height, pitch, z_at, next_at) = (37_usize, 23_usize, 40_usize, 41_usize, 5_usize);
    let z: Vec<f64> =
        (0..pitch * (height + 2)).map(|i| ((i * 7919 % 1009) as f64).sqrt()).collect();
    for sides in [0, 15_u64] {
        let (next, at) = (memory.upload(&vec![-1.0_f64; z.len()]), memory.upload(&z));
        let geometry = Geometry::new([3, 3, 1], [16, 8, 1]);
        let numbers = [next_at, z_at, pitch, width, height].map(|number| p(number as u64));
        let mut params = vec![p(next), p(at)];
        params.extend(numbers);
        params.extend([p(sides), p(ax), p(ay)]);
        launch(&module, "diffuse", &geometry, &params, &memory).unwrap();
        let mut expected = vec![-1.0; z.len()];
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column)))
        {
            let here = z_at + row * pitch + column;
            let beside =
                |inside: bool, other: usize| z[if inside || sides != 0 { other } else { here }];
            let (north, south) =
                (beside(row > 0, here - pitch), beside(row + 1 < height, here + pitch));
            let (west, east) = (beside(column > 0, here - 1), beside(column + 1 < width, here + 1));
            let along_x = ax * (east - z[here]) - ax * (z[here] - west);
            let along_y = ay * (south - z[here]) - ay * (z[here] - north);
            expected[next_at + row * pitch + column] = z[here] + (along_x + along_y);
        }
        assert_eq!(memory.download::<f64>(next, z.len()), expected, "sides {sides}");
    }
}

#[test]
fn saxpy_adds_to_the_elements_and_no_others() {
    let ptx = include_str!("../../../runtime/examples/kernels/saxpy.ptx");
    let (module, memory) = (Module::parse(ptx).unwrap(), Memory::default());
    let (y, x) = (memory.upload(&[1.0_f32; 100]), memory.upload(&[3.0_f32; 100]));
    let params = [p(y), p(x), p(2.0_f32), p(70_u32)];
    launch(&module, "saxpy", &line(3, 32), &params, &memory).unwrap();
    let expected: Vec<f32> = (0..100).map(|i| if i < 70 { 7.0 } else { 1.0 }).collect();
    assert_eq!(memory.download::<f32>(y, 100), expected);
}
