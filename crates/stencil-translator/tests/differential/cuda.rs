//! CUDA C and HIP C are compiled by NVRTC, which `BACKEND_CUDA_NVRTC` names, and what it makes of them keeps bits.

mod instructions;

use std::ffi::CString;
use std::io::{Write as _, stderr};
use std::path::Path;
use std::{env, fs};

use stand_in::nvrtc::{Nvrtc, Source};
use stencil_translator::{Dialect, Stencil};

use crate::translated;

/// The compiler. Without one, prints that the test is skipped.
fn compiler() -> Option<&'static Nvrtc> {
    if env::var_os("BACKEND_CUDA_NVRTC").is_none() {
        drop(writeln!(
            stderr(),
            "skipped: BACKEND_CUDA_NVRTC does not name the library of a compiler"
        ));
        return None;
    }
    Some(Nvrtc::named().unwrap())
}

fn ptx(nvrtc: &Nvrtc, text: &str, dialect: Dialect) -> String {
    ptx_for(nvrtc, text, dialect, if nvrtc.version().0 < 13 { 60 } else { 75 })
}

fn ptx_for(nvrtc: &Nvrtc, text: &str, dialect: Dialect, architecture: u32) -> String {
    let c = |text: &str| CString::new(text).unwrap();
    // The flags of hiprtc are not those of NVRTC.
    let flags = if dialect == Dialect::Hip { Dialect::Cuda } else { dialect }.flags();
    let mut options: Vec<_> = flags.iter().map(|flag| c(flag)).collect();
    options.push(c(&format!("--gpu-architecture=compute_{architecture}")));
    let source = Source { name: c("stencils.cu"), text: c(text), options, ..Source::default() };
    nvrtc.compile(&source).unwrap_or_else(|log| panic!("{log}\n{text}")).ptx
}

#[test]
fn random_stencils_compile() {
    let Some(nvrtc) = compiler() else { return };
    let mut text = [String::new(), String::new()];
    for seed in 0..60 {
        let (_, stencil) = translated(seed);
        text[0] += &stencil.source(Dialect::Cuda);
        text[1] += &stencil.source(Dialect::Hip);
    }
    for (text, dialect) in text.iter().zip([Dialect::Cuda, Dialect::Hip]) {
        assert_eq!(ptx(nvrtc, text, dialect).matches(".entry").count(), 60);
    }
}

#[test]
fn nothing_is_contracted_and_float_code_stays_float() {
    let Some(nvrtc) = compiler() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for name in ["heat", "gray_scott", "moments", "upwind", "integers", "thomas", "integral"] {
        let ptx = ptx(
            nvrtc,
            &fs::read_to_string(folder.join(name).with_extension("cu")).unwrap(),
            Dialect::Cuda,
        );
        assert!(!ptx.contains("fma"), "{name}:\n{ptx}");
        assert!(name != "gray_scott" || !ptx.contains("f64"), "{ptx}");
    }
    let fused = "fn f(o: InOut<f32, 1>, a: f32) { o.set(o.at(0).mul_add(a, a) / a + a.sqrt()); }";
    let fused = Stencil::parse(fused.parse().unwrap()).unwrap();
    let ptx = ptx(nvrtc, &fused.source(Dialect::Cuda), Dialect::Cuda);
    for exact in ["fma.rn.f32", "div.rn.f32", "sqrt.rn.f32"] {
        assert!(ptx.contains(exact), "no {exact} in\n{ptx}");
    }
}
