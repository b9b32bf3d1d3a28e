//! The decoded form of a function.
//!
//! A frame of a function is an array of 64-bit slots: its registers, then its constants and special registers, which
//! are filled in when it begins. So every operand is a slot. A slot holds a value of a narrower type in its low bits,
//! and readers ignore the other bits. The high bits of 32-bit values are zero, because they may be addresses.

use super::alu::{Binary, Carry, Quaternary, Ternary, Unary};

/// An index into the frame.
pub(super) type Slot = u32;

/// An index into the code of the function.
pub(super) type Target = u32;

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

/// `[base + offset]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) base: Slot,
    pub(super) offset: i64,
}

/// Slots whose values are adjacent in a larger value, the first in the lowest bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) slots: [Slot; 4],
    pub(super) count: usize,
    /// Bytes of each.
    pub(super) size: usize,
}

impl Parts {
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots[..self.count]
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    Unary {
        apply: Unary,
        to: Slot,
        a: Slot,
    },
    Binary {
        apply: Binary,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Ternary {
        apply: Ternary,
        to: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Quaternary(Box<(Quaternary, Slot, [Slot; 4])>),
    Carry(Box<CarryOperation>),
    /// Combines parts to a value.
    Pack {
        to: Slot,
        parts: Box<Parts>,
    },
    /// Splits a value into parts.
    Unpack {
        parts: Box<Parts>,
        a: Slot,
    },
    Load {
        to: Slot,
        from: Address,
        size: u8,
        extend: Extend,
    },
    Store {
        to: Address,
        size: u8,
        from: Slot,
    },
    LoadVector(Box<(Parts, Address)>),
    StoreVector(Box<(Address, Parts)>),
    Atomic(Box<AtomicOperation>),
    Fence,
    Branch(Target),
    BranchIf {
        on: Slot,
        when: bool,
        target: Target,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    Assert,
    Barrier(Box<Barrier>),
    Exchange(Box<Exchange>),
}

/// The extension of a loaded value to the width of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extend {
    Zero,
    /// The sign up to 32 bits.
    SignTo32,
    /// The sign up to 64 bits.
    SignTo64,
}

#[derive(Debug)]
pub(super) struct CarryOperation {
    pub(super) apply: Carry,
    pub(super) to: Slot,
    pub(super) operands: [Slot; 3],
    pub(super) carry_in: Slot,
    pub(super) carry_out: Slot,
}

/// The function of an atomic operation, of the old value and one or two operands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Update {
    Binary(Binary),
    Ternary(Ternary),
}

/// Replaces what is at the address; `to` gets the old value.
#[derive(Debug)]
pub(super) struct AtomicOperation {
    pub(super) apply: Update,
    pub(super) size: usize,
    pub(super) to: Slot,
    pub(super) address: Address,
    pub(super) b: Slot,
    pub(super) c: Slot,
}

/// Bytes of a parameter on their way between the parameter memories of caller and callee.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) caller: usize,
    pub(super) callee: usize,
    pub(super) size: usize,
}

#[derive(Debug)]
pub(super) struct Call {
    /// Index among the functions of the module.
    pub(super) function: usize,
    pub(super) arguments: Vec<Passed>,
    pub(super) results: Vec<Passed>,
}

/// Waits for the other threads of the block.
#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) number: Slot,
    pub(super) reduction: Option<Reduction>,
}

/// The reduction of the predicates of the threads at a barrier.
#[derive(Debug)]
pub(super) struct Reduction {
    pub(super) kind: Vote,
    pub(super) to: Slot,
    pub(super) predicate: Slot,
    pub(super) negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    All,
    Any,
    /// A bit per lane.
    Ballot,
    /// The number of threads.
    Count,
}

/// An exchange between the threads of a warp that the mask in the slot `members` names.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) members: Slot,
    pub(super) kind: ExchangeKind,
}

#[derive(Debug)]
pub(super) enum ExchangeKind {
    /// The threads wait for each other.
    Barrier,
    Vote(Reduction),
    /// The value of another lane, and whether there is one.
    Shuffle {
        mode: Shuffle,
        to: Slot,
        valid: Slot,
        value: Slot,
        lane: Slot,
        clamp: Slot,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// A value that a slot gets when its frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    /// The start of the shared memory whose size the launch gives.
    DynamicSharedStart,
    /// An address in the shared memory that functions of the module share, at this offset.
    CommonShared(u64),
    /// The address of local memory at this offset of the frame.
    Local(u64),
}

impl Special {
    /// The special register of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        if name == "%laneid" {
            return Some(Self::Lane);
        }
        let (register, component) = name.split_once('.')?;
        let dim = ["x", "y", "z"].iter().position(|dim| *dim == component)?;
        match register {
            "%tid" => Some(Self::Thread(dim)),
            "%ntid" => Some(Self::Threads(dim)),
            "%ctaid" => Some(Self::Block(dim)),
            "%nctaid" => Some(Self::Blocks(dim)),
            _ => None,
        }
    }
}

/// A function or kernel.
#[derive(Debug, Default)]
pub(super) struct Function {
    pub(super) code: Vec<Operation>,
    /// The values of the slots of a new frame.
    pub(super) slots: Vec<u64>,
    pub(super) specials: Vec<(Slot, Special)>,
    /// Bytes of local memory of a frame.
    pub(super) local: usize,
    /// Bytes of parameter memory of a frame: its own parameters first, then those of functions it calls.
    pub(super) params: usize,
}
