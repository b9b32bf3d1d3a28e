//! Jumps, calls and barriers.

use super::super::body::{Body, Operand, Symbol};
use super::super::instruction::{
    Barrier, Call, Exchange, ExchangeKind, Operation, Passed, Reduction, Vote,
};
use super::super::module::Param;
use super::{Modifiers, predicate};

pub(super) fn jump<'a>(
    body: &mut Body<'_, 'a>,
    head: &str,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    modifiers.take("uni");
    let is_indexed = modifiers.take("idx");
    let sleeps = head == "nanosleep" && modifiers.take("u32");
    modifiers.end()?;
    match (head, operands) {
        ("bra", [Operand::Name(label)]) => body.jump(Operation::Branch(0), &[label]),
        ("brx", [index, Operand::Name(name)]) if is_indexed => {
            let labels =
                body.targets(name).ok_or_else(|| format!("`{name}` is no table"))?.to_vec();
            let targets = vec![0; labels.len()].into_boxed_slice();
            let index = body.slot(index)?;
            body.jump(Operation::Table { index, targets }, &labels);
        }
        ("ret", []) => body.emit(Operation::Return),
        ("exit", []) => body.emit(Operation::Exit),
        ("trap" | "brkpt", []) => body.emit(Operation::Trap),
        // Any time will do.
        ("nanosleep", [_]) if sleeps => body.emit(Operation::Fence),
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
    let outer = body.outer;
    let signature = outer.signatures.get(name).ok_or_else(|| format!("`{name}` is no function"))?;
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

/// `bar.sync`, `bar.red`, `bar.warp.sync`, and their spellings as `barrier`.
pub(super) fn barrier<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    operands: &[Operand<'a>],
) -> Result<(), String> {
    modifiers.any_of(&["cta", "aligned"]);
    if modifiers.take("warp") {
        let (true, [members]) = (modifiers.take("sync"), operands) else {
            return Err("it takes a mask".to_owned());
        };
        modifiers.end()?;
        let exchange = Exchange { members: body.slot(members)?, kind: ExchangeKind::Barrier };
        body.emit(Operation::Exchange(Box::new(exchange)));
        return Ok(());
    }
    if modifiers.take("sync") {
        modifiers.end()?;
        let (number, threads) = match operands {
            [number] => (number, None),
            [number, threads] => (number, Some(body.slot(threads)?)),
            _ => return Err(format!("{} operands", operands.len())),
        };
        let barrier = Barrier { number: body.slot(number)?, threads, reduction: None };
        body.emit(Operation::Barrier(Box::new(barrier)));
        return Ok(());
    }
    if !modifiers.take("red") {
        return Err("neither `.sync` nor `.red`".to_owned());
    }
    let kind = modifiers.choose(|name| match name {
        "and" => Some(Vote::All),
        "or" => Some(Vote::Any),
        "popc" => Some(Vote::Count),
        _ => None,
    });
    modifiers.any_of(&["pred", "u32"]);
    modifiers.end()?;
    let (to, number, threads, given) = match operands {
        [to, number, given] => (to, number, None, given),
        [to, number, threads, given] => (to, number, Some(body.slot(threads)?), given),
        _ => return Err(format!("{} operands", operands.len())),
    };
    let kind = kind.ok_or("no reduction")?;
    let (predicate, negated) = predicate(body, given)?;
    let (to, _) = body.destination(to)?;
    let reduction = Some(Reduction { kind, to, predicate, negated });
    let barrier = Barrier { number: body.slot(number)?, threads, reduction };
    body.emit(Operation::Barrier(Box::new(barrier)));
    Ok(())
}
