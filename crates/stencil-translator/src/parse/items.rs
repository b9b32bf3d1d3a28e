//! Functions with their signatures, constants, and aliases of types.

use std::collections::HashMap;
use std::mem;

use proc_macro2::Span;
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{FnArg, GenericArgument, Item, ItemFn, Pat, PatType, PathArguments, ReturnType};

use super::statements::is_name;
use super::{Declared, Name, Parser, Signature, Source, path_of, text};
use crate::errors::count;
use crate::syntax::{
    Block, Column, Constant, Direction, Function, Intent, Kind, Parameter, ParameterType,
    Reduction, Statement,
};
use crate::value::Type;

/// The elements of a table at most.
const MAX_ELEMENTS: usize = 4096;

/// What an item is to a stencil.
enum Role {
    Stencil { inexact: bool },
    Reduction { inexact: bool, reduction: Reduction },
    Column { inexact: bool, column: Column },
    Helper,
    Neither,
}

impl Parser<'_> {
    /// Parses the items: first what bodies refer to, then the bodies.
    pub(super) fn items(&mut self, items: Vec<Item>, source: Source) {
        let mut functions = Vec::new();
        for item in items {
            match item {
                Item::Type(alias) => {
                    if let Some(ty) = self.known_type(&alias.ty) {
                        self.aliases.insert(text(&alias.ident), ty);
                    }
                    let before = self.errors.len();
                    self.visit_item_type(&alias);
                    let errors = self.errors.split_off(before);
                    if !errors.is_empty() {
                        self.refused_aliases.insert(text(&alias.ident), errors);
                    }
                    self.program.rest.push(alias.into_token_stream());
                }
                Item::Const(constant) => {
                    let (before, known) = (self.errors.len(), self.program.constants.len());
                    let name = &constant.ident;
                    if name != "_" && self.scopes[0].contains_key(&text(name)) {
                        self.error(name.span(), format!("`{name}` is defined twice"));
                    }
                    self.visit_item_const(&constant);
                    self.constant(&constant);
                    let (errors, used) = (self.errors.split_off(before), mem::take(&mut self.used));
                    if !errors.is_empty() || !used.is_empty() {
                        self.program.constants.truncate(known);
                        self.declare(&constant.ident, Name::Refused);
                        self.refused.insert(text(&constant.ident), (errors, used));
                    }
                    self.program.rest.push(constant.into_token_stream());
                }
                Item::Fn(function) => match self.role(&function, source) {
                    Role::Neither => self.program.rest.push(function.into_token_stream()),
                    role => functions.push((function, role)),
                },
                other if source == Source::Module => {
                    self.program.rest.push(other.into_token_stream());
                }
                other => {
                    self.error(other.span(), "only functions and constants belong to a stencil")
                }
            }
        }
        let signed: Vec<_> = functions
            .into_iter()
            .map(|(function, role)| {
                let kind = match role {
                    Role::Stencil { inexact } => {
                        Some(Kind::Stencil { inexact, reduction: None, column: None })
                    }
                    Role::Reduction { inexact, reduction } => {
                        let reduction = Some(reduction);
                        Some(Kind::Stencil { inexact, reduction, column: None })
                    }
                    Role::Column { inexact, column } => {
                        let column = Some(column);
                        Some(Kind::Stencil { inexact, reduction: None, column })
                    }
                    Role::Helper => {
                        self.returned(&function).map(|returns| Kind::Helper { returns })
                    }
                    Role::Neither => None,
                };
                let parameters = self.signature(&function, kind);
                (function, kind, parameters)
            })
            .collect();
        if source == Source::Stencil {
            let is_stencil = |kind: &Option<Kind>| matches!(kind, Some(Kind::Stencil { .. }));
            let stencils = signed.iter().filter(|(_, kind, _)| is_stencil(kind));
            match stencils.map(|(function, ..)| &function.sig.ident).collect::<Vec<_>>()[..] {
                [_] => {}
                [] if signed.is_empty() => {
                    self.error(Span::call_site(), "there is no stencil: write `#[stencil] fn name(…)`");
                }
                [] => self.error(
                    signed[0].0.sig.ident.span(),
                    "a helper alone is no stencil: add `#[stencil] fn name(…)`, or use `#[stencils]` on a module",
                ),
                [_, second, ..] => self.error(
                    second.span(),
                    format!("`{second}` is a second stencil: mark helpers with `#[stencil_fn]`, or use a module"),
                ),
            }
        }
        for (function, kind, parameters) in signed {
            self.function(function, kind, parameters);
        }
        while let Some(name) = self.used.pop() {
            if let Some((errors, used)) = self.refused.remove(&name) {
                self.errors.append(errors);
                self.used.extend(used);
            }
        }
    }

    fn role(&mut self, function: &ItemFn, source: Source) -> Role {
        let mut role = match source {
            Source::Stencil => Role::Stencil { inexact: false },
            Source::Module => Role::Neither,
        };
        let mut others = Vec::new();
        let mut first: Option<String> = None;
        for attribute in &function.attrs {
            let Some(name) = attribute.path().segments.last() else { continue };
            let name = name.ident.to_string();
            role = match &*name {
                "stencil" => self.stencil(attribute),
                "reduction" => self.reduction(attribute),
                "column" => self.column(attribute),
                "stencil_fn" => self.helper_role(attribute),
                _ => {
                    others.push(attribute);
                    continue;
                }
            };
            if let Some(first) = &first {
                let message = format!(
                    "a function has one of the attributes `stencil`, `column`, `reduction` and `stencil_fn`, and this one has `{first}`: remove `{name}`, or write two functions"
                );
                self.error(attribute.path().span(), message);
            }
            first.get_or_insert(name);
        }
        if matches!(role, Role::Neither) {
            let is_field = |input: &FnArg| {
                let FnArg::Typed(parameter) = input else { return false };
                let syn::Type::Path(ty) = &*parameter.ty else { return false };
                let name = ty.path.segments.last().map(|last| last.ident.to_string());
                matches!(name.as_deref(), Some("In" | "Out" | "InOut"))
            };
            if function.sig.inputs.iter().any(is_field) {
                let name = &function.sig.ident;
                let message = format!(
                    "`{name}` has fields: write `#[stencil]` above it, or `#[stencil_fn]` if it returns a value"
                );
                self.error(name.span(), message);
            }
        } else {
            if let (Role::Helper, syn::Visibility::Public(_)) = (&role, &function.vis) {
                let message = "a helper is inlined into the stencils of its module, and is no function: remove `pub`";
                self.error(function.vis.span(), message);
            }
            for attribute in others {
                self.attribute(attribute);
            }
            self.visit_signature(&function.sig);
            self.visit_block(&function.block);
        }
        role
    }

    /// The role of a function with the attribute `stencil`.
    fn stencil(&mut self, attribute: &syn::Attribute) -> Role {
        let (options, mut wrong) = options(attribute);
        let mut inexact = false;
        for option in &options {
            let is_known = expression_name(option).is_some_and(|name| name == "inexact");
            if !is_known || mem::replace(&mut inexact, true) {
                wrong.get_or_insert(option.span());
            }
        }
        if let Some(span) = wrong {
            self.error(span, "the only option of a stencil is `#[stencil(inexact)]`");
        }
        Role::Stencil { inexact: inexact || wrong.is_some() }
    }

    /// The role of a function with the attribute `stencil_fn`.
    fn helper_role(&mut self, attribute: &syn::Attribute) -> Role {
        let (options, wrong) = options(attribute);
        if let Some(span) = wrong.or_else(|| options.first().map(Spanned::span)) {
            let message = "a helper has no options: it is inlined, and may call inexact functions if the stencils that call it are `#[stencil(inexact)]`";
            self.error(span, message);
        }
        Role::Helper
    }

    /// The role of a function with the attribute `reduction`.
    fn reduction(&mut self, attribute: &syn::Attribute) -> Role {
        let (options, mut wrong) = options(attribute);
        let (mut inexact, mut reduction) = (false, None);
        for (place, option) in options.iter().enumerate() {
            let named = expression_name(option).map(ToString::to_string).unwrap_or_default();
            let known = Reduction::ALL.into_iter().find(|known| named == known.name());
            match (place, known) {
                (0, Some(known)) => reduction = Some(known),
                (1, None) if named == "inexact" => inexact = true,
                _ => {
                    wrong.get_or_insert(option.span());
                }
            }
        }
        if reduction.is_none() {
            wrong.get_or_insert(attribute.path().span());
        }
        if let Some(span) = wrong {
            self.error(
                span,
                "a reduction is `#[reduction(sum)]`, `(min)` or `(max)`, with the option `(sum, inexact)`",
            );
        }
        let reduction = reduction.unwrap_or(Reduction::Sum);
        Role::Reduction { inexact: inexact || wrong.is_some(), reduction }
    }

    /// The role of a function with the attribute `column`.
    fn column(&mut self, attribute: &syn::Attribute) -> Role {
        let (options, mut wrong) = options(attribute);
        let named = options.first().and_then(expression_name);
        let direction = Direction::ALL
            .into_iter()
            .find(|known| named.is_some_and(|named| *named == known.name()));
        if direction.is_none() {
            let place = options.first().map_or_else(|| attribute.path().span(), Spanned::span);
            wrong.get_or_insert(place);
        }
        let (mut inexact, mut ghosts, mut axis) = (false, false, None);
        for option in options.iter().skip(1) {
            let is_known = match option {
                syn::Expr::Assign(assign)
                    if axis.is_none()
                        && expression_name(&assign.left).is_some_and(|name| name == "axis") =>
                {
                    axis = assign.right.to_token_stream().to_string().parse::<usize>().ok();
                    axis.is_some()
                }
                option => match expression_name(option).map(|name| name.to_string()).as_deref() {
                    Some("inexact") => !mem::replace(&mut inexact, true),
                    Some("ghosts") => !mem::replace(&mut ghosts, true),
                    _ => false,
                },
            };
            if !is_known {
                wrong.get_or_insert(option.span());
            }
        }
        if let Some(span) = wrong {
            self.error(
                span,
                "a column is `#[column(forward)]` or `(backward)`, with the options `(forward, axis = 1)`, `(forward, ghosts)` and `(forward, inexact)`",
            );
        }
        let (direction, axis) = (direction.unwrap_or(Direction::Forward), axis.unwrap_or(0));
        let column = Column { direction, axis, ghosts };
        Role::Column { inexact: inexact || wrong.is_some(), column }
    }

    fn returned(&mut self, function: &ItemFn) -> Option<Type> {
        match &function.sig.output {
            ReturnType::Type(_, ty) => self.scalar_type(ty),
            ReturnType::Default => {
                let name = &function.sig.ident;
                self.error(name.span(), format!("`{name}` must return a value: write `-> f64`"));
                None
            }
        }
    }

    /// The parameter that a reduction sets to its value, for fields of so many axes.
    fn result(&mut self, function: &ItemFn, parameters: &[Parameter]) -> Parameter {
        let fields = parameters.iter().find_map(|parameter| match parameter.ty {
            ParameterType::Field { rank, .. } => Some(rank),
            ParameterType::Scalar(_) | ParameterType::Refused => None,
        });
        let is_refused = parameters.iter().any(|parameter| parameter.ty == ParameterType::Refused);
        let name = &function.sig.ident;
        if fields.is_none() && !is_refused {
            let message = format!("`{name}` reads no field: add a parameter `In<f64, 2>`");
            self.error(name.span(), message);
        }
        let element = self.returned(function);
        if element == Some(Type::Bool) {
            self.error(
                function.sig.output.span(),
                "a reduction cannot return bool: return u32 with 0 and 1",
            );
        }
        let ty = match (element, fields) {
            (Some(element), Some(rank)) if element != Type::Bool => {
                ParameterType::Field { intent: Intent::Out, element, rank }
            }
            _ => ParameterType::Refused,
        };
        // No name of the user is used twice.
        let mut result = "value".to_owned();
        while parameters.iter().any(|other| text(&other.name) == result) {
            result.push('_');
        }
        Parameter { name: syn::Ident::new(&result, name.span()), ty }
    }

    /// Checks a signature and makes it known.
    fn signature(&mut self, function: &ItemFn, kind: Option<Kind>) -> Vec<Parameter> {
        let sig = &function.sig;
        let unsupported = [
            (sig.constness.map(|token| token.span()), "`const`"),
            (sig.asyncness.map(|token| token.span()), "`async`"),
            (
                Some(sig.safety.span()).filter(|_| !sig.safety.to_token_stream().is_empty()),
                "`unsafe`",
            ),
            (sig.abi.as_ref().map(Spanned::span), "`extern`"),
            (sig.variadic.as_ref().map(Spanned::span), "variadic parameters"),
            (
                Some(sig.generics.span()).filter(|_| {
                    !sig.generics.params.is_empty() || sig.generics.where_clause.is_some()
                }),
                "generic parameters: write one function for each type, or a `type` alias in the module",
            ),
        ];
        for (span, what) in unsupported {
            if let Some(span) = span {
                self.error(span, format!("a stencil cannot have {what}"));
            }
        }
        self.check_name(&sig.ident);
        let is_stencil = matches!(kind, Some(Kind::Stencil { reduction: None, .. }));
        let is_reduction = matches!(kind, Some(Kind::Stencil { reduction: Some(_), .. }));
        if is_stencil && let ReturnType::Type(_, ty) = &sig.output {
            self.error(
                ty.span(),
                "a stencil returns nothing: add a parameter `Out<f64, 2>` and call its `set`, or make it a reduction, `#[reduction(sum)]`",
            );
        }
        let mut parameters: Vec<Parameter> = Vec::new();
        for input in &sig.inputs {
            let FnArg::Typed(input) = input else {
                self.error(input.span(), "a stencil is no method: remove `self`");
                continue;
            };
            let Pat::Ident(pattern) = &*input.pat else {
                self.error(input.pat.span(), "a parameter is a name");
                continue;
            };
            if !is_name(pattern) {
                self.error(pattern.span(), "a parameter is a name");
            }
            if let Some(mutability) = &pattern.mutability {
                self.error(mutability.span(), "a parameter cannot change: copy it with `let mut`");
            }
            let name = pattern.ident.clone();
            if parameters.iter().any(|other| text(&other.name) == text(&name)) {
                self.error(name.span(), format!("`{name}` is the name of two parameters"));
            }
            self.check_name(&name);
            let ty = self.parameter_type(&input.ty).unwrap_or(ParameterType::Refused);
            if !is_stencil
                && let ParameterType::Field { intent: Intent::Out | Intent::InOut, .. } = ty
            {
                let message = if is_reduction {
                    "a reduction only reads: take `In`, and return the value"
                } else {
                    "a helper only reads: take `In`, return a value, and set it in the stencil"
                };
                self.error(input.ty.span(), message);
            }
            parameters.push(Parameter { name, ty });
        }
        if is_reduction {
            let result = self.result(function, &parameters);
            parameters.push(result);
        }
        if is_stencil || is_reduction {
            let column = match kind {
                Some(Kind::Stencil { column, .. }) => column,
                _ => None,
            };
            self.check_fields(&sig.ident, &parameters, column);
        }
        let name = text(&sig.ident);
        if self.signatures.iter().any(|other| other.name == name) {
            self.error(sig.ident.span(), format!("`{name}` is defined twice"));
        }
        if matches!(name.as_str(), "index" | "extent" | "first" | "last") {
            self.error(
                sig.ident.span(),
                format!("`{name}` is a function of the subset: choose another name"),
            );
        }
        if let Some(kind) = kind {
            let parameters = parameters.iter().map(|parameter| parameter.ty).collect();
            self.signatures.push(Signature { name, kind, parameters });
        }
        parameters
    }

    fn check_fields(
        &mut self,
        name: &syn::Ident,
        parameters: &[Parameter],
        column: Option<Column>,
    ) {
        let mut ranks = parameters.iter().filter_map(|parameter| match parameter.ty {
            ParameterType::Field { rank, intent, .. } => Some((rank, intent, &parameter.name)),
            ParameterType::Scalar(_) | ParameterType::Refused => None,
        });
        let has_output = ranks.clone().any(|(_, intent, _)| intent.is_output())
            || parameters.iter().any(|parameter| parameter.ty == ParameterType::Refused);
        if !has_output {
            self.error(
                name.span(),
                format!("`{name}` has no output: add a parameter `Out<f64, 2>`"),
            );
        }
        let Some((rank, _, first)) = ranks.next() else { return };
        if let Some(Column { axis, .. }) = column
            && axis >= rank
        {
            let axes = count(rank, "axis", "axes");
            let message =
                format!("there is no axis {axis} to go along: `{first}` has {axes}, from 0");
            self.error(name.span(), message);
        }
        for (other, _, field) in ranks {
            if other != rank {
                let (other, rank) = (count(other, "axis", "axes"), count(rank, "axis", "axes"));
                let message = format!(
                    "`{field}` has {other} and `{first}` has {rank}: all fields have the same"
                );
                self.error(field.span(), message);
            }
        }
    }

    fn parameter_type(&mut self, ty: &syn::Type) -> Option<ParameterType> {
        if let syn::Type::Path(path) = ty
            && let Some(last) = path.path.segments.last()
            && let PathArguments::AngleBracketed(arguments) = &last.arguments
        {
            let intent = match &*last.ident.to_string() {
                "In" => Intent::In,
                "Out" => Intent::Out,
                "InOut" => Intent::InOut,
                other => {
                    let message = format!("`{other}` is no kind of field: use In, Out or InOut");
                    self.error(last.ident.span(), message);
                    return None;
                }
            };
            let mut arguments = arguments.args.iter();
            let (Some(GenericArgument::Type(element)), Some(rank), None) =
                (arguments.next(), arguments.next(), arguments.next())
            else {
                let intent = intent.name();
                self.error(
                    ty.span(),
                    format!("a field has a type and a number of axes: `{intent}<f64, 2>`"),
                );
                return None;
            };
            let rank_tokens = rank.to_token_stream().to_string();
            let Some(rank) = ["1", "2", "3"].iter().position(|known| rank_tokens == *known) else {
                let message = format!(
                    "a field has 1, 2 or 3 axes, written as a number; here `{rank_tokens}`"
                );
                self.error(rank.span(), message);
                return None;
            };
            let element_type = self.scalar_type(element)?;
            if element_type == Type::Bool {
                self.error(element.span(), "a field cannot hold bool: use u32 with 0 and 1");
                return None;
            }
            return Some(ParameterType::Field { intent, element: element_type, rank: rank + 1 });
        }
        if path_of(ty).is_some_and(|name| ["In", "Out", "InOut"].iter().any(|known| name == known))
        {
            self.error(ty.span(), "a field has a type and a number of axes: `In<f64, 2>`");
            return None;
        }
        if let syn::Type::Array(array) = ty {
            let message = match &*array.elem {
                syn::Type::Path(path) if path_of(&array.elem).is_none() && path.qself.is_none() => {
                    "a parameter is no array: write one parameter for each field"
                }
                _ => {
                    "a parameter is no array: write one parameter for each value, or a constant table beside the stencil"
                }
            };
            self.error(ty.span(), message);
            return None;
        }
        if let syn::Type::Reference(reference) = ty {
            let message = match reference.mutability {
                Some(_) => "a parameter is no reference: write `Out<f64, 2>` or `InOut<f64, 2>`",
                None => "a parameter is no reference: write `In<f64, 2>` or `f64`",
            };
            self.error(ty.span(), message);
            return None;
        }
        self.scalar_type(ty).map(ParameterType::Scalar)
    }

    fn function(&mut self, function: ItemFn, kind: Option<Kind>, parameters: Vec<Parameter>) {
        let mut scope = HashMap::new();
        let is_reduction = matches!(kind, Some(Kind::Stencil { reduction: Some(_), .. }));
        // The source does not see the parameter that a reduction sets.
        let visible = parameters.len() - usize::from(is_reduction);
        for (place, parameter) in parameters[..visible].iter().enumerate() {
            self.check_no_constant(&parameter.name);
            let meaning = match parameter.ty {
                ParameterType::Refused => Name::Refused,
                ty => Name::Parameter(place, ty),
            };
            scope.insert(text(&parameter.name), meaning);
            let attributes = function.sig.inputs.iter().find_map(|input| match input {
                FnArg::Typed(PatType { attrs, pat, .. }) => {
                    matches!(&**pat, Pat::Ident(named) if named.ident == parameter.name)
                        .then_some(attrs)
                }
                FnArg::Receiver(_) => None,
            });
            let attributes = attributes.map(Vec::as_slice).unwrap_or_default();
            self.declared(Declared::Parameter(place), &parameter.name, attributes);
        }
        self.scopes.push(scope);
        self.is_inexact = !matches!(kind, Some(Kind::Stencil { inexact: false, .. }));
        let body = match kind {
            Some(Kind::Helper { .. }) => {
                self.first_writable = self.scopes.len();
                self.value_block(&function.block)
            }
            Some(Kind::Stencil { reduction: Some(_), .. }) => {
                self.first_writable = self.scopes.len();
                let Block { mut statements, value } = self.value_block(&function.block);
                statements.extend(value.map(|value| {
                    let span = value.span;
                    Statement::Set { parameter: visible, value: *value, span }
                }));
                Block { statements, value: None }
            }
            _ => {
                self.first_writable = 0;
                self.statement_block(&function.block)
            }
        };
        self.scopes.pop();
        let unused = mem::take(&mut self.unread).into_values().collect();
        if let Some(kind) = kind {
            self.program.functions.push(Function {
                name: function.sig.ident,
                kind,
                parameters,
                body,
                unused,
            });
        }
    }

    pub(super) fn constant(&mut self, constant: &syn::ItemConst) {
        let before = mem::replace(&mut self.is_constant, true);
        let parsed = self.constant_within(constant);
        self.is_constant = before;
        let meaning = match parsed {
            Some(constant) => {
                self.program.constants.push(constant);
                Name::Constant(self.program.constants.len() - 1)
            }
            None => Name::Refused,
        };
        self.declare(&constant.ident, meaning);
    }

    fn constant_within(&mut self, constant: &syn::ItemConst) -> Option<Constant> {
        let (ty, length) = match &*constant.ty {
            syn::Type::Array(array) => {
                if let syn::Type::Array(inner) = &*array.elem {
                    let (name, inner) = (&constant.ident, inner.len.to_token_stream());
                    let message = format!(
                        "a table has one axis: write its rows one after the other, and `{name}[{inner} * i + j]` for element `j` of row `i`"
                    );
                    self.error(array.span(), message);
                    return None;
                }
                let ty = self.scalar_type(&array.elem);
                let length = match &array.len {
                    syn::Expr::Lit(literal) => {
                        literal.to_token_stream().to_string().parse::<usize>().ok()
                    }
                    _ => None,
                };
                let Some(length) = length.filter(|length| (1..=MAX_ELEMENTS).contains(length))
                else {
                    let message = format!(
                        "the length of a table is written as a number from 1 to {MAX_ELEMENTS}, such as `[f64; 3]`"
                    );
                    self.error(array.len.span(), message);
                    return None;
                };
                (ty, Some(length))
            }
            ty => (self.scalar_type(ty), None),
        };
        let values = match (length, &*constant.expr) {
            (Some(length), syn::Expr::Array(array)) => {
                if array.elems.len() != length {
                    let message = format!(
                        "a table of {length} has {}",
                        count(array.elems.len(), "element", "elements")
                    );
                    self.error(array.span(), message);
                }
                let values: Vec<_> =
                    array.elems.iter().map(|element| self.expression(element)).collect();
                (values.len() == length).then_some(values)
            }
            (Some(length), syn::Expr::Repeat(repeat)) => {
                if repeat.len.to_token_stream().to_string() != length.to_string() {
                    self.error(repeat.len.span(), format!("the table has {length} elements"));
                }
                Some(vec![self.expression(&repeat.expr)])
            }
            (Some(length), other) => {
                self.error(other.span(), format!("a table of {length} is written `[…]`"));
                None
            }
            (None, value) => Some(vec![self.expression(value)]),
        };
        Some(Constant { name: constant.ident.clone(), ty: ty?, length, values: values? })
    }
}

/// The options of an attribute, and the place where they are no list of expressions.
fn options(attribute: &syn::Attribute) -> (Vec<syn::Expr>, Option<Span>) {
    let options = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
    match &attribute.meta {
        syn::Meta::Path(_) => (Vec::new(), None),
        syn::Meta::List(list) => match list.parse_args_with(options) {
            Ok(options) => (options.into_iter().collect(), None),
            Err(error) => (Vec::new(), Some(error.span())),
        },
        syn::Meta::NameValue(named) => (Vec::new(), Some(named.value.span())),
    }
}

/// The name of which an expression consists.
fn expression_name(expression: &syn::Expr) -> Option<&syn::Ident> {
    match expression {
        syn::Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}
