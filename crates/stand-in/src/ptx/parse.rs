//! The declarations of a module: variables, functions, kernels.

use std::collections::HashMap;
use std::mem::take;

use super::cursor::Cursor;
use super::function;
use super::instruction::{Function, Operation, Special};
use super::lexer::{Token, at};
use super::memory::{VARIABLES, Variables};
use super::module::{Entry, Module};
use super::symbols::{Globals, Signature, Symbol};

/// The most threads of a block, unless the kernel says otherwise.
const MAX_THREADS: u32 = 1024;

impl Module {
    /// Parses and decodes PTX text.
    ///
    /// # Errors
    ///
    /// A message with the number of the line: text that is not PTX, an instruction that the interpreter does not have,
    /// a name that is not declared.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            cursor: Cursor::new(text)?,
            globals: Globals::default(),
            functions: Vec::new(),
            variables: Vec::new(),
            called: Vec::new(),
            entries: HashMap::new(),
        };
        parser.module()
    }
}

/// Whether a function, or a function that it calls, uses the shared memory that functions of the module share.
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
    globals: Globals<'a>,
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
                other => return Err(at(line, &format!("unknown directive `{other}`"))),
            }
        }
        for (index, line) in &self.called {
            if self.functions[*index].is_none() {
                return Err(at(*line, "a function that is nowhere defined"));
            }
        }
        // A function that is never called may have no body.
        let functions: Vec<Function> =
            take(&mut self.functions).into_iter().map(Option::unwrap_or_default).collect();
        for entry in self.entries.values_mut() {
            if uses_common_shared(&functions, entry.function, &mut Vec::new()) {
                // No variable needs more than this.
                entry.common_shared = entry.static_shared.next_multiple_of(128);
                entry.static_shared = entry.common_shared + self.globals.shared;
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
        self.globals.symbols.insert(variable.name, Symbol::Variable(address));
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
        let Some(Symbol::Variable(address)) = self.globals.symbols.get(name) else {
            return Err(self.cursor.error(&format!("`{name}` is no variable")));
        };
        let offset = if self.cursor.accept('+') { self.cursor.number()? } else { 0 };
        Ok(address + offset)
    }

    fn shared(&mut self) -> Result<(), String> {
        let mut used = self.globals.shared;
        let variable = self.cursor.variable(&mut used)?;
        let symbol = if variable.is_open {
            Symbol::DynamicShared
        } else {
            self.globals.shared = used;
            Symbol::CommonShared(variable.offset)
        };
        self.globals.symbols.insert(variable.name, symbol);
        self.cursor.expect(';')
    }

    fn function(&mut self, is_entry: bool) -> Result<(), String> {
        let results = if self.cursor.accept('(') { self.cursor.parameters()? } else { Vec::new() };
        let name = self.cursor.word()?;
        let params = if self.cursor.accept('(') { self.cursor.parameters()? } else { Vec::new() };
        let max_threads = self.directives()?;
        let index = match self.globals.signatures.get(name) {
            Some(declared) => declared.index,
            None => self.functions.len(),
        };
        if index == self.functions.len() {
            self.functions.push(None);
        }
        self.globals.signatures.insert(name, Signature::new(index, &params, &results));
        if self.cursor.accept(';') {
            return Ok(());
        }
        if self.functions[index].is_some() {
            return Err(self.cursor.error(&format!("`{name}` is defined twice")));
        }
        let mut shared = if is_entry { 0 } else { self.globals.shared };
        let function = function::function(
            &mut self.cursor,
            &self.globals,
            name,
            is_entry,
            &mut shared,
            &mut self.called,
        )?;
        self.functions[index] = Some(function);
        if is_entry {
            let params = self.globals.signatures[name].params.clone();
            let (common_shared, static_shared) = (shared, shared);
            let entry =
                Entry { function: index, params, common_shared, static_shared, max_threads };
            self.entries.insert(name.to_owned(), entry);
        } else {
            self.globals.shared = shared;
        }
        Ok(())
    }

    /// Parses the directives between the head of a function and its body. Returns the most threads of a block.
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
