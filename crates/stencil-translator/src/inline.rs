//! From the syntax to a body: helpers are inlined at their calls, loops are unrolled, constants become literals.

use std::collections::HashMap;

use proc_macro2::Span;
use syn::ext::IdentExt;

use crate::bodies::Made;
use crate::body::{Body, Expr, ExprKind, Offset, Statement, Variable};
use crate::errors::{Errors, count};
use crate::interpret::constant;
use crate::op::{Binary, Function as Builtin, Unary};
use crate::syntax::{
    Argument, Block, Column, Constant, End, Expr as Source, ExprKind as SourceKind, Function,
    Intent, Kind, Method, Parameter, ParameterType, Program, Statement as SourceStatement, View,
};
use crate::types::{Types, UNKNOWN};
use crate::value::{Type, Value};

/// How far a stencil may read, the most operations that it may become, and how deep it may nest.
const MAX_OFFSET: u64 = 1024;
const MAX_OPERATIONS: usize = 50_000;
const MAX_DEPTH: usize = 256;

/// The values of a program's constants, as many as the source has. Those that were refused have none.
pub(crate) fn constants(
    program: &Program,
    types: &Types,
    errors: &mut Errors,
) -> Vec<Vec<Option<Value>>> {
    let mut values: Vec<Vec<Option<Value>>> = Vec::new();
    for definition in &program.constants {
        let mut inliner = Inliner::new(program, types, &values, errors);
        let mut evaluated = Vec::new();
        for source in &definition.values {
            let mut statements = Vec::new();
            let expression = inliner.expression(&mut Frame::default(), source, &mut statements);
            let value = expression.and_then(|expression| {
                let value = constant(&expression)
                    .filter(|value| value.is_finite() && statements.is_empty());
                if value.is_none() {
                    let message = "a constant is a finite value, made of literals and the constants above it: take an infinity or a NaN as a scalar parameter";
                    inliner.errors.push(source.span, message);
                }
                value
            });
            evaluated.push(value);
        }
        values.push(evaluated);
    }
    values
}

/// The body of a function, at a point that is the first of a column or not, and the last or not. That of a helper is
/// made only for the errors in it. `None` if it is too large.
pub(crate) fn inline(
    program: &Program,
    types: &Types,
    constants: &[Vec<Option<Value>>],
    function: usize,
    ends: [bool; 2],
    errors: &mut Errors,
) -> Option<Made> {
    let mut inliner = Inliner::new(program, types, constants, errors);
    let called = &program.functions[function];
    inliner.ends = ends;
    inliner.calls.push((function, called.name.span()));
    inliner.fields = called.parameters.iter().filter_map(field).collect();
    inliner.rank = called.parameters.iter().find_map(rank);
    let (mut fields, mut scalars) = (0.., 0..);
    let parameters = called.parameters.iter().filter_map(|parameter| match parameter.ty {
        ParameterType::Scalar(ty) => {
            let kind = ExprKind::Scalar(scalars.next()?);
            Some(Bound::Value(Expr { kind, ty, span: parameter.name.span() }))
        }
        ParameterType::Field { .. } => Some(Bound::Field(fields.next()?, [0; 3])),
        // Nothing refers to it.
        ParameterType::Refused => Some(Bound::Integer(0)),
    });
    let mut frame = Frame { parameters: parameters.collect(), variables: HashMap::new() };
    let mut statements = Vec::new();
    inliner.block(&mut frame, &called.body, &mut statements);
    if let Some(value) = &called.body.value {
        inliner.expression(&mut frame, value, &mut statements);
    }
    inliner.body.statements = statements;
    let depends = inliner.asked.map(|times| times > 0);
    (!inliner.is_too_large).then_some(Made { body: inliner.body, depends })
}

/// How a function goes through a grid, if it is a column.
fn column(function: &Function) -> Option<Column> {
    match function.kind {
        Kind::Stencil { column, .. } => column,
        Kind::Helper { .. } => None,
    }
}

fn rank(parameter: &Parameter) -> Option<usize> {
    match parameter.ty {
        ParameterType::Field { rank, .. } => Some(rank),
        ParameterType::Scalar(_) | ParameterType::Refused => None,
    }
}

