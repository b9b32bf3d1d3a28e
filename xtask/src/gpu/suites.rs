//! The packages above the backends whose tests run on GPUs.

use std::process::Command;

use crate::cargo::cargo;

/// A package whose tests have a module for each backend.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) package: &'static str,
    /// Its test programs that have a module named after each backend.
    pub(crate) programs: &'static [&'static str],
}

pub(crate) const ALL: [Suite; 4] = [
    Suite {
        package: "array-buffer",
        programs: &[
            "complete_writes",
            "home",
            "late_failures",
            "memory_budget",
            "movement",
            "order",
            "page_locked",
            "prefetch",
            "programs",
            "refresh",
            "regressions",
            "repartition",
            "unified",
        ],
    },
    Suite {
        package: "halo",
        programs: &[
            "blocks",
            "by_axis",
            "forest",
            "geometry",
            "messages",
            "reverse",
            "several_devices",
        ],
    },
    Suite { package: "interchange", programs: &["devices"] },
    Suite {
        package: "stencil",
        programs: &[
            "columns",
            "gallery",
            "gather",
            "ghosts",
            "heat",
            "reductions",
            "sphere",
            "sweep",
        ],
    },
];

impl Suite {
    /// The words that select its programs in a call of cargo.
    pub(crate) fn selection(&self) -> Vec<&'static str> {
        let programs = self.programs.iter().flat_map(|program| ["--test", program]);
        ["--all-features", "--package", self.package].into_iter().chain(programs).collect()
    }

    /// The tests on the devices of a backend.
    pub(crate) fn tests(&self, backend: &str) -> Command {
        let mut command = cargo(&["test", "--no-fail-fast"]);
        command.args(self.selection());
        command.args(["--", &format!("{backend}::")]);
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A test module for a GPU that no run lists would never run.
    #[test]
    fn every_program_with_tests_for_gpus_is_run() {
        let crates = crate::cargo::root().join("crates");
        let mut found = Vec::new();
        for package in fs::read_dir(crates).unwrap() {
            let package = package.unwrap();
            for file in fs::read_dir(package.path().join("tests")).into_iter().flatten() {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap_or_default();
                let has = |line: &str| {
                    ["on_all_devices!", "on_stand_ins_with_gates!"]
                        .iter()
                        .any(|name| line.starts_with(name))
                };
                if text.lines().any(has) {
                    let program = path.file_stem().unwrap().to_string_lossy().into_owned();
                    found.push((package.file_name().to_string_lossy().into_owned(), program));
                }
            }
        }
        let programs = |above: Suite| above.programs.iter().map(move |name| (above.package, *name));
        let mut run: Vec<_> = ALL
            .into_iter()
            .flat_map(programs)
            .map(|(package, program)| (package.to_owned(), program.to_owned()))
            .collect();
        found.sort();
        run.sort();
        assert_eq!(run, found);
    }

    #[test]
    fn the_tests_of_a_backend_are_those_of_its_modules() {
        for suite in ALL {
            let tests = suite.tests("hip");
            assert_eq!(tests.get_args().last().unwrap(), "hip::");
        }
    }
}
