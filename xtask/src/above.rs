//! What is built above the contract, whose tests run on the devices of a backend.

use std::process::Command;

use crate::run::cargo;

/// A package with a test for each of its rules and each backend.
pub(crate) struct Above {
    pub(crate) package: &'static str,
    /// Its test programs that have a module named after each backend.
    pub(crate) programs: &'static [&'static str],
}

pub(crate) const ALL: [Above; 3] = [
    Above { package: "array-buffer", programs: &["regressions"] },
    Above { package: "halo", programs: &["geometry", "reverse"] },
    Above { package: "interchange", programs: &["devices"] },
];

impl Above {
    /// Its tests on the devices of a backend.
    pub(crate) fn tests(&self, backend: &str) -> Command {
        let mut command =
            cargo(&["test", "--no-fail-fast", "--all-features", "--package", self.package]);
        command.args(self.programs.iter().flat_map(|program| ["--test", program]));
        command.args(["--", &format!("{backend}::")]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_tests_for_gpus() {
        for above in ALL {
            for program in above.programs {
                let file = format!("crates/{}/tests/{program}.rs", above.package);
                let text = std::fs::read_to_string(crate::run::root().join(&file)).unwrap();
                assert!(text.contains("on_all_devices!"), "{file}");
            }
            let words: Vec<_> = above.tests("hip").get_args().map(|word| word.to_owned()).collect();
            assert_eq!(words.last().unwrap(), "hip::");
        }
    }
}