fn field(parameter: &Parameter) -> Option<FieldType> {
    match parameter.ty {
        ParameterType::Field { intent, element, .. } => {
            Some(FieldType { name: parameter.name.to_string(), intent, element })
        }
        ParameterType::Scalar(_) | ParameterType::Refused => None,
    }
}

struct FieldType {
    name: String,
    intent: Intent,
    element: Type,
}

struct Inliner<'a> {
    program: &'a Program,
    types: &'a Types,
    constants: &'a [Vec<Option<Value>>],
    errors: &'a mut Errors,
    fields: Vec<FieldType>,
    rank: Option<usize>,
    /// Whether the point is the first, and the last, of a column.
    ends: [bool; 2],
    /// How often it mattered whether the point is the first, and whether it is the last.
    asked: [usize; 2],
    body: Body,
    /// The functions that are being inlined, the outermost first, each with the place of its call.
    calls: Vec<(usize, Span)>,
    depth: usize,
    operations: usize,
    is_too_large: bool,
    /// Whether something depends on the parameters of a helper that is never called.
    is_uncalled: bool,
}

/// One inlined function: what its parameters and variables are in the body.
#[derive(Default)]
struct Frame {
    parameters: Vec<Bound>,
    /// In each turn of a loop, its variables have another meaning.
    variables: HashMap<usize, Bound>,
}

#[derive(Clone)]
enum Bound {
    Field(usize, Offset),
    /// An argument. It is an operand without operations.
    Value(Expr),
    Variable(usize),
    /// A loop variable.
    Integer(i64),
}

/// Where the statements of a block go. They come before the statement in which the block occurs.
type Statements = Vec<Statement>;

impl<'a> Inliner<'a> {
    fn new(
        program: &'a Program,
        types: &'a Types,
        constants: &'a [Vec<Option<Value>>],
        errors: &'a mut Errors,
    ) -> Self {
        Self {
            program,
            types,
            constants,
            errors,
            fields: Vec::new(),
            rank: None,
            ends: [false; 2],
            asked: [0; 2],
            body: Body::default(),
            calls: Vec::new(),
            depth: 0,
            operations: 0,
            is_too_large: false,
            is_uncalled: false,
        }
    }

    fn refuse<T>(&mut self, span: Span, message: impl Into<String>) -> Option<T> {
        self.errors.push(span, message);
        None
    }

    /// Counts an operation. `None` if there are too many, which is reported once.
    fn count(&mut self, span: Span) -> Option<()> {
        self.operations += 1;
        if self.operations <= MAX_OPERATIONS {
            return Some(());
        }
        if self.is_too_large {
            return None;
        }
        self.is_too_large = true;
        let message = format!(
            "with its loops unrolled and its helpers inlined, this has more than {MAX_OPERATIONS} operations: shorten a loop"
        );
        self.refuse(span, message)
    }

    fn block(&mut self, frame: &mut Frame, block: &'a Block, out: &mut Statements) {
        for statement in &block.statements {
            if self.statement(frame, statement, out).is_none() {
                self.lost(statement.span());
            }
        }
    }

    /// What is missing was reported, or the translator is at fault: nothing is left out in silence.
    fn lost(&mut self, span: Span) {
        if self.errors.is_empty() && !self.is_uncalled {
            self.errors.push(span, "internal error: the translator lost this: please report it");
        }
    }

