//! Names and their meanings.

use std::collections::HashMap;

use super::cursor::Declared;
use super::instruction::Slot;
use super::module::Param;
use super::types::Type;

/// The meaning of a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symbol {
    Register(Slot, Type),
    /// Offset in the parameter memory of the frame, and bytes.
    Param(usize, usize),
    /// Offset in the local memory of the frame.
    Local(usize),
    /// Offset in shared memory, of a variable of the kernel itself.
    Shared(usize),
    /// Offset in the shared memory that the functions of the module share.
    CommonShared(usize),
    /// Shared memory after all that is declared.
    DynamicShared,
    /// Generic address of a variable of the module.
    Variable(u64),
}

/// The signature of a function.
pub(super) struct Signature<'a> {
    /// Index among the functions.
    pub(super) index: usize,
    pub(super) params: Vec<Param>,
    pub(super) results: Vec<Param>,
    pub(super) names: Vec<(&'a str, usize, usize)>,
    /// The size of both in bytes.
    pub(super) size: usize,
}

impl<'a> Signature<'a> {
    /// Parameters are at the start of the parameter memory, and results follow.
    pub(super) fn new(index: usize, params: &[Declared<'a>], results: &[Declared<'a>]) -> Self {
        let end = |of: &[Declared<'_>]| of.last().map_or(0, |last| last.offset + last.size);
        let behind = end(params).next_multiple_of(16);
        let param = |declared: &Declared<'a>, start| Param {
            offset: start + declared.offset,
            size: declared.size,
        };
        let named = |declared: &Declared<'a>, start| {
            (declared.name, start + declared.offset, declared.size)
        };
        let names = params.iter().map(|declared| named(declared, 0));
        Self {
            index,
            params: params.iter().map(|declared| param(declared, 0)).collect(),
            results: results.iter().map(|declared| param(declared, behind)).collect(),
            names: names.chain(results.iter().map(|declared| named(declared, behind))).collect(),
            size: behind + end(results),
        }
    }
}

/// The names that functions of a module see.
#[derive(Default)]
pub(super) struct Globals<'a> {
    pub(super) symbols: HashMap<&'a str, Symbol>,
    pub(super) signatures: HashMap<&'a str, Signature<'a>>,
    /// Bytes of shared variables outside of kernels.
    pub(super) shared: usize,
}
