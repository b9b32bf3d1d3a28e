//! The conformance rules that depend on the processor, on the Cortex-M7: code, its arguments, and memory. The adapter
//! ensures the rules about order and time on any processor. The rules run one after the other, because 15 MiB are too
//! few for parallel runs.
#![cfg(all(feature = "embedded", target_os = "linux"))]

use backend_embedded::EmbeddedBackend;
use conformance::{Fixture, Rule, Stop, rules};
use runtime_core::{Backend, Error, ErrorKind, ImageFormat, ModuleBundle, ModuleImage};

const KERNELS: &[u8] = include_bytes!("../firmware/built/kernels-cortex-m7.elf");

const GROUPS: [&str; 7] = ["info", "memory", "views", "kernels", "modules", "regions", "faults"];

macro_rules! list {
    ($($group:ident isolated: $isolated:literal { $($rule:ident,)* })*) => {
        &[$($((stringify!($group), stringify!($rule), rules::$rule as Rule),)*)*]
    };
}

const RULES: &[(&str, &str, Rule)] = conformance::for_each_rule! { list };

#[test]
fn cortex_m7_keeps_the_rules_of_code_and_memory() {
    let open = |index| match index {
        0 => EmbeddedBackend::new().open(&"embedded:qemu-cortex-m7".parse()?),
        _ => Err(Error::new(ErrorKind::UnknownDevice, "open", "one machine of the processor")),
    };
    let kernels = ModuleBundle::new().with(ModuleImage::binary(ImageFormat::Elf, KERNELS));
    let fixture = Fixture::new("embedded-cortex-m7", open, kernels);
    let chosen = RULES.iter().filter(|(group, ..)| GROUPS.contains(group));
    let (mut kept, mut broken) = (0, Vec::new());
    for (_, name, rule) in chosen {
        match rule(&fixture) {
            Ok(()) => kept += 1,
            Err(Stop::NotApplicable(_)) => {}
            Err(Stop::Skipped(why)) => return println!("skipped: {why}"),
            Err(stop) => broken.push(format!("{name}: {stop}")),
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(kept > 70, "{kept} rules");
}
