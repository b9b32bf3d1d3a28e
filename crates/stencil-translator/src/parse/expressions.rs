//! Expressions.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{BinOp, Expr as SynExpr, UnOp};

use super::{Declared, MACROS, MAX_DEPTH, Name, Parser, text};
use crate::errors::count;
use crate::op::{Binary, Function, Unary};
use crate::syntax::{Argument, End, Expr, ExprKind, Kind, Method, ParameterType, View};

impl Parser<'_> {
    pub(super) fn expression(&mut self, expression: &SynExpr) -> Expr {
        self.depth += 1;
        let parsed = if self.depth > MAX_DEPTH {
            let message = format!(
                "the expression is nested more than {MAX_DEPTH} deep: divide it with `let`"
            );
            self.refuse(expression.span(), message)
        } else {
            self.expression_within(expression)
        };
        self.depth -= 1;
        parsed
    }

    fn boxed(&mut self, expression: &SynExpr) -> Box<Expr> {
        Box::new(self.expression(expression))
    }

    fn expression_within(&mut self, expression: &SynExpr) -> Expr {
        let span = expression.span();
        let kind = match expression {
            SynExpr::Lit(literal) => return self.literal(&literal.lit, false, span),
            SynExpr::Paren(paren) => return self.expression(&paren.expr),
            SynExpr::Group(group) => return self.expression(&group.expr),
            SynExpr::Path(path) => return self.name(path),
            SynExpr::Unary(unary) => match (&unary.op, &*unary.expr) {
                // One literal, so that the least integer has one.
                (UnOp::Neg(_), SynExpr::Lit(literal)) => {
                    return self.literal(&literal.lit, true, span);
                }
                (UnOp::Neg(_), operand) => ExprKind::Unary(Unary::Neg, self.boxed(operand)),
                (UnOp::Not(_), operand) => ExprKind::Unary(Unary::Not, self.boxed(operand)),
                _ => {
                    return self.refuse(
                        span,
                        "there are no references and no powers: remove the `*`, or multiply",
                    );
                }
            },
            SynExpr::Binary(binary) => {
                let (left, right) = (self.boxed(&binary.left), self.boxed(&binary.right));
                match operation(&binary.op) {
                    Ok(op) => ExprKind::Binary(op, left, right),
                    Err(message) => return self.refuse(span, message),
                }
            }
            SynExpr::Cast(cast) => {
                let value = self.boxed(&cast.expr);
                match self.scalar_type(&cast.ty) {
                    Some(ty) => ExprKind::Cast(value, ty),
                    None => ExprKind::Error,
                }
            }
            SynExpr::If(branch) => {
                let condition = self.boxed(&branch.cond);
                let then = self.value_block(&branch.then_branch);
                let otherwise = branch.else_branch.as_ref().map(|(_, otherwise)| &**otherwise);
                ExprKind::If(condition, then, self.otherwise(otherwise, span))
            }
            SynExpr::Block(block) if block.label.is_none() => {
                ExprKind::Block(self.value_block(&block.block))
            }
            SynExpr::Index(index) => return self.element(index, span),
            SynExpr::MethodCall(call) => return self.method(call, span),
            SynExpr::Call(call) => return self.call(call, span),
            other => return self.refuse(span, unsupported(other)),
        };
        self.expr(span, kind)
    }

    fn name(&mut self, path: &syn::ExprPath) -> Expr {
        let span = path.span();
        let Some(name) = path.path.get_ident() else {
            let instead = named_value(&path.path).unwrap_or_else(|| {
                "write the value as a literal, or as a constant beside the stencil".into()
            });
            return self.refuse(span, format!("paths are not supported: {instead}"));
        };
        let kind = match self.look_up(&text(name)) {
            Some((_, Name::Variable(_) | Name::Parameter(..))) if self.is_constant => {
                return self.no_constant(span, &format!("`{name}`"));
            }
            Some((_, Name::Variable(variable))) => {
                self.unread.remove(&Declared::Variable(variable));
                ExprKind::Variable(variable)
            }
            Some((_, Name::Parameter(scalar, ParameterType::Scalar(_)))) => {
                self.unread.remove(&Declared::Parameter(scalar));
                ExprKind::Scalar(scalar)
            }
            Some((_, Name::Parameter(..))) => {
                return self
                    .refuse(span, format!("`{name}` is a field: read it with `{name}.at(…)`"));
            }
            Some((_, Name::Constant(constant))) => match self.program.constants[constant].length {
                None => ExprKind::Constant(constant),
                Some(_) => {
                    return self.refuse(
                        span,
                        format!(
                            "`{name}` is a table: write `{name}[0]`, or its length as a number"
                        ),
                    );
                }
            },
            Some((_, Name::Below)) => {
                let message = format!("the constant `{name}` is defined below: move it above this");
                return self.refuse(span, message);
            }
            Some((_, Name::Refused)) => ExprKind::Error,
            None => {
                let message = format!(
                    "there is no `{name}` here: a stencil sees its parameters, and constants that are written in it, or beside it in a module with `#[stencils]`, and not what `use` brings in"
                );
                return self.refuse(span, message);
            }
        };
        self.expr(span, kind)
    }

    /// Refuses what a constant cannot be made of.
    fn no_constant(&mut self, span: Span, what: &str) -> Expr {
        let message = format!(
            "a constant is made of literals and other constants, and {what} is neither: use `let` in the function"
        );
        self.refuse(span, message)
    }

    fn element(&mut self, index: &syn::ExprIndex, span: Span) -> Expr {
        let place = self.boxed(&index.index);
        if self.is_refused(&index.expr) {
            return self.expr(span, ExprKind::Error);
        }
        if let SynExpr::Path(path) = &*index.expr
            && let Some(name) = path.path.get_ident()
            && let Some((_, Name::Constant(constant))) = self.look_up(&text(name))
            && self.program.constants[constant].length.is_some()
        {
            return self.expr(span, ExprKind::Element(constant, place));
        }
        if let SynExpr::Path(path) = &*index.expr {
            let known = path.path.get_ident().and_then(|name| self.look_up(&text(name)));
            if matches!(known, None | Some((_, Name::Below))) {
                return self.name(path);
            }
        }
        self.refuse(span, "only a constant table has elements; a field is read with `at`")
    }

    /// Whether an expression is a name whose declaration was reported, or an element of it.
    pub(super) fn is_refused(&mut self, expression: &SynExpr) -> bool {
        if let SynExpr::Index(index) = expression {
            return self.is_refused(&index.expr);
        }
        let SynExpr::Path(path) = expression else { return false };
        let name = path.path.get_ident().map(text);
        name.is_some_and(|name| matches!(self.look_up(&name), Some((_, Name::Refused))))
    }

    /// The field that an expression stands for, if it is one.
    fn view(&mut self, expression: &SynExpr) -> Option<View> {
        match expression {
            SynExpr::Paren(paren) => self.view(&paren.expr),
            SynExpr::Group(group) => self.view(&group.expr),
            SynExpr::Path(path) => match self.look_up(&text(path.path.get_ident()?)) {
                Some((_, Name::Parameter(parameter, ParameterType::Field { .. }))) => {
                    self.unread.remove(&Declared::Parameter(parameter));
                    Some(View { parameter, shifts: Vec::new(), span: path.span() })
                }
                _ => None,
            },
            SynExpr::MethodCall(call) if call.method == "shift" => {
                let mut view = self.view(&call.receiver)?;
                self.check_turbofish(call);
                let shift = call.args.iter().map(|offset| self.expression(offset)).collect();
                view.shifts.push(shift);
                view.span = call.span();
                Some(view)
            }
            _ => None,
        }
    }

    /// Generic arguments of a method have no meaning here.
    pub(super) fn check_turbofish(&mut self, call: &syn::ExprMethodCall) {
        if let Some(turbofish) = &call.turbofish {
            self.error(turbofish.span(), "generic arguments are not supported");
        }
    }

    fn method(&mut self, call: &syn::ExprMethodCall, span: Span) -> Expr {
        self.check_turbofish(call);
        let name = text(&call.method);
        match &*name {
            "at" | "shift" if self.is_constant => {
                return self.no_constant(span, "a value of a field");
            }
            "at" => {
                if self.is_refused(&call.receiver) {
                    return self.expr(span, ExprKind::Error);
                }
                let Some(view) = self.view(&call.receiver) else {
                    return self
                        .refuse(call.receiver.span(), "`at` belongs to a field of this function");
                };
                let offset = call.args.iter().map(|offset| self.expression(offset)).collect();
                return self.expr(span, ExprKind::Read(view, offset));
            }
            "shift" => {
                let message = "a shifted field is passed to a helper or read: `lap(t.shift(1, 0))`, `t.shift(1, 0).at(0, 0)`";
                return self.refuse(span, message);
            }
            "set" => {
                return self.refuse(span, "`set` has no value: write it as a statement of its own");
            }
            _ => {}
        }
        let receiver = self.expression(&call.receiver);
        let mut operands = vec![receiver];
        operands.extend(call.args.iter().map(|operand| self.expression(operand)));
        let Some((method, taken)) = method_of(&name) else {
            let instead = match &*name {
                "pow" | "powi" => "multiply, or use `powf`",
                "round" | "trunc" | "fract" => "use `floor` or `ceil`",
                "clamp" => "use `max` and `min`",
                "signum" | "copysign" => "use `if`",
                "is_nan" => "compare the value with itself, `x != x`",
                _ => "there are sqrt, abs, floor, ceil, min, max, mul_add, exp, sin, cos and powf",
            };
            return self
                .refuse(call.method.span(), format!("`{name}` is not supported: {instead}"));
        };
        if operands.len() != taken {
            let message = format!(
                "`{name}` takes {}, here {}",
                count(taken - 1, "value", "values"),
                operands.len() - 1
            );
            return self.refuse(span, message);
        }
        if let Method::Builtin(function) = method
            && function.is_inexact()
            && self.is_constant
        {
            let message = format!(
                "`{name}` has other bits on other devices: write the value of the constant as a literal"
            );
            return self.refuse(call.method.span(), message);
        }
        if let Method::Builtin(function) = method
            && function.is_inexact()
            && !self.is_inexact
        {
            let message = format!(
                "`{name}` has other bits on other devices: write `#[stencil(inexact)]`, `#[reduction(…, inexact)]` or `#[column(…, inexact)]` to accept that"
            );
            return self.refuse(call.method.span(), message);
        }
        self.expr(span, ExprKind::Method(method, operands))
    }

    fn call(&mut self, call: &syn::ExprCall, span: Span) -> Expr {
        let name = match &*call.func {
            SynExpr::Path(path) => path.path.get_ident().map(text),
            _ => None,
        };
        let Some(name) = name else {
            let path = match &*call.func {
                SynExpr::Path(path) => path.path.segments.last().map(|last| text(&last.ident)),
                _ => None,
            };
            let message = match path {
                Some(name) if method_of(&name).is_some() => {
                    format!("functions of numbers are methods: write `a.{name}(…)`")
                }
                _ => "only helpers of the same module can be called, by their names; a conversion is `as`".to_owned(),
            };
            return self.refuse(call.func.span(), message);
        };
        if self.is_constant {
            return self.no_constant(span, &format!("a call of `{name}`"));
        }
        if let Some(function) = self.signatures.iter().position(|signature| signature.name == name)
        {
            return self.helper(function, &name, call, span);
        }
        if matches!(&*name, "index" | "extent") {
            let [axis] = call.args.iter().collect::<Vec<_>>()[..] else {
                return self.refuse(
                    span,
                    format!("`{name}` takes the number of an axis, such as `{name}(0)`"),
                );
            };
            let axis = self.boxed(axis);
            let kind = if name == "index" { ExprKind::Index(axis) } else { ExprKind::Extent(axis) };
            return self.expr(span, kind);
        }
        if matches!(&*name, "first" | "last") {
            if !call.args.is_empty() {
                return self.refuse(span, format!("`{name}()` takes no values"));
            }
            let end = if name == "first" { End::First } else { End::Last };
            return self.expr(span, ExprKind::IsEnd(end));
        }
        let message = format!(
            "there is no helper `{name}` here: write it beside the stencil, with `#[stencil_fn]`, in a module with `#[stencils]`"
        );
        self.refuse(call.func.span(), message)
    }

    fn helper(&mut self, function: usize, name: &str, call: &syn::ExprCall, span: Span) -> Expr {
        if let Kind::Stencil { .. } = self.signatures[function].kind {
            let message =
                format!("`{name}` is a stencil: move what both need into a `#[stencil_fn]`");
            return self.refuse(span, message);
        }
        let parameters = self.signatures[function].parameters.clone();
        if parameters.len() != call.args.len() {
            let message = format!(
                "`{name}` takes {}, here {}",
                count(parameters.len(), "argument", "arguments"),
                call.args.len()
            );
            return self.refuse(span, message);
        }
        let mut arguments = Vec::new();
        for (parameter, argument) in parameters.iter().zip(&call.args) {
            arguments.push(match parameter {
                ParameterType::Scalar(_) | ParameterType::Refused => {
                    Argument::Value(self.expression(argument))
                }
                ParameterType::Field { element, rank, .. } => match self.view(argument) {
                    Some(view) => Argument::View(view),
                    None => {
                        let instead = match argument {
                            SynExpr::Reference(_) => ": write the field without `&`",
                            SynExpr::MethodCall(call) if call.method == "at" => {
                                ": write `shift` instead of `at`"
                            }
                            _ => "",
                        };
                        let message = format!(
                            "`{name}` takes a field here, `In<{element}, {rank}>`{instead}"
                        );
                        return self.refuse(argument.span(), message);
                    }
                },
            });
        }
        self.expr(span, ExprKind::Call(function, arguments))
    }
}

