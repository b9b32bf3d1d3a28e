//! Errors with places.

use std::collections::HashSet;
use std::fmt;

use proc_macro2::{Span, TokenStream};

/// A number of things, as words.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// What is wrong with one place of a stencil, and what to write instead.
#[derive(Clone, Debug)]
pub struct Error {
    span: Span,
    message: String,
}

impl Error {
    /// The place.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The part of an error in which two different errors differ.
    fn key(&self) -> (String, String) {
        (format!("{:?}", self.span), self.message.clone())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// All errors of a translation; at least one.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    list: Vec<Error>,
    keys: HashSet<(String, String)>,
}

impl Errors {
    /// The errors, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        self.list.iter()
    }

    /// The errors as `compile_error!` calls at their places.
    pub fn to_compile_error(&self) -> TokenStream {
        self.iter().map(|error| syn::Error::new(error.span, error).into_compile_error()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes the errors that came after the first ones.
    pub(crate) fn split_off(&mut self, first: usize) -> Self {
        let mut rest = Self::default();
        for error in self.list.split_off(first) {
            self.keys.remove(&error.key());
            rest.add(error);
        }
        rest
    }

    pub(crate) fn append(&mut self, other: Self) {
        for error in other.list {
            self.add(error);
        }
    }

    /// Adds an error. A helper is expanded once for each call, and the same error at the same place counts once.
    pub(crate) fn push(&mut self, span: Span, message: impl Into<String>) {
        self.add(Error { span, message: message.into() });
    }

    fn add(&mut self, error: Error) {
        if self.keys.insert(error.key()) {
            self.list.push(error);
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.iter().enumerate() {
            write!(f, "{}{error}", if place > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
