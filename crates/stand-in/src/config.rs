//! The configuration of a stand-in, from the environment.

use std::env;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use crate::fault::FaultPlan;

/// The configuration. Variables of the environment set it; each has a default.
///
/// | variable | default | |
/// |---|---|---|
/// | `STAND_IN_DEVICES` | 2 | the number of devices |
/// | `STAND_IN_MEMORY` | 1024 | the memory of each device in MiB |
/// | `STAND_IN_ALIGNMENT` | 512 | the exact alignment of device memory: a power of two up to 512 |
/// | `STAND_IN_SEED` | 1 | the seed of the pauses before work; 0 means no pauses |
/// | `STAND_IN_FAULTS` | | planned faults, see [`FaultPlan`] |
/// | `STAND_IN_DEFAULT_STREAMS` | 0 | 1 if the driver's own streams, 0 to 2, are used on purpose; otherwise they are violations |
/// | `STAND_IN_REPORT` | | the file to which the report is appended, in JSON lines |
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of devices.
    pub devices: usize,
    /// The memory of each device in bytes.
    pub memory: usize,
    /// The alignment of device memory.
    pub alignment: u64,
    /// The seed of the pauses before work; 0 means no pauses.
    pub seed: u64,
    /// The planned faults.
    pub faults: String,
    /// Whether the driver's own streams are used on purpose.
    pub default_streams: bool,
    /// The file to which the report is appended.
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
    /// Reads the configuration from the environment.
    ///
    /// # Errors
    ///
    /// A message that names the variable and its invalid value.
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

/// Reads a number from the environment.
pub(crate) fn number<T>(variable: &str, default: T, most: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let Ok(text) = env::var(variable) else { return Ok(default) };
    let number = text.trim().parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{variable} is '{text}' and not a number up to {most}"))
}
