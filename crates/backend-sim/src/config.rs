//! The behaviour of a simulated device.

use std::time::Duration;

use runtime_core::{Error, ErrorKind, Result, Selector};

use crate::{Fault, Operation};

/// The behaviour of a simulated device.
///
/// Every setting is also an option of selectors. [`set`](Self::set) lists the options.
///
/// ```
/// use std::time::Duration;
/// use backend_sim::{Fault, Operation, SimConfig};
///
/// let config = SimConfig::new()
///     .seed(7)
///     .jitter(Duration::from_micros(500))
///     .memory_bytes(64 << 20)
///     .fault(Fault::fail(Operation::Launch, 50));
/// let same = SimConfig::new().set("seed", "7")?.set("jitter", "500")?.set("memory", "64MiB")?.set("fail-launch", "50")?;
/// assert_eq!(config, same);
/// # Ok::<(), runtime_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    pub(crate) seed: u64,
    pub(crate) jitter: Duration,
    pub(crate) memory_bytes: usize,
    pub(crate) faults: Vec<Fault>,
    pub(crate) peers: bool,
    pub(crate) region_copies: bool,
    pub(crate) graphs: bool,
    pub(crate) registration: bool,
    pub(crate) gates: bool,
    pub(crate) unified: bool,
    pub(crate) link: Option<u64>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            jitter: Duration::from_micros(300),
            memory_bytes: 1 << 30,
            faults: Vec::new(),
            peers: true,
            region_copies: true,
            graphs: true,
            registration: true,
            gates: true,
            unified: false,
            link: None,
        }
    }
}

impl SimConfig {
    /// Seed 0, pauses of up to 300 µs, 1 GiB of memory, no faults, and all abilities of a simulated device but
    /// unified memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The seed of the streams' timing.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The longest pause of a stream before an operation. Zero means no pauses.
    #[must_use]
    pub fn jitter(self, longest: Duration) -> Self {
        Self { jitter: longest, ..self }
    }

    /// The size of the device's memory in bytes.
    #[must_use]
    pub fn memory_bytes(self, bytes: usize) -> Self {
        Self { memory_bytes: bytes, ..self }
    }

    /// Plans a further fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Whether the device reaches other devices of its backend, if they also allow it.
    #[must_use]
    pub fn peers(self, peers: bool) -> Self {
        Self { peers, ..self }
    }

    /// Whether the device performs region copies itself. Otherwise they are emulated through the host.
    #[must_use]
    pub fn region_copies(self, native: bool) -> Self {
        Self { region_copies: native, ..self }
    }

    /// Whether the device captures graphs.
    #[must_use]
    pub fn graphs(self, graphs: bool) -> Self {
        Self { graphs, ..self }
    }

    /// Whether the device page-locks host memory that the program allocated.
    #[must_use]
    pub fn registration(self, registration: bool) -> Self {
        Self { registration, ..self }
    }

    /// Whether the device has gates, at which streams wait for the host.
    #[must_use]
    pub fn gates(self, gates: bool) -> Self {
        Self { gates, ..self }
    }

    /// Whether the device has unified memory, which the host can address.
    #[must_use]
    pub fn unified_memory(self, unified: bool) -> Self {
        Self { unified, ..self }
    }

    /// The rate of the link between host and device, in bytes per second, at least 1. A copy then takes at least its
    /// bytes divided by the rate, and each direction carries one copy at a time. Without this, copies take the time
    /// that the host needs. Copies within the device and between devices are not modelled.
    #[must_use]
    pub fn link(self, bytes_per_second: u64) -> Self {
        Self { link: Some(bytes_per_second.max(1)), ..self }
    }

