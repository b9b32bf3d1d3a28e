//! The body of a function: scopes of names, labels, statements.

use std::collections::HashMap;

use super::decode;
use super::instruction::{Function, Operation, Slot, Special, Target, Type};
use super::lexer::{Token, at};
use super::memory::POISON;
use super::parse::{Cursor, Outer};

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symbol {
    Register(Slot, Type),
    /// Offset in the parameter memory of the frame, and bytes.
    Param(usize, usize),
    /// Offset in the local memory of the frame.
    Local(usize),
    /// Offset in shared memory, of a variable of the kernel itself.
    Shared(usize),
    /// Offset in the shared memory that the functions of the module have in common.
    CommonShared(usize),
    /// Shared memory behind all that is declared.
    DynamicShared,
    /// Generic address of a variable of the module.
    Variable(u64),
}

/// An operand as it is written.
#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    Name(&'a str),
    Number(u64),
    /// A name and bytes behind it.
    Offset(&'a str, u64),
    /// A number, or a name and bytes behind it, in brackets.
    Address(Option<&'a str>, u64),
    Vector(Vec<Self>),
    Group(Vec<Self>),
    Not(&'a str),
    /// Two destinations.
    Pair(&'a str, &'a str),
}

/// An instruction as it is written.
pub(super) struct Statement<'a> {
    /// The opcode with its modifiers.
    pub(super) opcode: &'a str,
    pub(super) operands: Vec<Operand<'a>>,
}

/// Temporaries of a statement that becomes several operations.
const TEMPORARIES: Slot = 6;

#[derive(Default)]
struct Scope<'a> {
    names: HashMap<&'a str, Symbol>,
    /// Registers such as `%r<7>`: the first slot, their number, their type.
    ranges: HashMap<&'a str, (Slot, u32, Type)>,
    labels: HashMap<&'a str, Target>,
    tables: HashMap<&'a str, Vec<&'a str>>,
    /// Jumps to labels not seen yet.
    jumps: Vec<Jump<'a>>,
}

struct Jump<'a> {
    operation: usize,
    /// Which target of a table.
    entry: usize,
    label: &'a str,
    line: u32,
}

/// A function under construction.
pub(super) struct Body<'o, 'a> {
    pub(super) outer: &'o Outer<'a>,
    /// Functions called, and the line.
    called: &'o mut Vec<(usize, u32)>,
    scopes: Vec<Scope<'a>>,
    function: Function,
    constants: HashMap<u64, Slot>,
    specials: HashMap<Special, Slot>,
    first_temporary: Slot,
    line: u32,
}

/// Parses a body, which begins with its brace. `shared` is how much shared memory there is, of the kernel or of all other
/// functions; what the body declares comes to it.
pub(super) fn function<'a>(
    cursor: &mut Cursor<'a>,
    outer: &Outer<'a>,
    name: &'a str,
    is_entry: bool,
    shared: &mut usize,
    called: &mut Vec<(usize, u32)>,
) -> Result<Function, String> {
    let signature = &outer.signatures[name];
    let function = Function { params: signature.size, ..Function::default() };
    let mut body = Body {
        outer,
        called,
        scopes: vec![Scope::default()],
        function,
        constants: HashMap::new(),
        specials: HashMap::new(),
        first_temporary: 0,
        line: cursor.line(),
    };
    body.first_temporary = body.slots(TEMPORARIES);
    for (name, offset, size) in &signature.names {
        body.declare(name, Symbol::Param(*offset, *size));
    }
    cursor.expect('{')?;
    let mut depth = 1;
    while depth > 0 {
        body.line = cursor.line();
        match cursor.peek() {
            Token::Sign('{') => {
                cursor.next();
                body.scopes.push(Scope::default());
                depth += 1;
            }
            Token::Sign('}') => {
                cursor.next();
                depth -= 1;
                if depth == 0 {
                    body.emit(Operation::Return);
                }
                body.close()?;
            }
            Token::Word(".reg") => body.registers(cursor)?,
            Token::Word(".local") => {
                cursor.next();
                let variable = cursor.variable(&mut body.function.local)?;
                body.declare(variable.name, Symbol::Local(variable.offset));
                cursor.expect(';')?;
            }
            Token::Word(".param") => {
                cursor.next();
                let variable = cursor.variable(&mut body.function.params)?;
                body.declare(variable.name, Symbol::Param(variable.offset, variable.size));
                cursor.expect(';')?;
            }
            Token::Word(".shared") => {
                cursor.next();
                let variable = cursor.variable(shared)?;
                let of = if is_entry { Symbol::Shared } else { Symbol::CommonShared };
                body.declare(variable.name, of(variable.offset));
                cursor.expect(';')?;
            }
            Token::Word(".loc") => cursor.skip_line(),
            Token::Word(".pragma") => {
                cursor.next();
                cursor.next();
                cursor.expect(';')?;
            }
            Token::Word(label) if cursor.peek_second() == Token::Sign(':') => {
                cursor.next();
                cursor.next();
                if cursor.accept_word(".branchtargets") {
                    body.table(label, cursor)?;
                } else {
                    body.label(label)?;
                }
            }
            _ => body.statement(cursor)?,
        }
    }
    Ok(body.function)
}