    /// What follows an error goes on, for further errors.
    fn statement(
        &mut self,
        frame: &mut Frame,
        statement: &'a SourceStatement,
        out: &mut Statements,
    ) -> Option<()> {
        match statement {
            SourceStatement::Let { variable, value } => {
                let value = self.expression(frame, value, out);
                let declared = &self.program.variables[*variable];
                let (name, ty) =
                    (declared.name.unraw().to_string(), self.types.variables[*variable]);
                let new = self.variable(name, ty, declared.is_mutable, declared.name.span());
                frame.variables.insert(*variable, Bound::Variable(new));
                out.push(Statement::Let { variable: new, value: value? });
            }
            SourceStatement::Assign { variable, value } => {
                let span = value.span;
                let value = self.expression(frame, value, out)?;
                let Some(Bound::Variable(variable)) = frame.variables.get(variable) else {
                    return None;
                };
                out.push(Statement::Assign { variable: *variable, value, span });
            }
            SourceStatement::Set { parameter, value, span } => {
                let value = self.expression(frame, value, out)?;
                let Some(Bound::Field(field, _)) = frame.parameters.get(*parameter) else {
                    return None;
                };
                out.push(Statement::Set { field: *field, value, span: *span });
            }
            SourceStatement::If { condition, then: a, otherwise: b, span } => {
                let condition = self.expression(frame, condition, out);
                if let Some(is_true) = condition.as_ref().and_then(known) {
                    self.block(frame, if is_true { a } else { b }, out);
                    return Some(());
                }
                let (mut then, mut otherwise) = (Vec::new(), Vec::new());
                self.block(frame, a, &mut then);
                self.block(frame, b, &mut otherwise);
                out.push(Statement::If { condition: condition?, then, otherwise, span: *span });
            }
            SourceStatement::For { variable, from, to, is_inclusive, body } => {
                let (first, last) = (self.integer(frame, from), self.integer(frame, to));
                let (first, last) = (first?, last?);
                let last = if *is_inclusive { Some(last) } else { last.checked_sub(1) };
                // Nothing is below the least integer.
                let Some(last) = last else { return Some(()) };
                let errors = self.errors.len();
                for turn in first..=last {
                    self.count(from.span)?;
                    frame.variables.insert(*variable, Bound::Integer(turn));
                    self.block(frame, body, out);
                    // Further turns would have the same ones.
                    if self.errors.len() > errors {
                        return None;
                    }
                }
            }
            SourceStatement::Block(block) => self.block(frame, block, out),
        }
        Some(())
    }

    fn variable(&mut self, name: String, ty: Type, is_mutable: bool, span: Span) -> usize {
        self.body.variables.push(Variable { name, ty, is_mutable, span });
        self.body.variables.len() - 1
    }

    /// An operand that can be repeated: itself if it has no operations, otherwise a new variable. An integer or a
    /// condition that is known stays known.
    fn operand(&mut self, name: &str, mut value: Expr, out: &mut Statements) -> Expr {
        if let Some(known) = constant(&value).filter(|_| !value.ty.is_float()) {
            value.kind = ExprKind::Literal(known);
        }
        if matches!(
            value.kind,
            ExprKind::Literal(_)
                | ExprKind::Variable(_)
                | ExprKind::Scalar(_)
                | ExprKind::Index(_)
                | ExprKind::Extent(_)
        ) {
            return value;
        }
        let (ty, span) = (value.ty, value.span);
        let variable = self.variable(name.to_owned(), ty, false, span);
        out.push(Statement::Let { variable, value });
        Expr { kind: ExprKind::Variable(variable), ty, span }
    }

    /// The value of a constant expression.
    fn integer(&mut self, frame: &mut Frame, source: &'a Source) -> Option<i64> {
        let value = self.expression(frame, source, &mut Vec::new())?;
        if value.ty != Type::I64 {
            // This was reported.
            return None;
        }
        match constant(&value).and_then(Value::as_integer) {
            Some(value) => Some(value),
            None => self.unknown(frame, &value, UNKNOWN),
        }
    }

    /// Refuses an integer that must be known. In a helper, that may be for the caller to do.
    fn unknown<T>(&mut self, frame: &Frame, value: &Expr, message: &str) -> Option<T> {
        let mut is_argument = false;
        value.visit(&mut |part| {
            is_argument |= frame.parameters.iter().any(|bound| {
                matches!(bound, Bound::Value(argument) if is_same(&argument.kind, &part.kind))
            });
        });
        match self.calls[..] {
            [(function, _), ..] if is_argument && self.is_helper(function) => {
                self.is_uncalled = true;
                None
            }
            [_, .., (function, span)] if is_argument => {
                let name = self.program.functions[function].name.unraw();
                let message = format!(
                    "an argument that `{name}` uses as an offset, an index, an axis, an end of a loop or an integer divisor must be known to the translator: pass a literal, a constant or a loop variable"
                );
                self.refuse(span, message)
            }
            _ => self.refuse(value.span, message),
        }
    }

    fn is_helper(&self, function: usize) -> bool {
        matches!(self.program.functions[function].kind, Kind::Helper { .. })
    }

