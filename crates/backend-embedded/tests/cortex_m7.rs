//! Every rule of the conformance suite on the Cortex-M7, one after the other: its 15 MiB are too few for rules that
//! run side by side.
#![cfg(all(feature = "embedded", target_os = "linux"))]

use backend_embedded::EmbeddedDriver;
use conformance::{Fixture, Rule, Stop, rules};
use runtime_core::{Driver, Error, ErrorKind, ImageFormat, ModuleBundle, ModuleImage};

const KERNELS: &[u8] = include_bytes!("../firmware/built/kernels-cortex-m7.elf");

macro_rules! list {
    ($($group:ident isolated: $isolated:literal { $($rule:ident,)* })*) => {
        &[$($((stringify!($rule), rules::$rule as Rule),)*)*]
    };
}

const RULES: &[(&str, Rule)] = conformance::for_each_rule! { list };

#[test]
fn every_rule_is_kept() {
    let open = |index| match index {
        0 => EmbeddedDriver::new().open(&"embedded:qemu-cortex-m7".parse()?),
        _ => Err(Error::new(ErrorKind::UnknownDevice, "open", "one machine of the processor")),
    };
    let kernels = ModuleBundle::new().with(ModuleImage::binary(ImageFormat::Elf, KERNELS));
    let fixture = Fixture::new("embedded-cortex-m7", open, kernels);
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        match rule(&fixture) {
            Ok(()) => {}
            Err(Stop::Skipped(why)) => return println!("skipped: {why}"),
            Err(stop) => broken.push(format!("{name}: {stop}")),
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
