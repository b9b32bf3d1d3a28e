//! The declarations of a module: variables, functions, kernels.

use std::collections::HashMap;
use std::mem::take;

use super::body::{self, Symbol};
use super::instruction::{Function, Operation, Special, Type};
use super::lexer::{Token, at, tokens};
use super::memory::{VARIABLES, Variables};
use super::module::{Entry, Module, Param};

/// Threads of a block where the kernel does not say.
const MAX_THREADS: u32 = 1024;

/// The tokens from a position on.
pub(super) struct Cursor<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.position].0
    }

    /// The token behind the next one.
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

    fn unexpected(&self, wanted: &str) -> String {
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

    /// The rest of a line that says nothing about what is computed.
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

    /// `[N]` behind a name, `None` for a single element, and 0 for `[]`.
    fn extent(&mut self) -> Result<Option<usize>, String> {
        if !self.accept('[') {
            return Ok(None);
        }
        let extent = if self.peek() == Token::Sign(']') { 0 } else { self.size()? };
        self.expect(']')?;
        Ok(Some(extent))
    }

    /// A variable of a space that has `used` bytes: its name, offset and size; `used` is what follows it then.
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
    fn parameters(&mut self) -> Result<Vec<Declared<'a>>, String> {
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
    ty: Type,
    pub(super) offset: usize,
    pub(super) size: usize,
    /// Of a size that the launch tells.
    is_open: bool,
}

/// What a call must know of a function.
pub(super) struct Signature<'a> {
    /// Index among the functions.
    pub(super) index: usize,
    pub(super) params: Vec<Param>,
    pub(super) results: Vec<Param>,
    pub(super) names: Vec<(&'a str, usize, usize)>,
    /// Bytes of both together.
    pub(super) size: usize,
}

impl<'a> Signature<'a> {
    /// Parameters lie at the start of the parameter memory, results behind them.
    fn new(index: usize, params: &[Declared<'a>], results: &[Declared<'a>]) -> Self {
        let end = |of: &[Declared<'_>]| of.last().map_or(0, |last| last.offset + last.size);
        let behind = end(params).next_multiple_of(16);
        let param = |declared: &Declared<'a>, start| Param {
            offset: start + declared.offset,
            size: declared.size,
        };
        let named = |declared: &Declared<'a>, start| {
            (declared.name, start + declared.offset, declared.size)
        };
        let names = params.iter().map(|declared| named(declared, 0));
        Self {
            index,
            params: params.iter().map(|declared| param(declared, 0)).collect(),
            results: results.iter().map(|declared| param(declared, behind)).collect(),
            names: names.chain(results.iter().map(|declared| named(declared, behind))).collect(),
            size: behind + end(results),
        }
    }
}

/// What functions see of the module.
#[derive(Default)]
pub(super) struct Outer<'a> {
    pub(super) symbols: HashMap<&'a str, Symbol>,
    pub(super) signatures: HashMap<&'a str, Signature<'a>>,
    /// Bytes of shared variables outside of kernels.
    shared: usize,
}

pub(super) fn module(text: &str) -> Result<Module, String> {
    let mut parser = Parser {
        cursor: Cursor { tokens: tokens(text)?, position: 0 },
        outer: Outer::default(),
        functions: Vec::new(),
        variables: Vec::new(),
        called: Vec::new(),
        entries: HashMap::new(),
    };
    parser.module()
}

/// Whether a function, or one that it calls, has an address in the common part of shared memory.
fn uses_common_shared(functions: &[Function], index: usize, seen: &mut Vec<usize>) -> bool {
    if seen.contains(&index) {
        return false;
    }
    seen.push(index);
    let function = &functions[index];
    let is_common = |special: &(_, Special)| matches!(special.1, Special::CommonShared(_));
    function.specials.iter().any(is_common)
        || function.code.iter().any(|operation| match operation {
            Operation::Call(call) => uses_common_shared(functions, call.function, seen),
            _ => false,
        })
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    outer: Outer<'a>,
    functions: Vec<Option<Function>>,
    variables: Vec<u8>,
    /// Functions that are called, and the line of each call.
    called: Vec<(usize, u32)>,
    entries: HashMap<String, Entry>,
}

