//! Decodes one statement to operations.
//!
//! The modifiers `.ftz` and `.sat` become operations of their own, before and after the operation that they modify.

mod arithmetic;
mod control;
mod convert;
mod emit;
mod memory;
mod modifiers;
mod warp;

use super::body::Body;
use super::statement::Statement;
use modifiers::{Modifiers, operands};

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
        "neg" | "abs" | "not" | "popc" | "clz" | "brev" | "sqrt" | "rcp" | "rsqrt" | "sin"
        | "cos" | "ex2" | "lg2" => arithmetic::unary(body, head, modifiers, operands(statement)?),
        "mad" | "fma" | "bfe" | "shf" | "selp" => {
            arithmetic::ternary(body, head, modifiers, operands(statement)?)
        }
        "addc" | "subc" => arithmetic::with_carry(body, head, modifiers, operands(statement)?),
        "madc" => arithmetic::mad_with_carry(body, head, modifiers, operands(statement)?),
        "bfi" => arithmetic::insert(body, modifiers, operands(statement)?),
        "setp" => arithmetic::compare(body, modifiers, operands(statement)?),
        "cvt" => convert::convert(body, modifiers, operands(statement)?),
        "cvta" => convert::address(body, modifiers, operands(statement)?),
        "mov" => convert::assign(body, modifiers, operands(statement)?),
        "ld" => memory::load(body, modifiers, operands(statement)?),
        "st" => memory::store(body, modifiers, operands(statement)?),
        "atom" | "red" => memory::atomic(body, head, modifiers, &statement.operands),
        "membar" | "fence" => memory::fence(body, modifiers, operands(statement)?),
        "bra" | "ret" | "exit" | "trap" => {
            control::jump(body, head, modifiers, &statement.operands)
        }
        "call" => control::call(body, modifiers, &statement.operands),
        "bar" => control::barrier(body, modifiers, &statement.operands),
        "shfl" => warp::shuffle(body, modifiers, operands(statement)?),
        "vote" => warp::vote(body, modifiers, operands(statement)?),
        _ => Err("unknown instruction".to_owned()),
    }
}
