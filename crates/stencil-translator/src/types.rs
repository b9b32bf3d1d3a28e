//! Inference of types. The types form a closed set, and only literals leave anything open.

use std::collections::HashMap;

use proc_macro2::Span;
use syn::ext::IdentExt;

use crate::errors::{Errors, count};
use crate::op::{Class, Function as Builtin};
use crate::syntax::{
    Argument, Block, Constant, Expr, ExprKind, Function, Kind, Literal, Method, ParameterType,
    Program, Statement, View,
};
use crate::value::{Type, Value};

/// The types of a program, by the numbers of its expressions and variables. Where inference failed, there is any type.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) expressions: Vec<Type>,
    pub(crate) variables: Vec<Type>,
    /// Of the expressions that are literals.
    pub(crate) literals: Vec<Option<Value>>,
}

/// What is wrong with an offset that is not known.
pub(crate) const UNKNOWN: &str = "this must be known to the translator: write a literal, a constant or a loop variable, or choose between values, as in `if a { t.at(-1) } else { t.at(0) }`";

/// Infers the types of everything in a program.
pub(crate) fn infer(program: &Program, errors: &mut Errors) -> Types {
    let mut inference = Inference {
        program,
        errors,
        open: Vec::new(),
        expressions: vec![Ty::Unknown; program.expressions],
        variables: program.variables.iter().map(|v| v.ty.map_or(Ty::Unknown, Ty::Known)).collect(),
        checks: Vec::new(),
        literals: Vec::new(),
        counters: Vec::new(),
        floats: Vec::new(),
        function: None,
        result: Types {
            expressions: vec![Type::F64; program.expressions],
            variables: vec![Type::F64; program.variables.len()],
            literals: vec![None; program.expressions],
        },
    };
    for constant in &program.constants {
        inference.constant(constant);
    }
    for function in &program.functions {
        inference.function(function);
    }
    for (variable, ty) in inference.variables.clone().into_iter().enumerate() {
        inference.result.variables[variable] = inference.known(ty).unwrap_or(Type::F64);
    }
    for (expression, ty) in inference.expressions.clone().into_iter().enumerate() {
        inference.result.expressions[expression] = inference.known(ty).unwrap_or(Type::F64);
    }
    inference.result
}

/// A type during inference.
#[derive(Clone, Copy, Debug)]
enum Ty {
    Known(Type),
    /// That of a literal without a suffix.
    Open(usize),
    /// Something was reported; it agrees with every type.
    Unknown,
}

/// What is known of an open type.
#[derive(Clone, Copy, Debug)]
struct Open<'a> {
    is_float: bool,
    is: Option<Ty>,
    /// The literal, or the use of a loop variable, of which it is the type.
    of: &'a Expr,
}

struct Inference<'a> {
    program: &'a Program,
    errors: &'a mut Errors,
    open: Vec<Open<'a>>,
    expressions: Vec<Ty>,
    variables: Vec<Ty>,
    /// What operands must be, checked once their types are known.
    checks: Vec<(Ty, Class, Span, String)>,
    /// The literals, and uses of loop variables, of the current function.
    literals: Vec<(Ty, &'a Expr)>,
    /// The types of the uses and typed ends of loop variables, in the current function.
    counters: Vec<(usize, Ty)>,
    /// The float types that occur in the current function.
    floats: Vec<Type>,
    function: Option<&'a Function>,
    result: Types,
}

impl<'a> Inference<'a> {
    fn constant(&mut self, constant: &'a Constant) {
        self.occurs(constant.ty);
        for value in &constant.values {
            let ty = self.expression(value);
            self.expect(ty, Ty::Known(constant.ty), value.span);
        }
        self.settle();
    }

