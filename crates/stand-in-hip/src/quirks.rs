//! What some versions of the runtime do and others do not.

use std::env;
use std::sync::OnceLock;

use stand_in::{Result, process};

/// The variable that names them, separated by commas.
const VARIABLE: &str = "STAND_IN_HIP_QUIRKS";

/// Which of them the stand-in has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// `null-memory`: a pool without room tells success, and the address 0.
    pub(crate) null_memory: bool,
    /// `lasting-faults`: once work has failed, every call tells so, for every device, and none is reset.
    pub(crate) lasting_faults: bool,
}

impl Quirks {
    fn parse(text: &str) -> Result<Self, String> {
        let mut quirks = Self::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "null-memory" => quirks.null_memory = true,
                "lasting-faults" => quirks.lasting_faults = true,
                _ => {
                    return Err(format!(
                        "{VARIABLE}: '{name}' is not null-memory or lasting-faults"
                    ));
                }
            }
        }
        Ok(quirks)
    }
}

/// Those that the environment asks for.
pub(crate) fn quirks() -> Result<Quirks> {
    static QUIRKS: OnceLock<Result<Quirks, String>> = OnceLock::new();
    let quirks = QUIRKS.get_or_init(|| Quirks::parse(&env::var(VARIABLE).unwrap_or_default()));
    quirks.as_ref().copied().map_err(|why| process::complain(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_those_that_are_named() {
        assert_eq!(Quirks::parse(""), Ok(Quirks::default()));
        let both = Quirks { null_memory: true, lasting_faults: true };
        assert_eq!(Quirks::parse("null-memory, lasting-faults"), Ok(both));
        assert!(Quirks::parse("null").unwrap_err().contains("'null'"));
    }
}
