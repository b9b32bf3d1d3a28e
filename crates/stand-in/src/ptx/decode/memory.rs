//! Loads, stores, atomics and fences.

use super::super::alu;
use super::super::body::Body;
use super::super::instruction::{Address, AtomicOperation, Extend, Operation, Slot, Space, Update};
use super::super::statement::Operand;
use super::super::symbols::Symbol;
use super::super::types::Type;
use super::emit::{destinations, emit_extend, parts, space};
use super::modifiers::{Modifiers, unknown};

/// Modifiers of order, scope and caching. An access is complete before the next operation begins.
const ORDERS: [&str; 16] = [
    "volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys", "nc",
    "ca", "cg", "cs", "lu", "cv", "noftz",
];

/// `[name + offset]`: a register and an offset, or a variable.
fn address<'a>(
    body: &mut Body<'_, 'a>,
    space: Space,
    operand: &Operand<'a>,
) -> Result<Address, String> {
    let Operand::Address(name, offset) = operand else {
        return Err(format!("{operand:?} is no address"));
    };
    let Some(name) = name else {
        return Ok(Address { space, base: body.constant(*offset), offset: 0 });
    };
    match body.symbol(name) {
        Some(Symbol::Register(base, _)) => {
            Ok(Address { space, base, offset: offset.cast_signed() })
        }
        _ => Ok(Address { space, base: body.address_of(name, *offset)?, offset: 0 }),
    }
}

/// `.v2` and `.v4`.
fn count(modifiers: &mut Modifiers<'_>) -> usize {
    match modifiers.one_of(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    }
}

/// The elements of an operand, whose number must be `count`.
fn elements<'s, 'a>(operand: &'s Operand<'a>, count: usize) -> Result<&'s [Operand<'a>], String> {
    let elements = match operand {
        Operand::Vector(elements) => elements,
        other => std::slice::from_ref(other),
    };
    if elements.len() == count { Ok(elements) } else { Err(format!("{operand:?} for {count}")) }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 8")]
fn size(ty: Type) -> u8 {
    ty.size() as u8
}

pub(super) fn load<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, from]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    modifiers.any_of(&ORDERS);
    let (space, count) = (space(&mut modifiers), count(&mut modifiers));
    modifiers.end()?;
    let from = address(body, space, from)?;
    let to = elements(to, count)?;
    if let [to] = to {
        let (to, register) = body.destination(to)?;
        let extend = match (ty.is_signed(), register.size()) {
            (true, 8) => Extend::SignTo64,
            (true, _) => Extend::SignTo32,
            (false, _) => Extend::Zero,
        };
        body.emit(Operation::Load { to, from, size: size(ty), extend });
        return Ok(());
    }
    let slots = destinations(body, to)?;
    body.emit(Operation::LoadVector(Box::new((parts(&slots, ty.size())?, from))));
    if ty.is_signed() {
        for (operand, slot) in to.iter().zip(slots) {
            let (_, register) = body.destination(operand)?;
            if register.size() > ty.size() {
                emit_extend(body, ty, slot, slot)?;
            }
        }
    }
    Ok(())
}

pub(super) fn store<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, from]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    modifiers.any_of(&ORDERS);
    let (space, count) = (space(&mut modifiers), count(&mut modifiers));
    modifiers.end()?;
    let to = address(body, space, to)?;
    let slots: Vec<Slot> = elements(from, count)?
        .iter()
        .map(|element| body.slot(element))
        .collect::<Result<_, _>>()?;
    body.emit(match slots[..] {
        [from] => Operation::Store { to, size: size(ty), from },
        _ => Operation::StoreVector(Box::new((to, parts(&slots, ty.size())?))),
    });
    Ok(())
}

/// `atom`, and `red`, which drops the old value.
pub(super) fn atomic<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    modifiers.any_of(&ORDERS);
    let space = space(&mut modifiers);
    let names = ["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"];
    let name = modifiers.one_of(&names).ok_or("no operation of an atomic")?;
    modifiers.end()?;
    if !matches!(ty.size(), 4 | 8) {
        return Err(unknown());
    }
    let apply = if name == "cas" {
        alu::integer_ternary(name, ty).map(Update::Ternary)
    } else if ty.is_float() {
        alu::float_binary(name, ty).map(Update::Binary)
    } else {
        alu::integer_binary(name, ty).map(Update::Binary)
    };
    let apply = apply.ok_or_else(unknown)?;
    let (to, operands) = match (head, operands) {
        ("atom", [to, operands @ ..]) => (to, operands),
        _ => (&Operand::Name("_"), operands),
    };
    let (at, b, c) = match (name, operands) {
        ("cas", [at, b, c]) => (at, b, c),
        ("cas", _) => return Err("it takes an address and two operands".to_owned()),
        (_, [at, b]) => (at, b, b),
        _ => return Err("it takes an address and an operand".to_owned()),
    };
    let address = address(body, space, at)?;
    let (b, c) = (body.slot(b)?, body.slot(c)?);
    let (to, _) = body.destination(to)?;
    let operation = AtomicOperation { apply, size: ty.size(), to, address, b, c };
    body.emit(Operation::Atomic(Box::new(operation)));
    Ok(())
}

pub(super) fn fence(
    body: &mut Body<'_, '_>,
    mut modifiers: Modifiers<'_>,
    []: [&Operand<'_>; 0],
) -> Result<(), String> {
    modifiers.any_of(&["cta", "gl", "sys", "sc", "acq_rel", "acquire", "release", "gpu"]);
    modifiers.end()?;
    body.emit(Operation::Fence);
    Ok(())
}
