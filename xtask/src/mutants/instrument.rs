//! Rewrites source text so that it contains many mutants, of which one can be enabled when the program runs: one build
//! serves all.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ExprIf, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod,
    ReturnType, Signature, Stmt,
};

/// The number of characters of a statement that identify it in the table.
const SHOWN: usize = 72;

/// A change of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    /// The function, such as `Stream::record`.
    pub(super) function: String,
    /// The change, such as "without `self.check()?;`".
    pub(super) change: String,
    edits: Vec<Edit>,
}

/// Text that is inserted into a file. `#` stands for the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    at: usize,
    /// Whether it ends something that starts further ahead.
    is_end: bool,
    text: String,
}

impl Mutant {
    /// Whether the function does nothing.
    pub(super) fn returns_at_once(&self) -> bool {
        self.edits.len() == 1
    }
}

/// Finds the mutants of a file.
pub(super) fn find(text: &str) -> syn::Result<Vec<Mutant>> {
    find_in(text, false)
}

/// Finds the mutants of a file, also those that turn a test of equality round, or drop a part of a condition.
pub(super) fn find_with_conditions(text: &str) -> syn::Result<Vec<Mutant>> {
    find_in(text, true)
}

fn find_in(text: &str, has_conditions: bool) -> syn::Result<Vec<Mutant>> {
    let mut finder = Finder { text, has_conditions, scope: Vec::new(), found: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.found)
}

/// The mutant that replaces an expression in a function. `None` unless the text has the expression once.
pub(super) fn replace(text: &str, function: &str, from: &str, to: &str) -> Option<Mutant> {
    let (at, again) = (text.find(from)?, text.rfind(from)?);
    let start = Edit { at, is_end: false, text: format!("(if # {{ {to} }} else {{ ") };
    let end = Edit { at: at + from.len(), is_end: true, text: " })".to_owned() };
    let change = format!("`{to}` for `{from}`");
    let mutant = Mutant { function: function.to_owned(), change, edits: vec![start, end] };
    (at == again).then_some(mutant)
}

/// The text with all these mutants, each of which is enabled if its switch is true.
pub(super) fn insert(text: &str, mutants: &[(&Mutant, String)]) -> String {
    let mut edits: Vec<(usize, &Edit, &str)> = mutants
        .iter()
        .enumerate()
        .flat_map(|(i, (mutant, switch))| mutant.edits.iter().map(move |edit| (i, edit, &**switch)))
        .collect();
    // Mutants are in the order in which they begin, and inner ones end first.
    edits.sort_by_key(|(i, edit, _)| {
        let order = if edit.is_end { mutants.len() - i } else { *i };
        (edit.at, !edit.is_end, order)
    });
    let mut result = String::with_capacity(text.len() * 2);
    let mut from = 0;
    for (_, edit, switch) in edits {
        result.push_str(&text[from..edit.at]);
        result.push_str(&edit.text.replace('#', switch));
        from = edit.at;
    }
    result.push_str(&text[from..]);
    result
}

struct Finder<'a> {
    text: &'a str,
    has_conditions: bool,
    scope: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn quote(&self, span: Span) -> String {
        let words: Vec<&str> = self.text[span.byte_range()].split_whitespace().collect();
        let text = words.join(" ");
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    fn add(&mut self, change: String, edits: Vec<Edit>) {
        let function = self.scope.join("::");
        self.found.push(Mutant { function, change, edits });
    }

    /// Inserts text before and after a piece of source.
    fn around(&mut self, change: String, span: Span, before: &str, after: &str) {
        let range = span.byte_range();
        let start = Edit { at: range.start, is_end: false, text: before.to_owned() };
        let end = Edit { at: range.end, is_end: true, text: after.to_owned() };
        self.add(change, vec![start, end]);
    }

    /// Leaves out each of the two operands of a condition.
    fn drop_operands(&mut self, condition: &ExprBinary) {
        let is_and = matches!(condition.op, BinOp::And(_));
        let before = if is_and { "(# || (" } else { "(!# && (" };
        for operand in [&condition.left, &condition.right] {
            let is_same = |inner: &ExprBinary| matches!(inner.op, BinOp::And(_)) == is_and;
            let has_operands = match &**operand {
                Expr::Binary(inner) => {
                    matches!(inner.op, BinOp::And(_) | BinOp::Or(_)) && is_same(inner)
                }
                _ => false,
            };
            if !has_operands && !has_let(operand) {
                let (span, whole) = (operand.span(), condition.span());
                let change = format!("without `{}` in `{}`", self.quote(span), self.quote(whole));
                self.around(change, span, before, "))");
            }
        }
    }

    fn function(&mut self, signature: &Signature, attributes: &[Attribute], block: &Block) {
        // A function that runs at compile time cannot ask for the switch.
        if signature.constness.is_some() || attributes.iter().any(is_test) {
            return;
        }
        self.scope.push(signature.ident.to_string());
        for value in results(&signature.output) {
            let at = block.brace_token.span.open().byte_range().end;
            let text = format!(" if # {{ return {value}; }}");
            let early = Edit { at, is_end: false, text };
            self.add(format!("returns `{value}` at once"), vec![early]);
        }
        visit::visit_block(self, block);
        self.scope.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(ItemFn { attrs, sig, block, .. }) => self.function(sig, attrs, block),
            Item::Impl(_) | Item::Mod(_) => visit::visit_item(self, item),
            _ => {}
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        let name = self.quote(block.self_ty.span());
        self.scope.push(name.split(['<', ' ']).next().unwrap_or_default().to_owned());
        visit::visit_item_impl(self, block);
        self.scope.pop();
    }

    fn visit_impl_item_fn(&mut self, method: &'ast ImplItemFn) {
        self.function(&method.sig, &method.attrs, &method.block);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && is_effect(expression)
        {
            let change = format!("without `{}`", self.quote(statement.span()));
            self.around(change, statement.span(), "if !# { ", " }");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, branch: &'ast ExprIf) {
        if ends_early(&branch.then_branch) {
            let condition = branch.cond.span();
            let change = format!("never `if {}`", self.quote(condition));
            if has_let(&branch.cond) {
                self.around(change, condition, "!# && ", "");
            } else {
                self.around(change, condition, "!# && (", ")");
            }
        }
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_binary(&mut self, comparison: &'ast ExprBinary) {
        let other = match comparison.op {
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            BinOp::Eq(_) if self.has_conditions => "!=",
            BinOp::Ne(_) if self.has_conditions => "==",
            BinOp::And(_) | BinOp::Or(_) if self.has_conditions => {
                self.drop_operands(comparison);
                return visit::visit_expr_binary(self, comparison);
            }
            _ => return visit::visit_expr_binary(self, comparison),
        };
        let known = self.found.len();
        visit::visit_expr_binary(self, comparison);
        // The operands are repeated, so they must contain no mutants.
        if self.found.len() == known {
            let text = |span: Span| &self.text[span.byte_range()];
            let (left, right) = (text(comparison.left.span()), text(comparison.right.span()));
            let before = format!("(if # {{ {left} {other} {right} }} else {{ ");
            let change = format!("`{other}` in `{}`", self.quote(comparison.span()));
            self.around(change, comparison.span(), &before, " })");
        }
    }
}

/// Whether a statement only has an effect: a call, a check, or a change of a field.
fn is_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Try(inner) => is_effect(&inner.expr),
        Expr::Assign(assignment) => matches!(*assignment.left, Expr::Field(_)),
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
        ),
        _ => false,
    }
}

