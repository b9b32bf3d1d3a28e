//! The description of a device under test.

use std::fmt;
use std::sync::OnceLock;

use runtime_core::{Device, ErrorKind, ModuleBundle, Result};

use crate::ability::Ability;
use crate::outcome::{Outcome, Stop};
use crate::setup::{Setup, SpinRate};
use crate::subject::{Expectations, Subject, declarations};

/// A device under test: its name, how to open it, its kernels, and the rules that it is known not to keep.
///
/// [`accelerator!`](crate::accelerator) makes it. Make it directly to call single rules:
///
/// ```no_run
/// # fn open(_: usize) -> runtime_core::Result<runtime_core::Device> { unimplemented!() }
/// use conformance::{Fixture, kernels, rules};
///
/// let fixture = Fixture::new("mine", open, kernels::host_functions());
/// rules::streams_run_in_order(&fixture)?;
/// # Ok::<(), conformance::Stop>(())
/// ```
pub struct Fixture {
    expectations: Expectations,
    open: Box<dyn Fn(usize) -> Result<Device> + Send + Sync>,
    kernels: ModuleBundle<'static>,
    shared: OnceLock<Outcome<Setup>>,
    other: OnceLock<Outcome<Setup>>,
    spin_rates: [SpinRate; 2],
}

impl Fixture {
    /// A device with this name in reports. `open` returns device 0 or 1, a new instance at every call. `kernels` has
    /// the functions of [`kernels`](crate::kernels).
    pub fn new(
        name: &'static str,
        open: impl Fn(usize) -> Result<Device> + Send + Sync + 'static,
        kernels: ModuleBundle<'static>,
    ) -> Self {
        Self {
            expectations: Expectations::new(name),
            open: Box::new(open),
            kernels,
            shared: OnceLock::new(),
            other: OnceLock::new(),
            spin_rates: Default::default(),
        }
    }

    declarations!();

    /// Declares that the device's driver may end the process when a program is stopped. If a rule about faults ends the
    /// process in this way, it passes, and its report says how the process ended. If the process ends before the fault,
    /// the rule fails.
    #[must_use]
    pub fn faults_may_end_the_process(mut self) -> Self {
        self.expectations.faults_may_end_processes = true;
        self
    }

    /// The name used in reports.
    pub fn name(&self) -> &'static str {
        self.expectations.name
    }

    /// Device 0, opened once and shared by the rules of this process, with a new stream for the rule.
    pub(crate) fn setup(&self) -> Outcome<Setup> {
        let shared = self.shared.get_or_init(|| self.fresh()).clone()?;
        Ok(shared.with_stream()?)
    }

    /// A new instance of device 0 that no other rule uses.
    pub(crate) fn fresh(&self) -> Outcome<Setup> {
        let device = self.open(0)?;
        Ok(Setup::new(device, &self.kernels, self.spin_rates[0].clone())?)
    }

    /// A device other than that of [`setup`](Self::setup), also shared. It is device 1, or a second instance of device
    /// 0 if there is no device 1; a second instance counts as another device.
    pub(crate) fn other(&self) -> Outcome<Setup> {
        let open = || match (self.open)(1) {
            Err(error) if is_absent(error.kind()) => self.fresh(),
            device => Ok(Setup::new(device?, &self.kernels, self.spin_rates[1].clone())?),
        };
        Ok(self.other.get_or_init(open).clone()?.with_stream()?)
    }

    /// Opens device `index`.
    pub(crate) fn try_open(&self, index: usize) -> Result<Device> {
        (self.open)(index)
    }

    /// A new instance of device `index`. If device 0 is not available on this machine, the rule is skipped.
    pub(crate) fn open(&self, index: usize) -> Outcome<Device> {
        (self.open)(index).map_err(|error| match error.kind() {
            ErrorKind::Unavailable => Stop::Skipped(error.to_string()),
            _ => Stop::failed(format_args!("device {index} cannot be opened: {error}")),
        })
    }

    /// Device 1, if it exists.
    pub(crate) fn open_second(&self) -> Outcome<Option<Device>> {
        match (self.open)(1) {
            Err(error) if is_absent(error.kind()) => Ok(None),
            device => Ok(Some(device?)),
        }
    }

    pub(crate) fn kernels(&self) -> &ModuleBundle<'static> {
        &self.kernels
    }
}

impl Subject for Fixture {
    fn expectations(&self) -> &Expectations {
        &self.expectations
    }
}

fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::UnknownDevice)
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("name", &self.expectations.name)
            .field("unsupported", &self.expectations.unsupported)
            .field("expected_failures", &self.expectations.expected_failures)
            .finish_non_exhaustive()
    }
}
