//! Kernels whose threads work together, as NVRTC compiles them: see `data/threads.cu`.

use crate::memory::{Memory, launch, line, p};
use crate::nvrtc::{architecture, compile, compiler};
use stand_in::ptx::{Fault, Geometry, Module};

/// The kernels as NVRTC 12.0 compiled them, and as the compiler of the environment does.
fn modules() -> Vec<Module> {
    let mut texts = vec![include_str!("data/threads.ptx").to_owned()];
    if let Some(nvrtc) = compiler() {
        let architecture = format!("--gpu-architecture={}", architecture(nvrtc));
        texts.push(compile(nvrtc, include_str!("data/threads.cu"), &[&architecture]));
    }
    texts.iter().map(|text| Module::parse(text).unwrap()).collect()
}

#[test]
fn a_block_reduces_in_dynamic_shared_memory() {
    for module in modules() {
        let memory = Memory::default();
        let x: Vec<f32> = (0..5000).map(|i| (i % 17) as f32).collect();
        let (out, at) = (memory.upload(&[0.0_f32]), memory.upload(&x));
        let geometry = Geometry { dynamic_shared: 512, ..Geometry::new([7, 1, 1], [128, 1, 1]) };
        assert_eq!(module.entry("reduce").unwrap().static_shared(), 0);
        launch(&module, "reduce", &geometry, &[p(out), p(at), p(5000_i32)], &memory).unwrap();
        assert_eq!(memory.download::<f32>(out, 1), [x.iter().sum::<f32>()]);
        // A byte less than it needs is a fault of the last thread.
        let geometry = Geometry { dynamic_shared: 511, ..geometry };
        let outcome = launch(&module, "reduce", &geometry, &[p(out), p(at), p(1_i32)], &memory);
        assert_eq!(outcome, Err(Fault::IllegalAddress(508)));
    }
}

#[test]
fn a_block_transposes_a_tile() {
    for module in modules() {
        let (memory, n) = (Memory::default(), 37);
        let matrix: Vec<f64> = (0..n * n).map(f64::from).collect();
        let (out, at) = (memory.upload(&vec![0.0_f64; matrix.len()]), memory.upload(&matrix));
        let geometry = Geometry::new([5, 5, 1], [8, 8, 1]);
        assert_eq!(module.entry("transpose").unwrap().static_shared(), 8 * 9 * 8);
        launch(&module, "transpose", &geometry, &[p(out), p(at), p(n)], &memory).unwrap();
        let expected: Vec<f64> = (0..n * n).map(|i| f64::from(i % n * n + i / n)).collect();
        assert_eq!(memory.download::<f64>(out, matrix.len()), expected);
    }
}

#[test]
fn atomics_lose_nothing() {
    for module in modules() {
        let memory = Memory::default();
        let mut words = [0_u32; 14];
        (words[2], words[3], words[4]) = (u32::MAX, i32::MIN.cast_unsigned(), 0xffff);
        let (at, wide) = (memory.upload(&words), memory.upload(&[0_u64; 4]));
        let (floats, doubles) = (memory.upload(&[0.0_f32]), memory.upload(&[0.0_f64]));
        let params = [p(at), p(wide), p(floats), p(doubles)];
        // Enough threads for several cores.
        let n = 128 * 128_u32;
        launch(&module, "atomics", &line(128, 128), &params, &memory).unwrap();
        let expected = [
            n * (n / 2) - n / 2,
            n - 1,
            0,
            u32::MAX,
            0xffe0,
            127,
            0,
            n % 10,
            (0..n).fold(0, |value, _| if value == 0 { 9 } else { value - 1 }),
            1,
            1,
            1,
            1,
            n,
        ];
        assert_eq!(memory.download::<u32>(at, 14), expected);
        let sum = u64::from(n) * u64::from(n - 1) / 2;
        assert_eq!(memory.download::<u64>(wide, 4), [sum << 33, u64::from(n - 1) << 33, 1, 1]);
        assert_eq!(memory.download::<f32>(floats, 1), [8192.0]);
        assert_eq!(memory.download::<f64>(doubles, 1), [4096.0]);
    }
}

