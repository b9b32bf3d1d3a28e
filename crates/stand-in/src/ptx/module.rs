//! A loaded module and its kernels.

use std::collections::HashMap;

use super::instruction::Function;
use super::memory::Variables;

/// The functions and variables of a PTX text, ready to run.
///
/// Variables keep their values from launch to launch.
#[derive(Debug)]
pub struct Module {
    pub(super) version: (u32, u32),
    pub(super) target: u32,
    pub(super) functions: Vec<Function>,
    pub(super) variables: Variables,
    pub(super) entries: HashMap<String, Entry>,
}

impl Module {
    /// The version of the language, such as `(8, 0)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The target architecture, such as 60 for `sm_60`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The kernel of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The names of all kernels, in unspecified order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

/// The position of a kernel parameter in the bytes of all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// A kernel.
#[derive(Debug)]
pub struct Entry {
    /// Index among the functions of the module.
    pub(super) function: usize,
    pub(super) params: Vec<Param>,
    /// The start of the shared memory that functions of the module share.
    pub(super) common_shared: usize,
    pub(super) static_shared: usize,
    pub(super) max_threads: u32,
}

impl Entry {
    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The bytes of shared memory that the kernel and the functions of its module declare. A launch can add more.
    pub fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// The most threads of a block: 1024, or fewer if the kernel says so.
    pub fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// The size of all parameters in bytes.
    pub(super) fn params_size(&self) -> usize {
        self.params.last().map_or(0, |param| param.offset + param.size)
    }
}
