//! Jumps, calls and barriers.

use super::super::body::Body;
use super::super::instruction::{
    Barrier, Call, Exchange, ExchangeKind, Operation, Passed, Reduction, Vote,
};
use super::super::module::Param;
use super::super::statement::Operand;
use super::super::symbols::Symbol;
use super::emit::predicate;
use super::modifiers::Modifiers;

pub(super) fn jump<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    modifiers.take("uni");
    modifiers.end()?;
    match (head, operands) {
        ("bra", [Operand::Name(label)]) => body.jump(Operation::Branch(0), label),
        ("ret", []) => body.emit(Operation::Return),
        ("exit", []) => body.emit(Operation::Exit),
        ("trap", []) => body.emit(Operation::Trap),
        _ => return Err(format!("{} operands", operands.len())),
    }
    Ok(())
}

/// `call (results), function, (arguments)`, of which either list may be missing.
pub(super) fn call<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    modifiers.take("uni");
    modifiers.end()?;
    let (results, operands) = match operands {
        [Operand::Group(results), rest @ ..] => (&results[..], rest),
        rest => (&[][..], rest),
    };
    let (name, arguments) = match operands {
        [Operand::Name(name)] => (*name, &[][..]),
        [Operand::Name(name), Operand::Group(arguments)] => (*name, &arguments[..]),
        _ => return Err("a call of something else than a function".to_owned()),
    };
    if name == "__assertfail" {
        body.emit(Operation::Assert);
        return Ok(());
    }
    let globals = body.globals;
    let signature =
        globals.signatures.get(name).ok_or_else(|| format!("`{name}` is no function"))?;
    let call = Call {
        function: signature.index,
        arguments: passed(body, arguments, &signature.params)?,
        results: passed(body, results, &signature.results)?,
    };
    body.calls(signature.index);
    body.emit(Operation::Call(Box::new(call)));
    Ok(())
}

/// The parameters of a call and of the function, side by side.
fn passed<'a>(
    body: &Body<'_, 'a>,
    here: &[Operand<'a>],
    there: &[Param],
) -> Result<Vec<Passed>, String> {
    if here.len() != there.len() {
        return Err(format!("{} parameters instead of {}", here.len(), there.len()));
    }
    let pair = |(operand, param): (&Operand<'a>, &Param)| {
        let Operand::Name(name) = operand else { return Err(format!("{operand:?} is no name")) };
        match body.symbol(name) {
            Some(Symbol::Param(caller, size)) if size == param.size => {
                Ok(Passed { caller, callee: param.offset, size })
            }
            _ => Err(format!("`{name}` is no parameter of {} bytes", param.size)),
        }
    };
    here.iter().zip(there).map(pair).collect()
}

/// `bar.sync`, `bar.red`, `bar.warp.sync`
pub(super) fn barrier<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    let (is_warp, is_sync) = (modifiers.take("warp"), modifiers.take("sync"));
    let is_reduction = modifiers.take("red");
    let kind = modifiers.choose(|name| match name {
        "and" => Some(Vote::All),
        "or" => Some(Vote::Any),
        "popc" => Some(Vote::Count),
        _ => None,
    });
    modifiers.any_of(&["pred", "u32"]);
    modifiers.end()?;
    let barrier = match (is_warp, is_sync, is_reduction, operands) {
        (true, true, false, [members]) => {
            let exchange = Exchange { members: body.slot(members)?, kind: ExchangeKind::Barrier };
            body.emit(Operation::Exchange(Box::new(exchange)));
            return Ok(());
        }
        (false, true, false, [number]) => Barrier { number: body.slot(number)?, reduction: None },
        (false, false, true, [to, number, given]) => {
            let (predicate, negated) = predicate(body, given)?;
            let (to, _) = body.destination(to)?;
            let kind = kind.ok_or("no reduction")?;
            let reduction = Some(Reduction { kind, to, predicate, negated });
            Barrier { number: body.slot(number)?, reduction }
        }
        _ => return Err(format!("{} operands", operands.len())),
    };
    body.emit(Operation::Barrier(Box::new(barrier)));
    Ok(())
}
