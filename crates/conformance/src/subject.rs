//! A device under test, as the runner of rules sees it.

use crate::ability::Ability;

/// What the runner must know of a device under test.
pub trait Subject: Sync + 'static {
    /// What is known of the device beforehand.
    fn expectations(&self) -> &Expectations;
}

/// What is known of a device before its rules run.
#[derive(Clone, Debug)]
pub struct Expectations {
    pub(crate) name: &'static str,
    pub(crate) abilities: Vec<Ability>,
    pub(crate) unsupported: Vec<(&'static str, &'static str)>,
    pub(crate) expected_failures: Vec<(&'static str, &'static str)>,
    pub(crate) faults_may_end_processes: bool,
}

impl Expectations {
    /// A device with this name in reports that must keep all rules.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            abilities: Vec::new(),
            unsupported: Vec::new(),
            expected_failures: Vec::new(),
            faults_may_end_processes: false,
        }
    }

    /// Why the device can never keep the rule.
    pub(crate) fn reason_unsupported(&self, rule: &str) -> Option<&'static str> {
        reason(&self.unsupported, rule)
    }

    /// Why the device does not keep the rule yet.
    pub(crate) fn reason_to_fail(&self, rule: &str) -> Option<&'static str> {
        reason(&self.expected_failures, rule)
    }

    /// Whether a rule about the ability fails if the device lacks it.
    pub(crate) fn must_have(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }
}

fn reason(list: &[(&'static str, &'static str)], rule: &str) -> Option<&'static str> {
    list.iter().find(|(name, _)| *name == rule).map(|(_, reason)| *reason)
}

/// The methods of a fixture that change its `expectations`.
macro_rules! declarations {
    () => {
        /// Declares what the device must have. A rule about one of these abilities fails if the device lacks it.
        #[must_use]
        pub fn abilities(mut self, abilities: impl IntoIterator<Item = Ability>) -> Self {
            self.expectations.abilities.extend(abilities);
            self
        }

        /// Always skips a rule, because the device can never keep it.
        #[must_use]
        pub fn unsupported(mut self, rule: &'static str, reason: &'static str) -> Self {
            self.expectations.unsupported.push((rule, reason));
            self
        }

        /// Expects a rule to fail for now. The test fails when the rule passes.
        #[must_use]
        pub fn expected_failure(mut self, rule: &'static str, reason: &'static str) -> Self {
            self.expectations.expected_failures.push((rule, reason));
            self
        }
    };
}

pub(crate) use declarations;
