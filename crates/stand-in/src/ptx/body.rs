//! A function under construction: scopes of names, labels, slots, operations.

use std::collections::HashMap;

use super::instruction::{Function, Operation, Slot, Special, Target};
use super::lexer::at;
use super::memory::POISON;
use super::statement::Operand;
use super::symbols::{Globals, Symbol};
use super::types::Type;

/// The number of temporary slots for statements that become several operations.
const TEMPORARIES: Slot = 6;

#[derive(Default)]
struct Scope<'a> {
    names: HashMap<&'a str, Symbol>,
    /// Registers such as `%r<7>`: the first slot, their number, their type.
    ranges: HashMap<&'a str, (Slot, u32, Type)>,
    labels: HashMap<&'a str, Target>,
    /// Jumps to labels not seen yet.
    jumps: Vec<Jump<'a>>,
}

struct Jump<'a> {
    operation: usize,
    label: &'a str,
    line: u32,
}

/// A function under construction.
pub(super) struct Body<'o, 'a> {
    pub(super) globals: &'o Globals<'a>,
    /// The functions that are called, and the lines of the calls.
    pub(super) called: &'o mut Vec<(usize, u32)>,
    scopes: Vec<Scope<'a>>,
    pub(super) function: Function,
    constants: HashMap<u64, Slot>,
    specials: HashMap<Special, Slot>,
    first_temporary: Slot,
    pub(super) line: u32,
}

impl<'o, 'a> Body<'o, 'a> {
    /// The body of the function of this name, which the module declares.
    pub(super) fn new(
        globals: &'o Globals<'a>,
        called: &'o mut Vec<(usize, u32)>,
        name: &str,
        line: u32,
    ) -> Self {
        let signature = &globals.signatures[name];
        let mut body = Self {
            globals,
            called,
            scopes: vec![Scope::default()],
            function: Function { params: signature.size, ..Function::default() },
            constants: HashMap::new(),
            specials: HashMap::new(),
            first_temporary: 0,
            line,
        };
        body.first_temporary = body.slots(TEMPORARIES);
        for (name, offset, size) in &signature.names {
            body.declare(name, Symbol::Param(*offset, *size));
        }
        body
    }