impl Parser<'_> {
    fn module(&mut self) -> Result<Module, String> {
        let version = self.version()?;
        let target = self.target()?;
        loop {
            if self.cursor.peek() == Token::End {
                break;
            }
            let line = self.cursor.line();
            match self.cursor.word()? {
                ".address_size" => {
                    let bits = self.cursor.number()?;
                    if bits != 64 {
                        return Err(at(line, &format!("addresses of {bits} bits")));
                    }
                }
                ".visible" | ".extern" | ".weak" | ".common" => {}
                ".global" | ".const" => self.variable()?,
                ".shared" => self.shared()?,
                ".entry" => self.function(true)?,
                ".func" => self.function(false)?,
                ".file" | ".pragma" => self.cursor.skip_line(),
                ".section" => self.section()?,
                other => return Err(at(line, &format!("unknown directive `{other}`"))),
            }
        }
        for (index, line) in &self.called {
            if self.functions[*index].is_none() {
                return Err(at(*line, "a function that is nowhere defined"));
            }
        }
        // Those that nobody calls may be missing.
        let functions: Vec<Function> =
            take(&mut self.functions).into_iter().map(Option::unwrap_or_default).collect();
        for entry in self.entries.values_mut() {
            if uses_common_shared(&functions, entry.function, &mut Vec::new()) {
                // No variable needs more than this.
                entry.common_shared = entry.static_shared.next_multiple_of(128);
                entry.static_shared = entry.common_shared + self.outer.shared;
            }
        }
        Ok(Module {
            version,
            target,
            functions,
            variables: Variables::new(take(&mut self.variables)),
            entries: take(&mut self.entries),
        })
    }

    fn version(&mut self) -> Result<(u32, u32), String> {
        if !self.cursor.accept_word(".version") {
            return Err(self.cursor.unexpected("a `.version`"));
        }
        let parsed = match self.cursor.peek() {
            Token::Decimal(version) => version
                .split_once('.')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
            _ => None,
        };
        let version = parsed.ok_or_else(|| self.cursor.unexpected("a version such as `8.0`"))?;
        self.cursor.next();
        Ok(version)
    }

    fn target(&mut self) -> Result<u32, String> {
        if !self.cursor.accept_word(".target") {
            return Err(self.cursor.unexpected("a `.target`"));
        }
        let digits = match self.cursor.peek() {
            Token::Word(name) => name.strip_prefix("sm_").map(|n| n.trim_end_matches(['a', 'f'])),
            _ => None,
        };
        let target = digits.and_then(|digits| digits.parse().ok());
        let target = target.ok_or_else(|| self.cursor.unexpected("a target such as `sm_60`"))?;
        self.cursor.next();
        while self.cursor.accept(',') {
            self.cursor.word()?;
        }
        Ok(target)
    }

    /// Debug information: names, labels and numbers in braces.
    fn section(&mut self) -> Result<(), String> {
        while !self.cursor.accept('{') {
            self.cursor.word()?;
        }
        while !self.cursor.accept('}') {
            if self.cursor.next() == Token::End {
                return Err(self.cursor.error("a section without an end"));
            }
        }
        Ok(())
    }

    fn variable(&mut self) -> Result<(), String> {
        let mut used = self.variables.len();
        let variable = self.cursor.variable(&mut used)?;
        self.variables.resize(used, 0);
        if self.cursor.accept('=') {
            let is_list = self.cursor.accept('{');
            let mut offset = variable.offset;
            loop {
                let value = self.initial()?.to_le_bytes();
                let Some(bytes) = self.variables.get_mut(offset..offset + variable.ty.size())
                else {
                    return Err(self.cursor.error("more values than the variable has elements"));
                };
                bytes.copy_from_slice(&value[..bytes.len()]);
                offset += variable.ty.size();
                if !is_list || !self.cursor.accept(',') {
                    break;
                }
            }
            if is_list {
                self.cursor.expect('}')?;
            }
        }
        let address = VARIABLES + variable.offset as u64;
        self.outer.symbols.insert(variable.name, Symbol::Variable(address));
        self.cursor.expect(';')
    }

    /// A number, or the address of a variable.
    fn initial(&mut self) -> Result<u64, String> {
        let Token::Word(word) = self.cursor.peek() else { return self.cursor.number() };
        self.cursor.next();
        let is_generic = word == "generic" && self.cursor.accept('(');
        let name = if is_generic { self.cursor.word()? } else { word };
        if is_generic {
            self.cursor.expect(')')?;
        }
        let Some(Symbol::Variable(address)) = self.outer.symbols.get(name) else {
            return Err(self.cursor.error(&format!("`{name}` is no variable")));
        };
        let offset = if self.cursor.accept('+') { self.cursor.number()? } else { 0 };
        Ok(address + offset)
    }

    fn shared(&mut self) -> Result<(), String> {
        let mut used = self.outer.shared;
        let variable = self.cursor.variable(&mut used)?;
        let symbol = if variable.is_open {
            Symbol::DynamicShared
        } else {
            self.outer.shared = used;
            Symbol::CommonShared(variable.offset)
        };
        self.outer.symbols.insert(variable.name, symbol);
        self.cursor.expect(';')
    }

    fn function(&mut self, is_entry: bool) -> Result<(), String> {
        let results = if self.cursor.accept('(') { self.cursor.parameters()? } else { Vec::new() };
        let name = self.cursor.word()?;
        let params = if self.cursor.accept('(') { self.cursor.parameters()? } else { Vec::new() };
        let max_threads = self.directives()?;
        let index = match self.outer.signatures.get(name) {
            Some(declared) => declared.index,
            None => self.functions.len(),
        };
        if index == self.functions.len() {
            self.functions.push(None);
        }
        self.outer.signatures.insert(name, Signature::new(index, &params, &results));
        if self.cursor.accept(';') {
            return Ok(());
        }
        if self.functions[index].is_some() {
            return Err(self.cursor.error(&format!("`{name}` is defined twice")));
        }
        let mut shared = if is_entry { 0 } else { self.outer.shared };
        let function = body::function(
            &mut self.cursor,
            &self.outer,
            name,
            is_entry,
            &mut shared,
            &mut self.called,
        )?;
        self.functions[index] = Some(function);
        if is_entry {
            let params = self.outer.signatures[name].params.clone();
            let (common_shared, static_shared) = (shared, shared);
            let entry =
                Entry { function: index, params, common_shared, static_shared, max_threads };
            self.entries.insert(name.to_owned(), entry);
        } else {
            self.outer.shared = shared;
        }
        Ok(())
    }

    /// Directives between the head of a function and its body: how many threads a block may have.
    fn directives(&mut self) -> Result<u32, String> {
        let mut max_threads = MAX_THREADS;
        while let Token::Word(word) = self.cursor.peek() {
            self.cursor.next();
            match word {
                ".maxntid" | ".reqntid" => {
                    let mut threads = self.cursor.number()?;
                    while self.cursor.accept(',') {
                        threads = threads.saturating_mul(self.cursor.number()?);
                    }
                    max_threads = u32::try_from(threads).unwrap_or(u32::MAX).min(MAX_THREADS);
                }
                ".minnctapersm" | ".maxnreg" => {
                    self.cursor.number()?;
                }
                ".noreturn" => {}
                ".pragma" => self.cursor.skip_line(),
                other => {
                    return Err(self.cursor.error(&format!("unknown directive `{other}`")));
                }
            }
        }
        Ok(max_threads)
    }
}
