//! Conversions, and values that move between registers.

use super::super::alu;
use super::super::body::Body;
use super::super::instruction::{Operation, Parts, Slot, Space};
use super::super::memory::window;
use super::super::statement::Operand;
use super::super::types::Type;
use super::emit::{
    destinations, emit_binary, emit_extend, emit_flush, emit_move, emit_unary, parts, space,
};
use super::modifiers::{Modifiers, unknown};

/// `cvt`: rounding to an integral value, conversion, saturation.
pub(super) fn convert<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, a]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let (from, ty) = (modifiers.ty()?, modifiers.ty()?);
    let integral = modifiers.choose(|name| match name {
        "rni" => Some("nearest"),
        "rzi" => Some("trunc"),
        "rmi" => Some("floor"),
        "rpi" => Some("ceil"),
        _ => None,
    });
    let rounding = modifiers.rounding();
    let (flushes, saturates) = (modifiers.take("ftz"), modifiers.take("sat"));
    modifiers.end()?;
    if rounding.is_some() || saturates && !(ty.is_float() && from.is_float()) {
        return Err(unknown());
    }
    let mut source = body.slot(a)?;
    let (to, register) = body.destination(to)?;
    let temporary = body.temporary(0);
    if flushes && from == Type::F32 {
        emit_flush(body, from, temporary, source)?;
        source = temporary;
    }
    if let Some(name) = integral {
        emit_unary(body, alu::float_unary(name, from).ok_or_else(unknown)?, temporary, source);
        source = temporary;
    }
    if !from.is_float() {
        emit_extend(body, from, temporary, source)?;
        source = temporary;
    }
    let apply = match (ty.is_float(), from.is_float()) {
        (false, false) => alu::cut(ty),
        (true, false) => alu::from_integer(ty, from.is_signed()),
        (false, true) => alu::to_integer(ty, from).filter(|_| integral.is_some()),
        (true, true) if ty == from => Some((|bits| bits) as alu::Unary),
        (true, true) => alu::widen(ty, from).or(alu::narrow(ty, from)),
    };
    emit_unary(body, apply.ok_or_else(unknown)?, to, source);
    if flushes && ty == Type::F32 {
        emit_flush(body, ty, to, to)?;
    }
    if saturates {
        emit_unary(body, alu::saturate(ty).ok_or_else(unknown)?, to, to);
    }
    if ty.is_signed() && register.size() > ty.size() {
        emit_extend(body, ty, to, to)?;
        emit_unary(body, alu::cut(register).ok_or_else(unknown)?, to, to);
    }
    Ok(())
}

/// `cvta`: between addresses of a space and generic ones.
pub(super) fn address<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, a]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    let is_to = modifiers.take("to");
    let space = space(&mut modifiers);
    modifiers.end()?;
    if ty.size() != 8 || matches!(space, Space::Generic | Space::Param) {
        return Err(unknown());
    }
    let (a, window) = (body.slot(a)?, window(space));
    let (to, _) = body.destination(to)?;
    if window == 0 {
        emit_move(body, to, a);
        return Ok(());
    }
    let name = if is_to { "sub" } else { "add" };
    let window = body.constant(window);
    emit_binary(body, alu::integer_binary(name, ty).ok_or_else(unknown)?, to, [a, window]);
    Ok(())
}

/// `mov`: a value, the parts of one, or one from its parts.
pub(super) fn assign<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, a]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    modifiers.end()?;
    if let Operand::Vector(elements) = to {
        let slots = destinations(body, elements)?;
        let parts = Box::new(halves(ty, &slots)?);
        let a = body.slot(a)?;
        body.emit(Operation::Unpack { parts, a });
        return Ok(());
    }
    let (to, _) = body.destination(to)?;
    if let Operand::Vector(elements) = a {
        let slots: Vec<Slot> =
            elements.iter().map(|element| body.slot(element)).collect::<Result<_, _>>()?;
        let parts = Box::new(halves(ty, &slots)?);
        body.emit(Operation::Pack { to, parts });
        return Ok(());
    }
    let a = body.slot(a)?;
    emit_move(body, to, a);
    Ok(())
}

/// Parts that together have the size of the type.
fn halves(ty: Type, slots: &[Slot]) -> Result<Parts, String> {
    let size = ty.size().checked_div(slots.len()).filter(|size| *size > 0);
    parts(slots, size.ok_or_else(unknown)?)
}
