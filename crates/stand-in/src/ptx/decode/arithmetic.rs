//! Arithmetic, logic, comparisons and selections.

use super::super::alu;
use super::super::body::{Body, Operand};
use super::super::instruction::{CarryOperation, Operation, Slot, Type};
use super::{Modifiers, emit_binary, emit_move, emit_ternary, emit_unary, predicate, unknown};

/// What the modifiers of a float instruction ask for besides its result.
struct Float {
    ty: Type,
    rounding: Option<alu::Rounding>,
    flushes: bool,
    saturates: bool,
}

impl Float {
    fn new(modifiers: &mut Modifiers<'_>, ty: Type) -> Result<Self, String> {
        // Exact results are approximate ones, too.
        modifiers.any_of(&["approx", "full"]);
        let rounding = modifiers.rounding();
        let (flushes, saturates) = (modifiers.take("ftz"), modifiers.take("sat"));
        modifiers.end()?;
        Ok(Self { ty, rounding, flushes, saturates })
    }

    fn sources<'a, const N: usize>(
        &self,
        body: &mut Body<'_, 'a>,
        operands: [&Operand<'a>; N],
    ) -> Result<[Slot; N], String> {
        let mut sources = [0; N];
        for (index, (source, operand)) in (0..).zip(sources.iter_mut().zip(operands)) {
            *source = body.slot(operand)?;
            if self.flushes {
                let flushed = body.temporary(index);
                emit_unary(body, alu::flush(self.ty).ok_or_else(unknown)?, flushed, *source);
                *source = flushed;
            }
        }
        Ok(sources)
    }

    fn finish(&self, body: &mut Body<'_, '_>, to: Slot) -> Result<(), String> {
        if self.flushes {
            emit_unary(body, alu::flush(self.ty).ok_or_else(unknown)?, to, to);
        }
        if self.saturates {
            emit_unary(body, alu::saturate(self.ty).ok_or_else(unknown)?, to, to);
        }
        Ok(())
    }
}

/// The name with `.lo`, `.hi` or `.sat`, as integer arithmetic is named.
fn integer_name(head: &str, modifiers: &mut Modifiers<'_>) -> String {
    match modifiers.one_of(&["lo", "hi", "sat", "shiftamt"]) {
        Some(modifier) => format!("{head}.{modifier}"),
        None => head.to_owned(),
    }
}

pub(super) fn unary<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    [to, a]: [&Operand<'a>; 2],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    let (to, _) = body.destination(to)?;
    if ty.is_float() {
        let float = Float::new(&mut modifiers, ty)?;
        let apply = match float.rounding {
            None => alu::float_unary(head, ty),
            Some(rounding) => alu::directed_unary(head, ty, rounding),
        };
        let [a] = float.sources(body, [a])?;
        emit_unary(body, apply.ok_or_else(unknown)?, to, a);
        return float.finish(body, to);
    }
    let name = integer_name(head, &mut modifiers);
    modifiers.end()?;
    let a = body.slot(a)?;
    emit_unary(body, alu::integer_unary(&name, ty).ok_or_else(unknown)?, to, a);
    Ok(())
}

pub(super) fn binary<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    [to_operand, a, b]: [&Operand<'a>; 3],
) -> Result<(), String> {
    if modifiers.0.contains(&"cc") {
        return with_carry(body, head, modifiers, [to_operand, a, b]);
    }
    let ty = modifiers.ty()?;
    let (to, _) = body.destination(to_operand)?;
    if ty.is_float() {
        let name = if modifiers.take("NaN") { format!("{head}.NaN") } else { head.to_owned() };
        let float = Float::new(&mut modifiers, ty)?;
        let apply = match float.rounding {
            None => alu::float_binary(&name, ty),
            Some(rounding) => alu::directed_binary(&name, ty, rounding),
        };
        let sources = float.sources(body, [a, b])?;
        emit_binary(body, apply.ok_or_else(unknown)?, to, sources);
        return float.finish(body, to);
    }
    let apply = if modifiers.take("wide") {
        alu::wide_binary(ty)
    } else {
        alu::integer_binary(&integer_name(head, &mut modifiers), ty)
    };
    modifiers.end()?;
    let sources = [body.slot(a)?, body.slot(b)?];
    emit_binary(body, apply.ok_or_else(unknown)?, to, sources);
    Ok(())
}

