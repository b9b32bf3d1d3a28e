//! Processors: the registers of a call, and the names of their faults.

use runtime_core::contract::CallValue;
use runtime_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Architecture;

/// A processor whose functions this crate can call: it knows the calling convention and the causes of faults.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// 64-bit RISC-V with double precision (RV64GC, calling convention LP64D).
    Riscv64,
    /// Arm Cortex-M3 and other ARMv7-M without floating point (calling convention AAPCS).
    CortexM3,
    /// Arm Cortex-M7 with double precision (calling convention AAPCS-VFP).
    CortexM7,
}

/// The most bytes of arguments that are not passed in registers.
pub(crate) const STACK_BYTES: usize = 1024;

/// The most arguments of a call: they fit even if all of them take 8 bytes of stack.
pub(crate) const ARGUMENTS: usize = STACK_BYTES / 8;

/// The arguments of a call, placed according to its calling convention.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) integers: [u64; 8],
    pub(crate) floats: [u64; 8],
    /// The bytes at the stack pointer; a multiple of 16 bytes.
    pub(crate) stack: Vec<u8>,
}

/// A fault that ended a call. On a Cortex-M, the cause is the configurable fault status, with the hard fault status
/// from bit 32 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) cause: u64,
    pub(crate) pc: u64,
    pub(crate) address: u64,
}

impl Processor {
    /// The programs that it runs.
    pub fn architecture(self) -> Architecture {
        match self {
            Self::Riscv64 => Architecture::riscv64(),
            Self::CortexM3 => Architecture::cortex_m3(),
            Self::CortexM7 => Architecture::cortex_m7(),
        }
    }

    /// The architecture of this name, if one of the processors has it.
    pub(crate) fn architecture_named(name: &str) -> Option<Architecture> {
        let all = [Self::Riscv64, Self::CortexM3, Self::CortexM7];
        all.into_iter().map(Self::architecture).find(|architecture| architecture.name == name)
    }

    pub(crate) fn is_64_bit(self) -> bool {
        self == Self::Riscv64
    }

    pub(crate) fn last_address(self) -> u64 {
        self.architecture().last_address()
    }

    /// The call target for the function at `address`. The lowest bit marks Thumb code on Arm, and is no part of the
    /// address, so every address is aligned there. RISC-V would ignore this bit and run other code.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an address at which the processor has no instructions.
    pub(crate) fn entry(self, address: u64) -> Result<u64> {
        match self {
            Self::CortexM3 | Self::CortexM7 => Ok(address | 1),
            Self::Riscv64 if address.is_multiple_of(2) => Ok(address),
            Self::Riscv64 => {
                let message = format!(
                    "the function at {address:#x}; functions of {} are aligned to 2 bytes",
                    self.architecture().name
                );
                Err(Error::new(ErrorKind::InvalidArgument, "call", message))
            }
        }
    }

    /// Places arguments according to the calling convention.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an address that the processor does not support.
    pub(crate) fn arguments(self, values: &[CallValue]) -> Result<Arguments> {
        let last = self.last_address();
        for (index, value) in values.iter().enumerate() {
            if let CallValue::Address(address) = value
                && *address > last
            {
                let message = format!(
                    "argument {index}, address {address:#x}; the last of {} is {last:#x}",
                    self.architecture().name
                );
                return Err(Error::new(ErrorKind::InvalidArgument, "call", message));
            }
        }
        let mut arguments = match self {
            Self::Riscv64 => riscv64(values),
            Self::CortexM3 => cortex_m(values, false),
            Self::CortexM7 => cortex_m(values, true),
        };
        let padded = arguments.stack.len().next_multiple_of(16);
        arguments.stack.resize(padded, 0);
        Ok(arguments)
    }

    /// Returns the integer result and the bits of the floating-point result from the result registers.
    pub(crate) fn result(self, integers: [u64; 2], float: u64) -> (u64, Option<u64>) {
        let pair = integers[1] << 32 | integers[0] & 0xFFFF_FFFF;
        match self {
            Self::Riscv64 => (integers[0], Some(float)),
            Self::CortexM3 => (pair, None),
            Self::CortexM7 => (pair, Some(float)),
        }
    }

