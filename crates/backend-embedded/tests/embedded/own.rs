//! Embedded devices and boards that a program describes itself, wrongly at times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use backend_embedded::{AcceleratorConfig, Architecture, Board, EmbeddedAccelerator, GdbDevice};
use runtime_core::contract::{
    CallOutcome, CallValue, CommonRuntime, CounterSet, Counters, EmbeddedAbilities, EmbeddedDevice,
    MemoryArea, StreamOptions, Symbol,
};
use runtime_core::{
    Device, DeviceId, DeviceInfo, DeviceKind, Embedded, Error, ErrorKind, ImageFormat, Launch,
    Limits, MeasureOptions, ModuleImage, Result, args, measure,
};

use crate::input::{ADDRESS, BYTES_IN_MEMORY, changed, kernels};

const RAM: u64 = 0x8000_0000;
const RAM_BYTES: u64 = 1 << 20;

/// A device with RAM whose functions never return. Until it is reset after a call it refuses everything.
struct Own {
    info: DeviceInfo,
    map: [MemoryArea; 1],
    ram: Mutex<Vec<u8>>,
    hangs: AtomicBool,
    /// Receives a message when a reset begins. The reset continues when the other channel is closed.
    reset: Option<(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>)>,
    /// Whether a reset fails.
    cannot_reset: bool,
    /// Receives the current device of the thread that drops this device, or `None` for the host.
    dropped: Option<mpsc::Sender<Option<DeviceId>>>,
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(dropped) = &self.dropped {
            dropped.send(array_buffer::here().map(|stream| stream.device().id().clone())).ok();
        }
    }
}

impl Own {
    fn new(address: u64, bytes: u64, arguments: usize) -> Self {
        let limits =
            Limits::new(1 << 20, [1; 3], [1; 3], 1).with_max_arguments(arguments, 8 * arguments);
        let info = DeviceInfo::new(DeviceId::new("own", 0), DeviceKind::Embedded, "own", limits)
            .with_architecture("rv64gc")
            .with_memory_bytes(bytes);
        let map = [MemoryArea::new("ram", address, bytes, true)];
        let ram = usize::try_from(bytes.min(RAM_BYTES)).unwrap();
        Self {
            info,
            map,
            ram: Mutex::new(vec![0; ram]),
            hangs: AtomicBool::new(false),
            reset: None,
            cannot_reset: false,
            dropped: None,
        }
    }

    fn accelerator(self) -> Result<Device> {
        Device::new(EmbeddedAccelerator::new(Embedded::new(self), &AcceleratorConfig::new())?)
    }

    fn with_ram<R>(&self, address: u64, act: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.hangs.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Conflict, "memory", "a call still runs"));
        }
        let start = usize::try_from(address - self.map[0].address).unwrap();
        Ok(act(&mut self.ram.lock().unwrap()[start..]))
    }
}

impl CommonRuntime for Own {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
}

impl EmbeddedDevice for Own {
    fn abilities(&self) -> EmbeddedAbilities<'_> {
        EmbeddedAbilities::none().with_counters(&Unreadable)
    }

    fn flash(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn reset(&self) -> Result<()> {
        if let Some((begins, go_on)) = &self.reset {
            begins.send(()).ok();
            let _closed = go_on.lock().unwrap().recv();
        }
        if self.cannot_reset {
            return Err(Error::new(ErrorKind::Driver, "reset", "no answer"));
        }
        self.hangs.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn memory_map(&self) -> &[MemoryArea] {
        &self.map
    }

    fn memory_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.with_ram(address, |ram| ram[..bytes.len()].copy_from_slice(bytes))
    }

    fn memory_read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.with_ram(address, |ram| bytes.copy_from_slice(&ram[..bytes.len()]))
    }

    fn code_write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.memory_write(address, bytes)
    }

    fn symbol(&self, name: &str) -> Result<Symbol> {
        Err(Error::new(ErrorKind::KernelNotFound, "symbol", format!("{name:?}")))
    }

    fn call(&self, _: u64, _: &[CallValue], _: Duration) -> Result<CallOutcome> {
        self.hangs.store(true, Ordering::SeqCst);
        Err(Error::new(ErrorKind::Timeout, "call", "it does not return"))
    }

    fn console(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// A counter that can be opened and not be read.
struct Unreadable;

impl Counters for Unreadable {
    fn names(&self) -> Vec<String> {
        vec!["cycles".to_owned()]
    }

    fn open(&self, _: &[&str]) -> Result<Box<dyn CounterSet>> {
        Ok(Box::new(Self))
    }
}

impl CounterSet for Unreadable {
    fn read(&mut self, _: &mut [u64]) -> Result<()> {
        Err(Error::new(ErrorKind::Driver, "counters_read", "no counter"))
    }
}

fn image(bytes: Vec<u8>) -> ModuleImage<'static> {
    ModuleImage::binary(ImageFormat::Elf, bytes)
}

