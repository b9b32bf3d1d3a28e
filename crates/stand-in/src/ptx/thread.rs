//! A thread: its frames, and the loop that executes operations.

use std::sync::atomic::{Ordering, fence};

use super::Fault;
use super::instruction::{
    Barrier, Exchange, Extend, Function, Operation, Parts, Slot, Special, Update,
};
use super::memory::{Memory, POISON, Private};

/// The most nested calls.
const DEEPEST: usize = 512;

/// The properties of a launch and a block from which special registers are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) grid: &'a [u32; 3],
    pub(super) block: &'a [u32; 3],
    pub(super) index: [u32; 3],
    pub(super) common_shared: usize,
    pub(super) static_shared: usize,
    pub(super) dynamic_shared: usize,
}

impl Place<'_> {
    fn value(&self, linear: u32, local: usize, special: Special) -> u64 {
        let [width, height, _] = *self.block;
        let thread = [linear % width, linear / width % height, linear / width / height];
        let value = match special {
            Special::Thread(dim) => thread[dim],
            Special::Threads(dim) => self.block[dim],
            Special::Block(dim) => self.index[dim],
            Special::Blocks(dim) => self.grid[dim],
            Special::Lane => linear % 32,
            Special::DynamicSharedStart => return self.static_shared.next_multiple_of(16) as u64,
            Special::CommonShared(offset) => {
                return (self.common_shared as u64).wrapping_add(offset);
            }
            Special::Local(offset) => return (local as u64).wrapping_add(offset),
        };
        value.into()
    }
}

#[derive(Debug)]
struct Frame {
    function: usize,
    /// The next operation.
    at: usize,
    slots: usize,
    local: usize,
    params: usize,
}

/// Why a thread gave up its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pause<'m> {
    /// It can go on.
    Ready,
    Exited,
    Barrier(&'m Barrier),
    Exchange(&'m Exchange),
}

/// A thread. Its memory is reused for the next one.
#[derive(Debug)]
pub(super) struct Thread<'m> {
    functions: &'m [Function],
    /// Index in the block.
    pub(super) linear: u32,
    pub(super) pause: Pause<'m>,
    slots: Vec<u64>,
    frames: Vec<Frame>,
    private: Private,
}

impl<'m> Thread<'m> {
    pub(super) fn new(functions: &'m [Function]) -> Self {
        Self {
            functions,
            linear: 0,
            pause: Pause::Exited,
            slots: Vec::new(),
            frames: Vec::new(),
            private: Private::default(),
        }
    }

    /// Starts at the beginning of a kernel, as the thread with this index in the block.
    pub(super) fn start(&mut self, linear: u32, function: usize, params: &[u8], place: &Place<'_>) {
        self.linear = linear;
        self.pause = Pause::Ready;
        self.slots.clear();
        self.frames.clear();
        self.private.local.clear();
        self.private.params.clear();
        self.enter(function, place);
        self.private.params[..params.len()].copy_from_slice(params);
    }

    fn enter(&mut self, function: usize, place: &Place<'_>) {
        let callee = &self.functions[function];
        let frame = Frame {
            function,
            at: 0,
            slots: self.slots.len(),
            // No variable needs more than this.
            local: self.private.local.len().next_multiple_of(16),
            params: self.private.params.len().next_multiple_of(16),
        };
        self.slots.extend_from_slice(&callee.slots);
        for (slot, special) in &callee.specials {
            self.slots[frame.slots + *slot as usize] =
                place.value(self.linear, frame.local, *special);
        }
        self.private.local.resize(frame.local + callee.local, POISON);
        self.private.params.resize(frame.params + callee.params, POISON);
        self.private.params_start = frame.params;
        self.frames.push(frame);
    }

    /// Returns to the caller. Returns false if there is none: the thread ends.
    fn leave(&mut self) -> bool {
        let Some(callee) = self.frames.pop() else { return false };
        let Some(caller) = self.frames.last() else { return false };
        let functions = self.functions;
        if let Operation::Call(call) = &functions[caller.function].code[caller.at - 1] {
            for result in &call.results {
                let from = callee.params + result.callee;
                let to = caller.params + result.caller;
                self.private.params.copy_within(from..from + result.size, to);
            }
        }
        self.slots.truncate(callee.slots);
        self.private.local.truncate(callee.local);
        self.private.params.truncate(callee.params);
        self.private.params_start = caller.params;
        true
    }

    /// The value of a slot of the latest frame.
    pub(super) fn slot(&self, slot: Slot) -> u64 {
        self.frames.last().map_or(0, |frame| self.slots[frame.slots + slot as usize])
    }

    /// Sets the value of a slot of the latest frame.
    pub(super) fn set(&mut self, slot: Slot, value: u64) {
        if let Some(frame) = self.frames.last() {
            self.slots[frame.slots + slot as usize] = value;
        }
    }

