//! A reference interpreter of bodies.

use std::fmt;

use crate::body::{Expr, ExprKind, Offset, Statement};
use crate::description::Description;
use crate::op::{binary, call, cast, unary};
use crate::value::Value;

/// What a stencil sees at one point.
pub struct Point<'a> {
    /// The value of a field at an offset. Fields and axes have the order of the parameters. A column also reads what it
    /// has set at the previous point.
    pub read: &'a dyn Fn(usize, &[i64]) -> Value,
    /// The scalars, in the order of the parameters.
    pub scalars: &'a [Value],
    /// The point's place in the grid.
    pub index: &'a [i64],
    /// The grid's extents.
    pub extent: &'a [i64],
    /// Whether it is the first point of a column, and the last one.
    pub ends: [bool; 2],
}

impl fmt::Debug for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Point");
        shown
            .field("scalars", &self.scalars)
            .field("index", &self.index)
            .field("extent", &self.extent)
            .field("ends", &self.ends);
        shown.finish_non_exhaustive()
    }
}

/// The values that a stencil sets at a point, by field. `None` if the point lacks a scalar or an axis, or has one of another type.
pub(crate) fn run(stencil: &Description, point: &Point<'_>) -> Option<Vec<Option<Value>>> {
    let body = stencil.bodies.at(point.ends);
    let mut run = Run {
        variables: vec![None; body.variables.len()],
        outputs: vec![None; stencil.fields.len()],
        rank: stencil.rank,
        previous: stencil.previous(),
        point: Some(point),
    };
    run.statements(&body.statements)?;
    Some(run.outputs)
}

/// The value of an expression that refers to nothing.
pub(crate) fn constant(expression: &Expr) -> Option<Value> {
    let (variables, outputs) = (Vec::new(), Vec::new());
    Run { variables, outputs, rank: 0, previous: [0; 3], point: None }.expression(expression)
}

struct Run<'a> {
    variables: Vec<Option<Value>>,
    outputs: Vec<Option<Value>>,
    rank: usize,
    /// The offset of the previous point of a column.
    previous: Offset,
    point: Option<&'a Point<'a>>,
}

impl Run<'_> {
    fn statements(&mut self, statements: &[Statement]) -> Option<()> {
        for statement in statements {
            match statement {
                Statement::Let { variable, value } | Statement::Assign { variable, value, .. } => {
                    self.variables[*variable] = Some(self.expression(value)?);
                }
                Statement::Set { field, value, .. } => {
                    self.outputs[*field] = Some(self.expression(value)?)
                }
                Statement::If { condition, then, otherwise, .. } => {
                    let is_true = self.expression(condition)? == Value::Bool(true);
                    self.statements(if is_true { then } else { otherwise })?;
                }
            }
        }
        Some(())
    }

    fn expression(&self, expression: &Expr) -> Option<Value> {
        let value = match &expression.kind {
            ExprKind::Literal(value) => *value,
            ExprKind::Variable(variable) => (*self.variables.get(*variable)?)?,
            ExprKind::Scalar(scalar) => *self.point?.scalars.get(*scalar)?,
            ExprKind::Read(field, offset) => self.read(*field, *offset)?,
            ExprKind::Previous(field) => self.read(*field, self.previous)?,
            ExprKind::Index(axis) => Value::I64(*self.point?.index.get(*axis)?),
            ExprKind::Extent(axis) => Value::I64(*self.point?.extent.get(*axis)?),
            ExprKind::Unary(op, operand) => unary(*op, self.expression(operand)?)?,
            ExprKind::Binary(op, left, right) => {
                binary(*op, self.expression(left)?, self.expression(right)?)?
            }
            ExprKind::Cast(value) => cast(self.expression(value)?, expression.ty)?,
            ExprKind::Select(condition, then, otherwise) => {
                let is_true = self.expression(condition)? == Value::Bool(true);
                self.expression(if is_true { then } else { otherwise })?
            }
            ExprKind::Call(function, operands) => {
                let operands = operands.iter().map(|operand| self.expression(operand));
                call(*function, &operands.collect::<Option<Vec<_>>>()?)?
            }
        };
        (value.ty() == expression.ty).then_some(value)
    }

    fn read(&self, field: usize, offset: Offset) -> Option<Value> {
        Some((self.point?.read)(field, &offset[..self.rank]))
    }
}
