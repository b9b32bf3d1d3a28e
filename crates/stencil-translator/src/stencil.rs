//! Translated stencils.

use std::collections::HashSet;
use std::slice;

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;

use crate::assignment;
use crate::bodies::Bodies;
use crate::c::{self, Dialect};
use crate::description::{Description, Field, Member, Scalar};
use crate::embedded;
use crate::errors::Errors;
use crate::footprint::Footprint;
use crate::inline;
use crate::interpret::{self, Point};
use crate::parse::{self, Source};
use crate::rust;
use crate::syntax::{Column, Function, Kind, ParameterType, Program, Reduction};
use crate::types;
use crate::value::Value;

/// A translated stencil.
#[derive(Debug)]
pub struct Stencil(Description);

/// The stencils of a module, and its other items.
#[derive(Debug)]
pub struct Module {
    stencils: Vec<Stencil>,
    helpers: Vec<(Ident, Vec<Ident>)>,
    rest: Vec<TokenStream>,
}

impl Module {
    /// Translates the stencils of a module, given as `mod name { … }` or as its items.
    ///
    /// # Errors
    ///
    /// All that is refused, each at its place.
    pub fn parse(tokens: TokenStream) -> Result<Self, Errors> {
        translate(tokens, Source::Module)
    }

    /// The stencils, in order.
    pub fn stencils(&self) -> &[Stencil] {
        &self.stencils
    }

    /// The stencils, in order.
    pub fn into_stencils(self) -> Vec<Stencil> {
        self.stencils
    }

    /// The parameters and variables that a helper never reads, in the order of the source; those with `_` first in
    /// their names are left out.
    pub fn unused(&self, helper: &Ident) -> &[Ident] {
        let found = self.helpers.iter().find(|(name, _)| name == helper);
        found.map(|(_, unused)| &**unused).unwrap_or_default()
    }

    /// The items that are neither stencils nor helpers: constants, aliases, and what is no part of the subset.
    pub fn rest(&self) -> &[TokenStream] {
        &self.rest
    }
}

impl Stencil {
    /// Translates a function, which may have helpers and constants beside it.
    ///
    /// # Errors
    ///
    /// All that is refused, each at its place.
    pub fn parse(tokens: TokenStream) -> Result<Self, Errors> {
        // A source without a stencil was refused.
        translate(tokens, Source::Stencil)?.stencils.pop().ok_or_else(Errors::default)
    }

    /// Its name, with its place.
    pub fn ident(&self) -> &Ident {
        &self.0.name
    }

    /// Its name, without `r#`.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Whether it gives up that all devices compute the same bits.
    pub fn is_inexact(&self) -> bool {
        self.0.is_inexact
    }

    /// What is made of the values at all points, if it is a reduction. Its last field is then one that the source does
    /// not have: an output, which is set to the value that the function returns.
    pub fn reduction(&self) -> Option<Reduction> {
        self.0.reduction
    }

    /// How it goes through a grid, if it is a column.
    pub fn column(&self) -> Option<Column> {
        self.0.column
    }

    /// The number of axes of its fields.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The field parameters, in order.
    pub fn fields(&self) -> &[Field] {
        &self.0.fields
    }

    /// The scalar parameters, in order.
    pub fn scalars(&self) -> &[Scalar] {
        &self.0.scalars
    }

    /// The parameters and variables that the function never reads, in the order of the source, with their places. Those
    /// with `_` first in their names are left out.
    pub fn unused(&self) -> &[Ident] {
        &self.0.unused
    }

    /// The members of the struct of arguments, in order and without gaps.
    pub fn members(&self) -> Vec<Member> {
        self.0.members()
    }

    /// The name of the kernel in C.
    pub fn kernel_name(&self) -> String {
        format!("{}_kernel", self.name())
    }

    /// The text of the kernel.
    pub fn source(&self, dialect: Dialect) -> String {
        c::source(&self.0, dialect)
    }

