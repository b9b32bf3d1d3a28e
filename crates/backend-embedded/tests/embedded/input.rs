//! Bad input: each case is an error that says what is wrong, and the device continues to work.

use std::time::Duration;

use backend_embedded::{QemuConfig, QemuDevice, open};
use runtime_core::contract::CallValue::{Address, I32};
use runtime_core::{Backend, ErrorKind, Result};

use crate::program::PROGRAM_BYTES;
use crate::{LONG, MACHINES, machines, must_work};

#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, expected: &str) {
    let Err(error) = result else { panic!("it was accepted; the error should contain {expected}") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(expected), "{error} does not say {expected:?}");
}

#[test]
fn a_missing_emulator_is_unavailable_and_names_its_package() {
    for (machine, package) in
        [("qemu-riscv64", "qemu-system-misc"), ("qemu-cortex-m7", "qemu-system-arm")]
    {
        let config = QemuConfig::new().set("qemu", "/nonexistent/qemu").unwrap();
        refused(QemuDevice::open(machine, config), ErrorKind::Unavailable, package);
    }
}

#[test]
fn the_error_of_an_emulator_that_does_not_start_has_the_cause() {
    let config = QemuConfig::new().set("qemu", "false").unwrap();
    refused(QemuDevice::open("qemu-riscv64", config), ErrorKind::DeviceLost, "exit status: 1");
}

#[test]
fn selectors_that_name_nothing_are_refused() {
    for selector in ["embedded:qemu-z80", "embedded:7", "embedded:+0", "embedded:gdb:host", "host"]
    {
        refused(open(selector), ErrorKind::UnknownDevice, "embedded:qemu-riscv64");
    }
    for (selector, expected) in [
        ("embedded:0?icount=maybe", "icount=maybe"),
        ("embedded:0?memory=1", "memory=1"),
        ("embedded:0?memory=1021", "memory=1021"),
        ("embedded:0?color=red", "color=red"),
        ("embedded:0?memory=+64", "memory=+64"),
        ("embedded:gdb:localhost:1", "board=FILE"),
        ("embedded:gdb:localhost:+1", "\"+1\" is no port from 1 to 65535"),
        ("embedded:gdb:localhost:65536", "\"65536\" is no port"),
        ("embedded:gdb:localhost:0", "\"0\" is no port"),
        ("embedded:gdb:localhost:1?board=/nonexistent.toml", "/nonexistent.toml"),
        ("embedded:gdb:localhost:1?icount=on", "icount"),
        ("embedded:1?memory=64", "memory=64"),
        ("embedded:1?icount=on", "icount=on"),
    ] {
        match open(selector) {
            Err(error) if error.kind() == ErrorKind::Unavailable => println!("skipped: {error}"),
            other => refused(other, ErrorKind::InvalidArgument, expected),
        }
    }
    for timeout in ["never", "+1", "1e3", "inf", "1.5.2", "0", ""] {
        let selector = format!("embedded:0?timeout={timeout}").parse().unwrap();
        let opened = backend_embedded::EmbeddedBackend::new().open(&selector);
        refused(opened, ErrorKind::InvalidArgument, &format!("timeout={timeout}: not"));
    }
}

#[test]
fn a_server_has_an_ipv6_address_in_brackets() {
    let board = concat!(env!("CARGO_MANIFEST_DIR"), "/boards/qemu-virt.toml");
    // No debugger's server has port 1.
    let opened = open(&format!("embedded:gdb:[::1]:1?board={board}"));
    refused(opened, ErrorKind::Unavailable, "no debugger's server at [::1]:1:");
}

/// Finds the program header of a little-endian ELF file and changes a field of its first loaded segment. `at_64` and
/// `at_32` are the field's offsets in headers of 64 and of 32 bits.
pub(crate) fn changed(image: &[u8], [at_64, at_32]: [usize; 2], to: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    let (wide, table, size) = if image[4] == 2 { (true, 32, 56) } else { (false, 28, 32) };
    let start = usize::from(u16::from_le_bytes([image[table], image[table + 1]]));
    let load = (0..).map(|index| start + index * size).find(|at| image[*at] == 1).unwrap();
    if wide {
        image[load + at_64..][..8].copy_from_slice(&to.to_le_bytes());
    } else {
        image[load + at_32..][..4].copy_from_slice(&u32::try_from(to).unwrap().to_le_bytes());
    }
    image
}

pub(crate) const ADDRESS: [usize; 2] = [16, 8];
pub(crate) const BYTES_IN_MEMORY: [usize; 2] = [40, 20];

/// A little-endian ELF file for Arm or RISC-V whose flags say that floating-point numbers are passed in integer
/// registers.
fn with_soft_floats(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    if image[4] == 2 {
        image[48] &= !6;
    } else {
        image[37] = image[37] & !4 | 2;
    }
    image
}

