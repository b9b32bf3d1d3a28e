//! The kernels that every device supplies to the suite.
//!
//! A device's [`ModuleBundle`](runtime_core::ModuleBundle) has these kernels, under these names, in a format that the
//! device supports. Use [`host_functions`] for devices that run Rust functions, [`opencl_c`] for OpenCL C, [`cuda_c`]
//! for CUDA C or PTX, and [`hip_c`] for HIP C. Other devices supply their own sources or binaries.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | `fill_index` | `out: u32[]` written, `start: u32`, `n: u32` | `out[i] = start + i` |
//! | `add_one` | `data: u32[]` written, `n: u32` | `data[i] += 1` |
//! | `add` | `out: u32[]` written, `a: u32[]`, `b: u32[]`, `n: u32` | `out[i] = a[i] + b[i]` |
//! | `saxpy` | `y: f32[]` written, `x: f32[]`, `a: f32`, `n: u32` | `y[i] += a * x[i]` |
//! | `scale_f64` | `y: f64[]` written, `x: f64[]`, `a: f64`, `n: u32` | `y[i] = a * x[i]` |
//! | `index_3d` | `out: u32[]` written, `nx: u32`, `ny: u32`, `nz: u32` | `out[(z * ny + y) * nx + x] = x + 1000 * y + 1000000 * z` |
//! | `many_arguments` | `out: f64[]` written, `a: i8`, `b: u8`, `c: i16`, `d: u16`, `e: i32`, `f: u32`, `g: i64`, `h: u64`, `p: f32`, `q: f64`, `x: f64[]` | `out[0..11] = a, b, c, d, e, f, g, h, p, q, x[0]`, each converted to `f64` |
//! | `spin` | `out: u32[]` written, `rounds: u64` | starts with `v = 0`, sets `v = v * 1664525 + 1013904223` `rounds` times, then `out[0] = v` |
//! | `meet` | `arrived: u32[]` written, `posted: u32[]` written, `seen: u32[]` written, `n: u32` | block `b` of `n` sets `posted[b] = b + 1`, adds 1 to `arrived[0]`, waits until it is `n`, then sets `seen[b] = posted[(b + 1) % n]`; it gives up after some rounds of waiting, with `seen[b] = 0` |
//! | `fault` | `out: u32[]` written | makes the device stop the program: a trap, an assertion, a panic |
//!
//! - Here `i` is the index of the work-item along x over the whole grid: block index × block size + index in the block.
//!   x, y, z are its indices along the three dimensions. Work-items with `i ≥ n` (or `x ≥ nx`, …) do nothing. Elements
//!   without a work-item keep their values.
//! - Unsigned arithmetic wraps. `saxpy` may fuse its multiplication and addition; with the numbers of the suite this
//!   makes no difference.
//! - Parameters come in this order. `u32[]` is a pointer to elements; everything else is a value of that type.
//! - `many_arguments` and `spin` are launched with a single work-item. The suite measures the time of a round of
//!   `spin`. It requires only that twice the rounds take about twice the time, so the kernel needs no clock.
//! - `meet` is launched cooperatively, with blocks of one work-item. Only devices with cooperative launches need it. Its
//!   writes and reads of `posted` reach the memory that blocks share, in the order of the table.
//! - `fault` may be left out if nothing stops the program, or if stopping it takes the machine down.

mod gpu;
mod host;
mod opencl;

pub use gpu::{cuda_c, hip_c};
pub use host::host_functions;
pub use opencl::opencl_c;

pub(crate) use host::host_module;

/// The kernels that a bundle must have.
pub(crate) const REQUIRED: &[&str] =
    &["fill_index", "add_one", "add", "saxpy", "scale_f64", "index_3d", "many_arguments", "spin"];

/// The result of `spin`. Its recurrence is affine, so the number of squarings is the number of bits of `rounds`.
pub(crate) fn spin_value(mut rounds: u64) -> u32 {
    let compose = |(a, b): (u32, u32), (c, d): (u32, u32)| {
        (a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b))
    };
    let mut power = (1_664_525, 1_013_904_223);
    let mut total = (1, 0);
    while rounds > 0 {
        if rounds & 1 == 1 {
            total = compose(power, total);
        }
        power = compose(power, power);
        rounds >>= 1;
    }
    total.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumping_ahead_is_stepping() {
        let mut value = 0_u32;
        for rounds in 0..100 {
            assert_eq!(spin_value(rounds), value, "{rounds} rounds");
            value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
    }
}
