//! The options of a machine.

use std::ffi::OsString;
use std::time::Duration;

use backend_support::options;
use runtime_core::{Result, Selector};

use super::layout::RESERVED;

/// The most RAM that can be requested: above this, data that machines write behind the RAM at each start would lie
/// inside it.
const MAX_RAM: u64 = 1020 << 20;

/// The options with which a QEMU machine is opened. Selectors have the same options:
/// `embedded:qemu-riscv64?icount=on&memory=64`.
#[derive(Clone, Debug)]
pub struct QemuConfig {
    pub(crate) icount: bool,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) program: Option<OsString>,
    /// The timeout of the emulator for everything except a called function: reporting its version, starting, copying.
    pub(crate) timeout: Duration,
}

impl Default for QemuConfig {
    fn default() -> Self {
        Self { icount: false, memory_bytes: None, program: None, timeout: Duration::from_secs(20) }
    }
}

impl QemuConfig {
    /// The defaults: no instruction counting, the machine's default RAM, and the emulator from `PATH`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an option from text:
    ///
    /// | option | values, the first is the default | effect |
    /// |---|---|---|
    /// | `icount` | `off`, `on` | QEMU counts instructions, and time depends on their number: `counters` has `instructions`, the same in every run |
    /// | `memory` | mebibytes | RAM of the machine, if it can be chosen |
    /// | `qemu` | path | the emulator |
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an option that does not exist, or a value that the option does not accept.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self> {
        match option {
            "icount" => self.icount = options::switch(option, value)?,
            "memory" => {
                let bytes = Selector::number::<u64>(value)
                    .and_then(|mebibytes| mebibytes.checked_mul(1 << 20));
                let bytes = bytes.filter(|bytes| (2 * RESERVED..=MAX_RAM).contains(bytes));
                self.memory_bytes = Some(
                    bytes.ok_or_else(|| options::refused(option, value, "2 to 1020 mebibytes"))?,
                );
            }
            "qemu" if value.is_empty() => {
                return Err(options::refused(option, value, "the path of an emulator"));
            }
            "qemu" => self.program = Some(value.into()),
            _ => return Err(options::refused(option, value, "one of icount, memory, qemu")),
        }
        Ok(self)
    }
}
