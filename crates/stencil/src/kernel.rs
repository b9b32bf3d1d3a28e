//! The kernels of stencils on a device.

use std::ptr;

use runtime_core::{Device, Error, Kernel, Launch, Limits, ModuleBundle, ModuleImage, Result};

use crate::description::{C, Parts, Stencil};
use crate::host;

/// The kernels that were loaded.
#[derive(Default)]
pub(crate) struct Kernels(Vec<(&'static Stencil, Kernel)>);

impl Kernels {
    /// The kernel of a stencil. Compiles it when it is first needed.
    pub(crate) fn of(&mut self, device: &Device, stencil: &'static Stencil) -> Result<Kernel> {
        let known = self.0.iter().find(|(known, _)| ptr::eq(*known, stencil));
        if let Some((_, kernel)) = known {
            return Ok(kernel.clone());
        }
        let kernel = load(device, stencil.parts())?;
        self.0.push((stencil, kernel.clone()));
        Ok(kernel)
    }
}

fn load(device: &Device, parts: &'static Parts) -> Result<Kernel> {
    let functions = host::module(parts);
    let bundle = |with_options: bool| {
        let mut bundle = ModuleBundle::new().with(ModuleImage::functions(&functions));
        for source in parts.sources.iter().filter(|source| source.format != C) {
            let image = ModuleImage::source(source.format, source.text);
            let options = if with_options { source.options } else { &[] };
            bundle = bundle.with(image.with_options(options.iter().copied()));
        }
        bundle
    };
    let loaded = device.module_load_bundle(&bundle(true));
    let about = |error: Error| error.about(format_args!("stencil {}", parts.name));
    loaded.and_then(|module| module.kernel(parts.kernel)).map_err(about)
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
