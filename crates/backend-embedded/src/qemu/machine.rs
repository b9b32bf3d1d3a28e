//! The machines of QEMU that are used.

use runtime_core::contract::MemoryArea;

use crate::processor::Processor;

/// A machine, its monitor, and where both meet: `firmware/monitor` has the same addresses.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The word of its selector.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) processor: Processor,
    /// The emulator, and Debian's package that has it.
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) monitor: &'static [u8],
    pub(crate) ram: u64,
    /// How much RAM there is, unless the config says otherwise and the machine can have more or less.
    pub(crate) ram_bytes: u64,
    pub(crate) ram_is_fixed: bool,
    /// Whether what `icount` counts can be read.
    pub(crate) counts: bool,
}

/// Offsets in RAM: the mailbox; where code waits to be copied; behind the stack, where programs begin.
pub(crate) const MAILBOX: u64 = 0x4000;
pub(crate) const STAGING: u64 = 0x10000;
pub(crate) const STAGING_BYTES: usize = 0x10000;
pub(crate) const RESERVED: u64 = 0x10_0000;

/// Every machine, in the order of their numbers.
pub(crate) static MACHINES: [Machine; 2] = [
    Machine {
        name: "qemu-riscv64",
        title: "QEMU virt (RV64GC)",
        processor: Processor::Riscv64,
        program: "qemu-system-riscv64",
        package: "qemu-system-misc",
        arguments: &["-machine", "virt,memory-backend=ram", "-cpu", "rv64", "-bios", "none"],
        monitor: include_bytes!("../../firmware/built/monitor-riscv64.elf"),
        ram: 0x8000_0000,
        ram_bytes: 256 << 20,
        ram_is_fixed: false,
        counts: true,
    },
    Machine {
        name: "qemu-cortex-m7",
        title: "QEMU MPS2 AN500 (Cortex-M7)",
        processor: Processor::CortexM7,
        program: "qemu-system-arm",
        package: "qemu-system-arm",
        arguments: &["-machine", "mps2-an500,memory-backend=ram"],
        monitor: include_bytes!("../../firmware/built/monitor-cortex-m7.elf"),
        ram: 0x6000_0000,
        ram_bytes: 16 << 20,
        ram_is_fixed: true,
        counts: false,
    },
];

impl Machine {
    /// What programs may use of `ram_bytes` of RAM.
    pub(crate) fn memory_map(&self, ram_bytes: u64) -> Vec<MemoryArea> {
        vec![MemoryArea {
            name: "ram".to_owned(),
            address: self.ram + RESERVED,
            bytes: ram_bytes - RESERVED,
            writable: true,
        }]
    }
}
