//! Measurement of the host's floating-point operations per second.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calls functions compiled for instructions that were found at run time"
    )
)]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use runtime_core::DType;

use crate::device::default_threads;

/// Minimum duration of a sample.
const SAMPLE: Duration = Duration::from_millis(5);
const SAMPLES: usize = 5;

/// Measures the peak number of floating-point operations per second on all cores of the host. The operations are
/// multiply-adds, counted as two operations each, on registers only, with vectors of up to 256 bits.
///
/// `None` for types other than `F32` and `F64`. Blocks for some tens of milliseconds. Other load lowers the result.
///
/// ```
/// use backend_host::peak_flops;
/// use runtime_core::DType;
///
/// assert!(peak_flops(DType::F64).unwrap() > 0.0);
/// assert_eq!(peak_flops(DType::I32), None);
/// ```
pub fn peak_flops(dtype: DType) -> Option<f64> {
    let chain = match dtype {
        DType::F32 => chains_f32(),
        DType::F64 => chains_f64(),
        _ => return None,
    };
    (0..SAMPLES).map(|_| on_all_cores(chain)).max_by(f64::total_cmp)
}

/// Runs a number of rounds of independent chains of multiply-adds. Returns the number of operations.
type Chains = fn(u32) -> f64;

/// Operations per second of all cores, from the start of the first core to the end of the last.
fn on_all_cores(chains: Chains) -> f64 {
    let threads = default_threads();
    let start = Barrier::new(threads);
    let sample = || {
        start.wait();
        let (began, mut operations) = (Instant::now(), 0.0);
        while began.elapsed() < SAMPLE {
            operations += chains(10_000);
        }
        operations / began.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(sample)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).sum()
    })
}

macro_rules! chains {
    ($choose:ident, $plain:ident, $fused:ident, $type:ty) => {
        fn $choose() -> Chains {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma")
            {
                // SAFETY: the processor has both features.
                return |rounds| unsafe { $fused(rounds) };
            }
            $plain
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $fused(rounds: u32) -> f64 {
            // Ten vectors of 256 bits: enough to hide the latency of two units, few enough for sixteen registers.
            run::<{ 320 / size_of::<$type>() }, $type>(rounds, |a, x, y| a.mul_add(x, y))
        }

        fn $plain(rounds: u32) -> f64 {
            // Fused where every processor of the architecture supports it; elsewhere it would be a library call.
            const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
            run::<{ 160 / size_of::<$type>() }, $type>(rounds, |a, x, y| {
                if FUSED { a.mul_add(x, y) } else { a * x + y }
            })
        }
    };
}

chains!(chains_f32, plain_f32, fused_f32, f32);
chains!(chains_f64, plain_f64, fused_f64, f64);

/// Advances `N` chains by `step`, `rounds` times. Inlined, so that it is compiled for its caller's instructions.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would be compiled for the baseline processor")]
fn run<const N: usize, T: Copy + From<f32>>(rounds: u32, step: impl Fn(T, T, T) -> T) -> f64 {
    // Factors unknown to the compiler, and near 1 so that nothing overflows or becomes denormal.
    let (x, y): (T, T) = black_box((0.999_f32.into(), 0.001_f32.into()));
    let mut chains: [T; N] = black_box([1.0_f32.into(); N]);
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = step(*chain, x, y);
        }
    }
    black_box(&chains);
    2.0 * f64::from(rounds) * N as f64
}