    fn function(&mut self, function: &'a Function) {
        self.function = Some(function);
        for parameter in &function.parameters {
            match parameter.ty {
                ParameterType::Field { element, .. } => self.occurs(element),
                ParameterType::Scalar(ty) => self.occurs(ty),
                ParameterType::Refused => {}
            }
        }
        self.block(&function.body);
        if let (Kind::Helper { returns }, Some(value)) = (function.kind, &function.body.value) {
            self.occurs(returns);
            self.expect(self.expressions[value.id], Ty::Known(returns), value.span);
        }
        self.settle();
        self.function = None;
    }

    fn occurs(&mut self, ty: Type) {
        if ty.is_float() && !self.floats.contains(&ty) {
            self.floats.push(ty);
        }
    }

    /// Follows an open type to what it is.
    fn find(&self, mut ty: Ty) -> Ty {
        while let Ty::Open(open) = ty
            && let Some(is) = self.open[open].is
        {
            ty = is;
        }
        ty
    }

    fn known(&self, ty: Ty) -> Option<Type> {
        match self.find(ty) {
            Ty::Known(ty) => Some(ty),
            Ty::Open(_) | Ty::Unknown => None,
        }
    }

    fn describe(&self, ty: Ty) -> String {
        match ty {
            Ty::Known(ty) => format!("`{ty}`"),
            Ty::Open(open) if self.open[open].is_float => "a float".into(),
            Ty::Open(_) => "an integer".into(),
            Ty::Unknown => "anything".into(),
        }
    }

    /// Makes a type another one, or reports that it differs.
    fn expect(&mut self, found: Ty, expected: Ty, span: Span) {
        let (found, expected) = (self.find(found), self.find(expected));
        let agree = match (found, expected) {
            (Ty::Unknown, _) | (_, Ty::Unknown) => true,
            (Ty::Known(a), Ty::Known(b)) => a == b,
            (Ty::Open(a), Ty::Open(b)) if a == b => true,
            (Ty::Open(a), Ty::Open(b)) => {
                let agree = self.open[a].is_float == self.open[b].is_float;
                if agree {
                    self.open[a].is = Some(expected);
                }
                agree
            }
            (Ty::Open(open), Ty::Known(ty)) | (Ty::Known(ty), Ty::Open(open)) => {
                let agree = if self.open[open].is_float { ty.is_float() } else { ty.is_integer() };
                if agree {
                    self.open[open].is = Some(Ty::Known(ty));
                }
                agree
            }
        };
        if agree {
            return;
        }
        // An integer where a float belongs is the literal's fault, also where a variable has its type.
        if let (Ty::Open(open), float) | (float, Ty::Open(open)) = (found, expected)
            && let Open { is_float: false, of, .. } = self.open[open]
            && self.is_float(float)
        {
            let (float, advice) = (self.describe(float), self.as_float(of, float));
            self.errors.push(of.span, format!("expected {float}, found an integer: {advice}"));
            return;
        }
        let advice = match (found, expected) {
            (Ty::Open(open), Ty::Known(ty)) if self.open[open].is_float && ty.is_integer() => {
                ": write the literal without a point".into()
            }
            (Ty::Known(Type::Bool), Ty::Known(_)) => {
                ": choose it with `if … { … } else { … }`".into()
            }
            (_, Ty::Known(ty)) if ty != Type::Bool => format!(": convert it with `as {ty}`"),
            (Ty::Known(Type::Bool), _) | (_, Ty::Known(Type::Bool)) => {
                ": compare it, as in `x != 0.0`".into()
            }
            _ => ": convert one with `as`".into(),
        };
        let message =
            format!("expected {}, found {}{advice}", self.describe(expected), self.describe(found));
        self.errors.push(span, message);
    }

    /// What to write instead of an integer without a type, where a float is expected.
    fn as_float(&self, integer: &Expr, float: Ty) -> String {
        match (&integer.kind, float) {
            (ExprKind::Literal(Literal::Number { digits, is_negative, .. }), _) => {
                let sign = if *is_negative { "-" } else { "" };
                format!("write the literal with a point, `{sign}{digits}.0`")
            }
            (_, Ty::Known(ty)) => format!("convert it with `as {ty}`"),
            _ => "convert it with `as f64` or `as f32`".into(),
        }
    }

