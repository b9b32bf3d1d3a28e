//! The conformance suite on the QEMU machine `virt`, through the accelerator adapter.
#![cfg(all(feature = "embedded", target_os = "linux"))]

use backend_embedded::EmbeddedBackend;
use runtime_core::{Backend, Error, ErrorKind, ImageFormat, ModuleBundle, ModuleImage};

const KERNELS: &[u8] = include_bytes!("../firmware/built/kernels-riscv64.elf");

conformance::accelerator! {
    name: "embedded",
    // The other machine has a different processor, which cannot run these kernels, so a second instance replaces it.
    open: |index| match index {
        0 => EmbeddedBackend::new().open(&"embedded:qemu-riscv64".parse()?),
        _ => Err(Error::new(ErrorKind::UnknownDevice, "open", "one machine of the kernels' processor")),
    },
    kernels: ModuleBundle::new().with(ModuleImage::binary(ImageFormat::Elf, KERNELS)),
    abilities: [Fault, Monitor, Parameters],
}

mod embedded_devices;
