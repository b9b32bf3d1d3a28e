//! The kernels of stencils on a device.

use std::iter;
use std::ptr;

use runtime_core::{
    DType, Device, Error, ErrorKind, ImageFormat, Kernel, ModuleBundle, ModuleImage, Result,
};

use crate::description::{C, Parts, Stencil};
use crate::hash::hash_of_text;
use crate::{host, probe};

/// The kernels that were loaded, images that are not made here, and what is known of the device.
#[derive(Default)]
pub(crate) struct Kernels {
    loaded: Vec<(&'static Stencil, Kernel)>,
    images: Vec<(&'static Stencil, ModuleImage<'static>)>,
    /// For `f32` and `f64`: how many of the values of a probe have other bits than on the host, and how many there are.
    probed: [Option<(usize, usize)>; 2],
}

impl Kernels {
    /// The kernel of a stencil. Compiles it when it is first needed.
    pub(crate) fn of(&mut self, device: &Device, stencil: &'static Stencil) -> Result<Kernel> {
        let known = self.loaded.iter().find(|(known, _)| ptr::eq(*known, stencil));
        if let Some((_, kernel)) = known {
            return Ok(kernel.clone());
        }
        self.check(device, stencil)?;
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

    /// Refuses a stencil that promises the same bits on all devices, if this device does not round as IEEE 754 says.
    fn check(&mut self, device: &Device, stencil: &'static Stencil) -> Result<()> {
        // Rust rounds so. There are no images of probes, and other images are compiled with options that demand it.
        let trusted = [ImageFormat::HostFunctions, ImageFormat::Elf];
        if device.info().formats.first().is_some_and(|format| trusted.contains(format)) {
            return Ok(());
        }
        let text = stencil.source(ImageFormat::OpenClC).unwrap_or_default();
        for (index, dtype) in [DType::F32, DType::F64].into_iter().enumerate() {
            let is_used = text.contains(["float", "double"][index]);
            if !is_used || stencil.is_inexact() {
                continue;
            }
            let (different, all) = match self.probed[index] {
                Some(known) => known,
                None => {
                    let kernel = load(device, probe::of(dtype).parts(), iter::empty())?;
                    *self.probed[index].insert(probe::run(device, dtype, &kernel)?)
                }
            };
            if different > 0 {
                let message = format!(
                    "stencil {}: {different} of {all} values of {dtype} have other bits on this device than on \
                     processors: write `#[stencil(inexact)]` to accept that",
                    stencil.name()
                );
                return Err(Error::new(ErrorKind::Unsupported, "load", message).on(device.id()));
            }
        }
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
    let exact = bundle(true);
    let name = match exact.best_for(&device.info().formats) {
        Ok(image) if image.format() == ImageFormat::Elf => image_kernel(parts),
        _ => parts.kernel.to_owned(),
    };
    let mut loaded = device.module_load_bundle(&exact);
    if loaded.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidModule) {
        // A device that rounds otherwise refuses the options that forbid it. The probe finds that.
        loaded = device.module_load_bundle(&bundle(false)).or(loaded);
    }
    let about = |error: Error| error.about(format_args!("stencil {}", parts.name));
    loaded.and_then(|module| module.kernel(&name)).map_err(about)
}

/// The name of the kernel in an image that was made of the stencil's text. It has the same hash as in
/// `stencil-translator`.
fn image_kernel(parts: &Parts) -> String {
    let text = parts.sources.iter().find(|source| source.format == C).map_or("", |c| c.text);
    let hash = hash_of_text(text);
    format!("{}_{hash:016x}", parts.kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::{In, Out};

    #[crate::stencil]
    fn exact(out: Out<f32, 1>, a: In<f32, 1>) {
        out.set(a.at(0) + 1.0);
    }

    #[crate::stencil(inexact)]
    fn inexact(out: Out<f32, 1>, a: In<f32, 1>) {
        out.set(a.at(0).exp());
    }

    #[crate::stencil]
    fn integers(out: Out<i32, 1>, a: In<i32, 1>) {
        out.set(a.at(0) + 1);
    }

    #[test]
    fn stencils_with_the_same_bits_everywhere_are_refused_where_that_does_not_hold() {
        let Some(device) = probe::tests::opencl() else { return };
        let mut kernels = Kernels { probed: [Some((3, 2048)), None], ..Default::default() };
        let error = kernels.of(&device, exact::STENCIL).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("stencil exact: 3 of 2048 values of f32"), "{error}");
        for stencil in [inexact::STENCIL, integers::STENCIL] {
            kernels.of(&device, stencil).unwrap();
        }
        let mut kernels = Kernels::default();
        kernels.of(&device, exact::STENCIL).unwrap();
        assert_eq!(kernels.probed, [Some((0, 2048)), None]);
    }
}
