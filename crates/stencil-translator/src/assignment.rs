//! Whether each output is set exactly once on each path.

use std::collections::BTreeSet;

use proc_macro2::Ident;

use crate::body::{Body, Statement};
use crate::errors::Errors;

/// Checks a body. `outputs` has the number of each output field, and its name.
pub(crate) fn check(body: &Body, outputs: &[(usize, Ident)], errors: &mut Errors) {
    let mut check = Check { outputs, errors };
    let set = check.statements(&body.statements, &BTreeSet::new());
    for (field, name) in outputs {
        if !set.contains(field) {
            check.errors.push(
                name.span(),
                format!("`{name}` is not set: call `{name}.set(…)` once on each path"),
            );
        }
    }
}

struct Check<'a> {
    outputs: &'a [(usize, Ident)],
    errors: &'a mut Errors,
}

impl Check<'_> {
    fn name(&self, field: usize) -> String {
        let found = self.outputs.iter().find(|(number, _)| *number == field);
        found.map(|(_, name)| name.to_string()).unwrap_or_default()
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
                        let name = self.name(*field);
                        let message = format!(
                            "`{name}` is set in one branch of this `if` alone: set it in both, or after it"
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