#[test]
fn warps_exchange_values_and_votes() {
    for module in modules() {
        let memory = Memory::default();
        let values: Vec<u32> = (0..64).map(|i| (i * i + 3) % 50).collect();
        let (out, at) = (memory.upload(&[0_u32; 64 * 8]), memory.upload(&values));
        launch(&module, "warps", &line(1, 64), &[p(out), p(at)], &memory).unwrap();
        let found: Vec<u32> = memory.download(out, 64 * 8);
        let is_odd = |value: &&u32| **value % 2 == 1;
        let odd = u32::try_from(values.iter().filter(is_odd).count()).unwrap();
        let seven = |values: &[u32]| u32::from(values.contains(&7));
        for (i, found) in found.chunks(8).enumerate() {
            let (first, lane) = (i / 32 * 32, i % 32);
            let warp = &values[first..first + 32];
            let ballot = (0..32).map(|lane| (warp[lane] & 1) << lane).sum::<u32>();
            let expected = [
                warp.iter().sum(),
                warp[if lane < 3 { lane } else { lane - 3 }],
                warp[if lane % 8 + 5 < 8 { lane + 5 } else { lane }],
                warp[i / 2 % 32],
                ballot,
                seven(warp) * 2 + 1,
                odd * 4 + seven(&values) * 2 + 1,
                u32::try_from(lane).unwrap(),
            ];
            assert_eq!(found, expected, "thread {i}");
        }
    }
}

#[test]
fn calls_have_local_memory_and_modules_variables() {
    for module in modules() {
        let memory = Memory::default();
        let values: Vec<u32> = (0..6 * 12).map(|i| i * 7919 % 1000).collect();
        let (out, at) = (memory.upload(&[[0_u32; 2]; 6]), memory.upload(&values));
        launch(&module, "medians", &line(1, 6), &[p(out), p(at), p(3_i32)], &memory).unwrap();
        let median = |(i, values): (usize, &[u32])| {
            let mut sorted = values.to_vec();
            sorted.sort_unstable();
            [sorted[6], [1, 10, 100, 1000, 10000][i % 5]]
        };
        let expected: Vec<[u32; 2]> = values.chunks(12).enumerate().map(median).collect();
        assert_eq!(memory.download::<[u32; 2]>(out, 6), expected);
        launch(&module, "counted", &line(1, 1), &[p(out)], &memory).unwrap();
        assert_eq!(memory.download::<i32>(out, 1), [5 + 6]);
    }
}

#[test]
fn functions_have_shared_memory_besides_the_kernels() {
    for module in modules() {
        let memory = Memory::default();
        let out = memory.upload(&[0_i32; 32]);
        assert_eq!(module.entry("mirror").unwrap().static_shared(), 128 + 32 * 4);
        launch(&module, "mirror", &line(1, 32), &[p(out), p(1000_i16)], &memory).unwrap();
        let expected: Vec<i32> = (0..32).map(|i| 1031 - i).collect();
        assert_eq!(memory.download::<i32>(out, 32), expected);
    }
}

#[test]
fn functions_may_call_themselves_but_not_for_ever() {
    let module = Module::parse(RECURSION).unwrap();
    let memory = Memory::default();
    let out = memory.upload(&[0_u32]);
    launch(&module, "sum", &line(1, 1), &[p(out), p(100_u32)], &memory).unwrap();
    assert_eq!(memory.download::<u32>(out, 1), [5050]);
    let outcome = launch(&module, "sum", &line(1, 1), &[p(out), p(100_000_u32)], &memory);
    assert_eq!(outcome, Err(Fault::IllegalInstruction("more than 512 nested calls".to_owned())));
}

#[test]
fn threads_that_have_ended_do_not_count_at_barriers() {
    for module in modules() {
        let memory = Memory::default();
        let out = memory.upload(&[0_i32; 64]);
        assert_eq!(module.entry("leaving").unwrap().max_threads(), 64);
        launch(&module, "leaving", &line(1, 64), &[p(out)], &memory).unwrap();
        let expected: Vec<i32> = (0..64).map(|i| 1 - i % 2).collect();
        assert_eq!(memory.download::<i32>(out, 64), expected);
        let outcome = launch(&module, "leaving", &line(1, 65), &[p(out)], &memory);
        assert!(matches!(outcome, Err(Fault::IllegalInstruction(_))), "{outcome:?}");
    }
}

#[test]
fn threads_may_wait_for_later_ones() {
    for module in modules() {
        let memory = Memory::default();
        let out = memory.upload(&[0_i32; 33]);
        launch(&module, "flag", &line(1, 32), &[p(out)], &memory).unwrap();
        assert_eq!(memory.download::<i32>(out, 33), [1; 33]);
    }
}