#[test]
fn programs_that_do_not_fit_are_refused() {
    for (machine, device) in machines() {
        let other = MACHINES.iter().find(|other| other.name != machine.name).unwrap();
        let area = &device.memory_map()[0];
        let end = area.address + area.bytes - 4;
        let cases: [(&str, Vec<u8>, &str); 8] = [
            ("text", b"this is no program".to_vec(), "no ELF file"),
            ("another machine", other.calls.to_vec(), "machine"),
            ("a part", machine.calls[..machine.calls.len() / 8].to_vec(), ""),
            ("below RAM", changed(machine.calls, ADDRESS, 0x1000), "0x1000"),
            ("over the end", changed(machine.calls, ADDRESS, end), "outside of the memory"),
            ("more than it takes", changed(machine.calls, BYTES_IN_MEMORY, 8), "bytes in the file"),
            ("soft floats", with_soft_floats(machine.calls), "floating-point"),
            ("modules", kernels(machine.name).to_vec(), "position-independent"),
        ];
        for (what, image, expected) in cases {
            println!("{}: {what}", machine.name);
            refused(device.flash(&image), ErrorKind::InvalidModule, expected);
            must_work(&device);
        }
    }
}

pub(crate) fn kernels(machine: &str) -> &'static [u8] {
    match machine {
        "qemu-riscv64" => include_bytes!("../../firmware/built/kernels-riscv64.elf"),
        _ => include_bytes!("../../firmware/built/kernels-cortex-m7.elf"),
    }
}

/// Images that differ from a good image in a single byte: any byte of the headers, and some of the others.
fn damaged(good: &[u8], step: usize) -> impl Iterator<Item = (usize, Vec<u8>)> {
    // The headers of a 64-bit ELF file with three segments.
    let headers = 0..64 + 3 * 56;
    headers.clone().chain((headers.end..good.len()).step_by(step)).map(|place| {
        let mut image = good.to_vec();
        image[place] ^= 0xFF;
        (place, image)
    })
}

#[test]
fn damaged_modules_are_taken_or_refused() {
    let Some(device) = MACHINES[0].open() else { return };
    let device = runtime_core::Device::new(
        backend_embedded::EmbeddedAccelerator::new(device, &Default::default()).unwrap(),
    )
    .unwrap();
    for (place, image) in damaged(kernels("qemu-riscv64"), 7) {
        let image = runtime_core::ModuleImage::binary(runtime_core::ImageFormat::Elf, image);
        if let Err(error) = device.module_load(image) {
            let kinds = [ErrorKind::InvalidModule, ErrorKind::OutOfMemory];
            assert!(kinds.contains(&error.kind()), "byte {place}: {error}");
        }
    }
}

/// An accepted image is also called: it may do anything, but the device works again with the next program.
#[test]
fn damaged_programs_are_flashed_or_refused() {
    let machine = &MACHINES[0];
    let Some(device) = machine.open() else { return };
    let (mut flashed, mut wrong) = (0, 0);
    for (place, image) in damaged(machine.calls, 29) {
        if let Err(error) = device.flash(&image) {
            assert_eq!(error.kind(), ErrorKind::InvalidModule, "byte {place}: {error}");
            continue;
        }
        flashed += 1;
        match device.call("add", &[I32(2), I32(40)], Duration::from_millis(100)) {
            Ok(sum) => wrong += usize::from(sum.i32() != 42),
            Err(error) => {
                wrong += 1;
                let kinds = [
                    ErrorKind::KernelNotFound,
                    ErrorKind::InvalidArgument,
                    ErrorKind::OutOfBounds,
                    ErrorKind::DeviceFault,
                    ErrorKind::Timeout,
                ];
                assert!(kinds.contains(&error.kind()), "byte {place}: {error}");
            }
        }
    }
    assert!(flashed > 50 && wrong > 0, "{wrong} of {flashed} were wrong");
    device.flash(machine.calls).unwrap();
    must_work(&device);
}

/// RISC-V would ignore the lowest bit and run the code before the address. On Arm this bit marks Thumb code.
#[test]
fn a_function_at_an_odd_address_is_refused_unless_the_bit_marks_thumb_code() {
    for (machine, device) in machines() {
        let place = device.memory_map()[0].address + PROGRAM_BYTES;
        device.code_write(place, machine.code[0]).unwrap();
        assert_eq!(device.call_at(place, &[], LONG).unwrap().i32(), 1);
        let odd = device.call_at(place + 1, &[], LONG);
        if machine.name == "qemu-riscv64" {
            refused(odd.clone(), ErrorKind::InvalidArgument, &format!("{:#x}", place + 1));
            refused(odd, ErrorKind::InvalidArgument, "aligned to 2 bytes");
        } else {
            assert_eq!(odd.unwrap().i32(), 1);
        }
        must_work(&device);
    }
}

#[test]
fn bad_calls_are_refused() {
    for (machine, device) in machines() {
        refused(device.call("subtract", &[], LONG), ErrorKind::KernelNotFound, "subtract");
        refused(device.call("counter", &[], LONG), ErrorKind::InvalidArgument, "data");
        let limit = device.info().limits.max_arguments;
        let many = vec![I32(1); limit + 1];
        refused(device.call("add", &many, LONG), ErrorKind::InvalidArgument, &limit.to_string());
        // The maximum number of arguments does no harm.
        assert_eq!(device.call("add", &many[1..], LONG).unwrap().i32(), 2);
        let area = &device.memory_map()[0];
        refused(device.memory_write(area.address - 4, &[0; 8]), ErrorKind::OutOfBounds, "8 bytes");
        refused(device.call_at(0x10, &[], LONG), ErrorKind::OutOfBounds, "0x10");
        if machine.name == "qemu-cortex-m7" {
            let far = [Address(1 << 32)];
            refused(device.call("load", &far, LONG), ErrorKind::InvalidArgument, "0x100000000");
        }
        must_work(&device);
    }
}