    fn offset(&mut self, frame: &mut Frame, offset: &'a [Source]) -> Option<Offset> {
        let mut sum = [0; 3];
        let mut is_known = true;
        for (axis, source) in offset.iter().enumerate() {
            match self.integer(frame, source) {
                Some(value) if value.unsigned_abs() <= MAX_OFFSET => sum[axis] = value,
                Some(value) => {
                    let message =
                        format!("the offset {value} is beyond the limit of {MAX_OFFSET} points");
                    self.errors.push(source.span, message);
                    is_known = false;
                }
                None => is_known = false,
            }
        }
        is_known.then_some(sum)
    }

    fn view(&mut self, frame: &mut Frame, view: &'a View) -> Option<(usize, Offset)> {
        let Some(Bound::Field(field, mut sum)) = frame.parameters.get(view.parameter).cloned()
        else {
            return None;
        };
        for shift in &view.shifts {
            let shift = self.offset(frame, shift)?;
            sum = add(sum, shift);
        }
        Some((field, sum))
    }

    fn expression(
        &mut self,
        frame: &mut Frame,
        source: &'a Source,
        out: &mut Statements,
    ) -> Option<Expr> {
        self.count(source.span)?;
        if self.depth >= MAX_DEPTH {
            let message = format!(
                "expressions and calls are nested more than {MAX_DEPTH} deep: divide them with `let`"
            );
            return self.refuse(source.span, message);
        }
        self.depth += 1;
        let result = self.expression_within(frame, source, out);
        self.depth -= 1;
        if result.is_none() {
            self.lost(source.span);
        }
        result
    }

    fn boxed(
        &mut self,
        frame: &mut Frame,
        source: &'a Source,
        out: &mut Statements,
    ) -> Option<Box<Expr>> {
        self.expression(frame, source, out).map(Box::new)
    }

    fn value(
        &mut self,
        frame: &mut Frame,
        block: &'a Block,
        out: &mut Statements,
    ) -> Option<Box<Expr>> {
        self.block(frame, block, out);
        self.boxed(frame, block.value.as_ref()?, out)
    }

