//! Arithmetic, logic, comparisons and selections.

use super::super::alu;
use super::super::body::Body;
use super::super::instruction::{CarryOperation, Operation, Slot};
use super::super::statement::Operand;
use super::super::types::Type;
use super::emit::{emit_binary, emit_flush, emit_ternary, emit_unary, predicate};
use super::modifiers::{Modifiers, unknown};

/// The modifiers of a float instruction.
struct Float {
    ty: Type,
    flushes: bool,
    saturates: bool,
}

impl Float {
    fn new(modifiers: &mut Modifiers<'_>, ty: Type) -> Result<Self, String> {
        // Exact results are approximate ones, too.
        modifiers.any_of(&["approx", "full", "rn"]);
        let (flushes, saturates) = (modifiers.take("ftz"), modifiers.take("sat"));
        modifiers.end()?;
        Ok(Self { ty, flushes, saturates })
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
                emit_flush(body, self.ty, flushed, *source)?;
                *source = flushed;
            }
        }
        Ok(sources)
    }

    fn finish(&self, body: &mut Body<'_, '_>, to: Slot) -> Result<(), String> {
        if self.flushes {
            emit_flush(body, self.ty, to, to)?;
        }
        if self.saturates {
            emit_unary(body, alu::saturate(self.ty).ok_or_else(unknown)?, to, to);
        }
        Ok(())
    }
}

/// The name with `.lo` or `.hi`, as integer arithmetic is named.
fn integer_name(head: &str, modifiers: &mut Modifiers<'_>) -> String {
    match modifiers.one_of(&["lo", "hi"]) {
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
        let [a] = float.sources(body, [a])?;
        emit_unary(body, alu::float_unary(head, ty).ok_or_else(unknown)?, to, a);
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
        let sources = float.sources(body, [a, b])?;
        emit_binary(body, alu::float_binary(&name, ty).ok_or_else(unknown)?, to, sources);
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
    if head == "selp" {
        modifiers.end()?;
        let (on, is_negated) = predicate(body, c)?;
        let (a, b) = (body.slot(a)?, body.slot(b)?);
        let (a, b) = if is_negated { (b, a) } else { (a, b) };
        emit_ternary(body, alu::select(), to, [a, b, on]);
        return Ok(());
    }
    if ty.is_float() {
        let rounding = modifiers.rounding();
        let float = Float::new(&mut modifiers, ty)?;
        let name = if head == "mad" { "fma" } else { head };
        let apply = match rounding {
            None => alu::float_ternary(name, ty),
            Some(rounding) => {
                (name == "fma" && ty == Type::F32).then(|| alu::directed_fma(rounding))
            }
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

/// `setp`
pub(super) fn compare<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, a, b]: [&Operand<'a>; 3],
) -> Result<(), String> {
    let ty = modifiers.ty()?;
    let flushes = modifiers.take("ftz");
    let comparison = modifiers.0.pop().ok_or("a comparison is missing")?;
    modifiers.end()?;
    let float = Float { ty, flushes, saturates: false };
    let sources = float.sources(body, [a, b])?;
    let (to, _) = body.destination(to)?;
    emit_binary(body, alu::compare(comparison, ty).ok_or_else(unknown)?, to, sources);
    Ok(())
}
