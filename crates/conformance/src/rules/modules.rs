//! Loading code: formats, invalid images, names of kernels.

use runtime_core::{ErrorKind, ImageFormat, ModuleBundle, ModuleImage, args};

use crate::kernels::{REQUIRED, host_functions};
use crate::outcome::{Outcome, check, check_eq, refused, same};
use crate::setup::attempt;
use crate::{Fixture, Stop};

const FORMATS: [ImageFormat; 9] = [
    ImageFormat::HostFunctions,
    ImageFormat::CudaC,
    ImageFormat::Ptx,
    ImageFormat::Cubin,
    ImageFormat::HipC,
    ImageFormat::CodeObject,
    ImageFormat::OpenClC,
    ImageFormat::SpirV,
    ImageFormat::Elf,
];

/// The bundle has every kernel of the table, and an unknown name is `KernelNotFound`.
pub fn kernels_are_found_by_name(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let module = setup.kernels.module();
    for name in REQUIRED {
        check_eq!(module.kernel(name)?.name(), *name, "the kernel's name");
    }
    for name in
        ["no_such_kernel", "", "fill_inde", "fill_index2", "Fill_Index", " fill_index", "ключ"]
    {
        let what = format_args!("kernel {name:?}");
        let error = refused(module.kernel(name), ErrorKind::KernelNotFound, what)?;
        check!(error.message().contains(name), "{error} does not name {name:?}");
    }
    for name in ["fill_index\0", "\0", "fill\0index"] {
        let what = format_args!("kernel {name:?}");
        refused(module.kernel(name), ErrorKind::InvalidArgument, what)?;
    }
    check_eq!(module.kernel("add_one")?.name(), "add_one", "a kernel after failed look-ups");
    Ok(())
}

/// An image in an unsupported format is `InvalidModule`. The message lists the supported formats. If the device could
/// support the format, the message says what is missing for it.
pub fn formats_not_taken_are_refused(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let taken = &setup.device.info().formats;
    for format in FORMATS.into_iter().filter(|format| !taken.contains(format)) {
        let what = format_args!("an image of {format}");
        let image = ModuleImage::binary(format, vec![0x7F, 0x45, 0x4C, 0x46]);
        let error = refused(setup.device.module_load(image), ErrorKind::InvalidModule, what)?;
        for accepted in taken {
            check!(error.message().contains(accepted.name()), "{error} does not say {accepted}");
        }
        for (_, why) in setup.device.info().absent_formats.iter().filter(|(f, _)| *f == format) {
            check!(error.message().contains(why), "{error} does not say {why}");
        }
    }
    Ok(())
}

/// Invalid code is `InvalidModule`, and options that nothing reads or that contain a NUL are `InvalidArgument`, in
/// every supported format. The device still works.
pub fn broken_code_is_refused(fixture: &Fixture) -> Outcome {
    const NONSENSE: &str = "this is }{ not a program in any language";
    let setup = fixture.setup()?;
    for format in &setup.device.info().formats {
        let garbage: Vec<u8> = (0..=255).rev().cycle().take(1000).collect();
        for (what, image) in [
            ("nonsense", ModuleImage::source(*format, NONSENSE)),
            ("nonsense as bytes", ModuleImage::binary(*format, NONSENSE.as_bytes())),
            ("random bytes", ModuleImage::binary(*format, garbage)),
            ("a NUL in the middle", ModuleImage::source(*format, "this is }{\0 no program")),
        ] {
            let what = format_args!("{what} as {format}");
            refused(setup.device.module_load(image), ErrorKind::InvalidModule, what)?;
        }
        if !format.takes_options() {
            let image = ModuleImage::source(*format, NONSENSE).with_options(["-O"]);
            let what = format_args!("options of {format}");
            refused(setup.device.module_load(image), ErrorKind::InvalidArgument, what)?;
        }
        if matches!(format, ImageFormat::CudaC | ImageFormat::HipC | ImageFormat::OpenClC) {
            let image = ModuleImage::source(*format, "").with_options(["-DA\0"]);
            let what = format_args!("an option with a NUL for {format}");
            refused(setup.device.module_load(image), ErrorKind::InvalidArgument, what)?;
        }
        // Some compilers accept an empty text as a program without kernels.
        for (what, image) in [
            ("an empty text", ModuleImage::source(*format, "")),
            ("no byte", ModuleImage::binary(*format, Vec::new())),
        ] {
            match setup.device.module_load(image) {
                Ok(module) => {
                    let kernel = module.kernel("fill_index");
                    let what = format_args!("a kernel in {what} as {format}");
                    refused(kernel, ErrorKind::KernelNotFound, what)?
                }
                refusal => refused(refusal, ErrorKind::InvalidModule, what)?,
            };
        }
    }
    setup.is_usable()
}

