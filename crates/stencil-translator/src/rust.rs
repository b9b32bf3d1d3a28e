//! The Rust function over rows.

use std::collections::BTreeMap;
use std::slice;

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, format_ident, quote, quote_spanned};

use crate::bodies::Case;
use crate::body::{Body, Expr, ExprKind, Offset, Statement};
use crate::description::{Description, Field};
use crate::footprint::Footprint;
use crate::op::{Binary, Unary};
use crate::syntax::{Column, Direction, Intent};
use crate::value::{Type, Value};

/// The struct of arguments, the function over rows, and assertions of the types that the source names.
pub(crate) fn items(stencil: &Description) -> TokenStream {
    Writer { stencil, body: 0 }.items()
}

struct Writer<'a> {
    stencil: &'a Description,
    /// The number of the body.
    body: usize,
}

/// The elements of one row of a field that a stencil reads, at one offset of the outer axes.
struct Row {
    field: usize,
    outer: Vec<i64>,
    /// The offsets on the last axis, and the least and greatest of them. The row has all elements between these.
    columns: Vec<i64>,
    low: i64,
    high: i64,
}

/// A name of the generated code that no name of the user meets, at a place of the user.
fn name(text: String, at: Span) -> Ident {
    Ident::new(&text, Span::mixed_site().located_at(at))
}

