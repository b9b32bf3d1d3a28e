//! The kernels of stencils on a device.

use std::ptr;

use runtime_core::{
    Device, Error, ErrorKind, ImageFormat, Kernel, Launch, Limits, ModuleBundle, ModuleImage,
    Result,
};

use crate::description::{C, Parts, Stencil};
use crate::host;

/// The kernels that were loaded, and images that are not made here.
#[derive(Default)]
pub(crate) struct Kernels {
    loaded: Vec<(&'static Stencil, Kernel)>,
    images: Vec<(&'static Stencil, ModuleImage<'static>)>,
}

impl Kernels {
    /// The kernel of a stencil. Compiles it when it is first needed.
    pub(crate) fn of(&mut self, device: &Device, stencil: &'static Stencil) -> Result<Kernel> {
        let known = self.loaded.iter().find(|(known, _)| ptr::eq(*known, stencil));
        if let Some((_, kernel)) = known {
            return Ok(kernel.clone());
        }
        let images = self.images.iter().filter(|(of, _)| ptr::eq(*of, stencil));
        let kernel = load(device, stencil.parts(), images.map(|(_, image)| image))?;
        self.loaded.push((stencil, kernel.clone()));
        Ok(kernel)
    }

    /// Adds an image of a stencil.
    pub(crate) fn add(
        &mut self,
        stencil: &'static Stencil,
        image: ModuleImage<'static>,
    ) -> Result<()> {
        if image.format() != ImageFormat::Elf {
            let message = format!(
                "an image of {} for stencil {}; only those of ELF are not made here",
                image.format(),
                stencil.name()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "add_image", message));
        }
        self.images.push((stencil, image));
        Ok(())
    }
}

fn load<'a>(
    device: &Device,
    parts: &'static Parts,
    images: impl Iterator<Item = &'a ModuleImage<'static>> + Clone,
) -> Result<Kernel> {
    let functions = host::module(parts);
    let bundle = |with_options: bool| {
        let mut bundle = ModuleBundle::new().with(ModuleImage::functions(&functions));
        for source in
            parts.sources.iter().filter(|source| ![C, ImageFormat::Elf].contains(&source.format))
        {
            let image = ModuleImage::source(source.format, source.text);
            let options = if with_options { source.options } else { &[] };
            bundle = bundle.with(image.with_options(options.iter().copied()));
        }
        images.clone().fold(bundle, |bundle, image| bundle.with(image.clone()))
    };
    let bundle = bundle(true);
    let image = bundle.best_for(&device.info().formats);
    let name = match image.is_ok_and(|image| image.format() == ImageFormat::Elf) {
        true => image_kernel(parts),
        false => parts.kernel.to_owned(),
    };
    let loaded = device.module_load_bundle(&bundle);
    let about = |error: Error| error.about(format_args!("stencil {}", parts.name));
    loaded.and_then(|module| module.kernel(&name)).map_err(about)
}

/// The name of the kernel in an image that was made of the stencil's text. It has the same hash as in
/// `stencil-translator`.
fn image_kernel(parts: &Parts) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let text = parts.sources.iter().find(|source| source.format == C).map_or("", |c| c.text);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{}_{hash:016x}", parts.kernel)
}

/// A launch of one work-item for each point of a box: x runs along the last axis.
pub(crate) fn geometry(limits: &Limits, extents: &[usize]) -> Launch {
    let extent =
        |dimension: usize| extents.len().checked_sub(dimension + 1).map_or(1, |axis| extents[axis]);
    let mut left = limits.max_block_threads.clamp(1, 256);
    let (mut grid, mut block) = ([1; 3], [1; 3]);
    for dimension in 0..3 {
        let wanted = if dimension == 0 { 64 } else { 8 };
        let points = u32::try_from(extent(dimension)).unwrap_or(u32::MAX);
        block[dimension] = wanted.min(limits.max_block[dimension]).min(left).min(points).max(1);
        left /= block[dimension];
        grid[dimension] = points.div_ceil(block[dimension]);
    }
    Launch::new(grid, block)
}
