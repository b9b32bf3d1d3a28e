//! The body of a function.

use super::body::Body;
use super::cursor::Cursor;
use super::decode;
use super::instruction::{Function, Operation};
use super::lexer::Token;
use super::statement::{Operand, Statement};
use super::symbols::{Globals, Symbol};
use super::types::Type;

/// Parses a body, which begins with its brace. `shared` is the size of the shared memory of the kernel, or of all other
/// functions; the variables of the body are added to it.
pub(super) fn function<'a>(
    cursor: &mut Cursor<'a>,
    globals: &Globals<'a>,
    name: &'a str,
    is_entry: bool,
    shared: &mut usize,
    called: &mut Vec<(usize, u32)>,
) -> Result<Function, String> {
    let mut body = Body::new(globals, called, name, cursor.line());
    cursor.expect('{')?;
    let mut depth = 1;
    while depth > 0 {
        body.line = cursor.line();
        match cursor.peek() {
            Token::Sign('{') => {
                cursor.next();
                body.open();
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
            Token::Word(".reg") => registers(&mut body, cursor)?,
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
                body.label(label)?;
            }
            _ => statement(&mut body, cursor)?,
        }
    }
    Ok(body.function)
}

/// `.reg .TYPE name, name<count>, …;`
fn registers<'a>(body: &mut Body<'_, 'a>, cursor: &mut Cursor<'a>) -> Result<(), String> {
    cursor.next();
    let word = cursor.word()?;
    let ty = word.strip_prefix('.').and_then(Type::named);
    let ty = ty.ok_or_else(|| body.error(&format!("`{word}` is no type of a register")))?;
    loop {
        let name = cursor.word()?;
        if cursor.accept('<') {
            let count = u32::try_from(cursor.size()?).unwrap_or(u32::MAX).min(1 << 20);
            cursor.expect('>')?;
            body.declare_range(name, count, ty);
        } else {
            let slot = body.slots(1);
            body.declare(name, Symbol::Register(slot, ty));
        }
        if !cursor.accept(',') {
            return cursor.expect(';');
        }
    }
}

fn statement<'a>(body: &mut Body<'_, 'a>, cursor: &mut Cursor<'a>) -> Result<(), String> {
    let guard = if cursor.accept('@') {
        let when = !cursor.accept('!');
        Some((cursor.word()?, when))
    } else {
        None
    };
    let statement = Statement::parse(cursor)?;
    guarded(body, guard, &statement)
        .map_err(|message| body.error(&format!("{}: {message}", statement.opcode)))
}

/// Decodes an instruction with a guard as a conditional jump over it, and a jump with a guard as a conditional jump.
fn guarded<'a>(
    body: &mut Body<'_, 'a>,
    guard: Option<(&'a str, bool)>,
    statement: &Statement<'a>,
) -> Result<(), String> {
    let Some((name, when)) = guard else { return decode::statement(body, statement) };
    let on = body.slot(&Operand::Name(name))?;
    if let ("bra" | "bra.uni", [Operand::Name(label)]) = (statement.opcode, &statement.operands[..])
    {
        body.jump(Operation::BranchIf { on, when, target: 0 }, label);
        return Ok(());
    }
    let over = body.function.code.len();
    body.emit(Operation::BranchIf { on, when: !when, target: 0 });
    decode::statement(body, statement)?;
    let here = body.here();
    if let Operation::BranchIf { target, .. } = &mut body.function.code[over] {
        *target = here;
    }
    Ok(())
}
