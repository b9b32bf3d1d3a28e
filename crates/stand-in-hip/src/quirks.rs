//! Behaviour that only some versions of the runtime have.

use std::env;
use std::sync::OnceLock;

use stand_in::{Code, Result, process};

/// The variable that selects quirks, separated by commas.
const VARIABLE: &str = "STAND_IN_HIP_QUIRKS";

/// The quirks of the stand-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// `null-memory`: a pool without room returns success and the address 0.
    pub(crate) null_memory: bool,
    /// `lasting-faults`: once work has failed, every call for every device reports the failure, and no device is reset.
    pub(crate) lasting_faults: bool,
    /// `ending-faults`: work that fails ends the process.
    pub(crate) ending_faults: bool,
    /// `no-answers`: queries about functions, blocks and the device of a stream are not supported.
    pub(crate) no_answers: bool,
    /// `kinds-of-hip-6`: kinds of memory have the numbers of HIP 6, whatever the version.
    pub(crate) kinds_of_hip_6: bool,
}

impl Quirks {
    fn parse(text: &str) -> Result<Self, String> {
        let mut quirks = Self::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let quirk = match name {
                "null-memory" => &mut quirks.null_memory,
                "lasting-faults" => &mut quirks.lasting_faults,
                "ending-faults" => &mut quirks.ending_faults,
                "no-answers" => &mut quirks.no_answers,
                "kinds-of-hip-6" => &mut quirks.kinds_of_hip_6,
                _ => {
                    return Err(format!(
                        "{VARIABLE}: '{name}' is not null-memory, lasting-faults, ending-faults, no-answers or kinds-of-hip-6"
                    ));
                }
            };
            *quirk = true;
        }
        Ok(quirks)
    }
}

/// The quirks that the environment selects.
pub(crate) fn quirks() -> Result<Quirks> {
    static QUIRKS: OnceLock<Result<Quirks, String>> = OnceLock::new();
    let quirks = QUIRKS.get_or_init(|| Quirks::parse(&env::var(VARIABLE).unwrap_or_default()));
    quirks.as_ref().copied().map_err(|why| process::complain(why))
}

/// Refuses a query, with the quirk `no-answers`.
pub(crate) fn check_queries() -> Result<()> {
    if quirks()?.no_answers { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_selected_by_name() {
        assert_eq!(Quirks::parse(""), Ok(Quirks::default()));
        let both = Quirks { null_memory: true, lasting_faults: true, ..Quirks::default() };
        assert_eq!(Quirks::parse("null-memory, lasting-faults"), Ok(both));
        let others = Quirks { ending_faults: true, no_answers: true, ..Quirks::default() };
        assert_eq!(Quirks::parse("ending-faults,no-answers"), Ok(others));
        assert!(Quirks::parse("null").unwrap_err().contains("'null'"));
    }
}
