//! A position in the tokens of a module, and the declarations that start there.

use super::lexer::{Token, at, tokens};
use super::types::Type;

/// A position in the tokens of a text.
pub(super) struct Cursor<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, String> {
        Ok(Self { tokens: tokens(text)?, position: 0 })
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.position].0
    }

    /// The token after the next one.
    pub(super) fn peek_second(&self) -> Token<'a> {
        self.tokens.get(self.position + 1).map_or(Token::End, |token| token.0)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.position].1
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position = (self.position + 1).min(self.tokens.len() - 1);
        token
    }

    /// A message with the line of the next token.
    pub(super) fn error(&self, message: &str) -> String {
        at(self.line(), message)
    }

    pub(super) fn unexpected(&self, wanted: &str) -> String {
        self.error(&format!("{} instead of {wanted}", self.peek()))
    }

    pub(super) fn accept(&mut self, sign: char) -> bool {
        let is_there = self.peek() == Token::Sign(sign);
        if is_there {
            self.next();
        }
        is_there
    }

    pub(super) fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.accept(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Token::Word(word);
        if is_there {
            self.next();
        }
        is_there
    }

    pub(super) fn word(&mut self) -> Result<&'a str, String> {
        let Token::Word(word) = self.peek() else { return Err(self.unexpected("a name")) };
        self.next();
        Ok(word)
    }

    /// An integer, negative ones in two's complement.
    pub(super) fn number(&mut self) -> Result<u64, String> {
        let is_negative = self.accept('-');
        let Token::Number(bits) = self.peek() else { return Err(self.unexpected("a number")) };
        self.next();
        Ok(if is_negative { bits.wrapping_neg() } else { bits })
    }

    pub(super) fn size(&mut self) -> Result<usize, String> {
        let line = self.line();
        let number = self.number()?;
        usize::try_from(number)
            .ok()
            .filter(|size| *size <= 1 << 30)
            .ok_or_else(|| at(line, &format!("a size of {number} bytes")))
    }

    /// Skips the rest of a line that has no effect on the results.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.line() == line && self.peek() != Token::End {
            self.next();
        }
    }

    /// `[.align N] .TYPE`: the alignment in bytes and the type.
    fn typed(&mut self) -> Result<(usize, Type), String> {
        let align = if self.accept_word(".align") { Some(self.size()?) } else { None };
        let line = self.line();
        let word = self.word()?;
        let ty = word.strip_prefix('.').and_then(Type::named);
        let ty = ty.ok_or_else(|| at(line, &format!("`{word}` is no type")))?;
        let align = align.unwrap_or(ty.size());
        if !align.is_power_of_two() {
            return Err(at(line, &format!("an alignment of {align}")));
        }
        Ok((align, ty))
    }

    /// `[N]` after a name, `None` for a single element, and 0 for `[]`.
    fn extent(&mut self) -> Result<Option<usize>, String> {
        if !self.accept('[') {
            return Ok(None);
        }
        let extent = if self.peek() == Token::Sign(']') { 0 } else { self.size()? };
        self.expect(']')?;
        Ok(Some(extent))
    }

    /// Parses a variable of a space of which `used` bytes are in use, and adds it to them.
    pub(super) fn variable(&mut self, used: &mut usize) -> Result<Declared<'a>, String> {
        let (align, ty) = self.typed()?;
        if self.accept_word(".ptr") {
            while let Token::Word(".global" | ".shared" | ".const" | ".local" | ".align") =
                self.peek()
            {
                if self.word()? == ".align" {
                    self.size()?;
                }
            }
        }
        let name = self.word()?;
        let extent = self.extent()?;
        let size = ty.size() * extent.unwrap_or(1);
        let offset = used.next_multiple_of(align);
        *used = offset + size;
        Ok(Declared { name, ty, offset, size, is_open: extent == Some(0) })
    }

    /// Parameters up to the closing parenthesis.
    pub(super) fn parameters(&mut self) -> Result<Vec<Declared<'a>>, String> {
        let mut found = Vec::new();
        let mut used = 0;
        while !self.accept(')') {
            if !self.accept_word(".param") {
                return Err(self.unexpected("`.param`"));
            }
            found.push(self.variable(&mut used)?);
            self.accept(',');
        }
        Ok(found)
    }
}

/// A declared variable or parameter.
pub(super) struct Declared<'a> {
    pub(super) name: &'a str,
    pub(super) ty: Type,
    pub(super) offset: usize,
    pub(super) size: usize,
    /// Whether its size comes from the launch.
    pub(super) is_open: bool,
}