    fn is_float(&self, ty: Ty) -> bool {
        match ty {
            Ty::Known(ty) => ty.is_float(),
            Ty::Open(open) => self.open[open].is_float,
            Ty::Unknown => false,
        }
    }

    fn check(&mut self, ty: Ty, class: Class, span: Span, what: &str) {
        if class != Class::Any {
            self.checks.push((ty, class, span, what.to_owned()));
        }
    }

    /// Decides what is still open in a function, and reads its literals.
    fn settle(&mut self) {
        self.settle_counters();
        self.counters.clear();
        for (ty, literal) in std::mem::take(&mut self.literals) {
            let open = match self.find(ty) {
                Ty::Open(open) => open,
                Ty::Known(ty) => {
                    self.read(literal, ty);
                    continue;
                }
                Ty::Unknown => continue,
            };
            let ty = match (self.open[open].is_float, &self.floats[..]) {
                (false, _) => Type::I32,
                (true, []) => Type::F64,
                (true, [only]) => *only,
                (true, _) => {
                    let text = match &literal.kind {
                        ExprKind::Literal(Literal::Number { digits, .. }) => digits.as_str(),
                        _ => "1.0",
                    };
                    let message = format!(
                        "f32 and f64 occur here, and nothing says which one this is: write `{text}_f64` or `{text}_f32`"
                    );
                    self.errors.push(literal.span, message);
                    self.open[open].is = Some(Ty::Unknown);
                    continue;
                }
            };
            self.open[open].is = Some(Ty::Known(ty));
            self.read(literal, ty);
        }
        for (ty, class, span, what) in std::mem::take(&mut self.checks) {
            if let Some(ty) = self.known(ty)
                && !class.has(ty)
            {
                let instead = match (&*what, ty) {
                    ("%", ty) if ty.is_float() => {
                        ": write `x - y * (x / y).floor()`, which has the sign of `y`"
                    }
                    ("as bool", ty) if ty.is_float() => ": compare it, as in `x != 0.0`",
                    ("as bool", _) => ": compare it, as in `x != 0`",
                    (what, Type::Bool) if what.starts_with("as ") => {
                        ": choose with `if x { 1.0 } else { 0.0 }`"
                    }
                    _ => "",
                };
                let message = format!("`{what}` is for {}, here {ty}{instead}", class.name());
                self.errors.push(span, message);
            }
        }
        self.floats.clear();
    }

    /// Reads a literal as a value of its final type.
    fn read(&mut self, literal: &Expr, ty: Type) {
        let ExprKind::Literal(Literal::Number { digits, is_negative, .. }) = &literal.kind else {
            return;
        };
        let text = format!("{}{digits}", if *is_negative { "-" } else { "" });
        let value = match ty {
            Type::F32 => text.parse().ok().map(Value::F32),
            Type::F64 => text.parse().ok().map(Value::F64),
            _ => text.parse().ok().and_then(|value| ty.integer(value)),
        };
        match value.filter(|value| value.is_finite()) {
            Some(value) => self.result.literals[literal.id] = Some(value),
            None => self.errors.push(literal.span, format!("`{text}` is out of the range of {ty}")),
        }
    }

    fn block(&mut self, block: &'a Block) -> Ty {
        for statement in &block.statements {
            self.statement(statement);
        }
        block.value.as_ref().map_or(Ty::Unknown, |value| self.expression(value))
    }

