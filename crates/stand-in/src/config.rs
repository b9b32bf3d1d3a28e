//! What a stand-in is like, from the environment.

use std::env;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use crate::fault::FaultPlan;

/// Variables of the environment, each with its default.
///
/// | variable | default | |
/// |---|---|---|
/// | `STAND_IN_DEVICES` | 2 | how many devices there are |
/// | `STAND_IN_MEMORY` | 1024 | MiB of memory of each |
/// | `STAND_IN_ALIGNMENT` | 512 | what device memory is aligned to, and no more than that: a power of two up to 512 |
/// | `STAND_IN_SEED` | 1 | seed of the pauses before work; 0 for none |
/// | `STAND_IN_FAULTS` | | faults to come, see [`FaultPlan`] |
/// | `STAND_IN_DEFAULT_STREAMS` | 0 | 1 if the driver's own streams, 0 to 2, are used on purpose; otherwise they are violations |
/// | `STAND_IN_REPORT` | | file that the report is appended to, in JSON lines |
#[derive(Clone, Debug)]
pub struct Config {
    /// How many devices there are.
    pub devices: usize,
    /// Bytes of memory of each device.
    pub memory: usize,
    /// What device memory is aligned to.
    pub alignment: u64,
    /// Seed of the pauses before work; 0 for none.
    pub seed: u64,
    /// Faults to come.
    pub faults: String,
    /// Whether the driver's own streams are used on purpose.
    pub default_streams: bool,
    /// Where the report goes.
    pub report: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 2,
            memory: 1 << 30,
            alignment: 512,
            seed: 1,
            faults: String::new(),
            default_streams: false,
            report: None,
        }
    }
}

impl Config {
    /// As the environment has it.
    ///
    /// # Errors
    ///
    /// A message that names the variable and its value, when the value is none.
    pub fn from_env() -> Result<Self, String> {
        let default = Self::default();
        let memory = number("STAND_IN_MEMORY", default.memory >> 20, 1 << 20)?;
        let config = Self {
            devices: number("STAND_IN_DEVICES", default.devices, 64)?,
            memory: memory << 20,
            alignment: number("STAND_IN_ALIGNMENT", default.alignment, 512)?,
            seed: number("STAND_IN_SEED", default.seed, u64::MAX)?,
            faults: env::var("STAND_IN_FAULTS").unwrap_or_default(),
            default_streams: number("STAND_IN_DEFAULT_STREAMS", 0, 1)? == 1,
            report: env::var_os("STAND_IN_REPORT").map(PathBuf::from),
        };
        FaultPlan::parse(&config.faults)?;
        Ok(config)
    }
}

/// A number from the environment.
pub(crate) fn number<T>(variable: &str, default: T, most: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let Ok(text) = env::var(variable) else { return Ok(default) };
    let number = text.trim().parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{variable} is '{text}' and not a number up to {most}"))
}
