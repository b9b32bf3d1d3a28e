//! Whether a device rounds as IEEE 754 says: the same stencils on the device and on the host.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

use runtime_core::{Arg, DType, Device, Element, Kernel, Result};
use smallvec::SmallVec;

use crate::arguments::Words;
use crate::description::{In, Out, Stencil};
use crate::geometry::geometry;
use crate::host;

/// Operations whose result differs if they are contracted, approximated, or lose subnormal numbers.
#[crate::stencil]
fn double(
    fused: Out<f64, 1>,
    quotient: Out<f64, 1>,
    root: Out<f64, 1>,
    small: Out<f64, 1>,
    a: In<f64, 1>,
    b: In<f64, 1>,
    c: In<f64, 1>,
) {
    fused.set(a.at(0) * b.at(0) + c.at(0));
    quotient.set(a.at(0) / b.at(0));
    root.set(a.at(0).abs().sqrt());
    small.set(b.at(0) * 1e-160 * (c.at(0) * 1e-155));
}

/// As [`double`].
#[crate::stencil]
fn single(
    fused: Out<f32, 1>,
    quotient: Out<f32, 1>,
    root: Out<f32, 1>,
    small: Out<f32, 1>,
    a: In<f32, 1>,
    b: In<f32, 1>,
    c: In<f32, 1>,
) {
    fused.set(a.at(0) * b.at(0) + c.at(0));
    quotient.set(a.at(0) / b.at(0));
    root.set(a.at(0).abs().sqrt());
    small.set(b.at(0) * 1e-20 * (c.at(0) * 1e-20));
}

/// The number of points.
const POINTS: usize = 512;

/// The stencil that probes a type.
pub(crate) fn of(dtype: DType) -> &'static Stencil {
    if dtype == DType::F32 { single::STENCIL } else { double::STENCIL }
}

/// Runs a probe on a device, and compares its bits with those of this processor. Blocks. Returns the number of values
/// that differ, and of all values.
pub(crate) fn run(device: &Device, dtype: DType, kernel: &Kernel) -> Result<(usize, usize)> {
    match dtype {
        #[expect(clippy::cast_possible_truncation, reason = "rounds")]
        DType::F32 => compare(device, single::STENCIL, kernel, |value| value as f32),
        _ => compare(device, double::STENCIL, kernel, |value| value),
    }
}

fn compare<T: Element>(
    device: &Device,
    stencil: &'static Stencil,
    kernel: &Kernel,
    convert: fn(f64) -> T,
) -> Result<(usize, usize)> {
    let parts = stencil.parts();
    // Numbers with all bits of their fractions in use, of both signs and some sizes.
    let value = |input: usize, point: usize| {
        let number = ((point * 3 + input) as f64 + 0.618).sqrt() * 1.234_567_890_123;
        let sign = if (point >> input) & 1 == 0 { 1.0 } else { -1.0 };
        convert(sign * (number.fract() + 0.5) * [1.0, 8.0, 0.125][point % 3])
    };
    let inputs: [Vec<T>; 3] =
        std::array::from_fn(|input| (0..POINTS).map(|point| value(input, point)).collect());
    let mut words = Words::new(parts, &[]);
    words.set_box(&[POINTS, 1, 1], &[0; 3], &[POINTS, 1, 1]);
    let stream = device.default_stream();
    let mut outputs = Vec::new();
    for _ in 0..4 {
        outputs.push(device.memory_from_slice(&stream, &[T::zeroed(); POINTS])?);
    }
    let mut memories = Vec::new();
    for input in &inputs {
        memories.push(device.memory_from_slice(&stream, input)?);
    }
    let mut args: SmallVec<[Arg<'_>; 8]> =
        outputs.iter_mut().map(|output| output.view_mut().into()).collect();
    args.extend(memories.iter().map(|memory| Arg::from(memory.view())));
    args.push(Arg::bytes(words.bytes()));
    let geometry = geometry(&device.info().limits, &[POINTS]);
    // SAFETY: the kernel takes these arguments, and reads and writes the points of the box.
    unsafe { kernel.launch(&stream, &geometry, &args)? };
    drop(args);
    let expected = host::compute(parts.rows[0], &words, &inputs, outputs.len(), POINTS);
    let mut different = 0;
    for (output, expected) in outputs.iter().zip(expected) {
        let values = output.view().to_vec(&stream)?;
        let bits = |value: &T| bytemuck::bytes_of(value).to_vec();
        different += values.iter().zip(&expected).filter(|(a, b)| bits(a) != bits(b)).count();
    }
    Ok((different, 4 * POINTS))
}

#[cfg(test)]
pub(crate) mod tests {
    use backend_opencl::OpenClBackend;
    use runtime_core::{Backend, ErrorKind, ImageFormat, ModuleImage};

    use super::*;

    pub(crate) fn opencl() -> Option<Device> {
        match OpenClBackend::new().open(&"opencl:0".parse().unwrap()) {
            Ok(device) => Some(device),
            Err(error) if error.kind() == ErrorKind::Unavailable => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_device_that_contracts_is_found() {
        let Some(device) = opencl() else { return };
        for dtype in [DType::F32, DType::F64] {
            let text = of(dtype).source(ImageFormat::OpenClC).unwrap();
            let name = of(dtype).parts().kernel;
            let found = |text: String, options: &[&'static str]| {
                let image = ModuleImage::source(ImageFormat::OpenClC, text)
                    .with_options(options.iter().copied());
                let kernel = device.module_load(image).unwrap().kernel(name).unwrap();
                run(&device, dtype, &kernel).unwrap()
            };
            assert_eq!(found(text.to_owned(), &[]), (0, 4 * POINTS));
            let contracted = text.replace("FP_CONTRACT OFF", "FP_CONTRACT ON");
            assert_ne!(contracted, text);
            assert!(found(contracted, &["-cl-mad-enable"]).0 > POINTS / 10, "{dtype}");
        }
    }
}
