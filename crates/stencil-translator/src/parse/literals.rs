//! Literals. Their digits are read when their types are known.

use proc_macro2::Span;
use syn::Lit;

use super::Parser;
use crate::syntax::{Expr, ExprKind, Literal};
use crate::value::Type;

impl Parser<'_> {
    pub(super) fn literal(&mut self, literal: &Lit, is_negative: bool, span: Span) -> Expr {
        let (digits, suffix, is_float) = match literal {
            Lit::Bool(value) if !is_negative => {
                return self.expr(span, ExprKind::Literal(Literal::Bool(value.value)));
            }
            Lit::Int(number) => (number.base10_digits(), number.suffix(), false),
            Lit::Float(number) => (number.base10_digits(), number.suffix(), true),
            _ => return self.refuse(span, "a literal is a number or a bool"),
        };
        let ty = Type::ALL.into_iter().find(|ty| ty.name() == suffix && *ty != Type::Bool);
        if ty.is_none() && !suffix.is_empty() {
            let message =
                format!("`{suffix}` is no type of a stencil: use f32, f64, i32, i64 or u32");
            return self.refuse(span, message);
        }
        let is_float = is_float || ty.is_some_and(Type::is_float);
        let digits = digits.to_owned();
        self.expr(span, ExprKind::Literal(Literal::Number { digits, is_negative, is_float, ty }))
    }
}
