//! Conversions, and values that move between registers.

use super::super::alu;
use super::super::body::{Body, Operand};
use super::super::instruction::{Operation, Parts, Slot, Space, Type};
use super::super::memory::window;
use super::memory::{parts, space};
use super::{Modifiers, emit_binary, emit_move, emit_unary, unknown};

/// `cvt`: what rounds to an integral value, what converts, what saturates.
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
    let mut source = body.slot(a)?;
    let (to, register) = body.destination(to)?;
    let temporary = body.temporary(0);
    if flushes && from == Type::F32 {
        emit_unary(body, alu::flush(from).ok_or_else(unknown)?, temporary, source);
        source = temporary;
    }
    if let Some(name) = integral {
        emit_unary(body, alu::float_unary(name, from).ok_or_else(unknown)?, temporary, source);
        source = temporary;
    }
    let apply = match (ty.is_float(), from.is_float()) {
        (false, false) => alu::integer_to_integer(ty, from, saturates),
        (true, false) => alu::from_integer(ty, from, rounding),
        (false, true) if integral.is_some() => alu::to_integer(ty, from),
        (false, true) => None,
        (true, true) if ty == from => Some((|bits| bits) as alu::Unary),
        (true, true) if ty.size() > from.size() => alu::widen(ty, from),
        (true, true) => alu::narrow(ty, from, rounding),
    };
    emit_unary(body, apply.ok_or_else(unknown)?, to, source);
    if flushes && ty == Type::F32 {
        emit_unary(body, alu::flush(ty).ok_or_else(unknown)?, to, to);
    }
    if saturates && ty.is_float() {
        emit_unary(body, alu::saturate(ty).ok_or_else(unknown)?, to, to);
    }
    if ty.is_signed() && register.size() > ty.size() {
        let extend = alu::integer_to_integer(register, ty, false);
        emit_unary(body, extend.ok_or_else(unknown)?, to, to);
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
    let clock = match a {
        Operand::Name("%clock64" | "%clock" | "%globaltimer" | "%globaltimer_lo") => Some(0),
        Operand::Name("%clock_hi" | "%globaltimer_hi") => Some(32),
        _ => None,
    };
    if let Some(shift) = clock {
        body.emit(Operation::Clock { to });
        let shift = body.constant(shift);
        let apply = alu::integer_binary("shr", Type::U64).ok_or_else(unknown)?;
        emit_binary(body, apply, to, [to, shift]);
        let cut = alu::integer_to_integer(ty, Type::U64, false).ok_or_else(unknown)?;
        emit_unary(body, cut, to, to);
        return Ok(());
    }
    let a = body.slot(a)?;
    emit_move(body, to, a);
    Ok(())
}

pub(super) fn destinations<'a>(
    body: &Body<'_, 'a>,
    elements: &[Operand<'a>],
) -> Result<Vec<Slot>, String> {
    elements.iter().map(|element| Ok(body.destination(element)?.0)).collect()
}

/// Parts that together have the size of the type.
fn halves(ty: Type, slots: &[Slot]) -> Result<Parts, String> {
    let size = ty.size().checked_div(slots.len()).filter(|size| *size > 0);
    parts(slots, size.ok_or_else(unknown)?)
}