#[test]
fn threads_that_wait_for_each_other_for_ever_are_a_fault() {
    for module in modules() {
        let memory = Memory::default();
        let out = memory.upload(&[0_i32]);
        let outcome = launch(&module, "deadlock", &line(1, 2), &[p(out)], &memory);
        let message = "all threads of a block wait, and not for the same";
        assert_eq!(outcome, Err(Fault::IllegalInstruction(message.to_owned())));
    }
}

#[test]
fn shared_memory_has_an_end() {
    for module in modules() {
        let memory = Memory::default();
        let out = memory.upload(&[0_i32]);
        let beyond =
            |index: i32| launch(&module, "beyond", &line(1, 4), &[p(out), p(index)], &memory);
        assert_eq!(beyond(3), Ok(()));
        assert_eq!(memory.download::<i32>(out, 1), [3]);
        assert_eq!(beyond(4), Err(Fault::IllegalAddress(16)));
    }
}

#[test]
fn mathematical_functions_are_close_to_rusts() {
    for module in modules() {
        let memory = Memory::default();
        let x: Vec<f64> = (0..32).map(|i| 0.37 + 0.41 * f64::from(i)).chain([1e7]).collect();
        let (out, at) = (memory.upload(&vec![0.0_f64; 12 * x.len()]), memory.upload(&x));
        let threads = u32::try_from(x.len()).unwrap();
        launch(&module, "mathematics", &line(1, threads), &[p(out), p(at)], &memory).unwrap();
        for (x, found) in x.iter().zip(memory.download::<[f64; 12]>(out, x.len())) {
            #[expect(clippy::cast_possible_truncation, reason = "the kernel does so")]
            let b = f64::from(*x as f32);
            let expected = [
                x.sin(),
                x.exp(),
                x.ln(),
                x.powf(1.7),
                x.cbrt(),
                x % 0.7,
                b.sin(),
                b.exp(),
                b.ln(),
                b.powf(f64::from(1.7_f32)),
                b.tanh(),
                b % f64::from(0.7_f32),
            ];
            for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let overflows = i >= 6 && expected > f64::from(f32::MAX);
                let expected = if overflows { f64::INFINITY } else { expected };
                let tolerance = if i < 6 { 1e-14 } else { 1e-6 };
                let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
                assert!(close || found == expected, "function {i} of {x}: {found}, not {expected}");
            }
        }
    }
}

/// The sum of the numbers to n, by a function that calls itself, with its address taken to a local variable.
const RECURSION: &str = "
.version 8.0
.target sm_60
.address_size 64
.func (.param .b32 result) up_to(.param .b32 n)
{
    .local .align 8 .b8 kept[8];
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    ld.param.u32 %r1, [n];
    mov.u64 %rd1, kept;
    cvta.local.u64 %rd2, %rd1;
    st.u32 [%rd2+4], %r1;
    setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r3, 0;
    @%p1 bra DONE;
    add.s32 %r2, %r1, -1;
    {
    .param .b32 given;
    st.param.b32 [given], %r2;
    .param .b32 returned;
    call.uni (returned), up_to, (given);
    ld.param.b32 %r3, [returned];
    }
DONE:
    ld.local.u32 %r4, [%rd1+4];
    add.s32 %r3, %r3, %r4;
    st.param.b32 [result], %r3;
    ret;
}
.visible .entry sum(.param .u64 out, .param .u32 n)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    {
    .param .b32 given;
    st.param.b32 [given], %r1;
    .param .b32 returned;
    call.uni (returned), up_to, (given);
    ld.param.b32 %r2, [returned];
    }
    st.global.u32 [%rd1], %r2;
    ret;
}
";

#[test]
fn blocks_of_a_cooperative_launch_can_wait_for_each_other() {
    const SUITE: &str = include_str!("../../../conformance/src/kernels/kernels.ptx");
    let module = Module::parse(SUITE).unwrap();
    for is_cooperative in [true, false] {
        let memory = Memory::default();
        let (arrived, posted) = (memory.upload(&[0_u32]), memory.upload(&[0_u32; 24]));
        let seen = memory.upload(&[0_u32; 24]);
        let geometry = Geometry { is_cooperative, ..line(24, 1) };
        let params = [p(arrived), p(posted), p(seen), p(24_u32)];
        launch(&module, "meet", &geometry, &params, &memory).unwrap();
        let others: Vec<u32> = (2..=24).chain([1]).collect();
        assert_eq!(memory.download::<u32>(seen, 24) == others, is_cooperative);
    }
}
