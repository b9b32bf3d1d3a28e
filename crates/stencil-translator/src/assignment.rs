//! Whether each output is set exactly once on each path.

use std::collections::BTreeSet;

use crate::body::{Body, Statement};
use crate::description::Field;
use crate::errors::Errors;
use crate::syntax::Intent;

/// Checks a body of a stencil that has these fields.
pub(crate) fn check(body: &Body, fields: &[Field], rank: usize, errors: &mut Errors) {
    let mut check = Check { fields, rank, errors };
    let set = check.statements(&body.statements, &BTreeSet::new());
    for (number, field) in fields.iter().enumerate() {
        if field.intent.is_output() && !set.contains(&number) {
            let name = &field.ident;
            check.errors.push(
                name.span(),
                format!("`{name}` is not set: call `{name}.set(…)` once on each path"),
            );
        }
    }
}

struct Check<'a> {
    fields: &'a [Field],
    rank: usize,
    errors: &'a mut Errors,
}

impl Check<'_> {
    fn name(&self, field: usize) -> String {
        self.fields[field].ident.to_string()
    }

    /// How a field keeps its value where nothing else is set.
    fn keep(&self, field: usize) -> String {
        let (name, offset) = (self.name(field), ["0"].repeat(self.rank).join(", "));
        match self.fields[field].intent {
            Intent::InOut => {
                format!("; `else {{ {name}.set({name}.at({offset})); }}` keeps its value")
            }
            Intent::In | Intent::Out => String::new(),
        }
    }

    /// The outputs that are set after the statements, given those that were set before.
    fn statements(
        &mut self,
        statements: &[Statement],
        before: &BTreeSet<usize>,
    ) -> BTreeSet<usize> {
        let mut set = before.clone();
        for statement in statements {
            match statement {
                Statement::Set { field, span, .. } => {
                    if !set.insert(*field) {
                        let name = self.name(*field);
                        self.errors.push(
                            *span,
                            format!(
                                "`{name}` is set twice: compute the value first, then set it once"
                            ),
                        );
                    }
                }
                Statement::If { then, otherwise, span, .. } => {
                    let (then, otherwise) =
                        (self.statements(then, &set), self.statements(otherwise, &set));
                    for field in then.symmetric_difference(&otherwise) {
                        let (name, keep) = (self.name(*field), self.keep(*field));
                        let message = format!(
                            "`{name}` is set in one branch of this `if` alone: set it in both, or after it{keep}"
                        );
                        self.errors.push(*span, message);
                    }
                    // An error once, not again at the end.
                    set = then.union(&otherwise).copied().collect();
                }
                Statement::Let { .. } | Statement::Assign { .. } => {}
            }
        }
        set
    }
}