pub(super) fn ternary<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    [to, a, b, c]: [&Operand<'a>; 4],
) -> Result<(), String> {
    if modifiers.0.contains(&"cc") {
        return mad_with_carry(body, head, modifiers, [to, a, b, c]);
    }
    let ty = modifiers.ty()?;
    let (to, _) = body.destination(to)?;
    if head == "slct" {
        return select_by_sign(body, modifiers, ty, to, [a, b, c]);
    }
    if head == "selp" {
        modifiers.end()?;
        let (on, is_negated) = predicate(body, c)?;
        let (a, b) = (body.slot(a)?, body.slot(b)?);
        let (a, b) = if is_negated { (b, a) } else { (a, b) };
        emit_ternary(body, alu::select(), to, [a, b, on]);
        return Ok(());
    }
    if ty.is_float() {
        let float = Float::new(&mut modifiers, ty)?;
        let name = if head == "mad" { "fma" } else { head };
        let apply = match float.rounding {
            None => alu::float_ternary(name, ty),
            Some(rounding) => alu::directed_ternary(name, ty, rounding),
        };
        let sources = float.sources(body, [a, b, c])?;
        emit_ternary(body, apply.ok_or_else(unknown)?, to, sources);
        return float.finish(body, to);
    }
    let apply = if modifiers.take("wide") {
        alu::wide_ternary(ty)
    } else if head == "shf" {
        let name = format!("shf.{}", modifiers.0.join("."));
        modifiers.0.clear();
        alu::integer_ternary(&name, ty)
    } else {
        alu::integer_ternary(&integer_name(head, &mut modifiers), ty)
    };
    modifiers.end()?;
    let sources = [body.slot(a)?, body.slot(b)?, body.slot(c)?];
    emit_ternary(body, apply.ok_or_else(unknown)?, to, sources);
    Ok(())
}

/// `slct`: the first operand where the third is not negative; `ty` is the third's.
fn select_by_sign<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    ty: Type,
    to: Slot,
    [a, b, c]: [&Operand<'a>; 3],
) -> Result<(), String> {
    modifiers.ty()?;
    modifiers.end()?;
    let (on, zero) = (body.temporary(0), body.constant(0));
    let [a, b, c] = [body.slot(a)?, body.slot(b)?, body.slot(c)?];
    emit_binary(body, alu::compare("ge", ty).ok_or_else(unknown)?, on, [c, zero]);
    emit_ternary(body, alu::select(), to, [a, b, on]);
    Ok(())
}

/// `add.cc`, `sub.cc`, `addc` and `subc`.
pub(super) fn with_carry<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    modifiers: Modifiers<'a>,
    [to, a, b]: [&Operand<'a>; 3],
) -> Result<(), String> {
    carry(body, head, head.trim_end_matches('c'), modifiers, [to, a, b, b])
}

/// `mad.lo.cc`, `madc.hi` and the like.
pub(super) fn mad_with_carry<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    operands: [&Operand<'a>; 4],
) -> Result<(), String> {
    let half = modifiers.one_of(&["lo", "hi"]).ok_or_else(unknown)?;
    carry(body, head, &format!("mad.{half}"), modifiers, operands)
}

