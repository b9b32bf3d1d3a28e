//! What a stencil computes, with its types: helpers are inlined, loops are unrolled, constants are literals.

use proc_macro2::Span;

use crate::op::{Binary, Function, Unary};
use crate::value::{Type, Value};

/// An offset; axes that a stencil lacks are 0.
pub(crate) type Offset = [i64; 3];

#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) variables: Vec<Variable>,
    pub(crate) statements: Vec<Statement>,
    /// The helpers that were inlined, by their numbers.
    pub(crate) helpers: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) is_mutable: bool,
    pub(crate) span: Span,
}

/// Expressions change nothing. Outputs are written at the end of a point, so reads give the values from before.
#[derive(Debug)]
pub(crate) enum Statement {
    Let { variable: usize, value: Expr },
    Assign { variable: usize, value: Expr, span: Span },
    Set { field: usize, value: Expr, span: Span },
    If { condition: Expr, then: Vec<Self>, otherwise: Vec<Self>, span: Span },
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) ty: Type,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Literal(Value),
    Variable(usize),
    Scalar(usize),
    Read(usize, Offset),
    /// What a column has set at the previous point.
    Previous(usize),
    /// The point's place on an axis.
    Index(usize),
    /// The grid's extent on an axis.
    Extent(usize),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Cast(Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    Call(Function, Vec<Expr>),
}

impl Expr {
    /// Its operands.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Literal(_)
            | ExprKind::Variable(_)
            | ExprKind::Scalar(_)
            | ExprKind::Read(..)
            | ExprKind::Previous(_)
            | ExprKind::Index(_)
            | ExprKind::Extent(_) => Vec::new(),
            ExprKind::Unary(_, a) | ExprKind::Cast(a) => vec![a],
            ExprKind::Binary(_, a, b) => vec![a, b],
            ExprKind::Select(a, b, c) => vec![a, b, c],
            ExprKind::Call(_, operands) => operands.iter().collect(),
        }
    }

    /// Visits this expression and all within it.
    pub(crate) fn visit<'a>(&'a self, visitor: &mut impl FnMut(&'a Self)) {
        visitor(self);
        for child in self.children() {
            child.visit(visitor);
        }
    }
}

impl Body {
    /// Visits all expressions, in order.
    pub(crate) fn visit<'a>(&'a self, visitor: &mut impl FnMut(&'a Expr)) {
        visit(&self.statements, visitor);
    }
}

fn visit<'a>(statements: &'a [Statement], visitor: &mut impl FnMut(&'a Expr)) {
    for statement in statements {
        match statement {
            Statement::Let { value, .. }
            | Statement::Assign { value, .. }
            | Statement::Set { value, .. } => value.visit(visitor),
            Statement::If { condition, then, otherwise, .. } => {
                condition.visit(visitor);
                visit(then, visitor);
                visit(otherwise, visitor);
            }
        }
    }
}