    /// The routine that calls functions for debuggers.
    pub(crate) fn stub(self) -> &'static [u8] {
        match self {
            Self::Riscv64 => include_bytes!("../firmware/built/stub-riscv64.elf"),
            Self::CortexM3 => include_bytes!("../firmware/built/stub-cortex-m3.elf"),
            Self::CortexM7 => include_bytes!("../firmware/built/stub-cortex-m7.elf"),
        }
    }

    /// The number of the program counter in the debugger protocol.
    pub(crate) fn pc_register(self) -> u32 {
        match self {
            Self::Riscv64 => 32,
            Self::CortexM3 | Self::CortexM7 => 15,
        }
    }

    /// The number of the program status register in the debugger protocol, if code needs a correct value in it.
    pub(crate) fn xpsr_register(self) -> Option<u32> {
        match self {
            Self::Riscv64 => None,
            Self::CortexM3 | Self::CortexM7 => Some(25),
        }
    }

    /// The error of a call that faulted.
    pub(crate) fn error(self, fault: Fault) -> Error {
        let Fault { cause, pc, address } = fault;
        let (name, place) = match self {
            Self::Riscv64 => riscv64_cause(cause),
            Self::CortexM3 | Self::CortexM7 => cortex_m_cause(cause),
        };
        let words = name.to_ascii_lowercase().replace('_', " ");
        let message = match place {
            _ if name == STACKING_ERROR => {
                format!("{words}: no memory for registers below the stack pointer {address:#x}")
            }
            Some(what) => format!("{words} at pc {pc:#x}, {what} {address:#x}"),
            None => format!("{words} at pc {pc:#x}"),
        };
        let code = match self {
            Self::Riscv64 => cause,
            Self::CortexM3 | Self::CortexM7 if cause & 0xFFFF_FFFF == 0 => cause >> 32,
            Self::CortexM3 | Self::CortexM7 => cause & 0xFFFF_FFFF,
        };
        Error::new(ErrorKind::DeviceFault, "call", message).with_driver(name, code.cast_signed())
    }
}

fn riscv64(values: &[CallValue]) -> Arguments {
    let mut arguments = Arguments::default();
    let (mut integers, mut floats) = (0, 0);
    for value in values {
        // A single-precision value in a wide register has ones above it.
        let (bits, float) = match *value {
            CallValue::I32(value) => (i64::from(value).cast_unsigned(), false),
            CallValue::I64(value) => (value.cast_unsigned(), false),
            CallValue::Address(address) => (address, false),
            CallValue::F32(value) => (0xFFFF_FFFF_0000_0000 | u64::from(value.to_bits()), true),
            CallValue::F64(value) => (value.to_bits(), true),
        };
        if float && floats < 8 {
            arguments.floats[floats] = bits;
            floats += 1;
        } else if integers < 8 {
            arguments.integers[integers] = bits;
            integers += 1;
        } else {
            arguments.stack.extend(bits.to_le_bytes());
        }
    }
    arguments
}

fn cortex_m(values: &[CallValue], floats: bool) -> Arguments {
    let mut arguments = Arguments::default();
    let mut next = 0_usize;
    // The sixteen free single-precision registers; two of them form a double-precision register.
    let mut free = if floats { 0xFFFF_u32 } else { 0 };
    for value in values {
        let (bits, words, float) = match *value {
            CallValue::I32(value) => (u64::from(value.cast_unsigned()), 1, false),
            CallValue::I64(value) => (value.cast_unsigned(), 2, false),
            CallValue::Address(address) => (address, 1, false),
            CallValue::F32(value) => (u64::from(value.to_bits()), 1, floats),
            CallValue::F64(value) => (value.to_bits(), 2, floats),
        };
        if float {
            let whole = if words == 1 { free } else { free & free >> 1 & 0x5555 };
            if whole != 0 {
                let register = whole.trailing_zeros();
                free &= !(if words == 1 { 1 } else { 3 } << register);
                arguments.floats[register as usize / 2] |= bits << (register % 2 * 32);
                continue;
            }
            // After the first argument on the stack, all later arguments are on the stack.
            free = 0;
        } else {
            next = if words == 2 { next.next_multiple_of(2) } else { next };
            if next + words <= 4 {
                arguments.integers[next] = bits & 0xFFFF_FFFF;
                if words == 2 {
                    arguments.integers[next + 1] = bits >> 32;
                }
                next += words;
                continue;
            }
            next = 4;
        }
        let place = arguments.stack.len().next_multiple_of(4 * words);
        arguments.stack.resize(place, 0);
        arguments.stack.extend(&bits.to_le_bytes()[..4 * words]);
    }
    arguments
}

