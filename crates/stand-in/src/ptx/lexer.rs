//! Text to tokens.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, a directive with its dot, an opcode with its modifiers, a register with its dimension.
    Word(&'a str),
    /// The bits of a number: of an integer, or of a float as `0f…` or `0d…` gives them.
    Number(u64),
    /// A number with a decimal point, which only the version is.
    Decimal(&'a str),
    Text(&'a str),
    Sign(char),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Decimal(text) => write!(f, "`{text}`"),
            Self::Number(bits) => write!(f, "`{bits}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
            Self::End => f.write_str("the end of the text"),
        }
    }
}

/// Tokens and the lines they are on, from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                line += 1;
                1
            }
            _ if first.is_whitespace() => first.len_utf8(),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").ok_or_else(|| at(line, "a comment without an end"))?;
                line += newlines(&rest[..end]);
                end + 2
            }
            '"' => {
                let end = rest[1..].find('"').ok_or_else(|| at(line, "a text without an end"))?;
                found.push((Token::Text(&rest[1..=end]), line));
                line += newlines(&rest[..end]);
                end + 2
            }
            '0'..='9' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
                let word = &rest[..end.unwrap_or(rest.len())];
                let token =
                    number(word).ok_or_else(|| at(line, &format!("`{word}` is no number")))?;
                found.push((token, line));
                word.len()
            }
            _ if starts_word(first) => {
                let length = word_length(rest);
                found.push((Token::Word(&rest[..length]), line));
                length
            }
            _ if "@!|,;:()[]{}<>=+-".contains(first) => {
                found.push((Token::Sign(first), line));
                1
            }
            _ => return Err(at(line, &format!("unexpected character {first:?}"))),
        };
        rest = &rest[length..];
    }
    found.push((Token::End, line));
    Ok(found)
}

/// A message with its line.
pub(super) fn at(line: u32, message: &str) -> String {
    format!("line {line}: {message}")
}

fn newlines(text: &str) -> u32 {
    text.bytes().filter(|byte| *byte == b'\n').map(|_| 1).sum()
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || "_$%.".contains(c)
}

/// Words have dots within, and double colons, as in `.L1::no_allocate`.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 1;
    while let Some(byte) = bytes.get(length) {
        match byte {
            b'_' | b'$' | b'.' => length += 1,
            _ if byte.is_ascii_alphanumeric() => length += 1,
            b':' if bytes.get(length + 1) == Some(&b':') => length += 2,
            _ => break,
        }
    }
    length
}

fn number(word: &str) -> Option<Token<'_>> {
    if word.contains('.') {
        return Some(Token::Decimal(word));
    }
    let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let bits = match word.as_bytes() {
        [b'0', b'f' | b'F', ..] if word.len() == 10 => hexadecimal(&word[2..])?,
        [b'0', b'd' | b'D', ..] if word.len() == 18 => hexadecimal(&word[2..])?,
        _ => {
            let word = word.trim_end_matches('U');
            match word.as_bytes() {
                [b'0', b'x' | b'X', ..] => hexadecimal(&word[2..])?,
                [b'0', b'b' | b'B', ..] => u64::from_str_radix(&word[2..], 2).ok()?,
                [b'0', _, ..] => u64::from_str_radix(&word[1..], 8).ok()?,
                _ => word.parse().ok()?,
            }
        }
    };
    Some(Token::Number(bits))
}