/// Whether a block ends with a return.
fn ends_early(block: &Block) -> bool {
    matches!(block.stmts.last(), Some(Stmt::Expr(Expr::Return(_), _)))
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_test(attribute: &Attribute) -> bool {
    let is_cfg_test =
        || attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"));
    attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && is_cfg_test()
}

/// Values that a function with this result may return at once.
fn results(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, kind) = output else { return &[] };
    let text: String = kind.span().source_text().unwrap_or_default().split_whitespace().collect();
    match text.as_str() {
        "bool" => &["true", "false"],
        "Result<bool>" => &["Ok(true)", "Ok(false)"],
        "usize" | "u64" | "u32" => &["0"],
        _ if text.starts_with("Result<()") => &["Ok(())"],
        _ if text.starts_with("Option<") => &["None"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
impl Device {
    fn run(&self, n: usize) -> Result<()> {
        self.check(n)?;
        if n > self.most { return Err(()); }
        Ok(())
    }
    const fn known() -> bool { true }
}
#[cfg(test)]
mod tests { fn helper() -> bool { true } }
";

    #[test]
    fn each_kind_of_mutant_is_found_outside_of_tests_and_constants() {
        let found = find(TEXT).unwrap();
        let changes: Vec<&str> = found.iter().map(|mutant| mutant.change.as_str()).collect();
        let expected = [
            "returns `Ok(())` at once",
            "without `self.check(n)?;`",
            "never `if n > self.most`",
            "`>=` in `n > self.most`",
        ];
        assert_eq!(changes, expected);
        assert!(found.iter().all(|mutant| mutant.function == "Device::run"));
    }

    #[test]
    fn a_part_of_a_condition_is_dropped_and_equality_turned_round() {
        let text = "fn f(a: bool, b: usize) -> u8 { u8::from(a && b == 1 && g(b) || b > 2) }";
        let found = find_with_conditions(text).unwrap();
        let changes: Vec<&str> = found.iter().map(|mutant| mutant.change.as_str()).collect();
        let expected = [
            "without `b > 2` in `a && b == 1 && g(b) || b > 2`",
            "without `a && b == 1 && g(b)` in `a && b == 1 && g(b) || b > 2`",
            "without `a` in `a && b == 1`",
            "without `b == 1` in `a && b == 1`",
            "without `g(b)` in `a && b == 1 && g(b)`",
            "`!=` in `b == 1`",
            "`>=` in `b > 2`",
        ];
        assert!(expected.iter().all(|change| changes.contains(change)), "{changes:?}");
        assert_eq!(changes.len(), expected.len(), "{changes:?}");
        let switched: Vec<_> = found.iter().map(|mutant| (mutant, "on()".to_owned())).collect();
        syn::parse_file(&insert(text, &switched)).unwrap();
        let one = replace(text, "f", "g(b)", "g(b + 1)").unwrap();
        assert!(
            insert(text, &[(&one, "on()".into())]).contains("if on() { g(b + 1) } else { g(b) }")
        );
        assert!(replace(text, "f", "b", "c").is_none());
    }

    #[test]
    fn the_text_with_all_mutants_is_valid_and_has_each_switch() {
        let found = find(TEXT).unwrap();
        let switched: Vec<_> =
            found.iter().enumerate().map(|(i, mutant)| (mutant, format!("on({i})"))).collect();
        let text = insert(TEXT, &switched);
        syn::parse_file(&text).unwrap();
        assert!((0..found.len()).all(|i| text.contains(&format!("on({i})"))), "{text}");
    }
}
