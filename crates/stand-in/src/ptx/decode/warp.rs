//! Exchanges between the threads of a warp.

use super::super::body::Body;
use super::super::instruction::{Exchange, ExchangeKind, Operation, Reduction, Shuffle, Vote};
use super::super::statement::Operand;
use super::emit::predicate;
use super::modifiers::Modifiers;

/// `shfl.sync.MODE.b32 to|valid, value, lane, clamp, members`.
pub(super) fn shuffle<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, value, lane, clamp, members]: [&Operand<'a>; 5],
) -> Result<(), String> {
    let mode = modifiers.choose(|name| match name {
        "up" => Some(Shuffle::Up),
        "down" => Some(Shuffle::Down),
        "bfly" => Some(Shuffle::Butterfly),
        "idx" => Some(Shuffle::Index),
        _ => None,
    });
    modifiers.any_of(&["sync", "b32"]);
    modifiers.end()?;
    let (to, valid) = match to {
        Operand::Pair(to, valid) => (Operand::Name(to), Operand::Name(valid)),
        other => ((*other).clone(), Operand::Name("_")),
    };
    let kind = ExchangeKind::Shuffle {
        mode: mode.ok_or("no mode")?,
        to: body.destination(&to)?.0,
        valid: body.destination(&valid)?.0,
        value: body.slot(value)?,
        lane: body.slot(lane)?,
        clamp: body.slot(clamp)?,
    };
    let members = body.slot(members)?;
    body.emit(Operation::Exchange(Box::new(Exchange { members, kind })));
    Ok(())
}

/// `vote.sync.MODE.TYPE to, predicate, members`.
pub(super) fn vote<'a>(
    body: &mut Body<'_, 'a>,
    mut modifiers: Modifiers<'a>,
    [to, given, members]: [&Operand<'a>; 3],
) -> Result<(), String> {
    let kind = modifiers.choose(|name| match name {
        "all" => Some(Vote::All),
        "any" => Some(Vote::Any),
        "ballot" => Some(Vote::Ballot),
        _ => None,
    });
    modifiers.any_of(&["sync", "pred", "b32"]);
    modifiers.end()?;
    let (predicate, negated) = predicate(body, given)?;
    let (to, _) = body.destination(to)?;
    let kind =
        ExchangeKind::Vote(Reduction { kind: kind.ok_or("no mode")?, to, predicate, negated });
    let members = body.slot(members)?;
    body.emit(Operation::Exchange(Box::new(Exchange { members, kind })));
    Ok(())
}
