//! Embedded devices as accelerators, in addition to the conformance rules.

use std::time::Duration;

use array_buffer::ArrayBuffer;
use backend_embedded::{AcceleratorConfig, EmbeddedAccelerator, EmbeddedBackend, QemuConfig};
use runtime_core::{Backend, Device, Embedded, ErrorKind, ImageFormat, Launch, ModuleImage, args};

use crate::process::kill_it;
use crate::{LONG, MACHINES, must_work};

const KERNELS: &[u8] = include_bytes!("../../firmware/built/kernels-riscv64.elf");

fn image(bytes: &'static [u8]) -> ModuleImage<'static> {
    ModuleImage::binary(ImageFormat::Elf, bytes)
}

/// An accelerator, and its embedded device.
fn open(timeout: Duration) -> Option<(Device, Embedded)> {
    let device = Embedded::new(MACHINES[0].open_with(QemuConfig::new())?);
    let config = AcceleratorConfig::new().with_timeout(timeout);
    let accelerator = EmbeddedAccelerator::new(device.clone(), &config).unwrap();
    Some((Device::new(accelerator).unwrap(), device))
}

#[test]
fn a_launch_that_hangs_is_a_fault_and_everything_else_stays() {
    let Some((device, _)) = open(Duration::from_millis(100)) else { return };
    let stream = device.default_stream();
    let module = device.module_load(image(KERNELS)).unwrap();
    let kept = device.memory_from_slice(&stream, &[1_u32, 2, 3]).unwrap();
    let mut out = device.memory_from_slice(&stream, &[0_u32; 3]).unwrap();
    let spin = module.kernel("spin").unwrap();
    // SAFETY: the kernel writes one element.
    unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, u64::MAX]) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault, "{error}");
    assert_eq!(error.driver().unwrap().name, "LAUNCH_TIMEOUT");
    assert!(error.message().contains("\"spin\""), "{error}");
    let add_one = module.kernel("add_one").unwrap();
    // SAFETY: the kernel writes three elements.
    unsafe { add_one.launch(&stream, &Launch::cover(3, 1), args![&mut out, 3_u32]) }.unwrap();
    assert_eq!(out.view().to_vec(&stream).unwrap(), [1; 3]);
    assert_eq!(kept.view().to_vec(&stream).unwrap(), [1, 2, 3]);
}

#[test]
fn a_reset_between_launches_keeps_memory_and_modules() {
    let Some((device, embedded)) = open(LONG) else { return };
    let stream = device.default_stream();
    let add_one = device.module_load(image(KERNELS)).unwrap().kernel("add_one").unwrap();
    let mut x = device.memory_from_slice(&stream, &[1_u32, 2, 3]).unwrap();
    embedded.reset().unwrap();
    // SAFETY: the kernel writes three elements.
    unsafe { add_one.launch(&stream, &Launch::cover(3, 1), args![&mut x, 3_u32]) }.unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), [2, 3, 4]);
}

#[test]
fn an_accelerator_whose_launch_a_reset_ends_must_be_opened_again() {
    let Some((device, embedded)) = open(LONG) else { return };
    let stream = device.default_stream();
    let spin = device.module_load(image(KERNELS)).unwrap().kernel("spin").unwrap();
    let mut out = device.memory_allocate::<u32>(1).unwrap();
    // SAFETY: the kernel writes one element.
    unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, u64::MAX]) }.unwrap();
    std::thread::sleep(Duration::from_millis(100));
    embedded.reset().unwrap();
    let lost = stream.synchronize().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
    assert!(lost.message().contains("reset ended it"), "{lost}");
    let later = [stream.synchronize(), device.synchronize(), stream.synchronize()];
    for lost in later.into_iter().chain([device.memory_allocate::<u32>(1).map(drop)]) {
        let lost = lost.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::DeviceLost, "{lost}");
        assert!(lost.message().contains("open it again"), "{lost}");
    }
    drop((spin, out, stream, device));
    let again = EmbeddedAccelerator::new(embedded, &AcceleratorConfig::new()).unwrap();
    let device = Device::new(again).unwrap();
    let stream = device.default_stream();
    assert!(device.module_load(image(KERNELS)).is_ok());
    assert_eq!(device.memory_from_slice(&stream, &[7_u32]).unwrap().to_vec(&stream).unwrap(), [7]);
}

