//! The tables of `docs/mutants.md`.

use std::fs;

use anyhow::{Context, Result};

use crate::cargo::root;

const FILE: &str = "docs/mutants.md";

/// The text before the rows of each table.
const HEADS: [&str; 2] = [RULES, STENCILS];

pub(super) const RULES: &str = "\
# Mutants

Each conformance rule, with a change of the code that makes the rule fail. `cargo xtask mutants` checks this table, and
writes it anew where the code has changed.

| rule | file | function | change |
|---|---|---|---|
";

pub(super) const STENCILS: &str = "
## Footprints and launches of stencils

Each change of the code that finds footprints, checks launches and decides which ghosts are stale, with the test program
that fails. The few changes that no test can notice have a reason instead. `cargo xtask mutants stencils` makes this
table.

| file | function | change | noticed by |
|---|---|---|---|
";

/// The rows of the table with this head, without the bars at their ends.
pub(super) fn read(head: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    rows_of(&text, head)
}

/// Writes the table with this head. The other tables stay.
pub(super) fn write(head: &str, rows: &[String]) -> Result<()> {
    let text = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    let mut new = String::new();
    for other in HEADS {
        new.push_str(other);
        let kept;
        let rows = if other == head {
            rows
        } else {
            kept = rows_of(&text, other);
            &kept
        };
        new.extend(rows.iter().map(|row| format!("| {row} |\n")));
    }
    fs::write(root().join(FILE), new).with_context(|| format!("cannot write {FILE}"))
}

fn rows_of(text: &str, head: &str) -> Vec<String> {
    // The title of a table stays if the text below it changes.
    let title = head.trim_start().lines().next().unwrap_or_default();
    let lines = text.lines().skip_while(|line| *line != title).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.skip(1).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_rows() {
        let text = format!("{RULES}| `a` | b |\n{STENCILS}| c | d |\n| e | f |\n");
        assert_eq!(rows_of(&text, RULES), ["`a` | b"]);
        assert_eq!(rows_of(&text, STENCILS), ["c | d", "e | f"]);
        assert!(rows_of(RULES, STENCILS).is_empty());
    }
}