/// The carry has a temporary of its own, which is written by `.cc` and read by the opcodes that end in a `c`.
fn carry<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    name: &str,
    mut modifiers: Modifiers<'a>,
    [to, a, b, c]: [&Operand<'a>; 4],
) -> Result<(), String> {
    let (flag, unused) = (body.temporary(4), body.temporary(3));
    let carry_out = if modifiers.take("cc") { flag } else { unused };
    let carry_in = if head.ends_with('c') { flag } else { body.constant(0) };
    let ty = modifiers.ty()?;
    modifiers.end()?;
    let apply = alu::carry(name, ty).ok_or_else(unknown)?;
    let operands = [body.slot(a)?, body.slot(b)?, body.slot(c)?];
    let (to, _) = body.destination(to)?;
    let operation = CarryOperation { apply, to, operands, carry_in, carry_out };
    body.emit(Operation::Carry(Box::new(operation)));
    Ok(())
}

pub(super) fn insert<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, a, b, c, d]: [&Operand<'a>; 5],
) -> Result<(), String> {
    let apply = alu::insert(modifiers.ty()?).ok_or_else(unknown)?;
    modifiers.end()?;
    let sources = [body.slot(a)?, body.slot(b)?, body.slot(c)?, body.slot(d)?];
    let (to, _) = body.destination(to)?;
    body.emit(Operation::Quaternary(Box::new((apply, to, sources))));
    Ok(())
}

/// `setp`, whose result is a predicate or two opposite ones, and `set`, whose result is a number. Either may be combined
/// with a further predicate.
pub(super) fn compare<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    given: &[Operand<'a>],
) -> Result<(), String> {
    if modifiers.0.is_empty() {
        return Err("a comparison is missing".to_owned());
    }
    let comparison = modifiers.0.remove(0);
    let ty = modifiers.ty()?;
    let flushes = modifiers.take("ftz");
    let combined = modifiers.one_of(&["and", "or", "xor"]);
    let number = if head == "set" { Some(modifiers.ty()?) } else { None };
    modifiers.end()?;
    let [to, a, b, rest @ ..] = given else {
        return Err(format!("{} operands", given.len()));
    };
    let mut sources = [body.slot(a)?, body.slot(b)?];
    for (index, source) in (0..).zip(&mut sources) {
        if flushes {
            let flushed = body.temporary(index);
            emit_unary(body, alu::flush(ty).ok_or_else(unknown)?, flushed, *source);
            *source = flushed;
        }
    }
    let result = body.temporary(0);
    let compare = alu::compare(comparison, ty).ok_or_else(unknown)?;
    let not = alu::integer_unary("not", Type::Pred).ok_or_else(unknown)?;
    let mut results = [Some(result), None];
    let names = match to {
        Operand::Pair(first, second) => [Operand::Name(first), Operand::Name(second)],
        other => [other.clone(), Operand::Name("_")],
    };
    let is_plain = combined.is_none() && number.is_none() && !matches!(to, Operand::Pair(..));
    if is_plain && rest.is_empty() {
        let (to, _) = body.destination(&names[0])?;
        emit_binary(body, compare, to, sources);
        return Ok(());
    }
    emit_binary(body, compare, result, sources);
    if matches!(to, Operand::Pair(..)) {
        let opposite = body.temporary(1);
        emit_unary(body, not, opposite, result);
        results[1] = Some(opposite);
    }
    match (combined, rest) {
        (None, []) => {}
        (Some(name), [with]) => {
            let (mut with, is_negated) = predicate(body, with)?;
            if is_negated {
                let negated = body.temporary(2);
                emit_unary(body, not, negated, with);
                with = negated;
            }
            let combine = alu::integer_binary(name, Type::Pred).ok_or_else(unknown)?;
            for result in results.into_iter().flatten() {
                emit_binary(body, combine, result, [result, with]);
            }
        }
        _ => return Err(format!("{} operands", given.len())),
    }
    for (name, result) in names.iter().zip(results) {
        let Some(result) = result else { continue };
        let (to, _) = body.destination(name)?;
        match number {
            None => emit_move(body, to, result),
            Some(number) => {
                let is_float = number == Type::F32;
                let set =
                    body.constant(if is_float { 1_f32.to_bits().into() } else { 0xffff_ffff });
                let zero = body.constant(0);
                emit_ternary(body, alu::select(), to, [set, zero, result]);
            }
        }
    }
    Ok(())
}