#[test]
fn a_device_whose_process_ends_is_lost_for_good() {
    let Some(device) = MACHINES[0].open_with(QemuConfig::new()) else { return };
    let process = device.process_id().unwrap();
    let config = AcceleratorConfig::new();
    let accelerator = EmbeddedAccelerator::new(Embedded::new(device), &config).unwrap();
    let device = Device::new(accelerator).unwrap();
    let stream = device.default_stream();
    let module = device.module_load(image(KERNELS)).unwrap();
    let mut out = device.memory_allocate::<u32>(1).unwrap();
    kill_it(process);
    let spin = module.kernel("spin").unwrap();
    // SAFETY: the kernel writes one element.
    let _ = unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, 1_u64]) };
    for lost in [stream.synchronize(), stream.synchronize(), device.synchronize()] {
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    assert_eq!(device.memory_allocate::<u32>(1).unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_program_linked_to_an_address_is_a_module_while_that_is_free() {
    let Some((device, embedded)) = open(LONG) else { return };
    let calls = || image(MACHINES[0].calls);
    let module = device.module_load(calls()).unwrap();
    let error = device.module_load(calls()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    // The program declares no kernels.
    assert_eq!(module.kernel("add").unwrap_err().kind(), ErrorKind::KernelNotFound);
    drop(module);
    device.module_load(calls()).unwrap();
    embedded.flash(MACHINES[0].calls).unwrap();
    must_work(&embedded);
}

#[test]
fn arrays_are_coherent_on_an_embedded_device() {
    let Some((device, _)) = open(LONG) else { return };
    let stream = device.default_stream();
    let saxpy = device.module_load(image(KERNELS)).unwrap().kernel("saxpy").unwrap();
    let x = ArrayBuffer::from_vec((0_u16..1000).map(f32::from).collect(), 1000).unwrap();
    let mut y = ArrayBuffer::from_vec(vec![1.0_f32; 1000], 1000).unwrap();
    for _ in 0..2 {
        let read = x.read(&stream).unwrap();
        let mut write = y.read_write(&stream).unwrap();
        let arguments = args![write.view_mut().unwrap(), read.view().unwrap(), 2.0_f32, 1000_u32];
        // SAFETY: the kernel accesses a thousand elements of each.
        unsafe { saxpy.launch(&stream, &Launch::cover(1000, 64), arguments) }.unwrap();
    }
    let found = y.read_host().unwrap();
    assert!(found.iter().zip(0_u16..).all(|(y, i)| *y == 1.0 + 4.0 * f32::from(i)));
}

#[test]
fn selectors_open_accelerators_with_options() {
    let backend = EmbeddedBackend::new();
    let open = |selector: &str| backend.open(&selector.parse().unwrap());
    let device = match open("embedded:qemu-riscv64?icount=on&memory=32&timeout=5") {
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            return println!("skipped: {error}");
        }
        device => device.unwrap(),
    };
    assert_eq!(device.info().memory_bytes, Some(31 << 20));
    let stream = device.default_stream();
    let spin = device.module_load(image(KERNELS)).unwrap().kernel("spin").unwrap();
    let mut out = device.memory_allocate::<u32>(1).unwrap();
    let mut counter = device.counters().unwrap().open(&["instructions"]).unwrap();
    let mut count = |rounds: u64| {
        // SAFETY: the kernel writes one element.
        unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, rounds]) }.unwrap();
        stream.synchronize().unwrap();
        let mut total = [0];
        counter.read(&mut total).unwrap();
        total[0]
    };
    let (first, second) = (count(1000), count(1000));
    assert_eq!(second, 2 * first);
    assert!(backend.devices().unwrap().iter().any(|info| info.name == device.info().name));
}