    /// The text of a program for an embedded device: the function of [`Dialect::C`], and a kernel as `kernel.h` of
    /// `backend-embedded` declares it, which calls the function. The kernel takes the fields' pointers, and then each
    /// word of eight bytes of the struct of arguments as an integer. Its name is [`kernel_name`](Self::kernel_name)
    /// with a hash of the function's text.
    pub fn embedded_source(&self) -> String {
        embedded::source(&self.0)
    }

    /// The Rust items: the struct of arguments and the function over rows.
    pub fn to_rust(&self) -> TokenStream {
        rust::items(&self.0)
    }

    /// The values that it sets at a point: one for each output, `None` for each other field. `None` altogether if the
    /// point lacks a scalar or an axis, or has a value of another type.
    pub fn interpret(&self, point: &Point<'_>) -> Option<Vec<Option<Value>>> {
        interpret::run(&self.0, point)
    }
}

fn translate(tokens: TokenStream, source: Source) -> Result<Module, Errors> {
    let mut errors = Errors::default();
    let program = parse::parse(tokens, source, &mut errors);
    // Each step goes on after errors, with what it was given, so that all are found.
    let types = types::infer(&program, &mut errors);
    let constants = inline::constants(&program, &types, &mut errors);
    let (mut stencils, mut inlined) = (Vec::new(), HashSet::<usize>::new());
    let is_helper = |function: &Function| matches!(function.kind, Kind::Helper { .. });
    let mut functions: Vec<_> = program.functions.iter().enumerate().collect();
    functions.sort_by_key(|(_, function)| is_helper(function));
    for (number, function) in functions {
        // What a helper makes of known arguments is seen where it is called.
        if inlined.contains(&number) {
            continue;
        }
        let bodies = Bodies::of(|ends| {
            inline::inline(&program, &types, &constants, number, ends, &mut errors)
        });
        let Some(bodies) = bodies else { break };
        inlined.extend(bodies.all().iter().flat_map(|body| &body.helpers));
        if let Kind::Stencil { inexact, reduction, column } = function.kind {
            let stencil = describe(&program, function, inexact, bodies);
            stencils.push(Stencil(Description { reduction, column, ..stencil }));
        }
    }
    // What is missing is reported only where nothing was refused.
    if errors.is_empty() {
        for Stencil(stencil) in &stencils {
            for body in stencil.bodies.all() {
                assignment::check(body, &stencil.fields, stencil.rank, &mut errors);
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let helpers = program.functions.into_iter().filter(is_helper);
    let helpers = helpers.map(|helper| (helper.name, helper.unused)).collect();
    Ok(Module { stencils, helpers, rest: program.rest })
}

fn describe(
    program: &Program,
    function: &Function,
    is_inexact: bool,
    bodies: Bodies,
) -> Description {
    let (mut fields, mut scalars, mut axes) = (Vec::new(), Vec::new(), 1);
    for parameter in &function.parameters {
        let (ident, name) = (parameter.name.clone(), parameter.name.unraw().to_string());
        match parameter.ty {
            ParameterType::Field { intent, element, rank } => {
                let number = fields.len();
                let footprint = Footprint::of(bodies.all(), number, rank);
                let at_ends = [false, true].map(|first| {
                    [false, true].map(|last| {
                        Footprint::of(slice::from_ref(bodies.at([first, last])), number, rank)
                    })
                });
                fields.push(Field { ident, name, intent, element, footprint, at_ends });
                axes = rank;
            }
            ParameterType::Scalar(ty) => scalars.push(Scalar { ident, name, ty }),
            ParameterType::Refused => {}
        }
    }
    Description {
        name: function.name.clone(),
        is_inexact,
        reduction: None,
        column: None,
        rank: axes,
        fields,
        scalars,
        bodies,
        unused: function.unused.clone(),
        asserted: program.asserted.clone(),
    }
}
