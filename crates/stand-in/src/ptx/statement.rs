//! Statements as they are written.

use super::cursor::Cursor;
use super::lexer::Token;

/// An operand.
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

/// An instruction with its operands.
pub(super) struct Statement<'a> {
    /// The opcode with its modifiers.
    pub(super) opcode: &'a str,
    pub(super) operands: Vec<Operand<'a>>,
}

impl<'a> Statement<'a> {
    /// Parses a statement up to its semicolon.
    pub(super) fn parse(cursor: &mut Cursor<'a>) -> Result<Self, String> {
        let opcode = cursor.word()?;
        let mut operands = Vec::new();
        while !cursor.accept(';') {
            operands.push(operand(cursor)?);
            if cursor.peek() != Token::Sign(';') {
                cursor.expect(',')?;
            }
        }
        Ok(Self { opcode, operands })
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
