//! Operations and their slots.

use super::super::alu::{self, Binary, Ternary, Unary};
use super::super::body::Body;
use super::super::instruction::{Operation, Parts, Slot, Space};
use super::super::statement::Operand;
use super::super::types::Type;
use super::modifiers::{Modifiers, unknown};

pub(super) fn emit_unary(body: &mut Body<'_, '_>, apply: Unary, to: Slot, a: Slot) {
    body.emit(Operation::Unary { apply, to, a });
}

pub(super) fn emit_binary(body: &mut Body<'_, '_>, apply: Binary, to: Slot, [a, b]: [Slot; 2]) {
    body.emit(Operation::Binary { apply, to, a, b });
}

pub(super) fn emit_ternary(
    body: &mut Body<'_, '_>,
    apply: Ternary,
    to: Slot,
    [a, b, c]: [Slot; 3],
) {
    body.emit(Operation::Ternary { apply, to, a, b, c });
}

/// Copies a slot.
pub(super) fn emit_move(body: &mut Body<'_, '_>, to: Slot, a: Slot) {
    emit_unary(body, |bits| bits, to, a);
}

/// A predicate, which may be negated.
pub(super) fn predicate<'a>(
    body: &mut Body<'_, 'a>,
    operand: &Operand<'a>,
) -> Result<(Slot, bool), String> {
    match operand {
        Operand::Not(name) => Ok((body.slot(&Operand::Name(name))?, true)),
        other => Ok((body.slot(other)?, false)),
    }
}

/// Flushes a subnormal value to zero.
pub(super) fn emit_flush(
    body: &mut Body<'_, '_>,
    ty: Type,
    to: Slot,
    a: Slot,
) -> Result<(), String> {
    emit_unary(body, alu::flush(ty).ok_or_else(unknown)?, to, a);
    Ok(())
}

/// Converts an integer to 64 bits, with its sign or with zeros.
pub(super) fn emit_extend(
    body: &mut Body<'_, '_>,
    from: Type,
    to: Slot,
    a: Slot,
) -> Result<(), String> {
    emit_unary(body, alu::extend(from).ok_or_else(unknown)?, to, a);
    Ok(())
}

pub(super) fn destinations<'a>(
    body: &Body<'_, 'a>,
    elements: &[Operand<'a>],
) -> Result<Vec<Slot>, String> {
    elements.iter().map(|element| Ok(body.destination(element)?.0)).collect()
}

/// Parts of so many bytes each.
pub(super) fn parts(slots: &[Slot], size: usize) -> Result<Parts, String> {
    let count = slots.len();
    if !matches!(count, 1 | 2 | 4) || count * size > 16 {
        return Err(format!("{count} parts of {size} bytes"));
    }
    let mut all = [0; 4];
    all[..count].copy_from_slice(slots);
    Ok(Parts { slots: all, count, size })
}

/// The space that an instruction names, the generic one if it names none.
pub(super) fn space(modifiers: &mut Modifiers<'_>) -> Space {
    let named = modifiers.choose(|name| match name {
        "global" => Some(Space::Global),
        "shared" | "shared::cta" => Some(Space::Shared),
        "local" => Some(Space::Local),
        "param" | "param::entry" | "param::func" => Some(Space::Param),
        "const" => Some(Space::Const),
        _ => None,
    });
    named.unwrap_or(Space::Generic)
}
