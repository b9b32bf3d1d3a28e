//! A loaded module and its kernels.

use std::collections::HashMap;

use super::instruction::Function;
use super::memory::Variables;

/// The functions and variables of a PTX text, ready to run.
///
/// Variables keep what launches write into them.
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

    /// The architecture it is for, such as 60 for `sm_60`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The kernel of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The names of all kernels, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

/// Where a kernel parameter lies among the bytes of all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes before it.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

/// A kernel.
#[derive(Debug)]
pub struct Entry {
    /// Index among the functions of the module.
    pub(super) function: usize,
    pub(super) params: Vec<Param>,
    /// Where the shared memory begins that functions of the module have in common.
    pub(super) common_shared: usize,
    pub(super) static_shared: usize,
    pub(super) max_threads: u32,
}

impl Entry {
    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of shared memory that the kernel and the functions of its module declare, besides what a launch adds.
    pub fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// Threads of a block at most: 1024, or fewer if the kernel says so.
    pub fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Bytes of all parameters.
    pub(super) fn params_size(&self) -> usize {
        self.params.last().map_or(0, |param| param.offset + param.size)
    }
}