/// The name of a cause in `mcause`, and the meaning of `mtval` for it.
fn riscv64_cause(cause: u64) -> (&'static str, Option<&'static str>) {
    const ADDRESS: Option<&str> = Some("address");
    match cause {
        0 => ("INSTRUCTION_ADDRESS_MISALIGNED", ADDRESS),
        1 => ("INSTRUCTION_ACCESS_FAULT", ADDRESS),
        2 => ("ILLEGAL_INSTRUCTION", Some("instruction")),
        3 => ("BREAKPOINT", None),
        4 => ("LOAD_ADDRESS_MISALIGNED", ADDRESS),
        5 => ("LOAD_ACCESS_FAULT", ADDRESS),
        6 => ("STORE_ADDRESS_MISALIGNED", ADDRESS),
        7 => ("STORE_ACCESS_FAULT", ADDRESS),
        8..=11 => ("ENVIRONMENT_CALL", None),
        12 => ("INSTRUCTION_PAGE_FAULT", ADDRESS),
        13 => ("LOAD_PAGE_FAULT", ADDRESS),
        15 => ("STORE_PAGE_FAULT", ADDRESS),
        _ => ("UNKNOWN_CAUSE", None),
    }
}

/// A Cortex-M could not store the registers of a function that it stopped, so the location of the fault is lost. Other
/// faults may be reported as well, but the usual reason is a stack overflow.
const STACKING_ERROR: &str = "STACKING_ERROR";
/// Its bits in the configurable fault status register.
const STACKING: u64 = 1 << 4 | 1 << 12;

