//! What the parser makes of a source: names are resolved, types are not inferred, calls and loops are as written.

use proc_macro2::{Ident, Span, TokenStream};

use crate::op::{Binary, Function as Builtin, Unary};
use crate::value::Type;

/// Everything that was parsed together. Variables, expressions and constants are numbered across it.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) functions: Vec<Function>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) variables: Vec<Variable>,
    /// The number of expressions.
    pub(crate) expressions: usize,
    /// The types that the source names, with their tokens.
    pub(crate) asserted: Vec<(Type, TokenStream)>,
    /// The items that are no part of the subset.
    pub(crate) rest: Vec<TokenStream>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) kind: Kind,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Block,
    /// The parameters and variables that it never reads.
    pub(crate) unused: Vec<Ident>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stencil {
        inexact: bool,
        /// It sets its last parameter, which the source does not have, to the value that it returns.
        reduction: Option<Reduction>,
        column: Option<Column>,
    },
    /// A helper, which returns a value.
    Helper { returns: Type },
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) ty: ParameterType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterType {
    Field {
        intent: Intent,
        element: Type,
        rank: usize,
    },
    Scalar(Type),
    /// A type that was reported.
    Refused,
}

/// What a stencil does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// It reads the field at any offsets.
    In,
    /// It sets the field, and does not read it.
    Out,
    /// It reads the field at the point itself, and sets it there.
    InOut,
}

impl Intent {
    /// Its name in the subset.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::Out => "Out",
            Self::InOut => "InOut",
        }
    }

    /// Whether the stencil sets the field.
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }
}

/// What is made of the values that a function returns for all points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The least of them.
    Min,
    /// The greatest of them.
    Max,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Min, Self::Max];

    /// Its name in the subset.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// The order in which a column computes its points along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Each point comes after the one before it on the axis.
    Forward,
    /// Each point comes after the one behind it on the axis.
    Backward,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Backward];

    /// Its name in the subset.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }

    /// The offset of the previous point.
    pub const fn previous(self) -> i64 {
        match self {
            Self::Forward => -1,
            Self::Backward => 1,
        }
    }
}

/// How a column goes through a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The order of the points.
    pub direction: Direction,
    /// The axis along which it goes.
    pub axis: usize,
    /// Whether it computes ghosts: then its first point also has a previous one, the field's last own point.
    pub ghosts: bool,
}

#[derive(Debug)]
pub(crate) struct Constant {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Of a table.
    pub(crate) length: Option<usize>,
    /// The last one stands for the rest of the table: `[x; 9]` has one.
    pub(crate) values: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: Ident,
    pub(crate) is_mutable: bool,
    /// A loop variable is a constant in each turn.
    pub(crate) is_loop: bool,
    pub(crate) ty: Option<Type>,
}

#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    pub(crate) value: Option<Box<Expr>>,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Let { variable: usize, value: Expr },
    Assign { variable: usize, value: Expr },
    Set { parameter: usize, value: Expr, span: Span },
    If { condition: Expr, then: Block, otherwise: Block, span: Span },
    For { variable: usize, from: Expr, to: Expr, is_inclusive: bool, body: Block },
    Block(Block),
}

impl Statement {
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Let { value, .. } | Self::Assign { value, .. } => value.span,
            Self::Set { span, .. } | Self::If { span, .. } => *span,
            Self::For { from, .. } => from.span,
            Self::Block(block) => block.statements.first().map_or_else(Span::call_site, Self::span),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
    pub(crate) id: usize,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Variable(usize),
    Scalar(usize),
    Constant(usize),
    Element(usize, Box<Expr>),
    Read(View, Vec<Expr>),
    Index(Box<Expr>),
    Extent(Box<Expr>),
    /// Whether the point is the first, or the last, of a column.
    IsEnd(End),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Cast(Box<Expr>, Type),
    If(Box<Expr>, Block, Block),
    Block(Block),
    Method(Method, Vec<Expr>),
    Call(usize, Vec<Argument>),
    /// Something that was reported.
    Error,
}

/// An end of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

#[derive(Debug)]
pub(crate) enum Literal {
    Bool(bool),
    /// Decimal digits without a suffix. The type is that of the suffix.
    Number {
        digits: String,
        is_negative: bool,
        is_float: bool,
        ty: Option<Type>,
    },
}

/// A field parameter, shifted.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) parameter: usize,
    pub(crate) shifts: Vec<Vec<Expr>>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Argument {
    Value(Expr),
    View(View),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Builtin(Builtin),
    Min,
    Max,
}