impl<'a> Body<'_, 'a> {
    fn scope(&mut self) -> &mut Scope<'a> {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn declare(&mut self, name: &'a str, symbol: Symbol) {
        self.scope().names.insert(name, symbol);
    }

    /// New slots, of which the first is returned.
    fn slots(&mut self, count: u32) -> Slot {
        let first = self.function.slots.len();
        self.function.slots.resize(first + count as usize, u64::from_le_bytes([POISON; 8]));
        Slot::try_from(first).unwrap_or(Slot::MAX)
    }

    /// `.reg .TYPE name, name<count>, …;`
    fn registers(&mut self, cursor: &mut Cursor<'a>) -> Result<(), String> {
        cursor.next();
        let word = cursor.word()?;
        let ty = word.strip_prefix('.').and_then(Type::named);
        let ty = ty.ok_or_else(|| self.error(&format!("`{word}` is no type of a register")))?;
        loop {
            let name = cursor.word()?;
            if cursor.accept('<') {
                let count = u32::try_from(cursor.size()?).unwrap_or(u32::MAX).min(1 << 20);
                cursor.expect('>')?;
                let first = self.slots(count);
                self.scope().ranges.insert(name, (first, count, ty));
            } else {
                let slot = self.slots(1);
                self.declare(name, Symbol::Register(slot, ty));
            }
            if !cursor.accept(',') {
                return cursor.expect(';');
            }
        }
    }

    fn label(&mut self, label: &'a str) -> Result<(), String> {
        let here = self.here();
        match self.scope().labels.insert(label, here) {
            Some(_) => Err(self.error(&format!("label `{label}` twice"))),
            None => Ok(()),
        }
    }

    fn table(&mut self, name: &'a str, cursor: &mut Cursor<'a>) -> Result<(), String> {
        let mut labels = vec![cursor.word()?];
        while cursor.accept(',') {
            labels.push(cursor.word()?);
        }
        self.scope().tables.insert(name, labels);
        cursor.expect(';')
    }

    /// Ends a scope: its jumps go to its labels, or to some of the scope around it.
    fn close(&mut self) -> Result<(), String> {
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
                Operation::Table { targets, .. } => targets[jump.entry] = *target,
                other => return Err(at(jump.line, &format!("{other:?} is no jump"))),
            }
        }
        Ok(())
    }

    fn statement(&mut self, cursor: &mut Cursor<'a>) -> Result<(), String> {
        let guard = if cursor.accept('@') {
            let when = !cursor.accept('!');
            Some((cursor.word()?, when))
        } else {
            None
        };
        let opcode = cursor.word()?;
        let mut operands = Vec::new();
        while !cursor.accept(';') {
            operands.push(operand(cursor)?);
            if cursor.peek() != Token::Sign(';') {
                cursor.expect(',')?;
            }
        }
        let statement = Statement { opcode, operands };
        self.guarded(guard, &statement)
            .map_err(|message| self.error(&format!("{opcode}: {message}")))
    }

    /// An instruction with a guard is a jump over it, and a jump with a guard is one.
    fn guarded(
        &mut self,
        guard: Option<(&'a str, bool)>,
        statement: &Statement<'a>,
    ) -> Result<(), String> {
        let Some((name, when)) = guard else { return decode::statement(self, statement) };
        let on = self.slot(&Operand::Name(name))?;
        if let ("bra" | "bra.uni", [Operand::Name(label)]) =
            (statement.opcode, &statement.operands[..])
        {
            self.jump(Operation::BranchIf { on, when, target: 0 }, &[label]);
            return Ok(());
        }
        let over = self.function.code.len();
        self.emit(Operation::BranchIf { on, when: !when, target: 0 });
        decode::statement(self, statement)?;
        let here = self.here();
        if let Operation::BranchIf { target, .. } = &mut self.function.code[over] {
            *target = here;
        }
        Ok(())
    }

    fn error(&self, message: &str) -> String {
        at(self.line, message)
    }

    fn here(&self) -> Target {
        Target::try_from(self.function.code.len()).unwrap_or(Target::MAX)
    }

    pub(super) fn emit(&mut self, operation: Operation) {
        self.function.code.push(operation);
    }

    /// A jump whose targets are these labels.
    pub(super) fn jump(&mut self, operation: Operation, labels: &[&'a str]) {
        let (at, line) = (self.function.code.len(), self.line);
        for (entry, label) in labels.iter().enumerate() {
            self.scope().jumps.push(Jump { operation: at, entry, label, line });
        }
        self.emit(operation);
    }

    /// The labels of a `.branchtargets`.
    pub(super) fn targets(&self, name: &str) -> Option<&[&'a str]> {
        self.scopes.iter().rev().find_map(|scope| scope.tables.get(name)).map(Vec::as_slice)
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

    /// A slot that no register has, one of six.
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
        local.or_else(|| self.outer.symbols.get(name).copied())
    }

    /// The slot that has the value of a register, a number, a special register, or an address.
    pub(super) fn slot(&mut self, operand: &Operand<'a>) -> Result<Slot, String> {
        match operand {
            Operand::Number(bits) => Ok(self.constant(*bits)),
            Operand::Name(name) => match self.symbol(name) {
                Some(Symbol::Register(slot, _)) => Ok(slot),
                Some(_) => self.address_of(name, 0),
                None if *name == "WARP_SZ" => Ok(self.constant(32)),
                None => {
                    let special = decode::special(name);
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

fn operand<'a>(cursor: &mut Cursor<'a>) -> Result<Operand<'a>, String> {
    let list = |cursor: &mut Cursor<'a>, end| -> Result<Vec<Operand<'a>>, String> {
        let mut found = Vec::new();
        while !cursor.accept(end) {
            found.push(operand(cursor)?);
            cursor.accept(',');
        }
        Ok(found)
    };
    if cursor.accept('{') {
        return Ok(Operand::Vector(list(cursor, '}')?));
    }
    if cursor.accept('(') {
        return Ok(Operand::Group(list(cursor, ')')?));
    }
    if cursor.accept('!') {
        return Ok(Operand::Not(cursor.word()?));
    }
    if cursor.accept('[') {
        let name = if let Token::Word(name) = cursor.peek() {
            cursor.next();
            Some(name)
        } else {
            None
        };
        let has_offset = name.is_none() || cursor.accept('+');
        let is_negative = !has_offset && cursor.peek() == Token::Sign('-');
        let offset = if has_offset || is_negative { cursor.number()? } else { 0 };
        cursor.expect(']')?;
        return Ok(Operand::Address(name, offset));
    }
    let Token::Word(name) = cursor.peek() else { return cursor.number().map(Operand::Number) };
    cursor.next();
    if cursor.accept('|') {
        return Ok(Operand::Pair(name, cursor.word()?));
    }
    if cursor.accept('+') {
        return Ok(Operand::Offset(name, cursor.number()?));
    }
    Ok(Operand::Name(name))
}
