//! Limits that keep bad input from using the stack or the time of the compiler.
//!
//! The parser behind this is recursive. In a build without optimisation, one weight is at most 10 KiB of its stack. A
//! thread of 2 MiB has room for [`MAX_WEIGHT`], and for the long statements in it.

use proc_macro2::{Delimiter, Punct, Spacing, Span, TokenStream, TokenTree, token_stream};

const MAX_TOKENS: usize = 20_000;
const MAX_SIGNS: usize = 16;
/// The tokens of one statement, and of those around it: each may nest in the one before it, as in `a + b + c`.
const MAX_STATEMENT: usize = 1000;
/// The brackets that may be open at once, or what weighs as much.
const MAX_NESTING: usize = 40;
const MAX_WEIGHT: usize = MAX_NESTING * BRACKET;

/// What is nested weighs as much of the stack as its parser takes.
const BRACKET: usize = 4;
const ANGLE: usize = 5;
const ARROW: usize = 4;
const REFERENCE: usize = 3;
const KEYWORD: usize = 2;
const SIGN: usize = 1;

/// Keywords behind which the rest of the statement nests.
const NESTING: [&str; 9] =
    ["break", "for", "if", "let", "match", "return", "while", "yield", "become"];
/// Other words that are no operands.
const OTHERS: [&str; 14] = [
    "as", "async", "const", "dyn", "else", "extern", "fn", "impl", "in", "move", "mut", "ref",
    "static", "unsafe",
];

/// Refuses tokens that are too many or nested too deeply.
pub(super) fn check(tokens: TokenStream) -> Result<(), (Span, String)> {
    let mut open = vec![Level::new(tokens)];
    // Of all levels.
    let (mut statement, mut weight) = (0, 0);
    let (mut count, mut signs) = (0, 0);
    while let Some(level) = open.last_mut() {
        statement -= level.tokens;
        weight -= level.weight();
        let Some(token) = level.rest.next() else {
            open.pop();
            weight = weight.saturating_sub(BRACKET);
            continue;
        };
        level.step(&token);
        statement += level.tokens;
        weight += level.weight();
        count += 1;
        signs = if matches!(token, TokenTree::Punct(_)) { signs + 1 } else { 0 };
        let span = token.span();
        if let TokenTree::Group(group) = token {
            weight += BRACKET;
            open.push(Level::new(group.stream()));
        }
        let what = if count > MAX_TOKENS {
            format!("the source has more than {MAX_TOKENS} tokens: divide it into several modules")
        } else if weight > MAX_WEIGHT {
            format!(
                "brackets, types and operators are nested more than {MAX_NESTING} deep: divide the expression with `let`"
            )
        } else if signs > MAX_SIGNS {
            format!("more than {MAX_SIGNS} signs follow one another")
        } else if statement > MAX_STATEMENT {
            format!("the statement has more than {MAX_STATEMENT} tokens: divide it with `let`")
        } else {
            continue;
        };
        return Err((span, what));
    }
    Ok(())
}

/// The tokens of one bracket, or of the source, and what of the current statement is nested.
struct Level {
    rest: token_stream::IntoIter,
    /// The tokens of the statement so far.
    tokens: usize,
    /// The weight of what nests the rest of the statement.
    open: usize,
    /// The number of `<` without their `>`. Each may be the bracket of a type.
    angles: usize,
    /// The weight of the signs before the operand, which may have brackets behind it.
    prefix: usize,
    /// Whether a closure began in the statement, and whether its parameters have not ended.
    has_closure: bool,
    is_in_bars: bool,
    last: Last,
    /// The signs that are joined with the next one, and whether they follow an operand.
    sign: String,
    is_binary: bool,
}

/// What the last token was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Operand,
    Block,
    Sign(char),
    Other,
}

impl Level {
    fn new(tokens: TokenStream) -> Self {
        Self {
            rest: tokens.into_iter(),
            tokens: 0,
            open: 0,
            angles: 0,
            prefix: 0,
            has_closure: false,
            is_in_bars: false,
            last: Last::Other,
            sign: String::new(),
            is_binary: false,
        }
    }