#[test]
fn devices_that_no_launch_suits_are_refused() {
    for (own, expected) in [
        (Own::new(RAM, RAM_BYTES, 0), "without arguments"),
        (Own::new(u64::MAX - 4095, 4096, 8), "4096 bytes of \"ram\""),
        (Own::new(u64::MAX - 4095, 8192, 8), "8192 bytes of \"ram\""),
    ] {
        let error = own.accelerator().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
    let device = Own::new(u64::MAX - 4096, 4096, 1).accelerator().unwrap();
    let stream = device.default_stream();
    let memory = device.memory_from_slice(&stream, &[1_u8; 64]).unwrap();
    assert_eq!(memory.to_vec(&stream).unwrap(), [1; 64]);
}

#[test]
fn a_counter_that_cannot_be_read_names_its_device() {
    let device = Own::new(RAM, RAM_BYTES, 8).accelerator().unwrap();
    let counters = vec!["cycles".to_owned()];
    let options = MeasureOptions { warm_up: 0, counters, ..Default::default() };
    let error = measure(&device.default_stream(), &options, || Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "counters_read on own:0: driver error: no counter");
}

#[test]
fn a_program_larger_than_the_hosts_memory_is_refused() {
    let device = Own::new(0, 1 << 60, 8).accelerator().unwrap();
    let large = changed(kernels("qemu-riscv64"), BYTES_IN_MEMORY, 1 << 59);
    let error = device.module_load(image(large)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.message().contains("a segment of 576460752303423488 bytes"), "{error}");
}

/// The number of RISC-V in ELF files, and of its relative relocation.
const RISCV: (u16, u32) = (243, 3);

#[test]
fn a_program_for_a_processor_of_another_crate_is_loaded() {
    let open = |config: &AcceleratorConfig| {
        let mut own = Own::new(RAM, RAM_BYTES, 8);
        own.info.architecture = "rv64-of-mine".to_owned();
        Device::new(EmbeddedAccelerator::new(Embedded::new(own), config)?)
    };
    let unknown = open(&AcceleratorConfig::new()).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::InvalidArgument);
    assert!(unknown.message().contains("rv64-of-mine"), "{unknown}");

    let (machine, relative) = RISCV;
    let mine = || Architecture::new_64_bit("rv64-of-mine", machine, relative);
    let narrow = Architecture::new_32_bit("rv64-of-mine", machine, relative);
    let program = || image(kernels("qemu-riscv64").to_vec());
    let with = |architecture| open(&AcceleratorConfig::new().with_architecture(architecture));
    let module = with(mine()).unwrap().module_load(program()).unwrap();
    module.kernel("spin").unwrap();
    // Bit 0 means compressed instructions, which the program has.
    for wrong in [narrow, mine().with_flags(1, 0)] {
        let error = with(wrong).unwrap().module_load(program()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("rv64-of-mine"), "{error}");
    }
}

/// An image of which nothing is loaded.
fn without_segments(image: &[u8]) -> Vec<u8> {
    const KIND: usize = 0;
    let segments = (0..usize::from(image[56])).map(|index| usize::from(image[32]) + index * 56);
    let mut image = image.to_vec();
    segments.for_each(|at| image[at + KIND] = 0);
    image
}

#[test]
fn a_device_is_one_accelerator_at_a_time() {
    let device = Embedded::new(Own::new(RAM, RAM_BYTES, 8));
    let make = || EmbeddedAccelerator::new(device.clone(), &AcceleratorConfig::new());
    let first = Device::new(make().unwrap()).unwrap();
    let memory = first.memory_allocate::<u8>(64).unwrap();
    assert_eq!(make().unwrap_err().kind(), ErrorKind::Conflict);
    drop(first);
    assert_eq!(make().unwrap_err().kind(), ErrorKind::Conflict, "its memory lives");
    drop(memory);
    make().unwrap();
}

#[test]
fn a_scope_that_drops_its_device_lets_the_destructor_ask_for_the_current_device() {
    let (sender, dropped) = mpsc::channel();
    let mut own = Own::new(RAM, RAM_BYTES, 8);
    own.dropped = Some(sender);
    let device = own.accelerator().unwrap();
    let kept = Own::new(RAM, RAM_BYTES, 8).accelerator().unwrap();
    let _outer = array_buffer::offload(&kept.default_stream());
    let inner = array_buffer::offload(&device.default_stream());
    drop(device);
    assert!(dropped.try_recv().is_err());
    drop(inner);
    assert_eq!(dropped.try_recv().unwrap().as_ref(), Some(kept.id()));
}

