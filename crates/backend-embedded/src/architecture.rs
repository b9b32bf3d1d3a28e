//! Architectures: the programs that can be loaded for a processor.

use std::borrow::Cow;

use object::elf::{
    EF_ARM_ABI_FLOAT_HARD, EF_ARM_ABI_FLOAT_SOFT, EF_RISCV_FLOAT_ABI, EF_RISCV_FLOAT_ABI_DOUBLE,
    EM_ARM, EM_RISCV, R_ARM_RELATIVE, R_RISCV_RELATIVE,
};

/// The ELF files that are programs for a processor. An [`EmbeddedAccelerator`](crate::EmbeddedAccelerator) needs it to
/// load modules. It knows the architectures of [`Processor`](crate::Processor);
/// [`AcceleratorConfig::with_architecture`](crate::AcceleratorConfig::with_architecture) adds another.
///
/// Programs are little-endian.
///
/// ```
/// use backend_embedded::{AcceleratorConfig, Architecture};
///
/// // 64-bit Arm: EM_AARCH64, R_AARCH64_RELATIVE.
/// let aarch64 = Architecture::new_64_bit("aarch64", 183, 1027);
/// let config = AcceleratorConfig::new().with_architecture(aarch64);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture {
    pub(crate) name: Cow<'static, str>,
    pub(crate) machine: u16,
    pub(crate) is_64_bit: bool,
    pub(crate) relative: u32,
    flags: (u32, u32),
    thumb: bool,
}

impl Architecture {
    /// The architecture of 32-bit programs with this name in
    /// [`DeviceInfo::architecture`](runtime_core::DeviceInfo::architecture). Its ELF files have the number `machine` in
    /// `e_machine`. `relative` is the type of the relocation that adds the load address, such as `R_ARM_RELATIVE`.
    pub fn new_32_bit(name: impl Into<Cow<'static, str>>, machine: u16, relative: u32) -> Self {
        let (is_64_bit, flags, thumb) = (false, (0, 0), false);
        Self { name: name.into(), machine, is_64_bit, relative, flags, thumb }
    }

    /// As [`new_32_bit`](Self::new_32_bit), for 64-bit programs.
    pub fn new_64_bit(name: impl Into<Cow<'static, str>>, machine: u16, relative: u32) -> Self {
        Self { is_64_bit: true, ..Self::new_32_bit(name, machine, relative) }
    }

    /// Takes only files whose `e_flags` are `value` in the bits of `mask`, such as those that name the calling
    /// convention.
    #[must_use]
    pub fn with_flags(mut self, mask: u32, value: u32) -> Self {
        self.flags = (mask, value);
        self
    }

    /// Declares that the lowest bit of a function's address marks Thumb code and is no part of the address.
    #[must_use]
    pub fn with_thumb(mut self) -> Self {
        self.thumb = true;
        self
    }

    pub(crate) fn riscv64() -> Self {
        Self::new_64_bit("rv64gc", EM_RISCV, R_RISCV_RELATIVE)
            .with_flags(EF_RISCV_FLOAT_ABI, EF_RISCV_FLOAT_ABI_DOUBLE)
    }

    // Files for Arm may leave open how they pass floating-point numbers.
    pub(crate) fn cortex_m3() -> Self {
        let arm = Self::new_32_bit("armv7-m", EM_ARM, R_ARM_RELATIVE);
        arm.with_thumb().with_flags(EF_ARM_ABI_FLOAT_HARD, 0)
    }

    pub(crate) fn cortex_m7() -> Self {
        let arm = Self::new_32_bit("armv7e-m+fp.dp", EM_ARM, R_ARM_RELATIVE);
        arm.with_thumb().with_flags(EF_ARM_ABI_FLOAT_SOFT, 0)
    }

    /// Whether an ELF file with these flags passes floating-point numbers in the registers of the architecture's
    /// calling convention.
    pub(crate) fn takes_flags(&self, flags: u32) -> bool {
        flags & self.flags.0 == self.flags.1
    }

    /// The number of bytes of an address.
    pub(crate) fn width(&self) -> usize {
        if self.is_64_bit { 8 } else { 4 }
    }

    pub(crate) fn last_address(&self) -> u64 {
        if self.is_64_bit { u64::MAX } else { u32::MAX.into() }
    }

    /// The address of the code at a symbol.
    pub(crate) fn address(&self, symbol: u64) -> u64 {
        if self.thumb { symbol & !1 } else { symbol }
    }
}
