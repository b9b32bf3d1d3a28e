//! HIP C of stencils is as short in machine code as kernels written by hand. `BACKEND_HIP_HIPCC` names the compiler.

use std::io::{Write as _, stderr};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use stencil_translator::Dialect;

use crate::hand_written::{KERNELS, check, stencils};

/// One GPU of CDNA 2 and one of RDNA 2.
const ARCHITECTURES: [&str; 2] = ["gfx90a", "gfx1030"];

/// The assembly of all kernels of a source.
fn assembly(hipcc: &Path, source: &str, architecture: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let [text, code] = ["kernels.hip", "kernels.s"].map(|file| folder.path().join(file));
    fs::write(&text, source).unwrap();
    let mut command = Command::new(hipcc);
    command.args(["-S", "-O3", "--cuda-device-only", "-include", "hip/hip_runtime.h"]);
    command.arg(format!("--offload-arch={architecture}")).args(Dialect::Hip.flags());
    let output = command.arg(&text).arg("-o").arg(&code).output().expect("the compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(code).unwrap()
}

/// The instructions of a kernel: the lines from its label to the end of the function that begin with a mnemonic.
fn instructions(assembly: &str, kernel: &str) -> usize {
    let label = format!("{kernel}:");
    let lines = assembly.lines().skip_while(|line| !line.starts_with(&label)).skip(1);
    let body = lines.take_while(|line| !line.starts_with(".Lfunc_end"));
    body.filter(|line| {
        line.starts_with("\ts_") || line.starts_with("\tv_") || line.starts_with("\tglobal_")
    })
    .count()
}

#[test]
fn stencils_have_at_most_a_tenth_more_instructions_than_kernels_written_by_hand() {
    let Some(hipcc) = env::var_os("BACKEND_HIP_HIPCC") else {
        drop(writeln!(stderr(), "skipped: BACKEND_HIP_HIPCC names no hipcc"));
        return;
    };
    let hipcc = Path::new(&hipcc);
    let ours: String = stencils().map(|stencil| stencil.source(Dialect::Hip)).collect();
    for architecture in ARCHITECTURES {
        let [ours, by_hand] = [&*ours, KERNELS].map(|text| assembly(hipcc, text, architecture));
        for stencil in stencils() {
            let ours = instructions(&ours, &stencil.kernel_name());
            check(&stencil, architecture, ours, instructions(&by_hand, &stencil.name()));
        }
    }
}