#[test]
fn a_module_that_passes_the_last_address_is_refused() {
    let device = Own::new(RAM, RAM_BYTES, 8).accelerator().unwrap();
    let stream = device.default_stream();
    let memory = device.memory_from_slice(&stream, &[7_u8; 4096]).unwrap();
    let wrapped = changed(kernels("qemu-riscv64"), ADDRESS, u64::MAX - 15);
    let error = device.module_load(image(wrapped)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
    assert!(error.message().contains("0xfffffffffffffff0 ends beyond"), "{error}");
    assert_eq!(memory.to_vec(&stream).unwrap(), [7; 4096]);
}

#[test]
fn a_program_without_segments_takes_no_memory_from_others() {
    let device = Own::new(RAM, RAM_BYTES, 8).accelerator().unwrap();
    let above = device.memory_allocate::<u8>(4096).unwrap();
    let loaded = device.module_load(image(without_segments(kernels("qemu-riscv64"))));
    drop(above);
    let expected = loaded.as_ref().map(|_| ()).map_err(Error::kind);
    drop(loaded);
    device.memory_allocate::<u8>(64).unwrap();
    assert_eq!(expected, Err(ErrorKind::InvalidModule));
}

#[test]
fn a_launch_that_hangs_fails_no_copy_of_another_stream() {
    let ((begins, begun), (finish, go_on)) = (mpsc::channel(), mpsc::channel());
    let reset = Some((begins, Mutex::new(go_on)));
    let mut own = Own::new(RAM, RAM_BYTES, 8);
    own.reset = reset;
    let device = own.accelerator().unwrap();
    let stream = device.default_stream();
    let other = device.stream_create(&StreamOptions::default()).unwrap();
    let spin = device.module_load(image(kernels("qemu-riscv64").to_vec())).unwrap();
    let spin = spin.kernel("spin").unwrap();
    let mut out = device.memory_from_slice(&stream, &[0_u32]).unwrap();
    let mut memory = device.memory_from_slice(&other, &[0_u32; 4]).unwrap();
    // SAFETY: nothing runs: the device's calls never begin.
    unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, 1_u64]) }.unwrap();
    begun.recv().unwrap();
    memory.fill(&other, 7).unwrap();
    let copied = std::thread::spawn(move || memory.to_vec(&other));
    std::thread::sleep(Duration::from_millis(50));
    drop(finish);
    assert_eq!(copied.join().unwrap().unwrap(), [7; 4]);
    assert_eq!(stream.synchronize().unwrap_err().driver().unwrap().name, "LAUNCH_TIMEOUT");
}

#[test]
fn a_launch_that_hangs_where_no_reset_helps_loses_the_accelerator() {
    let mut own = Own::new(RAM, RAM_BYTES, 8);
    own.cannot_reset = true;
    let device = own.accelerator().unwrap();
    let stream = device.default_stream();
    let spin = device.module_load(image(kernels("qemu-riscv64").to_vec())).unwrap();
    let spin = spin.kernel("spin").unwrap();
    let mut out = device.memory_from_slice(&stream, &[0_u32]).unwrap();
    // SAFETY: nothing runs: the device's calls never begin.
    unsafe { spin.launch(&stream, &Launch::cover(1, 1), args![&mut out, 1_u64]) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    for part in ["\"spin\"", "did not return within", "no answer", "open the device again"] {
        assert!(error.message().contains(part), "{error} lacks {part:?}");
    }
    assert_eq!(device.memory_allocate::<u8>(8).unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn a_board_that_contradicts_itself_is_refused_before_it_is_used() {
    type Change = fn(&mut Board);
    let board = Board::parse(include_str!("../../boards/qemu-mps2-an500.toml")).unwrap();
    let wrong: [(Change, &str); 4] = [
        (|board| board.stack = 0, "a stack that begins at 0x0"),
        (|board| board.stack_limit = Some(0), "stack_limit = 0x0"),
        (|board| board.memory.clear(), "no memory"),
        (|board| board.memory[0].bytes = u64::MAX, "18446744073709551615 bytes"),
    ];
    for (change, expected) in wrong {
        let mut board = board.clone();
        change(&mut board);
        let error = GdbDevice::connect("127.0.0.1:1", board).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(expected), "{error}");
    }
}