/// A method of numbers, and the number of its operands.
fn method_of(name: &str) -> Option<(Method, usize)> {
    Some(match name {
        "sqrt" => (Method::Builtin(Function::Sqrt), 1),
        "abs" => (Method::Builtin(Function::Abs), 1),
        "floor" => (Method::Builtin(Function::Floor), 1),
        "ceil" => (Method::Builtin(Function::Ceil), 1),
        "mul_add" => (Method::Builtin(Function::MulAdd), 3),
        "exp" => (Method::Builtin(Function::Exp), 1),
        "sin" => (Method::Builtin(Function::Sin), 1),
        "cos" => (Method::Builtin(Function::Cos), 1),
        "powf" => (Method::Builtin(Function::Pow), 2),
        "min" => (Method::Min, 2),
        "max" => (Method::Max, 2),
        _ => return None,
    })
}

/// What to write for a constant of the standard library.
fn named_value(path: &syn::Path) -> Option<String> {
    let names: Vec<String> = path.segments.iter().map(|segment| text(&segment.ident)).collect();
    let mut names = names.iter().rev().map(|name| &**name).filter(|name| *name != "consts");
    let (name, ty) = (names.next()?, names.next()?);
    let value = match (ty, name) {
        ("f32" | "f64", "INFINITY" | "NEG_INFINITY" | "NAN") => {
            return Some("no literal has this value, so take it as a scalar parameter".into());
        }
        ("f32", "MIN") => format!("{:?}", f32::MIN),
        ("f32", "MAX") => format!("{:?}", f32::MAX),
        ("f32", "EPSILON") => format!("{:?}", f32::EPSILON),
        ("f64", "MIN") => format!("{:?}", f64::MIN),
        ("f64", "MAX") => format!("{:?}", f64::MAX),
        ("f64", "EPSILON") => format!("{:?}", f64::EPSILON),
        ("f32" | "f64", "PI") => format!("{:?}", std::f64::consts::PI),
        ("f32" | "f64", "TAU") => format!("{:?}", std::f64::consts::TAU),
        ("i32", "MIN") => i32::MIN.to_string(),
        ("i32", "MAX") => i32::MAX.to_string(),
        ("i64", "MIN") => i64::MIN.to_string(),
        ("i64", "MAX") => i64::MAX.to_string(),
        ("u32", "MAX") => u32::MAX.to_string(),
        _ => return None,
    };
    Some(format!("write `{value}`"))
}

