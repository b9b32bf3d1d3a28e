//! One statement to operations.
//!
//! Rare modifiers become operations of their own before and after the one they modify, through temporaries: `.ftz`,
//! `.sat`, a second destination, a predicate to combine with.

mod arithmetic;
mod control;
mod convert;
mod memory;
mod warp;

use super::alu::{Binary, Rounding, Ternary, Unary};
use super::body::{Body, Operand, Statement};
use super::instruction::{Operation, Slot, Special, Type};

/// The parts of an opcode behind its first, each to be taken by what knows it.
struct Modifiers<'a>(Vec<&'a str>);

impl<'a> Modifiers<'a> {
    fn take(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|modifier| *modifier == name);
        position.map(|position| self.0.remove(position)).is_some()
    }

    /// Takes what `choose` knows, if something is there.
    fn choose<T>(&mut self, choose: impl Fn(&str) -> Option<T>) -> Option<T> {
        let position = self.0.iter().position(|modifier| choose(modifier).is_some())?;
        choose(self.0.remove(position))
    }

    fn one_of(&mut self, names: &[&'a str]) -> Option<&'a str> {
        let name = names.iter().find(|name| self.0.contains(name))?;
        self.take(name);
        Some(name)
    }

    /// Takes all of them that are there.
    fn any_of(&mut self, names: &[&str]) {
        self.0.retain(|modifier| !names.contains(modifier));
    }

    /// The type, which comes last.
    fn ty(&mut self) -> Result<Type, String> {
        let last = self.0.pop().ok_or("a type is missing")?;
        Type::named(last).ok_or_else(|| format!("`.{last}` is no type"))
    }

    /// `.rz`, `.rm`, `.rp`; `None` for `.rn` and where nothing is said.
    fn rounding(&mut self) -> Option<Rounding> {
        self.take("rn");
        self.choose(|name| match name {
            "rz" => Some(Rounding::Zero),
            "rm" => Some(Rounding::Down),
            "rp" => Some(Rounding::Up),
            _ => None,
        })
    }

    /// Fails if something is left.
    fn end(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(left) => Err(format!("unknown modifier `.{left}`")),
        }
    }
}

/// As many operands as the instruction has.
fn operands<'s, 'a, const N: usize>(
    statement: &'s Statement<'a>,
) -> Result<[&'s Operand<'a>; N], String> {
    let found: Vec<&Operand<'a>> = statement.operands.iter().collect();
    let count = found.len();
    found.try_into().map_err(|_| format!("{count} operands instead of {N}"))
}

fn unknown() -> String {
    "unknown for this type".to_owned()
}

pub(super) fn statement<'a>(
    body: &mut Body<'_, 'a>,
    statement: &Statement<'a>,
) -> Result<(), String> {
    let mut parts = statement.opcode.split('.');
    let head = parts.next().unwrap_or_default();
    let modifiers = Modifiers(parts.collect());
    match head {
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl"
        | "shr" | "copysign" => arithmetic::binary(body, head, modifiers, operands(statement)?),
        "neg" | "abs" | "not" | "cnot" | "popc" | "clz" | "brev" | "bfind" | "sqrt" | "rcp"
        | "rsqrt" | "sin" | "cos" | "ex2" | "lg2" | "tanh" => {
            arithmetic::unary(body, head, modifiers, operands(statement)?)
        }
        "mad" | "fma" | "bfe" | "shf" | "prmt" | "selp" | "slct" => {
            arithmetic::ternary(body, head, modifiers, operands(statement)?)
        }
        "addc" | "subc" => arithmetic::with_carry(body, head, modifiers, operands(statement)?),
        "madc" => arithmetic::mad_with_carry(body, head, modifiers, operands(statement)?),
        "bfi" => arithmetic::insert(body, modifiers, operands(statement)?),
        "setp" | "set" => arithmetic::compare(body, head, modifiers, &statement.operands),
        "cvt" => convert::convert(body, modifiers, operands(statement)?),
        "cvta" => convert::address(body, modifiers, operands(statement)?),
        "mov" => convert::assign(body, modifiers, operands(statement)?),
        "ld" | "ldu" => memory::load(body, modifiers, operands(statement)?),
        "st" => memory::store(body, modifiers, operands(statement)?),
        "atom" | "red" => memory::atomic(body, head, modifiers, &statement.operands),
        "membar" | "fence" => memory::fence(body, modifiers, operands(statement)?),
        "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" => {
            control::jump(body, head, modifiers, &statement.operands)
        }
        "call" => control::call(body, modifiers, &statement.operands),
        "bar" | "barrier" => control::barrier(body, modifiers, &statement.operands),
        "shfl" => warp::shuffle(body, modifiers, operands(statement)?),
        "vote" => warp::vote(body, modifiers, operands(statement)?),
        "activemask" => warp::active(body, modifiers, operands(statement)?),
        _ => Err("unknown instruction".to_owned()),
    }
}

/// The special register of that name.
pub(super) fn special(name: &str) -> Option<Special> {
    let dim = |text: &str| ["x", "y", "z"].iter().position(|dim| *dim == text);
    if let Some((register, component)) = name.split_once('.') {
        let of = match register {
            "%tid" => Special::Thread,
            "%ntid" => Special::Threads,
            "%ctaid" => Special::Block,
            "%nctaid" => Special::Blocks,
            _ => return None,
        };
        return dim(component).map(of);
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneBit,
        "%lanemask_lt" => Special::LanesBelow,
        "%lanemask_gt" => Special::LanesAbove,
        "%dynamic_smem_size" => Special::DynamicShared,
        _ => return None,
    })
}

fn emit_unary(body: &mut Body<'_, '_>, apply: Unary, to: Slot, a: Slot) {
    body.emit(Operation::Unary { apply, to, a });
}

fn emit_binary(body: &mut Body<'_, '_>, apply: Binary, to: Slot, [a, b]: [Slot; 2]) {
    body.emit(Operation::Binary { apply, to, a, b });
}

fn emit_ternary(body: &mut Body<'_, '_>, apply: Ternary, to: Slot, [a, b, c]: [Slot; 3]) {
    body.emit(Operation::Ternary { apply, to, a, b, c });
}

/// Copies a slot.
fn emit_move(body: &mut Body<'_, '_>, to: Slot, a: Slot) {
    emit_unary(body, |bits| bits, to, a);
}

/// A predicate, which may be negated.
fn predicate<'a>(body: &mut Body<'_, 'a>, operand: &Operand<'a>) -> Result<(Slot, bool), String> {
    match operand {
        Operand::Not(name) => Ok((body.slot(&Operand::Name(name))?, true)),
        other => Ok((body.slot(other)?, false)),
    }
}