/// The name of the first bit that is set in the configurable fault status register, and whether there is an address. If
/// no bit is set, the hard fault status register gives the cause.
fn cortex_m_cause(status: u64) -> (&'static str, Option<&'static str>) {
    const VECTOR_TABLE: u64 = 1 << 1;
    const FORCED: u64 = 1 << 30;
    const DEBUG_EVENT: u64 = 1 << 31;
    if status & STACKING != 0 {
        return (STACKING_ERROR, None);
    }
    let (hard, status) = (status >> 32, status & 0xFFFF_FFFF);
    let name = match status.trailing_zeros() {
        _ if status == 0 && hard & DEBUG_EVENT != 0 => "BREAKPOINT",
        _ if status == 0 && hard & VECTOR_TABLE != 0 => "VECTOR_TABLE_ERROR",
        // No configurable fault escalated to a hard fault, so the cause is one of these two, for which there is no
        // handler. QEMU does not distinguish them.
        _ if status == 0 && hard & FORCED != 0 => "BREAKPOINT_OR_SUPERVISOR_CALL",
        0 => "INSTRUCTION_ACCESS_VIOLATION",
        1 => "DATA_ACCESS_VIOLATION",
        8 => "INSTRUCTION_BUS_ERROR",
        9 => "PRECISE_DATA_BUS_ERROR",
        10 => "IMPRECISE_DATA_BUS_ERROR",
        3 | 11 => "UNSTACKING_ERROR",
        7 | 15 => "DATA_FAULT",
        16 => "UNDEFINED_INSTRUCTION",
        17 => "INVALID_STATE",
        18 => "INVALID_PC",
        19 => "NO_COPROCESSOR",
        24 => "UNALIGNED_ACCESS",
        25 => "DIVISION_BY_ZERO",
        _ => "HARD_FAULT",
    };
    let has_address = status & (1 << 7 | 1 << 15) != 0;
    (name, has_address.then_some("address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riscv64_overflows_floats_to_integers_and_then_to_the_stack() {
        let mut values = vec![CallValue::I32(-2), CallValue::Address(7)];
        values.extend((0_u8..9).map(|i| CallValue::F64(f64::from(i))));
        values.extend((0..6).map(CallValue::I64));
        values.push(CallValue::F32(1.5));
        let arguments = Processor::Riscv64.arguments(&values).unwrap();
        let eight = 8.0_f64.to_bits();
        assert_eq!(arguments.integers, [u64::MAX - 1, 7, eight, 0, 1, 2, 3, 4]);
        assert_eq!(arguments.floats[7], 7.0_f64.to_bits());
        let single = 0xFFFF_FFFF_0000_0000 | u64::from(1.5_f32.to_bits());
        assert_eq!(arguments.stack, [5, single].map(u64::to_le_bytes).concat());
    }

    #[test]
    fn cortex_m_pairs_registers_for_64_bits() {
        let values = [
            CallValue::I32(1),
            CallValue::I64(2 << 32 | 3),
            CallValue::I32(4),
            CallValue::F64(5.0),
        ];
        let arguments = Processor::CortexM3.arguments(&values).unwrap();
        assert_eq!(arguments.integers[..4], [1, 0, 3, 2]);
        let five = 5.0_f64.to_bits().to_le_bytes();
        assert_eq!(arguments.stack, [&[4, 0, 0, 0, 0, 0, 0, 0][..], &five].concat());
    }

    #[test]
    fn cortex_m7_fills_gaps_between_doubles_with_singles() {
        let values = [CallValue::F32(1.0), CallValue::F64(2.0), CallValue::F32(3.0)];
        let arguments = Processor::CortexM7.arguments(&values).unwrap();
        let singles = u64::from(3.0_f32.to_bits()) << 32 | u64::from(1.0_f32.to_bits());
        assert_eq!(arguments.floats[..2], [singles, 2.0_f64.to_bits()]);
        let nine: Vec<_> = (0_u8..9).map(|i| CallValue::F64(f64::from(i))).collect();
        let arguments = Processor::CortexM7.arguments(&nine).unwrap();
        assert_eq!(arguments.stack[..8], 8.0_f64.to_bits().to_le_bytes());
    }

    #[test]
    fn addresses_that_a_processor_does_not_have_are_refused() {
        let last = CallValue::Address(0xFFFF_FFFF);
        let beyond = [CallValue::I32(1), CallValue::Address(0x1_0000_0010)];
        for processor in [Processor::CortexM3, Processor::CortexM7] {
            assert_eq!(processor.arguments(&[last]).unwrap().integers[0], 0xFFFF_FFFF);
            let error = processor.arguments(&beyond).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            for expected in ["argument 1", "0x100000010", "0xffffffff"] {
                assert!(error.message().contains(expected), "{error}");
            }
        }
        assert_eq!(Processor::Riscv64.arguments(&beyond).unwrap().integers[1], 0x1_0000_0010);
    }

    #[test]
    fn faults_name_their_cause() {
        let fault = Fault { cause: 5, pc: 0x8000_0010, address: 0x10 };
        let error = Processor::Riscv64.error(fault);
        assert_eq!(
            error.to_string(),
            "call: device fault: load access fault at pc 0x80000010, address 0x10 [LOAD_ACCESS_FAULT (5)]"
        );
        let fault = Fault { cause: 0x8200, pc: 2, address: 0x9000_0000 };
        let error = Processor::CortexM7.error(fault);
        assert_eq!(error.driver().unwrap().name, "PRECISE_DATA_BUS_ERROR");
        assert!(error.message().ends_with("address 0x90000000"), "{error}");
        let fault = Fault { cause: 0x9200, pc: 0, address: 0x5FFF_FFE0 };
        let error = Processor::CortexM7.error(fault);
        assert_eq!(error.driver().unwrap().name, "STACKING_ERROR");
        for (cause, name) in [
            (1_u64 << 63, "BREAKPOINT"),
            (1 << 62, "BREAKPOINT_OR_SUPERVISOR_CALL"),
            (1 << 33, "VECTOR_TABLE_ERROR"),
            (1 << 62 | 1 << 16, "UNDEFINED_INSTRUCTION"),
            (0, "HARD_FAULT"),
        ] {
            let error = Processor::CortexM3.error(Fault { cause, pc: 2, address: 0 });
            assert_eq!(error.driver().unwrap().name, name);
        }
        let error = Processor::CortexM7.error(fault);
        assert!(error.message().ends_with("stack pointer 0x5fffffe0"), "{error}");
    }
}
