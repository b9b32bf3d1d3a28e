//! The counter of retired instructions, which `icount` makes exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime_core::contract::{CounterSet, Counters};
use runtime_core::{Error, ErrorKind, Result};

const NAME: &str = "instructions";

/// The number of instructions that called functions retired, without those of the monitor: the same in every run.
#[derive(Debug, Default)]
pub(crate) struct Instructions {
    total: AtomicU64,
    /// The number of calls whose number is unknown.
    unknown: AtomicU64,
}

impl Instructions {
    /// Adds the number of a call, as the difference of two readings of the processor's counter.
    pub(crate) fn add(&self, number: u64) {
        // The function has set the counter back.
        let is_negative = number.cast_signed() < 0;
        let (sum, number) = if is_negative { (&self.unknown, 1) } else { (&self.total, number) };
        sum.fetch_add(number, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct InstructionCounter(Arc<Instructions>);

impl InstructionCounter {
    pub(crate) fn new(instructions: &Arc<Instructions>) -> Self {
        Self(Arc::clone(instructions))
    }
}

impl Counters for InstructionCounter {
    fn names(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    fn open(&self, names: &[&str]) -> Result<Box<dyn CounterSet>> {
        if let Some(unknown) = names.iter().find(|name| **name != NAME) {
            let message = format!("no counter {unknown:?}; there is {NAME:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, "counters", message));
        }
        let [start, unknown] =
            [&self.0.total, &self.0.unknown].map(|sum| sum.load(Ordering::Relaxed));
        Ok(Box::new(Open { instructions: Arc::clone(&self.0), start, unknown }))
    }
}

struct Open {
    instructions: Arc<Instructions>,
    start: u64,
    unknown: u64,
}

impl CounterSet for Open {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        if self.instructions.unknown.load(Ordering::Relaxed) != self.unknown {
            let message =
                "a function has written `minstret`, so its number of instructions is unknown";
            return Err(Error::new(ErrorKind::Driver, "counters", message));
        }
        values.fill(self.instructions.total.load(Ordering::Relaxed).wrapping_sub(self.start));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_was_set_back_is_an_error_until_it_is_opened_again() {
        let instructions = Arc::<Instructions>::default();
        let counter = InstructionCounter::new(&instructions);
        let mut open = counter.open(&[NAME]).unwrap();
        let mut count = [0];
        instructions.add(5);
        open.read(&mut count).unwrap();
        assert_eq!(count, [5]);
        instructions.add(3_u64.wrapping_sub(100));
        for _ in 0..2 {
            let error = open.read(&mut count).unwrap_err();
            assert!(error.message().contains("minstret"), "{error}");
        }
        let mut open = counter.open(&[NAME]).unwrap();
        instructions.add(7);
        open.read(&mut count).unwrap();
        assert_eq!(count, [7]);
    }
}
