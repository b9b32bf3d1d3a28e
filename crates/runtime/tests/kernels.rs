//! The example `kernels`: one kernel in every format gives the same result on all devices.
#![cfg(feature = "host")]
#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod common;

use std::process::Command;

#[test]
fn the_kernel_runs_in_the_format_of_each_device() {
    let devices = [
        "host",
        "sim:0",
        "opencl:0",
        "cuda:0",
        "hip:0",
        "embedded:qemu-riscv64",
        "embedded:qemu-cortex-m7",
    ];
    for device in devices {
        let output = Command::new(common::example("kernels")).arg(device).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        let is_absent = ["unavailable", "unknown device"].iter().any(|kind| said[1].contains(kind));
        if device != "host" && is_absent {
            eprintln!("skipped: {}", said[1]);
        } else {
            assert!(output.status.success() && said[0].contains("10000 elements"), "{said:?}");
        }
    }
}