    fn expression_within(
        &mut self,
        frame: &mut Frame,
        source: &'a Source,
        out: &mut Statements,
    ) -> Option<Expr> {
        let (ty, span) = (self.types.expressions[source.id], source.span);
        let kind = match &source.kind {
            SourceKind::Literal(_) => ExprKind::Literal(self.types.literals[source.id]?),
            SourceKind::Variable(variable) => match frame.variables.get(variable)? {
                Bound::Variable(variable) => ExprKind::Variable(*variable),
                Bound::Integer(value) => match ty.integer((*value).into()) {
                    Some(literal) => ExprKind::Literal(literal),
                    None if !ty.is_integer() => return None,
                    None => {
                        return self.refuse(
                            span,
                            format!("the loop variable is {value} here, out of the range of {ty}"),
                        );
                    }
                },
                Bound::Field(..) | Bound::Value(_) => return None,
            },
            SourceKind::Scalar(parameter) => match frame.parameters.get(*parameter)? {
                Bound::Value(value) => value.kind.clone(),
                _ => return None,
            },
            SourceKind::Constant(definition) => {
                ExprKind::Literal((*self.constants.get(*definition)?.first()?)?)
            }
            SourceKind::Element(definition, place) => {
                let index = self.integer(frame, place)?;
                let table = self.constants.get(*definition)?;
                let Constant { name, length, .. } = &self.program.constants[*definition];
                let length = length.unwrap_or(1);
                match usize::try_from(index).ok().filter(|index| *index < length) {
                    Some(index) => ExprKind::Literal((*table.get(index).or(table.last())?)?),
                    None => {
                        return self.refuse(
                            place.span,
                            format!("`{name}` has {length} elements, and none with index {index}"),
                        );
                    }
                }
            }
            SourceKind::Read(view, offset) => {
                let (found, offset) = (self.view(frame, view), self.offset(frame, offset));
                return self.read(found?, offset?, span);
            }
            SourceKind::Index(axis) => ExprKind::Index(self.axis(frame, axis)?),
            SourceKind::Extent(axis) => ExprKind::Extent(self.axis(frame, axis)?),
            SourceKind::IsEnd(end) => ExprKind::Literal(Value::Bool(self.is_end(*end, span)?)),
            SourceKind::Unary(op, operand) => {
                ExprKind::Unary(*op, self.boxed(frame, operand, out)?)
            }
            SourceKind::Binary(op, left, right) => {
                let asked = self.asked;
                let a = self.boxed(frame, left, out);
                // What an end decides is not translated.
                if let (Binary::And | Binary::Or, Some(a)) = (op, &a)
                    && self.asked != asked
                    && let Some(is_true) = known(a)
                {
                    if is_true == (*op == Binary::And) {
                        return self.expression(frame, right, out);
                    }
                    let kind = ExprKind::Literal(Value::Bool(is_true));
                    return Some(Expr { kind, ty, span });
                }
                let b = self.boxed(frame, right, out);
                let (a, b) = (a?, b?);
                if matches!(op, Binary::Div | Binary::Rem) && ty.is_integer() {
                    self.divided(frame, *op, a, &b)?
                } else {
                    ExprKind::Binary(*op, a, b)
                }
            }
            SourceKind::Cast(value, to) => {
                let value = self.boxed(frame, value, out)?;
                if value.ty == *to {
                    return Some(Expr { span, ..*value });
                }
                ExprKind::Cast(value)
            }
            SourceKind::If(condition, then, otherwise) => {
                let condition = self.boxed(frame, condition, out);
                if let Some(is_true) = condition.as_deref().and_then(known) {
                    return self
                        .value(frame, if is_true { then } else { otherwise }, out)
                        .map(|value| *value);
                }
                let (then, otherwise) =
                    (self.value(frame, then, out), self.value(frame, otherwise, out));
                ExprKind::Select(condition?, then?, otherwise?)
            }
            SourceKind::Block(block) => self.value(frame, block, out)?.kind,
            SourceKind::Method(method, sources) => {
                let operands: Vec<_> =
                    sources.iter().map(|source| self.expression(frame, source, out)).collect();
                self.check_exact(*method);
                self.method(*method, operands.into_iter().collect::<Option<_>>()?, out)
            }
            SourceKind::Call(function, arguments) => {
                return self.call(frame, *function, arguments, span, out);
            }
            SourceKind::Error => return None,
        };
        Some(Expr { kind, ty, span })
    }

    fn axis(&mut self, frame: &mut Frame, source: &'a Source) -> Option<usize> {
        let axis = self.integer(frame, source)?;
        let rank = self.rank.unwrap_or(3);
        let found = usize::try_from(axis).ok().filter(|axis| *axis < rank);
        if found.is_none() {
            return self.refuse(
                source.span,
                format!(
                    "there is no axis {axis}: the fields have {}, from 0",
                    count(rank, "axis", "axes")
                ),
            );
        }
        found
    }

    /// Whether the point is an end of a column.
    fn is_end(&mut self, end: End, span: Span) -> Option<bool> {
        let (number, name) = match end {
            End::First => (0, "first"),
            End::Last => (1, "last"),
        };
        let is_elsewhere = |(function, _): &(usize, Span)| {
            let function = &self.program.functions[*function];
            matches!(function.kind, Kind::Stencil { .. }) && column(function).is_none()
        };
        if self.calls.first().is_some_and(is_elsewhere) {
            let message = format!(
                "`{name}()` belongs to a column: write `#[column(forward)]`, or compare `index(0)`"
            );
            return self.refuse(span, message);
        }
        self.asked[number] += 1;
        Some(self.ends[number])
    }

