//! The description of an embedded device under test.

use std::fmt;

use runtime_core::{Embedded, ErrorKind, Result};

use crate::subject::{Expectations, Subject, declarations};
use crate::{Ability, Outcome, Stop};

/// An embedded device under test: its name, how to open it, and its program.
pub struct EmbeddedFixture {
    expectations: Expectations,
    open: Box<dyn Fn() -> Result<Embedded> + Send + Sync>,
    program: &'static [u8],
    free: u64,
    lacks: Vec<Ability>,
}

impl EmbeddedFixture {
    /// A device with this name in reports. The parameters are those of [`embedded!`](crate::embedded!).
    pub fn new(
        name: &'static str,
        open: impl Fn() -> Result<Embedded> + Send + Sync + 'static,
        program: &'static [u8],
        free: u64,
    ) -> Self {
        Self {
            expectations: Expectations::new(name),
            open: Box::new(open),
            program,
            free,
            lacks: Vec::new(),
        }
    }

    declarations!();

    /// Declares what the device lacks, where the device cannot report it. Rules about it do not apply.
    #[must_use]
    pub fn lacks(mut self, abilities: impl IntoIterator<Item = Ability>) -> Self {
        self.lacks.extend(abilities);
        self
    }

    /// A new instance of the device with the program. If the device is not available on this machine, the rule is
    /// skipped.
    pub(super) fn device(&self) -> Outcome<Embedded> {
        let device = (self.open)().map_err(|error| match error.kind() {
            ErrorKind::Unavailable => Stop::Skipped(error.to_string()),
            _ => Stop::failed(format_args!("the device cannot be opened: {error}")),
        })?;
        device.flash(self.program)?;
        Ok(device)
    }

    pub(super) fn has(&self, ability: Ability) -> Option<()> {
        (!self.lacks.contains(&ability)).then_some(())
    }

    pub(super) fn program(&self) -> &'static [u8] {
        self.program
    }

    /// The address of 4096 bytes that the program does not use.
    pub(super) fn free(&self) -> u64 {
        self.free
    }
}

impl Subject for EmbeddedFixture {
    fn expectations(&self) -> &Expectations {
        &self.expectations
    }
}

impl fmt::Debug for EmbeddedFixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedFixture")
            .field("name", &self.expectations.name)
            .finish_non_exhaustive()
    }
}