    fn weight(&self) -> usize {
        self.open + ANGLE * self.angles + self.prefix
    }

    fn step(&mut self, token: &TokenTree) {
        self.tokens += 1;
        match token {
            TokenTree::Punct(sign) => self.sign(sign),
            TokenTree::Ident(word) => self.word(&word.to_string()),
            TokenTree::Literal(_) => self.last = Last::Operand,
            TokenTree::Group(group) => {
                // The bracket of an attribute is no operand.
                self.last = match group.delimiter() {
                    Delimiter::Bracket if self.last == Last::Sign('#') => Last::Other,
                    Delimiter::Brace => Last::Block,
                    _ => Last::Operand,
                };
            }
        }
        if !matches!(token, TokenTree::Punct(_)) {
            self.sign.clear();
        }
    }

    fn end(&mut self) {
        (self.tokens, self.open, self.angles, self.prefix) = (0, 0, 0, 0);
        (self.has_closure, self.is_in_bars) = (false, false);
    }

    fn word(&mut self, word: &str) {
        if self.last == Last::Block && !matches!(word, "else" | "as" | "in") {
            self.end();
        }
        let is_nesting = NESTING.contains(&word);
        if is_nesting {
            self.open += KEYWORD;
        }
        // Not in a type.
        if is_nesting && word != "for" || word == "else" {
            self.angles = 0;
        }
        let is_lifetime = self.last == Last::Sign('\'');
        let is_raw = word == "raw" && self.last == Last::Sign('&');
        let is_other = is_nesting || is_lifetime || is_raw || OTHERS.contains(&word);
        self.last = if is_other { Last::Other } else { Last::Operand };
    }

    fn sign(&mut self, token: &Punct) {
        let sign = token.as_char();
        if self.last == Last::Block && sign == '#' {
            self.end();
        }
        if self.sign.is_empty() {
            self.is_binary = self.last == Last::Operand;
        }
        self.sign.push(sign);
        let is_first = self.sign.len() == 1;
        let is_binary = self.is_binary && (is_first || matches!(&*self.sign, "&&" | "||"));
        match (sign, &*self.sign) {
            (';', _) => self.end(),
            // Types and the parameters of closures go on after it.
            (',', _) if self.angles == 0 && !self.has_closure => self.end(),
            ('+' | '=' | '>', _) if self.angles == 0 && is_binary && is_first => {
                self.prefix = 0;
                self.open += if sign == '=' { SIGN } else { 0 };
            }
            ('<', _) => self.angles += 1,
            ('>', "->") => self.open += ARROW,
            // The sign before it was no assignment.
            ('>', "=>") | ('=', "==") => self.open = self.open.saturating_sub(SIGN),
            ('>', _) => self.angles = self.angles.saturating_sub(1),
            ('=', "<=") => self.angles = self.angles.saturating_sub(1),
            ('=' | '@', _) => self.open += SIGN,
            ('|', _) if self.is_in_bars => {
                self.is_in_bars = false;
                self.sign.clear();
            }
            ('|', _) if !is_binary => {
                self.open += KEYWORD;
                (self.has_closure, self.is_in_bars) = (true, true);
            }
            // Not in a type.
            ('.', _) if is_binary => self.angles = 0,
            ('&' | '*' | '/' | '%' | '^' | '|', _) if is_binary => {
                (self.angles, self.prefix) = (0, 0)
            }
            ('-', _) if is_binary && token.spacing() == Spacing::Alone => {
                (self.angles, self.prefix) = (0, 0);
            }
            ('&' | '*', _) => self.prefix += REFERENCE,
            ('-' | '!' | '.', _) if !is_binary => self.prefix += SIGN,
            _ => {}
        }
        if token.spacing() == Spacing::Alone {
            self.sign.clear();
        }
        self.last = Last::Sign(sign);
    }
}