    fn statement(&mut self, statement: &'a Statement) {
        match statement {
            Statement::Let { variable, value } => {
                let ty = self.expression(value);
                match self.program.variables[*variable].ty {
                    Some(expected) => {
                        self.occurs(expected);
                        self.expect(ty, Ty::Known(expected), value.span);
                    }
                    None => self.variables[*variable] = ty,
                }
            }
            Statement::Assign { variable, value } => {
                let ty = self.expression(value);
                self.expect(ty, self.variables[*variable], value.span);
            }
            Statement::Set { parameter, value, .. } => {
                let ty = self.expression(value);
                self.expect(ty, self.element(*parameter), value.span);
            }
            Statement::If { condition, then, otherwise, .. } => {
                self.condition(condition);
                self.block(then);
                self.block(otherwise);
            }
            Statement::For { variable, from, to, body, .. } => {
                for end in [from, to] {
                    self.place(end);
                    if self.has_type(end) {
                        self.counters.push((*variable, Ty::Known(Type::I64)));
                    }
                }
                self.block(body);
            }
            Statement::Block(block) => {
                self.block(block);
            }
        }
    }

    fn condition(&mut self, condition: &'a Expr) {
        let ty = self.expression(condition);
        self.expect(ty, Ty::Known(Type::Bool), condition.span);
    }

    /// An offset, the index of a table or an axis.
    fn place(&mut self, place: &'a Expr) {
        let ty = self.expression(place);
        match self.find(ty) {
            Ty::Known(found) if found != Type::I64 => match self.declared(place) {
                Some((name, ty)) => {
                    let message = format!(
                        "an offset, an index or the end of a loop is an `i64`, here `{found}`: declare `{name}` as `{ty}`"
                    );
                    self.errors.push(place.span, message);
                }
                None if self.is_known(place) => {
                    self.expect(ty, Ty::Known(Type::I64), place.span);
                }
                None => self.errors.push(place.span, UNKNOWN),
            },
            _ => self.expect(ty, Ty::Known(Type::I64), place.span),
        }
    }

    /// The first name in an expression that is known to the translator, and is declared with a type; and with which
    /// type it is an offset.
    fn declared(&self, expression: &Expr) -> Option<(String, String)> {
        match &expression.kind {
            ExprKind::Constant(constant) | ExprKind::Element(constant, _) => {
                let Constant { name, length, .. } = &self.program.constants[*constant];
                let ty = length.map_or("i64".into(), |length| format!("[i64; {length}]"));
                Some((name.to_string(), ty))
            }
            ExprKind::Scalar(parameter) => {
                let function = self.function?;
                let is_helper = matches!(function.kind, Kind::Helper { .. });
                is_helper.then(|| (function.parameters[*parameter].name.to_string(), "i64".into()))
            }
            ExprKind::Unary(_, operand) => self.declared(operand),
            ExprKind::Binary(_, left, right) => {
                self.declared(left).or_else(|| self.declared(right))
            }
            _ => None,
        }
    }

    /// Whether a known expression says its type. Literals alone do not.
    fn has_type(&self, expression: &Expr) -> bool {
        match &expression.kind {
            ExprKind::Literal(Literal::Number { ty, .. }) => ty.is_some(),
            ExprKind::Literal(_) | ExprKind::Variable(_) => false,
            ExprKind::Unary(_, operand) => self.has_type(operand),
            ExprKind::Binary(_, left, right) => self.has_type(left) || self.has_type(right),
            ExprKind::Method(_, operands) => operands.iter().any(|operand| self.has_type(operand)),
            _ => true,
        }
    }

    /// Decides the uses of loop variables that nothing else decides: they have the type of the others.
    fn settle_counters(&mut self) {
        loop {
            let mut types: HashMap<usize, Vec<Type>> = HashMap::new();
            for (variable, ty) in &self.counters {
                let known = types.entry(*variable).or_default();
                if let Some(ty) = self.known(*ty)
                    && !known.contains(&ty)
                {
                    known.push(ty);
                }
            }
            let mut is_over = true;
            for (ty, literal) in &self.literals {
                let (Ty::Open(open), ExprKind::Variable(variable)) =
                    (self.find(*ty), &literal.kind)
                else {
                    continue;
                };
                let is = match types.get(variable).map_or(&[][..], Vec::as_slice) {
                    [] => continue,
                    [only] => Ty::Known(*only),
                    [first, second, ..] => {
                        let name = self.program.variables[*variable].name.unraw();
                        let message = format!(
                            "`{name}` is used as `{first}` and as `{second}`, and nothing says which it is here: write `({name} as {first})`"
                        );
                        self.errors.push(literal.span, message);
                        Ty::Unknown
                    }
                };
                self.open[open].is = Some(is);
                is_over = false;
            }
            if is_over {
                return;
            }
        }
    }