fn operation(op: &BinOp) -> Result<Binary, &'static str> {
    Ok(match op {
        BinOp::Add(_) => Binary::Add,
        BinOp::Sub(_) => Binary::Sub,
        BinOp::Mul(_) => Binary::Mul,
        BinOp::Div(_) => Binary::Div,
        BinOp::Rem(_) => Binary::Rem,
        BinOp::And(_) => Binary::And,
        BinOp::Or(_) => Binary::Or,
        BinOp::BitAnd(_) => Binary::BitAnd,
        BinOp::BitOr(_) => Binary::BitOr,
        BinOp::BitXor(_) => Binary::BitXor,
        BinOp::Eq(_) => Binary::Eq,
        BinOp::Ne(_) => Binary::Ne,
        BinOp::Lt(_) => Binary::Lt,
        BinOp::Le(_) => Binary::Le,
        BinOp::Gt(_) => Binary::Gt,
        BinOp::Ge(_) => Binary::Ge,
        BinOp::Shl(_) | BinOp::Shr(_) => {
            return Err("shifts are not supported: multiply or divide by a power of two");
        }
        _ => return Err("an assignment has no value: write it as a statement of its own"),
    })
}

/// Why an expression is refused.
fn unsupported(expression: &SynExpr) -> &'static str {
    match expression {
        SynExpr::Array(_) | SynExpr::Repeat(_) => {
            "arrays are constant tables: write `const W: [f64; 3] = […];`"
        }
        SynExpr::Assign(_) => "an assignment has no value: write it as a statement of its own",
        SynExpr::Async(_) | SynExpr::Await(_) => "`async` is not supported",
        SynExpr::Block(_) => "labels are not supported",
        SynExpr::Break(_) | SynExpr::Continue(_) => {
            "`break` and `continue` are not supported: use `if` in the loop, which is unrolled"
        }
        SynExpr::Closure(_) => "closures are not supported: write a `#[stencil_fn]`",
        SynExpr::Const(_) => {
            "`const` blocks are not supported: write a constant beside the stencil"
        }
        SynExpr::Field(_) => "structs and tuples are not supported: pass each value as a scalar",
        SynExpr::ForLoop(_) => "a loop has no value: write it as a statement of its own",
        SynExpr::Let(_) => "`if let` is not supported: compare with `==`",
        SynExpr::Loop(_) | SynExpr::While(_) => {
            "`while` and `loop` are not supported: write `for` over a range of literals"
        }
        SynExpr::Macro(_) => MACROS,
        SynExpr::Match(_) => "`match` is not supported: use `if`",
        SynExpr::Range(_) => "a range belongs to `for`",
        SynExpr::Reference(_) | SynExpr::RawAddr(_) => "there are no references: remove the `&`",
        SynExpr::Return(_) => "early return is not supported: use `if` and `else`",
        SynExpr::Struct(_) => "structs are not supported: pass each value as a scalar",
        SynExpr::Try(_) | SynExpr::TryBlock(_) => "`?` is not supported: a stencil has no errors",
        SynExpr::Tuple(_) => "tuples are not supported: use several `let`",
        SynExpr::Unsafe(_) => "`unsafe` is not supported",
        _ => "this expression is not supported",
    }
}
