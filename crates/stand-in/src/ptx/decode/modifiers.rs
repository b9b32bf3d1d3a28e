//! The modifiers and operands of a statement.

use super::super::alu::Rounding;
use super::super::statement::{Operand, Statement};
use super::super::types::Type;

/// The parts of an opcode after the first. Decoding takes each of them.
pub(super) struct Modifiers<'a>(pub(super) Vec<&'a str>);

impl<'a> Modifiers<'a> {
    pub(super) fn take(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|modifier| *modifier == name);
        position.map(|position| self.0.remove(position)).is_some()
    }

    /// Takes the first modifier for which `choose` has a value.
    pub(super) fn choose<T>(&mut self, choose: impl Fn(&str) -> Option<T>) -> Option<T> {
        let position = self.0.iter().position(|modifier| choose(modifier).is_some())?;
        choose(self.0.remove(position))
    }

    pub(super) fn one_of(&mut self, names: &[&'a str]) -> Option<&'a str> {
        let name = names.iter().find(|name| self.0.contains(name))?;
        self.take(name);
        Some(name)
    }

    /// Takes all of these modifiers.
    pub(super) fn any_of(&mut self, names: &[&str]) {
        self.0.retain(|modifier| !names.contains(modifier));
    }

    /// The type, which comes last.
    pub(super) fn ty(&mut self) -> Result<Type, String> {
        let last = self.0.pop().ok_or("a type is missing")?;
        Type::named(last).ok_or_else(|| format!("`.{last}` is no type"))
    }

    /// `.rz`, `.rm`, `.rp`; `None` for `.rn` and without a modifier.
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.take("rn");
        self.choose(|name| match name {
            "rz" => Some(Rounding::Zero),
            "rm" => Some(Rounding::Down),
            "rp" => Some(Rounding::Up),
            _ => None,
        })
    }

    /// Returns an error if a modifier remains.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(modifier) => Err(format!("unknown modifier `.{modifier}`")),
        }
    }
}

/// The operands, whose number must be `N`.
pub(super) fn operands<'s, 'a, const N: usize>(
    statement: &'s Statement<'a>,
) -> Result<[&'s Operand<'a>; N], String> {
    let found: Vec<&Operand<'a>> = statement.operands.iter().collect();
    let count = found.len();
    found.try_into().map_err(|_| format!("{count} operands instead of {N}"))
}

pub(super) fn unknown() -> String {
    "unknown for this type".to_owned()
}
