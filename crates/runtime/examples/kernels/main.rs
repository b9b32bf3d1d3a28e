//! One kernel in every format, for those who bring kernels. A device loads the format that it prefers.
//!
//! ```text
//! cargo run --package runtime --features opencl --example kernels -- opencl:0
//! ```
#![expect(unsafe_code, reason = "a launch of a kernel that is brought along is unsafe")]

use runtime::{Grid, HostModule, ImageFormat, ModuleBundle, ModuleImage, Result, args, registry};

/// `y += a x`, as a Rust function.
fn saxpy(grid: &Grid<'_>, y: &mut [f32], x: &[f32], a: f32, _n: u32) {
    grid.chunks_mut(y, 4096, |chunk, y| {
        for (y, x) in y.iter_mut().zip(&x[4096 * chunk..]) {
            *y += a * x;
        }
    });
}

/// The kernel in every format. Of the executables, only the one for `architecture` is included.
fn bundle(architecture: &str) -> ModuleBundle<'static> {
    // `cargo xtask firmware` compiles them.
    let elf: &[u8] = match architecture {
        "armv7e-m+fp.dp" => include_bytes!("saxpy-cortex-m7.elf"),
        _ => include_bytes!("saxpy-riscv64.elf"),
    };
    ModuleBundle::new()
        .with(&HostModule::new().with("saxpy", saxpy))
        .with(ModuleImage::source(ImageFormat::OpenClC, include_str!("saxpy.cl")))
        .with(ModuleImage::source(ImageFormat::CudaC, include_str!("saxpy.cu")))
        .with(ModuleImage::source(ImageFormat::HipC, include_str!("saxpy.cu")))
        .with(ModuleImage::source(ImageFormat::Ptx, include_str!("saxpy.ptx")))
        .with(ModuleImage::binary(ImageFormat::Elf, elf))
}

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => registry().open(&selector)?,
        None => registry().open_default("host")?,
    };
    let stream = device.default_stream();
    let n = 10_000_u16;
    let x: Vec<f32> = (0..n).map(f32::from).collect();
    let x = device.memory_from_slice(&stream, &x)?;
    let mut y = device.memory_from_slice(&stream, &vec![1.0_f32; x.len()])?;
    let bundle = bundle(&device.info().architecture);
    let kernel = device.module_load_bundle(&bundle)?.kernel("saxpy")?;
    let launch = kernel.cover(n.into())?;
    // SAFETY: in every format, the kernel takes these arguments, and accesses the first `n` elements of the memories.
    unsafe { kernel.launch(&stream, &launch, args![&mut y, &x, 2.0_f32, u32::from(n)])? };
    let expected: Vec<f32> = (0..n).map(|i| 1.0 + 2.0 * f32::from(i)).collect();
    assert_eq!(y.view().to_vec(&stream)?, expected);
    println!("{}: y = 1 + 2 x for {n} elements", device.id());
    Ok(())
}
