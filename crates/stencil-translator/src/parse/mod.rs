//! From tokens to the [syntax](crate::syntax): what is no part of the subset is refused here, by its name.

mod attributes;
mod expressions;
mod items;
mod literals;
mod size;
mod statements;

use std::collections::{BTreeMap, HashMap};
use std::mem;

use proc_macro2::{Ident, Span, TokenStream};
use syn::ext::IdentExt;

use crate::errors::Errors;
use crate::syntax::{Expr, ExprKind, Kind, ParameterType, Program};
use crate::value::Type;

/// How deep expressions and statements may nest.
const MAX_DEPTH: usize = 96;

/// What is wrong with a call of a macro.
const MACROS: &str = "a stencil cannot call macros: it sets fields, which the program prints";

/// What a source may consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// One stencil, with the helpers and constants that it uses. Its attribute may be missing.
    Stencil,
    /// The items of a module, or the module.
    Module,
}

/// Parses a source. With errors, the program is incomplete.
pub(crate) fn parse(tokens: TokenStream, source: Source, errors: &mut Errors) -> Program {
    if let Err((span, message)) = size::check(tokens.clone()) {
        errors.push(span, message);
        return Program::default();
    }
    let file: syn::File = match syn::parse2(tokens) {
        Ok(file) => file,
        Err(error) => {
            for error in error {
                errors.push(error.span(), error.to_string());
            }
            return Program::default();
        }
    };
    let mut items = file.items;
    if source == Source::Module
        && let [syn::Item::Mod(module)] = &mut *items
        && let Some((_, content)) = &mut module.content
    {
        items = mem::take(content);
    }
    let mut parser = Parser {
        program: Program::default(),
        errors,
        signatures: Vec::new(),
        aliases: HashMap::new(),
        refused_aliases: HashMap::new(),
        scopes: vec![HashMap::new()],
        refused: HashMap::new(),
        used: Vec::new(),
        first_writable: 0,
        unread: BTreeMap::new(),
        depth: 0,
        is_inexact: true,
        is_constant: false,
    };
    parser.items(items, source);
    parser.program
}

/// Whether a source is so small, and nested so little, that a recursive parser may read it.
pub fn can_be_parsed(tokens: &TokenStream) -> bool {
    size::check(tokens.clone()).is_ok()
}

struct Parser<'a> {
    program: Program,
    errors: &'a mut Errors,
    /// Of each function.
    signatures: Vec<Signature>,
    aliases: HashMap<String, Type>,
    /// What is wrong with attributes of aliases, until they are used.
    refused_aliases: HashMap<String, Errors>,
    scopes: Vec<HashMap<String, Name>>,
    /// What is wrong with constants beside the stencils, and which of the others they use.
    refused: HashMap<String, (Errors, Vec<String>)>,
    /// The refused constants that are used, until that is reported or they are part of another one.
    used: Vec<String>,
    /// The first scope whose variables may be changed here. An expression changes nothing outside of itself.
    first_writable: usize,
    /// The parameters and variables of the function that nothing has read yet. Names with `_` are left out.
    unread: BTreeMap<Declared, Ident>,
    depth: usize,
    is_inexact: bool,
    /// Whether this is the value of a constant. It sees the scopes of the function, but not their variables.
    is_constant: bool,
}

struct Signature {
    name: String,
    kind: Kind,
    parameters: Vec<ParameterType>,
}

/// A parameter or a variable, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Declared {
    Parameter(usize),
    Variable(usize),
}

/// What a name stands for.
#[derive(Clone, Copy)]
enum Name {
    Variable(usize),
    Parameter(usize, ParameterType),
    Constant(usize),
    /// A constant of this block, above its definition.
    Below,
    /// Something that was reported.
    Refused,
}