    /// Executes at most `turn` operations.
    pub(super) fn run(
        &mut self,
        memory: &mut Memory<'_>,
        place: &Place<'_>,
        mut turn: u32,
    ) -> Result<(), Fault> {
        let functions = self.functions;
        'frames: loop {
            let Some(frame) = self.frames.last_mut() else {
                self.pause = Pause::Exited;
                return Ok(());
            };
            let function = &functions[frame.function];
            let code = &function.code[..];
            let slots = &mut self.slots[frame.slots..];
            let mut at = frame.at;
            macro_rules! slot {
                ($slot:expr) => {
                    slots[*$slot as usize]
                };
            }
            macro_rules! address {
                ($address:expr) => {
                    slots[$address.base as usize].wrapping_add_signed($address.offset)
                };
            }
            macro_rules! pause {
                ($pause:expr) => {{
                    frame.at = at;
                    self.pause = $pause;
                    return Ok(());
                }};
            }
            loop {
                if turn == 0 {
                    pause!(Pause::Ready);
                }
                turn -= 1;
                let operation = &code[at];
                at += 1;
                match operation {
                    Operation::Unary { apply, to, a } => slot!(to) = apply(slot!(a)),
                    Operation::Binary { apply, to, a, b } => {
                        slot!(to) = apply(slot!(a), slot!(b));
                    }
                    Operation::Ternary { apply, to, a, b, c } => {
                        slot!(to) = apply(slot!(a), slot!(b), slot!(c));
                    }
                    Operation::Quaternary(operation) => {
                        let (apply, to, [a, b, c, d]) = &**operation;
                        slot!(to) = apply(slot!(a), slot!(b), slot!(c), slot!(d));
                    }
                    Operation::Carry(operation) => {
                        let [a, b, c] = operation.operands.map(|slot| slot!(&slot));
                        let carry = slot!(&operation.carry_in);
                        let (result, carry) = (operation.apply)(a, b, c, carry);
                        slot!(&operation.to) = result;
                        slot!(&operation.carry_out) = carry;
                    }
                    Operation::Pack { to, parts } => {
                        slot!(to) = low(gather(parts, slots));
                    }
                    Operation::Unpack { parts, a } => scatter(parts, slots, slot!(a).into()),
                    Operation::Load { to, from, size, extend } => {
                        let mut bytes = [0; 8];
                        let size = usize::from(*size);
                        let address = address!(from);
                        memory.load(&self.private, from.space, address, &mut bytes[..size])?;
                        slot!(to) = extended(u64::from_le_bytes(bytes), size, *extend);
                    }
                    Operation::Store { to, size, from } => {
                        let bytes = slot!(from).to_le_bytes();
                        let bytes = &bytes[..usize::from(*size)];
                        memory.store(&mut self.private, to.space, address!(to), bytes)?;
                    }
                    Operation::LoadVector(operation) => {
                        let (parts, from) = &**operation;
                        let mut bytes = [0; 16];
                        let size = parts.count * parts.size;
                        let address = address!(from);
                        memory.load(&self.private, from.space, address, &mut bytes[..size])?;
                        scatter(parts, slots, u128::from_le_bytes(bytes));
                    }
                    Operation::StoreVector(operation) => {
                        let (to, parts) = &**operation;
                        let bytes = gather(parts, slots).to_le_bytes();
                        let bytes = &bytes[..parts.count * parts.size];
                        memory.store(&mut self.private, to.space, address!(to), bytes)?;
                    }
                    Operation::Atomic(atomic) => {
                        let (b, c) = (slot!(&atomic.b), slot!(&atomic.c));
                        let address = address!(atomic.address);
                        let space = atomic.address.space;
                        let update = |old| match atomic.apply {
                            Update::Binary(apply) => apply(old, b),
                            Update::Ternary(apply) => apply(old, b, c),
                        };
                        let private = &mut self.private;
                        slot!(&atomic.to) =
                            memory.update(private, space, address, atomic.size, update)?;
                    }
                    Operation::Fence => fence(Ordering::SeqCst),
                    Operation::Branch(target) => at = *target as usize,
                    Operation::BranchIf { on, when, target } => {
                        if (slot!(on) & 1 == 1) == *when {
                            at = *target as usize;
                        }
                    }
                    Operation::Call(call) => {
                        frame.at = at;
                        let caller = frame.params;
                        if self.frames.len() == DEEPEST {
                            let message = format!("more than {DEEPEST} nested calls");
                            return Err(Fault::IllegalInstruction(message));
                        }
                        self.enter(call.function, place);
                        let callee = self.private.params_start;
                        for argument in &call.arguments {
                            let from = caller + argument.caller;
                            let range = from..from + argument.size;
                            self.private.params.copy_within(range, callee + argument.callee);
                        }
                        continue 'frames;
                    }
                    Operation::Return => {
                        if !self.leave() {
                            self.pause = Pause::Exited;
                            return Ok(());
                        }
                        continue 'frames;
                    }
                    Operation::Exit => pause!(Pause::Exited),
                    Operation::Trap => return Err(Fault::Trap),
                    Operation::Assert => return Err(Fault::Assert),
                    Operation::Barrier(barrier) => pause!(Pause::Barrier(barrier)),
                    Operation::Exchange(exchange) => pause!(Pause::Exchange(exchange)),
                }
            }
        }
    }
}

/// The low bytes of a value, with its sign above if asked for.
fn extended(value: u64, size: usize, extend: Extend) -> u64 {
    let shift = 64 - 8 * size;
    let signed = || ((value << shift).cast_signed() >> shift).cast_unsigned();
    match extend {
        Extend::Zero => value,
        Extend::SignTo32 => signed() & 0xffff_ffff,
        Extend::SignTo64 => signed(),
    }
}

fn gather(parts: &Parts, slots: &[u64]) -> u128 {
    let mask = (1_u128 << (8 * parts.size)) - 1;
    let part = |(index, slot): (usize, &Slot)| {
        (u128::from(slots[*slot as usize]) & mask) << (8 * parts.size * index)
    };
    parts.slots().iter().enumerate().map(part).fold(0, |all, part| all | part)
}

fn scatter(parts: &Parts, slots: &mut [u64], value: u128) {
    let mask = (1_u128 << (8 * parts.size)) - 1;
    for (index, slot) in parts.slots().iter().enumerate() {
        slots[*slot as usize] = low((value >> (8 * parts.size * index)) & mask);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the low bits")]
fn low(value: u128) -> u64 {
    value as u64
}
