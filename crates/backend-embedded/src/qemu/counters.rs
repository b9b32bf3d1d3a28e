//! The counter of retired instructions, which `icount` makes exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime_core::contract::{CounterSet, Counters};
use runtime_core::{Error, ErrorKind, Result};

const NAME: &str = "instructions";

/// The number of instructions that called functions retired, without those of the monitor: the same in every run.
#[derive(Debug)]
pub(crate) struct InstructionCounter(Arc<AtomicU64>);

impl InstructionCounter {
    pub(crate) fn new(total: &Arc<AtomicU64>) -> Self {
        Self(Arc::clone(total))
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
        let start = self.0.load(Ordering::Relaxed);
        Ok(Box::new(Open { total: Arc::clone(&self.0), start }))
    }
}

struct Open {
    total: Arc<AtomicU64>,
    start: u64,
}

impl CounterSet for Open {
    fn read(&mut self, values: &mut [u64]) -> Result<()> {
        values.fill(self.total.load(Ordering::Relaxed) - self.start);
        Ok(())
    }
}
