//! The machine code of stencils is as short as that of kernels written by hand. `BACKEND_CUDA_PTXAS` names the
//! assembler.

use std::io::{Write as _, stderr};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use object::{Object as _, ObjectSection as _};
use stand_in::nvrtc::Nvrtc;
use stencil_translator::Dialect;

use super::{compiler, ptx_for};
use crate::hand_written::{KERNELS, check, stencils};

/// Turing, Ampere, Hopper.
const ARCHITECTURES: [u32; 3] = [75, 80, 90];

/// The machine code of all kernels of a source.
fn cubin(nvrtc: &Nvrtc, assembler: &Path, source: &str, architecture: u32) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [text, code] = ["kernels.ptx", "kernels.cubin"].map(|file| folder.path().join(file));
    fs::write(&text, ptx_for(nvrtc, source, Dialect::Cuda, architecture)).unwrap();
    let mut command = Command::new(assembler);
    command.arg(format!("--gpu-name=sm_{architecture}")).arg("--output-file").arg(&code).arg(&text);
    let output = command.output().expect("the assembler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(code).unwrap()
}

/// The instructions of a kernel. Since Volta each has 16 bytes. Those that do nothing fill the end of the code.
fn instructions(cubin: &[u8], kernel: &str) -> usize {
    const OPCODE: u16 = 0xfff;
    const NOTHING: u16 = 0x918;
    let file = object::File::parse(cubin).unwrap();
    let section = file.section_by_name(&format!(".text.{kernel}")).unwrap();
    let (instructions, rest) = section.data().unwrap().as_chunks::<16>();
    assert!(rest.is_empty());
    let is_work = |code: &&[u8; 16]| u16::from_le_bytes([code[0], code[1]]) & OPCODE != NOTHING;
    instructions.iter().filter(is_work).count()
}

#[test]
fn stencils_have_at_most_a_tenth_more_instructions_than_kernels_written_by_hand() {
    let Some(nvrtc) = compiler() else { return };
    let Some(assembler) = env::var_os("BACKEND_CUDA_PTXAS") else {
        drop(writeln!(stderr(), "skipped: BACKEND_CUDA_PTXAS does not name an assembler"));
        return;
    };
    let assembler = Path::new(&assembler);
    for architecture in ARCHITECTURES {
        let by_hand = cubin(nvrtc, assembler, KERNELS, architecture);
        for stencil in stencils() {
            let ours = cubin(nvrtc, assembler, &stencil.source(Dialect::Cuda), architecture);
            let ours = instructions(&ours, &stencil.kernel_name());
            let theirs = instructions(&by_hand, &stencil.name());
            check(&stencil, &format!("sm_{architecture}"), ours, theirs);
        }
    }
}