    /// Whether an expression may be known to the translator.
    fn is_known(&self, expression: &Expr) -> bool {
        match &expression.kind {
            ExprKind::Variable(variable) => self.program.variables[*variable].is_loop,
            ExprKind::Scalar(_) => {
                self.function.is_some_and(|function| matches!(function.kind, Kind::Helper { .. }))
            }
            ExprKind::Read(..) | ExprKind::Index(_) | ExprKind::Extent(_) => false,
            ExprKind::Unary(_, operand) | ExprKind::Cast(operand, _) => self.is_known(operand),
            ExprKind::Binary(_, left, right) => self.is_known(left) && self.is_known(right),
            ExprKind::Method(_, operands) => operands.iter().all(|operand| self.is_known(operand)),
            _ => true,
        }
    }

    fn element(&self, parameter: usize) -> Ty {
        match self.function.map(|function| function.parameters[parameter].ty) {
            Some(ParameterType::Field { element, .. }) => Ty::Known(element),
            _ => Ty::Unknown,
        }
    }

    fn view(&mut self, view: &'a View) -> Ty {
        let rank = match self.function.map(|function| function.parameters[view.parameter].ty) {
            Some(ParameterType::Field { rank, .. }) => rank,
            _ => return Ty::Unknown,
        };
        for shift in &view.shifts {
            self.offset(shift, rank, view.span);
        }
        self.element(view.parameter)
    }

    fn offset(&mut self, offset: &'a [Expr], rank: usize, span: Span) {
        for axis in offset {
            self.place(axis);
        }
        if offset.len() != rank {
            let (axes, offsets) =
                (count(rank, "axis", "axes"), count(offset.len(), "offset", "offsets"));
            let message = format!("the field has {axes}, and this is {offsets}");
            self.errors.push(span, message);
        }
    }

    fn rank(&self, parameter: usize) -> usize {
        match self.function.map(|function| function.parameters[parameter].ty) {
            Some(ParameterType::Field { rank, .. }) => rank,
            _ => 0,
        }
    }

    fn expression(&mut self, expression: &'a Expr) -> Ty {
        let ty = self.expression_within(expression);
        self.expressions[expression.id] = ty;
        ty
    }

    fn literal(&mut self, is_float: bool, expression: &'a Expr) -> Ty {
        self.open.push(Open { is_float, is: None, of: expression });
        let ty = Ty::Open(self.open.len() - 1);
        self.literals.push((ty, expression));
        ty
    }

