//! Blocks and statements.

use std::collections::HashMap;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Block as SynBlock, Expr as SynExpr, Local, Pat, RangeLimits, Stmt};

use super::{Declared, MACROS, MAX_DEPTH, Name, Parser, text};
use crate::op::Binary;
use crate::syntax::{Block, Expr, ExprKind, ParameterType, Statement, Variable};
use crate::value::Type;

impl Parser<'_> {
    /// A block of statements, which has no value.
    pub(super) fn statement_block(&mut self, block: &SynBlock) -> Block {
        let parsed = self.scope(|parser| parser.block(block, false));
        Block { value: None, ..parsed }
    }

    /// A block that gives a value, and changes only variables of its own.
    pub(super) fn value_block(&mut self, block: &SynBlock) -> Block {
        let before = self.first_writable;
        self.first_writable = self.scopes.len();
        let parsed = self.scope(|parser| parser.block(block, true));
        self.first_writable = before;
        if parsed.value.is_none() {
            let message = "this block must end with its value, without `;`";
            self.error(block.brace_token.span.close(), message);
        }
        parsed
    }

    fn scope<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        let result = body(self);
        self.scopes.pop();
        result
    }

    fn block(&mut self, block: &SynBlock, has_value: bool) -> Block {
        let mut parsed = Block::default();
        // Constants hold in the whole block.
        for statement in &block.stmts {
            if let Stmt::Item(syn::Item::Const(constant)) = statement {
                let scope = self.scopes.last_mut().expect("the scope of the block");
                let name = &constant.ident;
                if scope.insert(text(name), Name::Below).is_some() && name != "_" {
                    self.error(name.span(), format!("`{name}` is defined twice"));
                }
            }
        }
        for (place, statement) in block.stmts.iter().enumerate() {
            let is_last = place + 1 == block.stmts.len();
            match statement {
                Stmt::Expr(value, None) if is_last && has_value => {
                    parsed.value = Some(Box::new(self.expression(value)));
                }
                // An empty statement: a semicolon alone.
                Stmt::Expr(SynExpr::Verbatim(tokens), Some(_)) if tokens.is_empty() => {}
                Stmt::Expr(expression, _) => {
                    let statement = self.statement(expression);
                    parsed.statements.extend(statement);
                }
                Stmt::Local(local) => {
                    let statement = self.local(local);
                    parsed.statements.extend(statement);
                }
                Stmt::Item(syn::Item::Const(constant)) => self.constant(constant),
                Stmt::Item(item) => {
                    self.error(
                        item.span(),
                        "only constants may be defined inside a stencil: move this out",
                    );
                }
                Stmt::Macro(call) => self.error(call.span(), MACROS),
            }
        }
        parsed
    }

    fn local(&mut self, local: &Local) -> Option<Statement> {
        let (pattern, annotation) = match &local.pat {
            Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pattern => (pattern, None),
        };
        let ty = annotation.and_then(|ty| self.scalar_type(ty));
        let Some(init) = &local.init else {
            let message = "`let` needs a value: write `let x = if … { … } else { … };`";
            self.error(local.span(), message);
            self.declare_refused(pattern);
            return None;
        };
        if let Some((token, _)) = &init.diverge {
            self.error(token.span(), "`let … else` is not supported: use `if`");
        }
        let value = self.expression(&init.expr);
        let Pat::Ident(pattern) = pattern else {
            self.error(pattern.span(), "`let` declares one name: patterns are not supported");
            self.declare_refused(pattern);
            return None;
        };
        if !is_name(pattern) {
            self.error(pattern.span(), "`let` declares one name: patterns are not supported");
        }
        if matches!(value.kind, ExprKind::Error) {
            self.declare(&pattern.ident, Name::Refused);
            return None;
        }
        let is_mutable = pattern.mutability.is_some();
        let variable = self.variable(&pattern.ident, is_mutable, false, ty);
        self.declared(Declared::Variable(variable), &pattern.ident, &local.attrs);
        Some(Statement::Let { variable, value })
    }

    /// Declares the names in a pattern that was refused, so that their uses are no further errors.
    fn declare_refused(&mut self, pattern: &Pat) {
        let mut names = Names(Vec::new());
        names.visit_pat(pattern);
        for name in names.0 {
            self.declare(&name, Name::Refused);
        }
    }

    fn variable(
        &mut self,
        name: &syn::Ident,
        is_mutable: bool,
        is_loop: bool,
        ty: Option<Type>,
    ) -> usize {
        self.check_no_constant(name);
        let name = name.clone();
        self.program.variables.push(Variable { name: name.clone(), is_mutable, is_loop, ty });
        let variable = self.program.variables.len() - 1;
        self.declare(&name, Name::Variable(variable));
        variable
    }

    fn statement(&mut self, expression: &SynExpr) -> Option<Statement> {
        self.depth += 1;
        let parsed = if self.depth > MAX_DEPTH {
            self.error(
                expression.span(),
                format!("statements are nested more than {MAX_DEPTH} deep"),
            );
            None
        } else {
            self.statement_within(expression)
        };
        self.depth -= 1;
        parsed
    }

    fn statement_within(&mut self, expression: &SynExpr) -> Option<Statement> {
        let span = expression.span();
        match expression {
            SynExpr::Assign(assign) => {
                let value = self.expression(&assign.right);
                let variable = self.target(&assign.left)?;
                Some(Statement::Assign { variable, value })
            }
            SynExpr::Binary(operation) if assigning(&operation.op).is_some() => {
                let op = assigning(&operation.op)?;
                let right = self.expression(&operation.right);
                let variable = self.target(&operation.left)?;
                let left = self.expr(operation.left.span(), ExprKind::Variable(variable));
                let value = self.expr(span, ExprKind::Binary(op, Box::new(left), Box::new(right)));
                Some(Statement::Assign { variable, value })
            }
            SynExpr::MethodCall(call) if call.method == "set" => self.set(call),
            SynExpr::If(branch) => {
                let condition = self.expression(&branch.cond);
                let then = self.statement_block(&branch.then_branch);
                let otherwise = match &branch.else_branch {
                    None => Block::default(),
                    Some((_, otherwise)) => match &**otherwise {
                        SynExpr::Block(block) => self.statement_block(&block.block),
                        other => Block {
                            statements: self.statement(other).into_iter().collect(),
                            value: None,
                        },
                    },
                };
                Some(Statement::If { condition, then, otherwise, span })
            }
            SynExpr::ForLoop(turn) => self.turns(turn),
            SynExpr::Block(block) if block.label.is_none() => {
                Some(Statement::Block(self.statement_block(&block.block)))
            }
            SynExpr::Group(group) => self.statement(&group.expr),
            other => {
                let before = self.errors.len();
                self.expression(other);
                if self.errors.len() == before {
                    self.error(
                        span,
                        "this value is not used: give it a name with `let`, or pass it to `set`",
                    );
                }
                None
            }
        }
    }

    /// The variable that an assignment changes.
    fn target(&mut self, target: &SynExpr) -> Option<usize> {
        let span = target.span();
        if self.is_refused(target) {
            return None;
        }
        let SynExpr::Path(path) = target else {
            self.error(span, "only a variable can be assigned; a field is set with `set`");
            return None;
        };
        let Some(name) = path.path.get_ident() else {
            self.error(span, "only a variable can be assigned");
            return None;
        };
        let variable = match self.look_up(&text(name)) {
            Some((depth, Name::Variable(variable))) => {
                let Variable { is_mutable, is_loop, .. } = self.program.variables[variable];
                if is_loop {
                    self.error(span, format!("`{name}` is a loop variable and cannot change"));
                } else if !is_mutable {
                    self.error(span, format!("`{name}` cannot change: declare it with `let mut`"));
                } else if depth < self.first_writable {
                    let message = format!(
                        "a block that gives a value cannot change `{name}`: use `if` as a statement"
                    );
                    self.error(span, message);
                }
                return Some(variable);
            }
            Some((_, Name::Parameter(_, ParameterType::Field { .. }))) => {
                format!("a field is set with `{name}.set(…)`")
            }
            Some((_, Name::Parameter(..))) => {
                format!("`{name}` is a parameter and cannot change: copy it with `let mut`")
            }
            Some((_, Name::Constant(_) | Name::Below)) => {
                format!("`{name}` is a constant and cannot change")
            }
            Some((_, Name::Refused)) => return None,
            None => format!("there is no variable `{name}`"),
        };
        self.error(span, variable);
        None
    }

    fn set(&mut self, call: &syn::ExprMethodCall) -> Option<Statement> {
        let span = call.span();
        self.check_turbofish(call);
        let value = match call.args.iter().collect::<Vec<_>>()[..] {
            [value] => self.expression(value),
            _ => self.refuse(span, format!("`set` takes one value, here {}", call.args.len())),
        };
        let name = match &*call.receiver {
            SynExpr::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        };
        let Some(name) = name else {
            self.error(
                call.receiver.span(),
                "`set` belongs to a parameter `Out` or `InOut`, and takes no shift",
            );
            return None;
        };
        match self.look_up(&text(&name)) {
            Some((_, Name::Parameter(parameter, ParameterType::Field { intent, .. }))) => {
                self.unread.remove(&Declared::Parameter(parameter));
                if !intent.is_output() {
                    let message =
                        format!("`{name}` is only read: declare it `Out` or `InOut` to set it");
                    self.error(span, message);
                } else if self.first_writable > 0 {
                    self.error(
                        span,
                        "a block that gives a value cannot set a field: use `if` as a statement",
                    );
                }
                Some(Statement::Set { parameter, value, span })
            }
            Some((_, Name::Refused)) => None,
            _ => {
                self.error(name.span(), format!("`{name}` is no field of this stencil"));
                None
            }
        }
    }

    fn turns(&mut self, turn: &syn::ExprForLoop) -> Option<Statement> {
        if let Some(label) = &turn.label {
            self.error(label.span(), "labels are not supported");
        }
        let mut range = &*turn.expr;
        while let SynExpr::Paren(paren) = range {
            range = &paren.expr;
        }
        let bounds = match range {
            SynExpr::Range(syn::ExprRange { start: Some(from), end: Some(to), limits, .. }) => {
                let is_inclusive = matches!(limits, RangeLimits::Closed(_));
                Some((self.expression(from), self.expression(to), is_inclusive))
            }
            other => {
                self.error(
                    other.span(),
                    "a loop runs over a range with two ends, such as `0..9` or `-1..=1`",
                );
                None
            }
        };
        let Pat::Ident(pattern) = &*turn.pat else {
            self.error(turn.pat.span(), "the loop variable is a name");
            return None;
        };
        if !is_name(pattern) {
            self.error(pattern.span(), "the loop variable is a name");
        }
        let (variable, body) = self.scope(|parser| {
            let variable = parser.variable(&pattern.ident, false, true, None);
            parser.declared(Declared::Variable(variable), &pattern.ident, &turn.attrs);
            (variable, parser.statement_block(&turn.body))
        });
        let (from, to, is_inclusive) = bounds?;
        Some(Statement::For { variable, from, to, is_inclusive, body })
    }

    /// The value of an `else`, which may be another `if`.
    pub(super) fn otherwise(&mut self, otherwise: Option<&SynExpr>, span: Span) -> Block {
        match otherwise {
            Some(SynExpr::Block(block)) => self.value_block(&block.block),
            Some(other) => {
                let value = self.expression(other);
                Block { statements: Vec::new(), value: Some(Box::new(value)) }
            }
            None => {
                let value: Expr = self.refuse(span, "an `if` that gives a value needs an `else`");
                Block { statements: Vec::new(), value: Some(Box::new(value)) }
            }
        }
    }
}

/// The names in a pattern.
struct Names(Vec<syn::Ident>);

impl Visit<'_> for Names {
    fn visit_pat_ident(&mut self, pattern: &syn::PatIdent) {
        self.0.push(pattern.ident.clone());
    }
}

/// Whether a pattern is a name and nothing else; it may have `mut`.
pub(super) fn is_name(pattern: &syn::PatIdent) -> bool {
    pattern.by_ref.is_none() && pattern.subpat.is_none()
}

/// The operation of `+=` and its siblings.
fn assigning(op: &syn::BinOp) -> Option<Binary> {
    use syn::BinOp;
    Some(match op {
        BinOp::AddAssign(_) => Binary::Add,
        BinOp::SubAssign(_) => Binary::Sub,
        BinOp::MulAssign(_) => Binary::Mul,
        BinOp::DivAssign(_) => Binary::Div,
        BinOp::RemAssign(_) => Binary::Rem,
        BinOp::BitAndAssign(_) => Binary::BitAnd,
        BinOp::BitOrAssign(_) => Binary::BitOr,
        BinOp::BitXorAssign(_) => Binary::BitXor,
        _ => return None,
    })
}