fn primitive(ty: Type) -> TokenStream {
    let ty = name(ty.name().into(), Span::mixed_site());
    quote_spanned!(Span::mixed_site()=> ::core::primitive::#ty)
}

fn integer(value: i64) -> TokenStream {
    literal(Value::I64(value), Span::mixed_site())
}

/// A literal with its suffix.
fn literal(value: Value, span: Span) -> TokenStream {
    if let Value::Bool(value) = value {
        return Ident::new(if value { "true" } else { "false" }, span).into_token_stream();
    }
    let text = format!("{}{}", value.digits(), value.ty());
    let mut literal: Literal = text.parse().expect("digits with a suffix are a literal");
    literal.set_span(span);
    let sign = if value.is_negative() { quote_spanned!(span=> -) } else { TokenStream::new() };
    quote!(#sign #literal)
}

impl<'a> Writer<'a> {
    fn items(&self) -> TokenStream {
        let at = self.stencil.name.span();
        let args = name(format!("{}_args", self.stencil.name()), at);
        let rows = name(format!("{}_rows", self.stencil.name()), at);
        let rank = self.stencil.rank;
        let members = self.stencil.members();
        let size: usize =
            members.iter().map(|member| member.ty.size() * member.length.unwrap_or(1)).sum();
        let size = Literal::usize_unsuffixed(size);
        let members = members.iter().map(|member| {
            let (name, ty) = (name(member.name.clone(), at), primitive(member.ty));
            let length = member.length.map(Literal::usize_unsuffixed);
            match length {
                Some(length) => quote_spanned!(Span::mixed_site()=> pub #name: [#ty; #length]),
                None => quote_spanned!(Span::mixed_site()=> pub #name: #ty),
            }
        });
        let (i64, usize) =
            (primitive(Type::I64), quote_spanned!(Span::mixed_site()=> ::core::primitive::usize));
        let pointers = self.stencil.fields.iter().map(|field| {
            let (pointer, ty) = (self.pointer(field), primitive(field.element));
            match field.intent {
                Intent::In => quote_spanned!(Span::mixed_site()=> #pointer: *const #ty),
                Intent::Out | Intent::InOut => {
                    quote_spanned!(Span::mixed_site()=> #pointer: *mut #ty)
                }
            }
        });
        let row_functions = (0..self.stencil.bodies.all().len()).map(|body| self.with(body).row());
        let all_rows = match self.stencil.column {
            None => {
                let (outer, call) =
                    (self.outer_values(), self.call(quote_spanned!(Span::mixed_site()=> n)));
                quote_spanned!(Span::mixed_site()=>
                    for row in rows {
                        let row = row as #i64;
                        #outer
                        #call
                    }
                )
            }
            Some(column) if column.axis + 1 == rank => self.columns_along_rows(column),
            Some(column) => self.columns_across_rows(column),
        };
        let last = Literal::usize_unsuffixed(rank - 1);
        let asserted = self.stencil.asserted.iter().map(|(ty, tokens)| {
            // A disagreement is reported where the type is written.
            let at = tokens.clone().into_iter().next().map_or(at, |token| token.span());
            let (ty, value) = (primitive(*ty), name("value".into(), at));
            quote_spanned!(Span::mixed_site()=> const _: fn(#tokens) -> #ty = |#value| #value;)
        });
        quote_spanned!(Span::mixed_site()=>
            #(#asserted)*

            #[doc(hidden)]
            #[allow(non_camel_case_types, reason = "named after the stencil")]
            #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
            #[repr(C)]
            pub struct #args {
                #(#members,)*
            }

            const _: () = ::core::assert!(::core::mem::size_of::<#args>() == #size);

            #(#row_functions)*

            #[doc(hidden)]
            #[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
            #[inline(always)]
            pub unsafe fn #rows(args: &#args, #(#pointers,)* rows: ::core::ops::Range<#usize>) {
                let n = args.extents[#last] as #usize;
                if n == 0 {
                    return;
                }
                #all_rows
            }
        )
    }

    /// The places of a row on the axes before the last one.
    fn outer_values(&self) -> TokenStream {
        match self.stencil.rank {
            1 => quote!(),
            2 => quote_spanned!(Span::mixed_site()=> let i0 = row;),
            _ => quote_spanned!(Span::mixed_site()=>
                let i0 = row / args.extents[1];
                let i1 = row % args.extents[1];
            ),
        }
    }

    /// Columns across the rows: level by level, so that the points of a row are computed side by side.
    fn columns_across_rows(&self, Column { direction, axis, .. }: Column) -> TokenStream {
        let (i64, number) = (primitive(Type::I64), Literal::usize_unsuffixed(axis));
        let along = self.outer()[axis].clone();
        let level = match direction {
            Direction::Forward => quote_spanned!(Span::mixed_site()=> level),
            Direction::Backward => quote_spanned!(Span::mixed_site()=> levels - 1 - level),
        };
        let other = (0..self.stencil.rank - 1).find(|other| *other != axis);
        let other = other.map(|other| {
            let other = &self.outer()[other];
            quote_spanned!(Span::mixed_site()=> let #other = row as #i64;)
        });
        let mut dispatch = TokenStream::new();
        for (case, body) in self.stencil.bodies.cases() {
            let call = self.with(body).call(quote_spanned!(Span::mixed_site()=> n));
            let condition = match case {
                Case::Only => quote_spanned!(Span::mixed_site()=> levels == 1),
                Case::First => quote_spanned!(Span::mixed_site()=> level == 0),
                Case::Last => quote_spanned!(Span::mixed_site()=> level + 1 == levels),
            };
            dispatch.append_all(quote_spanned!(Span::mixed_site()=> if #condition { #call } else));
        }
        let inner = self.call(quote_spanned!(Span::mixed_site()=> n));
        // By path: traits of the program may have methods of the same names.
        quote_spanned!(Span::mixed_site()=>
            let levels = args.extents[#number];
            for level in 0..levels {
                let #along = #level;
                for row in ::core::clone::Clone::clone(&rows) {
                    #other
                    #dispatch { #inner }
                }
            }
        )
    }

    /// Columns along the rows: each is computed by itself, its ends apart from the points between them.
    fn columns_along_rows(&self, Column { direction, .. }: Column) -> TokenStream {
        let (i64, outer) = (primitive(Type::I64), self.outer_values());
        let number = |ends| self.stencil.bodies.number(ends);
        let inner = number([false; 2]);
        let [first, last] = [[true, false], [false, true]].map(number);
        let points = |body: usize, start: TokenStream, n: TokenStream| {
            let call = self.with(body).call(n);
            quote_spanned!(Span::mixed_site()=> { let start: #i64 = #start; #call })
        };
        let at = |is_low: bool| match is_low {
            true => quote_spanned!(Span::mixed_site()=> 0),
            false => quote_spanned!(Span::mixed_site()=> n as #i64 - 1),
        };
        let is_forward = direction == Direction::Forward;
        let first_point = (first != inner).then(|| points(first, at(is_forward), quote!(1)));
        let last_point = (last != inner).then(|| points(last, at(!is_forward), quote!(1)));
        let ends = [first, last].map(|body| usize::from(body != inner));
        let low = if is_forward { ends[0] } else { ends[1] };
        let (low, both) = [low, ends[0] + ends[1]].map(Literal::usize_unsuffixed).into();
        let between = points(
            inner,
            quote_spanned!(Span::mixed_site()=> #low),
            quote_spanned!(Span::mixed_site()=> n - #both),
        );
        let only_point = points(number([true; 2]), quote!(0), quote!(1));
        let all = match self.stencil.bodies.cases().is_empty() {
            true => between,
            false => quote_spanned!(Span::mixed_site()=>
                if n == 1 #only_point else {
                    #first_point
                    if n > #both #between
                    #last_point
                }
            ),
        };
        quote_spanned!(Span::mixed_site()=>
            for row in rows {
                let row = row as #i64;
                #outer
                #all
            }
        )
    }

    /// A call of the function of this body for `n` points of a row. The names of the row's places are known there.
    fn call(&self, n: TokenStream) -> TokenStream {
        let (needed, outputs, carried) = (self.rows(), self.outputs(), self.carried());
        let (row, outer) = (self.row_name(), self.outer());
        let slices: Vec<_> = (0..needed.len()).map(|place| self.slice(&needed, place)).collect();
        let output_slices: Vec<_> =
            outputs.iter().map(|field| self.prefixed("row", field)).collect();
        let here = vec![0; self.stencil.rank - 1];
        let output_places = outputs.iter().map(|field| self.place(field, &here, 0));
        let output_pointers = outputs.iter().map(|field| self.pointer(field));
        let places = needed
            .iter()
            .map(|row| self.place(&self.stencil.fields[row.field], &row.outer, row.low));
        let pointers = needed.iter().map(|row| self.pointer(&self.stencil.fields[row.field]));
        let widths: Vec<_> = needed
            .iter()
            .map(|row| Literal::usize_unsuffixed(usize::try_from(row.high - row.low).unwrap_or(0)))
            .collect();
        let offset = self.stencil.previous();
        let (before, along) = offset[..self.stencil.rank].split_at(self.stencil.rank - 1);
        let previous: Vec<_> =
            carried.iter().map(|field| self.prefixed("previous", field)).collect();
        let previous_values = carried.iter().map(|field| {
            let pointer = self.pointer(field);
            if !self.is_along_rows() {
                let place = self.place(field, before, 0);
                return quote_spanned!(Span::mixed_site()=>
                    // SAFETY: The previous level is in the box, or own points beside it. Its rows are apart from those of
                    // this one, and nothing else refers to them.
                    unsafe {
                        ::core::slice::from_raw_parts(#pointer.offset((#place) as _), n)
                    }
                );
            }
            // From before the first of these points, or from behind the last.
            let place = self.place(field, before, along[0].min(0));
            let points = match along[0] > 0 {
                true => quote_spanned!(Span::mixed_site()=> + (#n) as ::core::primitive::i64),
                false => TokenStream::new(),
            };
            quote_spanned!(Span::mixed_site()=>
                // SAFETY: The previous point is in the box, or an own point beside it.
                unsafe { *#pointer.offset((#place #points) as _) }
            )
        });
        let start = self.is_along_rows().then(|| quote_spanned!(Span::mixed_site()=> start,));
        quote_spanned!(Span::mixed_site()=>
            #(let #previous = #previous_values;)*
            // SAFETY: The caller guarantees that the outputs have the elements of the box, and that nothing
            // else refers to those of this row.
            #(let #output_slices = unsafe {
                ::core::slice::from_raw_parts_mut(#output_pointers.offset((#output_places) as _), #n)
            };)*
            // SAFETY: The caller guarantees that the inputs have all elements from the least to the greatest
            // offset along the last axis, also those that are not read, and that no output is among them.
            #(let #slices = unsafe {
                ::core::slice::from_raw_parts(#pointers.offset((#places) as _), #n + #widths)
            };)*
            #row(args, #n, #(#outer,)* #start #(#output_slices,)* #(#previous,)* #(#slices,)*);
        )
    }

    /// The same for another body.
    fn with(&self, body: usize) -> Self {
        Self { stencil: self.stencil, body }
    }

    fn body(&self) -> &'a Body {
        &self.stencil.bodies.all()[self.body]
    }

    /// Whether this is a column along the last axis.
    fn is_along_rows(&self) -> bool {
        self.stencil.column.is_some_and(|column| column.axis + 1 == self.stencil.rank)
    }

    /// The name of the function of this body.
    fn row_name(&self) -> Ident {
        let number = self.stencil.column.map(|_| self.body.to_string()).unwrap_or_default();
        name(format!("{}_row{number}", self.stencil.name()), self.stencil.name.span())
    }

    /// The names of a row's places on the axes before the last one.
    fn outer(&self) -> Vec<Ident> {
        let at = self.stencil.name.span();
        (0..self.stencil.rank - 1).map(|axis| name(format!("i{axis}"), at)).collect()
    }

    /// The outputs that the body reads at the previous point.
    fn carried(&self) -> Vec<&'a Field> {
        let fields = self.stencil.carried(self.body());
        fields.into_iter().map(|field| &self.stencil.fields[field]).collect()
    }

    fn outputs(&self) -> Vec<&'a Field> {
        self.stencil.outputs().collect()
    }

    /// A name for something of a field.
    fn prefixed(&self, prefix: &str, field: &Field) -> Ident {
        name(format!("{prefix}_{}", field.name), field.ident.span())
    }

    fn pointer(&self, field: &Field) -> Ident {
        self.prefixed("p", field)
    }

    fn slice(&self, rows: &[Row], place: usize) -> Ident {
        self.prefixed(&format!("row{place}"), &self.stencil.fields[rows[place].field])
    }

    /// The place of the element at a row's start, an offset of the outer axes and one of the last.
    fn place(&self, field: &Field, outer: &[i64], last: i64) -> TokenStream {
        let at = field.ident.span();
        let first = name(format!("{}_first", field.name), at);
        let strides = name(format!("{}_strides", field.name), at);
        let mut sum = quote_spanned!(Span::mixed_site()=> args.#first);
        for (axis, &offset) in outer.iter().enumerate() {
            let (i, axis) = (name(format!("i{axis}"), at), Literal::usize_unsuffixed(axis));
            let i = match offset {
                0 => i.into_token_stream(),
                _ => {
                    let offset = integer(offset);
                    quote_spanned!(Span::mixed_site()=> (#i + #offset))
                }
            };
            sum.append_all(quote_spanned!(Span::mixed_site()=> + #i * args.#strides[#axis]));
        }
        if self.is_along_rows() {
            sum.append_all(quote_spanned!(Span::mixed_site()=> + start));
        }
        if last != 0 {
            let last = integer(last);
            sum.append_all(quote_spanned!(Span::mixed_site()=> + #last));
        }
        sum
    }

    /// The rows of the inputs. A field that is updated in place is read through its output.
    fn rows(&self) -> Vec<Row> {
        let mut columns: BTreeMap<(usize, Vec<i64>), Vec<i64>> = BTreeMap::new();
        for (number, field) in self.stencil.fields.iter().enumerate() {
            if field.intent != Intent::In {
                continue;
            }
            let body = slice::from_ref(self.body());
            for offset in Footprint::of(body, number, self.stencil.rank).offsets() {
                let Some((last, outer)) = offset.split_last() else { continue };
                columns.entry((number, outer.to_vec())).or_default().push(*last);
            }
        }
        let row = |((field, outer), columns): (_, Vec<i64>)| {
            // The offsets of a footprint are in order.
            let (low, high) = (columns[0], columns[columns.len() - 1]);
            Row { field, outer, columns, low, high }
        };
        columns.into_iter().map(row).collect()
    }

    /// The function of points of one row. Its slices are parameters, so that the compiler knows that nothing aliases.
    fn row(&self) -> TokenStream {
        let (rows, outputs, carried) = (self.rows(), self.outputs(), self.carried());
        let args = name(format!("{}_args", self.stencil.name()), self.stencil.name.span());
        let (row, outer) = (self.row_name(), self.outer());
        let (i64, usize) =
            (primitive(Type::I64), quote_spanned!(Span::mixed_site()=> ::core::primitive::usize));
        let slices = (0..rows.len()).map(|place| self.slice(&rows, place));
        let slice_types = rows.iter().map(|row| primitive(self.stencil.fields[row.field].element));
        let output_slices = outputs.iter().map(|field| self.prefixed("row", field));
        let output_types = outputs.iter().map(|field| primitive(field.element));
        let previous = carried.iter().map(|field| {
            let (previous, ty) = (self.prefixed("previous", field), primitive(field.element));
            match self.is_along_rows() {
                true => quote_spanned!(Span::mixed_site()=> mut #previous: #ty),
                false => quote_spanned!(Span::mixed_site()=> #previous: &[#ty]),
            }
        });
        let start = self.is_along_rows();
        let start = start.then(|| quote_spanned!(Span::mixed_site()=> start: #i64,));
        let body = self.points(&rows);
        quote_spanned!(Span::mixed_site()=>
            #[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
            #[inline(always)]
            fn #row(
                args: &#args,
                n: #usize,
                #(#outer: #i64,)*
                #start
                #(#output_slices: &mut [#output_types],)*
                #(#previous,)*
                #(#slices: &[#slice_types],)*
            ) {
                #body
            }
        )
    }

    /// The loop over the points of a row.
    fn points(&self, rows: &[Row]) -> TokenStream {
        let mut before = TokenStream::new();
        for scalar in &self.stencil.scalars {
            let at = scalar.ident.span();
            let (member, local) = (
                name(format!("{}_value", scalar.name), at),
                name(format!("s_{}", scalar.name), at),
            );
            let ty = primitive(scalar.ty);
            let value = match scalar.ty {
                Type::Bool => quote_spanned!(Span::mixed_site()=> args.#member != 0),
                _ => quote_spanned!(Span::mixed_site()=> args.#member),
            };
            before.append_all(quote_spanned!(Span::mixed_site()=> let #local: #ty = #value;));
        }
        for field in self.outputs() {
            let slice = self.prefixed("row", field);
            before.append_all(quote_spanned!(Span::mixed_site()=> let #slice = &mut #slice[..n];));
        }
        for field in self.carried() {
            let previous = self.prefixed("previous", field);
            if !self.is_along_rows() {
                before.append_all(
                    quote_spanned!(Span::mixed_site()=> let #previous = &#previous[..n];),
                );
            }
        }
        for (place, row) in rows.iter().enumerate() {
            let slice = self.slice(rows, place);
            for &column in &row.columns {
                let from =
                    Literal::usize_unsuffixed(usize::try_from(column - row.low).unwrap_or(0));
                let mut offset = [0; 3];
                offset[..row.outer.len()].copy_from_slice(&row.outer);
                offset[row.outer.len()] = column;
                let column = self.column(row.field, offset);
                before.append_all(
                    quote_spanned!(Span::mixed_site()=> let #column = &#slice[#from..][..n];),
                );
            }
        }
        let mut body = TokenStream::new();
        for field in self.outputs() {
            let (value, ty) = (self.prefixed("out", field), primitive(field.element));
            body.append_all(quote_spanned!(Span::mixed_site()=> let #value: #ty;));
        }
        self.statements(&self.body().statements, &mut body);
        for field in self.outputs() {
            let (value, slice) = (self.prefixed("out", field), self.prefixed("row", field));
            body.append_all(quote_spanned!(Span::mixed_site()=> #slice[j] = #value;));
        }
        let mut points = quote_spanned!(Span::mixed_site()=> 0..n);
        if let Some(column) = self.stencil.column.filter(|_| self.is_along_rows()) {
            for field in self.carried() {
                let (value, previous) =
                    (self.prefixed("out", field), self.prefixed("previous", field));
                body.append_all(quote_spanned!(Span::mixed_site()=> #previous = #value;));
            }
            if column.direction == Direction::Backward {
                points = quote_spanned!(Span::mixed_site()=>
                    ::core::iter::Iterator::rev(0..n));
            }
        }
        quote_spanned!(Span::mixed_site()=>
            #before
            for j in #points {
                #body
            }
        )
    }

    /// The name of the slice of a row whose element `j` is the one at an offset from point `j`.
    fn column(&self, field: usize, offset: Offset) -> Ident {
        let text =
            |offset: &i64| if *offset < 0 { format!("m{}", -offset) } else { format!("p{offset}") };
        let offset: String = offset[..self.stencil.rank].iter().map(text).collect();
        self.prefixed(&format!("at{offset}"), &self.stencil.fields[field])
    }

    fn variable(&self, variable: usize) -> Ident {
        let declared = &self.body().variables[variable];
        name(format!("v{variable}_{}", declared.name), declared.span)
    }

    fn statements(&self, statements: &[Statement], out: &mut TokenStream) {
        for statement in statements {
            out.append_all(match statement {
                Statement::Let { variable, value } => {
                    let declared = &self.body().variables[*variable];
                    let mutable =
                        declared.is_mutable.then(|| quote_spanned!(Span::mixed_site()=> mut));
                    let (name, ty, value) =
                        (self.variable(*variable), primitive(declared.ty), self.expression(value));
                    quote_spanned!(declared.span=> let #mutable #name: #ty = #value;)
                }
                Statement::Assign { variable, value, span } => {
                    let (name, value) = (self.variable(*variable), self.expression(value));
                    quote_spanned!(*span=> #name = #value;)
                }
                Statement::Set { field, value, span } => {
                    let (name, value) = (
                        self.prefixed("out", &self.stencil.fields[*field]),
                        self.expression(value),
                    );
                    quote_spanned!(*span=> #name = #value;)
                }
                Statement::If { condition, then: a, otherwise: b, span } => {
                    let condition = self.expression(condition);
                    let (mut then, mut otherwise) = (TokenStream::new(), TokenStream::new());
                    self.statements(a, &mut then);
                    self.statements(b, &mut otherwise);
                    quote_spanned!(*span=> if #condition { #then } else { #otherwise })
                }
            });
        }
    }

    /// An operand, in brackets unless it is a single thing.
    fn operand(&self, expression: &Expr) -> TokenStream {
        let tokens = self.expression(expression);
        let is_single = match &expression.kind {
            ExprKind::Literal(value) => !value.is_negative(),
            ExprKind::Variable(_)
            | ExprKind::Scalar(_)
            | ExprKind::Read(..)
            | ExprKind::Previous(_)
            | ExprKind::Extent(_) => true,
            ExprKind::Call(..) => true,
            ExprKind::Unary(op, operand) => *op == Unary::Neg && operand.ty.is_integer(),
            ExprKind::Binary(op, left, _) => wrapping(*op).is_some() && left.ty.is_integer(),
            ExprKind::Cast(_) | ExprKind::Select(..) | ExprKind::Index(_) => false,
        };
        if is_single { tokens } else { quote_spanned!(expression.span=> (#tokens)) }
    }

    fn expression(&self, expression: &Expr) -> TokenStream {
        let (span, ty) = (expression.span, expression.ty);
        match &expression.kind {
            ExprKind::Literal(value) => literal(*value, span),
            ExprKind::Variable(variable) => {
                let mut name = self.variable(*variable);
                name.set_span(name.span().located_at(span));
                name.into_token_stream()
            }
            ExprKind::Scalar(scalar) => {
                name(format!("s_{}", self.stencil.scalars[*scalar].name), span).into_token_stream()
            }
            ExprKind::Read(field, offset) => {
                let slice = match self.stencil.fields[*field].intent {
                    Intent::In => self.column(*field, *offset),
                    Intent::Out | Intent::InOut => {
                        self.prefixed("row", &self.stencil.fields[*field])
                    }
                };
                quote_spanned!(Span::mixed_site().located_at(span)=> #slice[j])
            }
            ExprKind::Previous(field) => {
                let previous = self.prefixed("previous", &self.stencil.fields[*field]);
                match self.is_along_rows() {
                    true => quote_spanned!(Span::mixed_site().located_at(span)=> #previous),
                    false => quote_spanned!(Span::mixed_site().located_at(span)=> #previous[j]),
                }
            }
            ExprKind::Index(axis) => {
                let (number, i64) = (Literal::usize_unsuffixed(*axis), primitive(Type::I64));
                let i = if self.is_along_rows() && axis + 1 == self.stencil.rank {
                    quote_spanned!(Span::mixed_site()=> start + j as #i64)
                } else if axis + 1 == self.stencil.rank {
                    quote_spanned!(Span::mixed_site()=> j as #i64)
                } else {
                    name(format!("i{axis}"), span).into_token_stream()
                };
                quote_spanned!(Span::mixed_site().located_at(span)=> args.first[#number] + #i)
            }
            ExprKind::Extent(axis) => {
                let number = Literal::usize_unsuffixed(*axis);
                quote_spanned!(Span::mixed_site().located_at(span)=> args.grid[#number])
            }
            ExprKind::Unary(Unary::Neg, operand) if operand.ty.is_integer() => {
                let (ty, operand) = (primitive(ty), self.expression(operand));
                quote_spanned!(span=> #ty::wrapping_neg(#operand))
            }
            ExprKind::Unary(op, operand) => {
                let (sign, operand) = (operator(op.sign(), span), self.operand(operand));
                quote!(#sign #operand)
            }
            ExprKind::Binary(op, left, right) => {
                match wrapping(*op).filter(|_| left.ty.is_integer()) {
                    Some(method) => {
                        let (ty, method) = (primitive(ty), Ident::new(method, span));
                        let (left, right) = (self.expression(left), self.expression(right));
                        quote_spanned!(span=> #ty::#method(#left, #right))
                    }
                    None => {
                        let (sign, left, right) =
                            (operator(op.sign(), span), self.operand(left), self.operand(right));
                        quote!(#left #sign #right)
                    }
                }
            }
            ExprKind::Cast(value) => {
                let (ty, value) = (primitive(ty), self.operand(value));
                quote_spanned!(span=> #value as #ty)
            }
            ExprKind::Select(condition, then, otherwise) => {
                let [a, b, c] = [condition, then, otherwise].map(|part| self.expression(part));
                quote_spanned!(span=> if #a { #b } else { #c })
            }
            ExprKind::Call(function, operands) => {
                let (ty, function) =
                    (primitive(ty), format_ident!("{}", function.name(), span = span));
                let operands = operands.iter().map(|operand| self.expression(operand));
                quote_spanned!(span=> #ty::#function(#(#operands),*))
            }
        }
    }
}

fn wrapping(op: Binary) -> Option<&'static str> {
    match op {
        Binary::Add => Some("wrapping_add"),
        Binary::Sub => Some("wrapping_sub"),
        Binary::Mul => Some("wrapping_mul"),
        _ => None,
    }
}

/// The tokens of an operator.
fn operator(sign: &str, span: Span) -> TokenStream {
    let tokens: TokenStream = sign.parse().expect("a sign is tokens");
    let at = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.into_iter().map(at).collect()
}