impl Parser<'_> {
    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.errors.push(span, message);
    }

    fn expr(&mut self, span: Span, kind: ExprKind) -> Expr {
        self.program.expressions += 1;
        Expr { kind, span, id: self.program.expressions - 1 }
    }

    /// Reports an error, and stands for the expression.
    fn refuse(&mut self, span: Span, message: impl Into<String>) -> Expr {
        self.error(span, message);
        self.expr(span, ExprKind::Error)
    }

    fn look_up(&mut self, name: &str) -> Option<(usize, Name)> {
        let found = |(depth, scope): (usize, &HashMap<_, Name>)| Some((depth, *scope.get(name)?));
        let found = self.scopes.iter().enumerate().rev().find_map(found);
        if let Some((0, Name::Refused)) = found {
            self.used.push(name.to_owned());
        }
        found
    }

    fn declare(&mut self, name: &Ident, meaning: Name) {
        self.check_name(name);
        let scope = self.scopes.last_mut().expect("the scope of the source is always there");
        scope.insert(text(name), meaning);
    }

    /// A pattern with the name of a constant is that constant, in Rust.
    fn check_no_constant(&mut self, name: &Ident) {
        let key = text(name);
        let mut scopes = self.scopes.iter().enumerate().rev();
        let found = scopes.find_map(|(depth, scope)| Some((depth, scope.get(&key)?)));
        if let Some((_, Name::Constant(_) | Name::Below) | (0, Name::Refused)) = found {
            let message = format!("`{name}` is the name of a constant: choose another one");
            self.error(name.span(), message);
        }
    }

    /// Takes note of a parameter or a variable, which may be read below.
    fn declared(&mut self, what: Declared, name: &Ident, attributes: &[syn::Attribute]) {
        let is_silent = |attribute: &syn::Attribute| {
            attribute.path().is_ident("allow") || attribute.path().is_ident("expect")
        };
        if !text(name).starts_with('_') && !attributes.iter().any(is_silent) {
            self.unread.insert(what, name.clone());
        }
    }

    /// C has no other letters.
    fn check_name(&mut self, name: &Ident) {
        if !text(name).is_ascii() {
            self.error(
                name.span(),
                format!("`{name}` must consist of ASCII letters, digits and `_`"),
            );
        }
    }

    fn known_type(&self, ty: &syn::Type) -> Option<Type> {
        let name = text(&path_of(ty)?);
        let builtin = Type::ALL.into_iter().find(|known| known.name() == name);
        self.aliases.get(&name).copied().or(builtin)
    }

    fn scalar_type(&mut self, ty: &syn::Type) -> Option<Type> {
        if let Some(errors) = path_of(ty).and_then(|name| self.refused_aliases.remove(&text(&name)))
        {
            self.errors.append(errors);
        }
        let found = self.known_type(ty);
        let tokens = quote::quote!(#ty);
        match found {
            Some(known) => {
                let is_known =
                    |(_, other): &(Type, TokenStream)| other.to_string() == tokens.to_string();
                if !self.program.asserted.iter().any(is_known) {
                    self.program.asserted.push((known, tokens));
                }
            }
            None => {
                let message = match ty {
                    syn::Type::Tuple(_) => "a tuple is no type of a stencil: write a parameter, a variable or a helper for each value".to_owned(),
                    _ => format!(
                        "`{tokens}` is no type of a stencil: use f32, f64, i32, i64, u32 or bool"
                    ),
                };
                self.error(syn::spanned::Spanned::span(ty), message);
            }
        }
        found
    }
}

/// A name without `r#`.
fn text(name: &Ident) -> String {
    name.unraw().to_string()
}

/// The identifier of which a type consists.
fn path_of(ty: &syn::Type) -> Option<Ident> {
    match ty {
        syn::Type::Path(path) if path.qself.is_none() => path.path.get_ident().cloned(),
        syn::Type::Group(group) => path_of(&group.elem),
        syn::Type::Paren(paren) => path_of(&paren.elem),
        _ => None,
    }
}
