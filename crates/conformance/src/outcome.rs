//! The outcome of a rule, and the checks that rules use.

use std::fmt;
use std::panic::Location;

use runtime_core::{ConversionError, Element, Error, ErrorKind, Result, bytemuck};

use crate::ability::Ability;

/// `Ok` if the device keeps the rule; otherwise the reason why the rule ended early.
pub type Outcome<T = ()> = std::result::Result<T, Stop>;

/// The reason why a rule ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The device breaks the rule. The text contains what was observed, what was expected, and the place in the suite.
    Failed(String),
    /// The rule is about an ability that the device lacks.
    NotApplicable(Ability),
    /// The rule cannot be checked here. The text says what is missing.
    Skipped(String),
}

impl Stop {
    /// A failure, with the place in the suite that detected it.
    #[track_caller]
    pub fn failed(message: impl fmt::Display) -> Self {
        let place = Location::caller();
        Self::Failed(format!("{message} (at {}:{})", place.file(), place.line()))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::NotApplicable(ability) => write!(f, "not applicable: needs {ability}"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

/// What a rule needs, or the reason why the rule does not apply.
pub(crate) fn needed<T>(found: Option<T>, ability: Ability) -> Outcome<T> {
    found.ok_or(Stop::NotApplicable(ability))
}

impl<A> From<ConversionError<A>> for Stop {
    fn from(failed: ConversionError<A>) -> Self {
        Error::from(failed).into()
    }
}

impl From<Error> for Stop {
    /// An unexpected error is a failure.
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::failed(format_args!("unexpected error: {error}"))
    }
}

/// Fails the rule unless the condition holds. The message says what was observed.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err($crate::Stop::failed(format_args!($($message)+)));
        }
    }};
}

/// Fails the rule unless both are equal. The message says what they are; the values are appended.
macro_rules! check_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) => check!(
                *left == *right,
                "{}: {left:?}, expected {right:?}",
                format_args!($($message)+)
            ),
        }
    };
}

pub(crate) use {check, check_eq};

/// Fails unless both have the same bytes. Names the first element that differs.
#[track_caller]
pub(crate) fn same<T: Element + fmt::Debug>(
    found: &[T],
    expected: &[T],
    what: impl fmt::Display,
) -> Outcome {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(Stop::failed(format_args!("{what}: {found} elements, expected {expected}")));
    }
    let differs = |pair: &(&T, &T)| bytemuck::bytes_of(pair.0) != bytemuck::bytes_of(pair.1);
    let count = found.iter().zip(expected).filter(differs).count();
    match found.iter().zip(expected).position(|pair| differs(&pair)) {
        None => Ok(()),
        Some(index) => Err(Stop::failed(format_args!(
            "{what}: element {index} is {:?}, expected {:?}; {count} of {} differ",
            found[index],
            expected[index],
            found.len()
        ))),
    }
}

/// Fails unless the call was refused with this kind. Returns the error for further checks.
#[track_caller]
pub(crate) fn refused<T>(
    outcome: Result<T>,
    kind: ErrorKind,
    what: impl fmt::Display,
) -> Outcome<Error> {
    refused_as(outcome, &[kind], what)
}

/// As [`refused`], if more than one kind is correct.
#[track_caller]
pub(crate) fn refused_as<T>(
    outcome: Result<T>,
    kinds: &[ErrorKind],
    what: impl fmt::Display,
) -> Outcome<Error> {
    let error = match outcome {
        Ok(_) => return Err(Stop::failed(format_args!("{what} succeeded, expected {kinds:?}"))),
        Err(error) => error,
    };
    if !kinds.contains(&error.kind()) {
        return Err(Stop::failed(format_args!("{what}: {error}; expected {kinds:?}")));
    }
    if error.operation().is_empty() || error.message().is_empty() {
        let message = format_args!("{what}: {error:?} names no operation or says nothing");
        return Err(Stop::failed(message));
    }
    if error.device().is_none() {
        return Err(Stop::failed(format_args!("{what}: {error:?} does not name the device")));
    }
    Ok(error)
}

/// Tries up to three times. This is for checks of times: a busy machine can make a correct device fail, but cannot make
/// a wrong device pass.
pub(crate) fn best_of_three(mut attempt: impl FnMut() -> Outcome) -> Outcome {
    attempt().or_else(|_| attempt()).or_else(|_| attempt())
}
