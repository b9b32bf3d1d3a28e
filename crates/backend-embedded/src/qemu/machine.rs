//! The supported QEMU machines.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use backend_support::options;
use runtime_core::contract::MemoryArea;
use runtime_core::{DeviceInfo, Error, ErrorKind, Result};

use super::QemuConfig;
use super::layout::RESERVED;
use super::process::first_line;
use crate::Processor;
use crate::common::{self, Identity};

/// A machine and its monitor.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Its name in selectors.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) processor: Processor,
    /// The emulator, and the Debian package that contains it.
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) monitor: &'static [u8],
    pub(crate) ram: u64,
    /// The default size of RAM. The config can change it if the machine supports other sizes.
    pub(crate) ram_bytes: u64,
    pub(crate) ram_is_fixed: bool,
    /// Bytes of RAM after the area for programs. The machine writes them at each start.
    pub(crate) tail: u64,
    /// Whether the count of `icount` can be read.
    pub(crate) counts: bool,
}

/// All machines, in the order of their indices.
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
        ram_bytes: 252 << 20,
        ram_is_fixed: false,
        // 1 MiB for the device tree, at the last suitable address below the end of RAM or below 3 GiB.
        tail: 4 << 20,
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
        tail: 0,
        counts: false,
    },
];

impl Machine {
    /// The part of `ram_bytes` of RAM that programs may use.
    pub(crate) fn memory_map(&self, ram_bytes: u64) -> Vec<MemoryArea> {
        vec![MemoryArea::new("ram", self.ram + RESERVED, ram_bytes - RESERVED, true)]
    }

    /// The bytes of RAM that the config requests.
    pub(crate) fn ram_bytes(&self, config: &QemuConfig) -> Result<u64> {
        match config.memory_bytes {
            Some(bytes) if self.ram_is_fixed && bytes != self.ram_bytes => {
                let admitted = format!("{}, which is what {} has", self.ram_bytes >> 20, self.name);
                Err(options::refused("memory", &(bytes >> 20).to_string(), &admitted))
            }
            Some(bytes) => Ok(bytes),
            None => Ok(self.ram_bytes),
        }
    }

    /// The emulator to start.
    pub(crate) fn program(&self, config: &QemuConfig) -> OsString {
        config.program.clone().unwrap_or_else(|| self.program.into())
    }
}

/// The properties of machine `index` that are known without starting it.
pub(crate) fn info(index: usize, config: &QemuConfig) -> Result<DeviceInfo> {
    let machine = &MACHINES[index];
    let mut command = Command::new(machine.program(config));
    command.arg("--version");
    let reported =
        first_line(command, config.timeout).map_err(|error| unasked(machine, config, error))?;
    let identity = Identity {
        index,
        name: machine.title,
        vendor: "QEMU",
        // For example `QEMU emulator version 7.2.22 (Debian …)`.
        version: reported.split_whitespace().nth(3).unwrap_or("unknown"),
    };
    let map = machine.memory_map(machine.ram_bytes(config)?);
    Ok(common::info(&identity, machine.processor, &map))
}

/// The error for an emulator that does not report its version. Usually it is not installed.
#[cold]
fn unasked(machine: &Machine, config: &QemuConfig, error: io::Error) -> Error {
    let program = machine.program(config);
    let (kind, message) = match error.kind() {
        io::ErrorKind::NotFound => (
            ErrorKind::Unavailable,
            format!(
                "there is no {}; Debian's package {} has {}",
                program.display(),
                machine.package,
                machine.program
            ),
        ),
        io::ErrorKind::TimedOut => (
            ErrorKind::DeviceLost,
            format!("{} does not print its version within {:?}", program.display(), config.timeout),
        ),
        _ => (ErrorKind::Driver, format!("{} cannot be started", program.display())),
    };
    Error::new(kind, "open", message).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_emulator_that_does_not_print_its_version_times_out() {
        let silent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/silent.sh");
        let timeout = Duration::from_millis(100);
        let config = QemuConfig { timeout, program: Some(silent.into()), ..QemuConfig::new() };
        let error = info(0, &config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.message().contains("within 100ms"), "{error}");
    }
}