    /// Changes one setting by name, as selectors do:
    ///
    /// | option | value |
    /// |---|---|
    /// | `seed` | a number |
    /// | `jitter` | the longest pause in microseconds, at most 60000000 |
    /// | `memory` | bytes, or a number with `KiB`, `MiB` or `GiB`; from 1 byte to 1024 GiB |
    /// | `peers`, `regions`, `graphs`, `registration`, `gates`, `unified` | `on` or `off` |
    /// | `link` | the bytes per second, from 1; `KiB`, `MiB` and `GiB` as for `memory` |
    /// | `fail-allocation`, `fail-copy`, `fail-launch` | the number of the call, `N`; `N:late` to fail when it runs |
    /// | `lose` | the number of the operation |
    /// | `hang` | the number of the launch and its time in milliseconds, `N:MS` |
    ///
    /// # Errors
    ///
    /// `UnknownDevice` for an unknown option. `InvalidArgument` for an invalid value, naming it and the accepted
    /// values.
    pub fn set(self, option: &str, value: &str) -> Result<Self> {
        let refuse = |accepted: &str| {
            let message = format!("{option}={value}: expected {accepted}");
            Error::new(ErrorKind::InvalidArgument, "open", message)
        };
        let number = |text: &str, accepted: &str| {
            Selector::number::<u64>(text).ok_or_else(|| refuse(accepted))
        };
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(refuse("on or off")),
        };
        let count = |text: &str, accepted: &str| match number(text, accepted)? {
            0 => Err(refuse(accepted)),
            nth => Ok(nth),
        };
        let failure = |operation| {
            let accepted = "N or N:late with N from 1";
            match value.split_once(':') {
                None => Ok(Fault::fail(operation, count(value, accepted)?)),
                Some((nth, "late")) => Ok(Fault::fail_late(operation, count(nth, accepted)?)),
                Some(_) => Err(refuse(accepted)),
            }
        };
        Ok(match option {
            "seed" => self.seed(number(value, "a number")?),
            "jitter" => {
                let accepted = format!("microseconds from 0 to {MAX_JITTER}");
                match number(value, &accepted)? {
                    micros @ ..=MAX_JITTER => self.jitter(Duration::from_micros(micros)),
                    _ => return Err(refuse(&accepted)),
                }
            }
            "memory" => {
                let bytes =
                    bytes(value).filter(|bytes| (1..=MAX_MEMORY).contains(&(*bytes as u64)));
                self.memory_bytes(bytes.ok_or_else(|| {
                    refuse("bytes, or a number with KiB, MiB or GiB, from 1 byte to 1024GiB")
                })?)
            }
            "peers" => self.peers(switch()?),
            "regions" => self.region_copies(switch()?),
            "graphs" => self.graphs(switch()?),
            "registration" => self.registration(switch()?),
            "gates" => self.gates(switch()?),
            "unified" => self.unified_memory(switch()?),
            "link" => {
                let rate = bytes(value).filter(|rate| *rate > 0);
                let accepted = "bytes per second from 1, or a number with KiB, MiB or GiB";
                self.link(rate.ok_or_else(|| refuse(accepted))? as u64)
            }
            "fail-allocation" => self.fault(failure(Operation::Allocation)?),
            "fail-copy" => self.fault(failure(Operation::Copy)?),
            "fail-launch" => self.fault(failure(Operation::Launch)?),
            "lose" => self.fault(Fault::lose(count(value, "a number from 1")?)),
            "hang" => {
                let accepted = "N:MS with N from 1";
                let (nth, time) = value.split_once(':').ok_or_else(|| refuse(accepted))?;
                self.fault(Fault::hang(
                    count(nth, accepted)?,
                    Duration::from_millis(number(time, accepted)?),
                ))
            }
            _ => {
                let known = "seed, jitter, memory, peers, regions, graphs, registration, gates, unified, link, fail-allocation, fail-copy, fail-launch, lose, hang";
                let message =
                    format!("no option {option:?} (={value}); a simulated device takes {known}");
                return Err(Error::new(ErrorKind::UnknownDevice, "open", message));
            }
        })
    }
}

/// The longest pause in microseconds that an option can ask for: one minute.
const MAX_JITTER: u64 = 60_000_000;
/// The largest memory in bytes that an option can ask for: 1024 GiB.
const MAX_MEMORY: u64 = 1 << 40;

fn bytes(text: &str) -> Option<usize> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1_usize << 30)];
    let unit = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    Selector::number::<usize>(number)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        for (option, value, config) in [
            ("seed", "18446744073709551615", SimConfig::new().seed(u64::MAX)),
            ("jitter", "0", SimConfig::new().jitter(Duration::ZERO)),
            ("memory", "4096", SimConfig::new().memory_bytes(4096)),
            ("memory", "3KiB", SimConfig::new().memory_bytes(3072)),
            ("jitter", "60000000", SimConfig::new().jitter(Duration::from_secs(60))),
            ("memory", "1024GiB", SimConfig::new().memory_bytes(1 << 40)),
            ("peers", "off", SimConfig::new().peers(false)),
            ("regions", "off", SimConfig::new().region_copies(false)),
            ("graphs", "off", SimConfig::new().graphs(false)),
            ("registration", "off", SimConfig::new().registration(false)),
            ("gates", "off", SimConfig::new().gates(false)),
            ("unified", "on", SimConfig::new().unified_memory(true)),
            ("link", "2GiB", SimConfig::new().link(2 << 30)),
            ("fail-allocation", "1", SimConfig::new().fault(Fault::fail(Operation::Allocation, 1))),
            ("fail-copy", "2:late", SimConfig::new().fault(Fault::fail_late(Operation::Copy, 2))),
            ("fail-launch", "50", SimConfig::new().fault(Fault::fail(Operation::Launch, 50))),
            ("lose", "9", SimConfig::new().fault(Fault::lose(9))),
            ("hang", "2:250", SimConfig::new().fault(Fault::hang(2, Duration::from_millis(250)))),
        ] {
            assert_eq!(SimConfig::new().set(option, value).unwrap(), config, "{option}={value}");
        }
    }

    #[test]
    fn wrong_options_are_named() {
        let error = SimConfig::new().set("speed", "9").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownDevice);
        assert!(error.message().contains("speed") && error.message().contains("jitter"), "{error}");
        for (option, value) in [
            ("seed", "-1"),
            ("seed", ""),
            ("seed", "+1"),
            ("jitter", "1ms"),
            ("jitter", "60000001"),
            ("memory", "1TB"),
            ("memory", "+1KiB"),
            ("memory", "0"),
            ("memory", "1025GiB"),
            ("memory", "99999999999GiB"),
            ("peers", "yes"),
            ("fail-copy", "0"),
            ("fail-copy", "1:soon"),
            ("lose", "0"),
            ("hang", "1"),
            ("hang", "x:1"),
        ] {
            let error = SimConfig::new().set(option, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(&format!("{option}={value}: expected")), "{error}");
        }
    }
}