    fn read(
        &mut self,
        (field, shift): (usize, Offset),
        offset: Offset,
        span: Span,
    ) -> Option<Expr> {
        let offset = add(shift, offset);
        let FieldType { name, intent, element } = self.fields.get(field)?;
        let ty = *element;
        let column = self.calls.first().and_then(|(f, _)| column(&self.program.functions[*f]));
        if let Some(Column { direction, axis, ghosts }) = column.filter(|_| intent.is_output()) {
            let mut previous = [0; 3];
            *previous.get_mut(axis)? = direction.previous();
            if offset == previous {
                self.asked[0] += usize::from(!ghosts);
                let kind = ExprKind::Previous(field);
                if ghosts || !self.ends[0] {
                    return Some(Expr { kind, ty, span });
                }
                let message = format!(
                    "the first point has no previous one at which to read `{name}`: write `if first() {{ … }} else {{ … }}`, or `#[column({}, ghosts)]` for ghosts",
                    direction.name()
                );
                return self.refuse(span, message);
            }
            let previous = previous[..self.rank.unwrap_or(3)].iter().map(ToString::to_string);
            let previous = previous.collect::<Vec<_>>().join(", ");
            let message = match intent {
                Intent::InOut if offset == [0; 3] => None,
                Intent::InOut => Some(format!(
                    "a {} column reads `{name}`, which it updates, at the point itself and at the previous one alone, `{name}.at({previous})`: take an `In` and an `Out` for other offsets",
                    direction.name()
                )),
                _ if offset == [0; 3] => Some(format!(
                    "`{name}` is only set at the point itself: keep the value in a variable, or declare it `InOut` to read the value from before"
                )),
                _ => Some(format!(
                    "a {} column reads `{name}`, which it sets, at the previous point alone: write `{name}.at({previous})`, or take an `In`",
                    direction.name()
                )),
            };
            if let Some(message) = message {
                return self.refuse(span, message);
            }
        }
        let message = match intent {
            Intent::Out if offset == [0; 3] => {
                format!("`{name}` is only set: declare it `InOut` to read it")
            }
            Intent::Out => format!(
                "`{name}` is only set: take another field as `In`, or write a `#[column(forward)]` to read the previous point, `#[column(forward, ghosts)]` beyond an end"
            ),
            Intent::InOut if offset != [0; 3] => format!(
                "`{name}` is updated in place and read at the point itself alone: take an `In` and an `Out`, or write a `#[column(forward)]` to read the previous point, `#[column(forward, ghosts)]` beyond an end"
            ),
            _ if offset.iter().any(|axis| axis.unsigned_abs() > MAX_OFFSET) => {
                let read = &offset[..self.rank.unwrap_or(3)];
                format!("`{name}` is read at {read:?}, beyond the limit of {MAX_OFFSET} points")
            }
            _ => return Some(Expr { kind: ExprKind::Read(field, offset), ty, span }),
        };
        self.refuse(span, message)
    }

    /// An integer division. Its divisor is known, so that no device divides by zero.
    fn divided(&mut self, frame: &Frame, op: Binary, a: Box<Expr>, b: &Expr) -> Option<ExprKind> {
        let span = b.span;
        if a.ty != b.ty {
            // This was reported.
            return None;
        }
        match constant(b).and_then(|value| Some((value, value.as_integer()?))) {
            None => self.unknown(
                frame,
                b,
                "integers are divided by literals, constants and loop variables alone: divide floats, as in `(a as f64 / b as f64).floor()`",
            ),
            Some((_, 0)) => self.refuse(span, "this divides by zero"),
            // The least integer has no quotient by -1, so the quotient wraps.
            Some((_, -1)) if op == Binary::Div => Some(ExprKind::Unary(Unary::Neg, a)),
            Some((_, -1)) => a.ty.integer(0).map(ExprKind::Literal),
            Some((value, _)) => {
                let b = Expr { kind: ExprKind::Literal(value), ty: b.ty, span };
                Some(ExprKind::Binary(op, a, Box::new(b)))
            }
        }
    }

    /// Refuses the call of a helper with an inexact function in an exact stencil.
    fn check_exact(&mut self, method: Method) {
        if let Method::Builtin(function) = method
            && function.is_inexact()
            && let [(stencil, _), (helper, span), ..] = self.calls[..]
            && matches!(self.program.functions[stencil].kind, Kind::Stencil { inexact: false, .. })
        {
            let (helper, name) = (&self.program.functions[helper].name, function.name());
            let message = format!(
                "`{helper}` computes `{name}`, which has other bits on other devices: write `#[stencil(inexact)]`, `#[reduction(…, inexact)]` or `#[column(…, inexact)]` to accept that"
            );
            self.errors.push(span, message);
        }
    }