/// From a bundle, the device loads the image that it prefers. A bundle without a supported format is refused.
pub fn a_bundle_offers_the_device_a_choice(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let formats = &setup.device.info().formats;
    let mut crowded = ModuleBundle::new();
    let mut foreign = ModuleBundle::new();
    for format in FORMATS.into_iter().filter(|format| !formats.contains(format)) {
        crowded = crowded.with(ModuleImage::binary(format, vec![1, 2, 3]));
        foreign = foreign.with(ModuleImage::binary(format, vec![1, 2, 3]));
    }
    for image in fixture.kernels().images() {
        crowded = crowded.with(image.clone());
    }
    check_eq!(
        setup.device.module_load_bundle(&crowded)?.kernel("spin")?.name(),
        "spin",
        "a kernel"
    );
    for (what, bundle) in [("an empty bundle", ModuleBundle::new()), ("foreign formats", foreign)] {
        let loaded = setup.device.module_load_bundle(&bundle);
        refused(loaded, ErrorKind::InvalidModule, what)?;
    }
    // A device that supports Rust functions accepts the suite's.
    let loaded = setup.device.module_load_bundle(&host_functions());
    let takes_functions = formats.contains(&ImageFormat::HostFunctions);
    check_eq!(loaded.is_ok(), takes_functions, "whether Rust functions are loaded");
    Ok(())
}

/// Twenty modules can be loaded at once. Each has its own kernels, and unloading one does not affect the others.
pub fn many_modules_are_loaded_at_once(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let mut modules = Vec::new();
    for _ in 0..20 {
        modules.push(setup.device.module_load_bundle(fixture.kernels())?);
    }
    let kernels = modules.iter().map(|m| m.kernel("add_one")).collect::<Result<Vec<_>, _>>()?;
    let mut memory = setup.upload(&[0_u32; 30])?;
    for _ in 0..10 {
        modules.pop();
    }
    for kernel in &kernels {
        let arguments = args![&mut memory, 30_u32];
        attempt(kernel, &setup.stream, &setup.kernels.cover(30), arguments)?;
    }
    same(&setup.download(&memory)?, &[20; 30], "the values that kernels of twenty modules computed")
}

/// A kernel keeps its module loaded, in any thread.
pub fn a_kernel_keeps_its_module_loaded(fixture: &Fixture) -> Outcome {
    let setup = fixture.setup()?;
    let module = setup.device.module_load_bundle(fixture.kernels())?;
    check!(module.device().is_same(&setup.device), "a module names another device");
    let kernel = module.kernel("fill_index")?;
    let clone = kernel.clone();
    drop((module, kernel));
    let mut memory = setup.upload(&[0_u32; 20])?;
    let launched = std::thread::scope(|scope| {
        let launch = scope.spawn(|| {
            let arguments = args![&mut memory, 4_u32, 20_u32];
            attempt(&clone, &setup.stream, &setup.kernels.cover(20), arguments)
        });
        launch.join().map_err(|_| Stop::failed("a thread panicked"))
    });
    launched??;
    let expected: Vec<u32> = (4..24).collect();
    same(
        &setup.download(&memory)?,
        &expected,
        "the values that a kernel computed after its module was dropped",
    )
}