    /// Begins a scope within the current one.
    pub(super) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Declares registers such as `%r<7>`.
    pub(super) fn declare_range(&mut self, name: &'a str, count: u32, ty: Type) {
        let first = self.slots(count);
        self.scope().ranges.insert(name, (first, count, ty));
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    pub(super) fn declare(&mut self, name: &'a str, symbol: Symbol) {
        self.scope().names.insert(name, symbol);
    }

    /// New slots, of which the first is returned.
    pub(super) fn slots(&mut self, count: u32) -> Slot {
        let first = self.function.slots.len();
        self.function.slots.resize(first + count as usize, u64::from_le_bytes([POISON; 8]));
        Slot::try_from(first).unwrap_or(Slot::MAX)
    }

    pub(super) fn label(&mut self, label: &'a str) -> Result<(), String> {
        let here = self.here();
        match self.scope().labels.insert(label, here) {
            Some(_) => Err(self.error(&format!("label `{label}` twice"))),
            None => Ok(()),
        }
    }

    /// Ends a scope. Jumps to labels that it lacks move to the scope around it.
    pub(super) fn close(&mut self) -> Result<(), String> {
        let Some(scope) = self.scopes.pop() else { return Ok(()) };
        for jump in scope.jumps {
            let Some(target) = scope.labels.get(jump.label) else {
                if self.scopes.is_empty() {
                    return Err(at(jump.line, &format!("label `{}` is nowhere", jump.label)));
                }
                self.scope().jumps.push(jump);
                continue;
            };
            match &mut self.function.code[jump.operation] {
                Operation::Branch(to) | Operation::BranchIf { target: to, .. } => *to = *target,
                other => return Err(at(jump.line, &format!("{other:?} is no jump"))),
            }
        }
        Ok(())
    }

    pub(super) fn error(&self, message: &str) -> String {
        at(self.line, message)
    }

    pub(super) fn here(&self) -> Target {
        Target::try_from(self.function.code.len()).unwrap_or(Target::MAX)
    }

    pub(super) fn emit(&mut self, operation: Operation) {
        self.function.code.push(operation);
    }

    /// Adds a jump to a label.
    pub(super) fn jump(&mut self, operation: Operation, label: &'a str) {
        let (operation_index, line) = (self.function.code.len(), self.line);
        self.scope().jumps.push(Jump { operation: operation_index, label, line });
        self.emit(operation);
    }

    pub(super) fn calls(&mut self, function: usize) {
        self.called.push((function, self.line));
    }

    pub(super) fn constant(&mut self, value: u64) -> Slot {
        if let Some(slot) = self.constants.get(&value) {
            return *slot;
        }
        let slot = self.slots(1);
        self.function.slots[slot as usize] = value;
        self.constants.insert(value, slot);
        slot
    }

    pub(super) fn special(&mut self, special: Special) -> Slot {
        if let Some(slot) = self.specials.get(&special) {
            return *slot;
        }
        let slot = self.slots(1);
        self.function.specials.push((slot, special));
        self.specials.insert(special, slot);
        slot
    }

    /// A slot that is no register.
    pub(super) fn temporary(&self, index: Slot) -> Slot {
        self.first_temporary + index
    }

    pub(super) fn symbol(&self, name: &str) -> Option<Symbol> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        let in_scope = |scope: &Scope<'a>| {
            if let Some(symbol) = scope.names.get(name) {
                return Some(*symbol);
            }
            let (first, count, ty) = scope.ranges.get(prefix)?;
            let number: u32 = number.parse().ok().filter(|number| number < count)?;
            Some(Symbol::Register(first + number, *ty))
        };
        let local = self.scopes.iter().rev().find_map(in_scope);
        local.or_else(|| self.globals.symbols.get(name).copied())
    }

    /// The slot that has the value of a register, a number, a special register, or an address.
    pub(super) fn slot(&mut self, operand: &Operand<'a>) -> Result<Slot, String> {
        match operand {
            Operand::Number(bits) => Ok(self.constant(*bits)),
            Operand::Name(name) => match self.symbol(name) {
                Some(Symbol::Register(slot, _)) => Ok(slot),
                Some(_) => self.address_of(name, 0),
                None => {
                    let special = Special::named(name);
                    let special = special.ok_or_else(|| format!("`{name}` is not declared"))?;
                    Ok(self.special(special))
                }
            },
            Operand::Offset(name, offset) => self.address_of(name, *offset),
            other => Err(format!("{other:?} is no value")),
        }
    }

    /// The slot with the address of a variable, in its space.
    pub(super) fn address_of(&mut self, name: &str, offset: u64) -> Result<Slot, String> {
        let behind = |start: usize| (start as u64).wrapping_add(offset);
        let wrong = || format!("`{name}` is no variable");
        match self.symbol(name).ok_or_else(wrong)? {
            Symbol::Param(start, _) | Symbol::Shared(start) => Ok(self.constant(behind(start))),
            Symbol::Variable(address) => Ok(self.constant(address.wrapping_add(offset))),
            Symbol::Local(start) => Ok(self.special(Special::Local(behind(start)))),
            Symbol::CommonShared(start) => Ok(self.special(Special::CommonShared(behind(start)))),
            Symbol::DynamicShared if offset == 0 => Ok(self.special(Special::DynamicSharedStart)),
            Symbol::DynamicShared | Symbol::Register(..) => Err(wrong()),
        }
    }

    /// The register that an instruction writes, and its type; `_` is none.
    pub(super) fn destination(&self, operand: &Operand<'a>) -> Result<(Slot, Type), String> {
        match operand {
            Operand::Name("_") => Ok((self.temporary(TEMPORARIES - 1), Type::B64)),
            Operand::Name(name) => match self.symbol(name) {
                Some(Symbol::Register(slot, ty)) => Ok((slot, ty)),
                _ => Err(format!("`{name}` is no register")),
            },
            other => Err(format!("{other:?} is no register")),
        }
    }
}