    fn method(
        &mut self,
        method: Method,
        mut operands: Vec<Expr>,
        out: &mut Statements,
    ) -> ExprKind {
        let op = match method {
            Method::Min => Binary::Lt,
            Method::Max => Binary::Gt,
            Method::Builtin(Builtin::Abs) if operands[0].ty.is_integer() => {
                let a = self.operand("abs", operands.remove(0), out);
                let (ty, span) = (a.ty, a.span);
                let new = |kind, ty| Box::new(Expr { kind, ty, span });
                let zero = ty.integer(0).expect("zero is an integer");
                let zero = new(ExprKind::Literal(zero), ty);
                let is_negative =
                    new(ExprKind::Binary(Binary::Lt, Box::new(a.clone()), zero), Type::Bool);
                let negated = new(ExprKind::Unary(Unary::Neg, Box::new(a.clone())), ty);
                return ExprKind::Select(is_negative, negated, Box::new(a));
            }
            Method::Builtin(function) => return ExprKind::Call(function, operands),
        };
        let b = operands.remove(1);
        let a = self.operand("a", operands.remove(0), out);
        let b = self.operand("b", b, out);
        let span = a.span;
        let [a, b] = [a, b].map(Box::new);
        let comparison = ExprKind::Binary(op, a.clone(), b.clone());
        ExprKind::Select(Box::new(Expr { kind: comparison, ty: Type::Bool, span }), a, b)
    }

    fn call(
        &mut self,
        frame: &mut Frame,
        function: usize,
        arguments: &'a [Argument],
        span: Span,
        out: &mut Statements,
    ) -> Option<Expr> {
        let called = &self.program.functions[function];
        let name = called.name.unraw().to_string();
        if let Some(start) = self.calls.iter().position(|(other, _)| *other == function) {
            let names = self.calls[start..]
                .iter()
                .map(|(function, _)| self.program.functions[*function].name.to_string());
            let chain: Vec<_> = names.chain([name.clone()]).collect();
            let message = format!(
                "`{name}` calls itself ({}): recursion is not supported",
                chain.join(" → ")
            );
            return self.refuse(span, message);
        }
        let mut parameters = Vec::new();
        for (parameter, argument) in called.parameters.iter().zip(arguments) {
            parameters.push(match argument {
                Argument::Value(value) => {
                    let value = self.expression(frame, value, out);
                    // Another type was reported.
                    let is_right = |value: &Expr| matches!(parameter.ty, ParameterType::Scalar(ty) if ty == value.ty);
                    value.filter(is_right).map(|value| {
                        Bound::Value(self.operand(&parameter.name.unraw().to_string(), value, out))
                    })
                }
                Argument::View(view) => {
                    self.view(frame, view).map(|(field, shift)| Bound::Field(field, shift))
                }
            });
        }
        let parameters = parameters.into_iter().collect::<Option<_>>()?;
        self.calls.push((function, span));
        self.body.helpers.push(function);
        let mut frame = Frame { parameters, variables: HashMap::new() };
        let value = self.value(&mut frame, &called.body, out);
        self.calls.pop();
        value.map(|value| self.operand(&name, Expr { span, ..*value }, out))
    }
}

/// A condition that is known, as that on a loop variable: only the branch that it chooses is translated.
fn known(condition: &Expr) -> Option<bool> {
    constant(condition).map(|value| value == Value::Bool(true))
}

/// Whether two operands without operations are the same.
fn is_same(a: &ExprKind, b: &ExprKind) -> bool {
    use ExprKind::{Extent, Index, Scalar, Variable};
    match (a, b) {
        (Variable(a), Variable(b))
        | (Scalar(a), Scalar(b))
        | (Index(a), Index(b))
        | (Extent(a), Extent(b)) => a == b,
        _ => false,
    }
}

fn add(a: Offset, b: Offset) -> Offset {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{self, Source};
    use crate::types;

    #[test]
    fn a_statement_that_is_lost_without_an_error_is_an_internal_error() {
        let text = "fn f(o: Out<f64, 1>) { const A: f64 = 2.0; let mut x = 1.0; x = A; o.set(x); }";
        let mut errors = Errors::default();
        let program = parse::parse(text.parse().unwrap(), Source::Stencil, &mut errors);
        let types = types::infer(&program, &mut errors);
        assert!(errors.is_empty(), "{errors}");
        inline(&program, &types, &[vec![None]], 0, [false; 2], &mut errors);
        assert!(errors.to_string().starts_with("internal error"), "{errors}");
    }
}