    fn expression_within(&mut self, expression: &'a Expr) -> Ty {
        let span = expression.span;
        match &expression.kind {
            ExprKind::Literal(Literal::Bool(value)) => {
                self.result.literals[expression.id] = Some(Value::Bool(*value));
                Ty::Known(Type::Bool)
            }
            ExprKind::Literal(Literal::Number { is_float, ty, .. }) => {
                let open = self.literal(*is_float, expression);
                if let Some(ty) = ty {
                    self.occurs(*ty);
                    self.expect(open, Ty::Known(*ty), span);
                }
                open
            }
            // As a literal, for it is a constant.
            ExprKind::Variable(variable) if self.program.variables[*variable].is_loop => {
                let ty = self.literal(false, expression);
                self.counters.push((*variable, ty));
                ty
            }
            ExprKind::Variable(variable) => self.variables[*variable],
            ExprKind::Scalar(parameter) => {
                match self.function.map(|function| function.parameters[*parameter].ty) {
                    Some(ParameterType::Scalar(ty)) => Ty::Known(ty),
                    _ => Ty::Unknown,
                }
            }
            ExprKind::Constant(constant) => self.constant_type(*constant),
            ExprKind::Element(constant, place) => {
                self.place(place);
                self.constant_type(*constant)
            }
            ExprKind::Read(view, offset) => {
                let ty = self.view(view);
                self.offset(offset, self.rank(view.parameter), span);
                ty
            }
            ExprKind::Index(axis) | ExprKind::Extent(axis) => {
                self.place(axis);
                Ty::Known(Type::I64)
            }
            ExprKind::IsEnd(_) => Ty::Known(Type::Bool),
            ExprKind::Unary(op, operand) => {
                let ty = self.expression(operand);
                self.check(ty, op.operand(), span, op.sign());
                ty
            }
            ExprKind::Binary(op, left, right) => {
                let (a, b) = (self.expression(left), self.expression(right));
                // The literal is what does not fit.
                match self.find(a) {
                    Ty::Open(_) => self.expect(a, b, left.span),
                    _ => self.expect(b, a, right.span),
                }
                self.check(a, op.operands(), span, op.sign());
                if op.is_comparison() { Ty::Known(Type::Bool) } else { a }
            }
            ExprKind::Cast(value, to) => {
                let from = self.expression(value);
                self.occurs(*to);
                let class = match to {
                    Type::Bool => Class::Bools,
                    to if to.is_float() => Class::Numbers,
                    _ => Class::Any,
                };
                self.check(from, class, span, &format!("as {to}"));
                Ty::Known(*to)
            }
            ExprKind::If(condition, then, otherwise) => {
                self.condition(condition);
                let (a, b) = (self.block(then), self.block(otherwise));
                let place = otherwise.value.as_ref().map_or(span, |value| value.span);
                self.expect(b, a, place);
                a
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::Method(method, operands) => {
                let (class, name) = match method {
                    Method::Min => (Class::Numbers, "min"),
                    Method::Max => (Class::Numbers, "max"),
                    Method::Builtin(Builtin::Abs) => (Class::Signed, "abs"),
                    Method::Builtin(function) => (Class::Floats, function.name()),
                };
                let mut first = None;
                for operand in operands {
                    let ty = self.expression(operand);
                    match first {
                        Some(first) => self.expect(ty, first, operand.span),
                        None => first = Some(ty),
                    }
                }
                let ty = first.unwrap_or(Ty::Unknown);
                self.check(ty, class, span, name);
                ty
            }
            ExprKind::Call(function, arguments) => {
                let function = &self.program.functions[*function];
                for (parameter, argument) in function.parameters.iter().zip(arguments) {
                    self.argument(parameter.ty, argument);
                }
                match function.kind {
                    Kind::Helper { returns } => Ty::Known(returns),
                    Kind::Stencil { .. } => Ty::Unknown,
                }
            }
            ExprKind::Error => Ty::Unknown,
        }
    }

    fn constant_type(&mut self, constant: usize) -> Ty {
        let ty = self.program.constants[constant].ty;
        self.occurs(ty);
        Ty::Known(ty)
    }

    fn argument(&mut self, parameter: ParameterType, argument: &'a Argument) {
        match (parameter, argument) {
            (ParameterType::Scalar(expected), Argument::Value(value)) => {
                let ty = self.expression(value);
                self.occurs(expected);
                self.expect(ty, Ty::Known(expected), value.span);
            }
            (ParameterType::Field { element, rank, .. }, Argument::View(view)) => {
                self.view(view);
                let given = self.function.map(|function| function.parameters[view.parameter].ty);
                if let Some(ParameterType::Field { element: e, rank: r, .. }) = given
                    && (e, r) != (element, rank)
                {
                    let message = format!(
                        "the helper takes `In<{element}, {rank}>`, and this is `In<{e}, {r}>`"
                    );
                    self.errors.push(view.span, message);
                }
            }
            (_, Argument::Value(value)) => {
                self.expression(value);
            }
            (_, Argument::View(_)) => {}
        }
    }
}
