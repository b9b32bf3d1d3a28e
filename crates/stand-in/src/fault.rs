//! Calls that fail as planned.

use parking_lot::Mutex;

use crate::code::{Code, Result};

/// The classes of calls, which faults count separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Alloc,
    Copy,
    Fill,
    Launch,
    Stream,
    Event,
    Module,
    Sync,
    /// Calls of every class.
    Any,
}

impl Class {
    const ALL: [(&str, Self, Code); 9] = [
        ("alloc", Self::Alloc, Code::OUT_OF_MEMORY),
        ("copy", Self::Copy, Code::LAUNCH_FAILED),
        ("fill", Self::Fill, Code::LAUNCH_FAILED),
        ("launch", Self::Launch, Code::LAUNCH_OUT_OF_RESOURCES),
        ("stream", Self::Stream, Code::OUT_OF_MEMORY),
        ("event", Self::Event, Code::OUT_OF_MEMORY),
        ("module", Self::Module, Code::OUT_OF_MEMORY),
        ("sync", Self::Sync, Code::UNKNOWN),
        ("lose", Self::Any, Code::ECC_UNCORRECTABLE),
    ];
}

/// The effect of a planned fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Run,
    /// The call fails.
    Fail(Code),
    /// The call succeeds, and its work fails when it runs; captured work, when its graph runs. A call that enqueues
    /// nothing fails, and its context ends.
    FailLate(Code),
    /// The context ends at once.
    Lose(Code),
}

/// Planned faults, as `class:n` or `class:n=code`, separated by commas: the n-th call of the class fails with the code.
///
/// | class | counts | code unless given |
/// |---|---|---|
/// | `alloc` | allocations of any memory | 2 |
/// | `copy`, `fill` | copies, fills | 719 |
/// | `launch` | launches of kernels and graphs | 701 |
/// | `stream`, `event` | creations | 2 |
/// | `module` | loads | 2 |
/// | `sync` | blocking waits of the host | 999 |
/// | `lose` | calls of all these classes; the device is lost | 214 |
///
/// The codes of failed work (214, 700, 702, 710, 714 to 719) appear when the work runs, and end the context. Captured
/// work runs when its graph does. After `sync:n=600`, all waits and queries of the context answer 600: work is not
/// ready.
#[derive(Debug, Default)]
pub struct FaultPlan(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Vec<(Class, u64, Code)>,
    counts: [u64; Class::ALL.len()],
}

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// A message that names the invalid fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let fault = |part: &str| {
            let (class, rest) = part.split_once(':')?;
            let (_, class, default) = Class::ALL.iter().find(|known| known.0 == class.trim())?;
            let (nth, code) = match rest.split_once('=') {
                Some((nth, code)) => (nth, Code(code.trim().parse().ok()?)),
                None => (rest, *default),
            };
            let nth = nth.trim().parse().ok().filter(|nth| *nth > 0)?;
            (code.0 > 0).then_some((*class, nth, code))
        };
        let refuse = |part| format!("STAND_IN_FAULTS: '{part}' is not 'class:n' or 'class:n=code'");
        let faults: Result<Vec<_>, String> =
            parts.map(|part| fault(part).ok_or_else(|| refuse(part))).collect();
        Ok(Self(Mutex::new(State { faults: faults?, ..State::default() })))
    }

    /// Counts a call.
    pub(crate) fn next(&self, class: Class) -> Fate {
        let state = &mut *self.0.lock();
        for counted in [class, Class::Any] {
            state.counts[counted as usize] += 1;
        }
        let due = state.faults.iter().position(|(of, nth, _)| {
            (*of == class || *of == Class::Any) && *nth == state.counts[*of as usize]
        });
        match due.map(|index| state.faults.remove(index)) {
            None => Fate::Run,
            Some((Class::Any, _, code)) => Fate::Lose(code),
            Some((_, _, code)) if code.is_late() => Fate::FailLate(code),
            Some((_, _, code)) => Fate::Fail(code),
        }
    }

    /// The number of calls of each class so far.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.lock().counts;
        Class::ALL
            .iter()
            .filter(|known| known.1 != Class::Any)
            .map(move |known| (known.0, counts[known.1 as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_class_fails() {
        let plan = FaultPlan::parse("alloc:2, copy:1=700, lose:5, launch:1=1").unwrap();
        assert_eq!(plan.next(Class::Alloc), Fate::Run);
        assert_eq!(plan.next(Class::Alloc), Fate::Fail(Code::OUT_OF_MEMORY));
        assert_eq!(plan.next(Class::Alloc), Fate::Run);
        assert_eq!(plan.next(Class::Copy), Fate::FailLate(Code::ILLEGAL_ADDRESS));
        assert_eq!(plan.next(Class::Fill), Fate::Lose(Code::ECC_UNCORRECTABLE));
        assert_eq!(plan.next(Class::Launch), Fate::Fail(Code(1)));
        assert_eq!(plan.next(Class::Launch), Fate::Run);
    }

    #[test]
    fn an_invalid_fault_is_named_in_the_error() {
        for text in ["alloc", "alloc:0", "alloc:x", "malloc:1", "copy:1=", "copy:1=0"] {
            let refused = FaultPlan::parse(text).unwrap_err();
            assert!(refused.contains(text), "{refused}");
        }
    }
}
