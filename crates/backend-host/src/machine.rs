//! Information about the machine from the operating system. Where it is missing, as outside Linux, results are empty.

use std::fs;

/// The processor's identity.
pub(crate) struct Processor {
    pub(crate) name: String,
    pub(crate) vendor: String,
}

pub(crate) fn processor() -> Processor {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let first = |keys: &[&str]| keys.iter().find_map(|key| field(&text, key)).map(str::to_owned);
    Processor {
        // The second key of each pair is used by architectures other than x86.
        name: first(&["model name", "Model"])
            .unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH)),
        vendor: first(&["vendor_id", "CPU implementer"]).unwrap_or_else(|| "unknown".to_owned()),
    }
}

/// The kernel's name and release.
pub(crate) fn system_version() -> String {
    match read("/proc/sys/kernel/osrelease") {
        Some(release) => format!("Linux {}", release.trim()),
        None => std::env::consts::OS.to_owned(),
    }
}

/// Physical memory in bytes.
pub(crate) fn memory_total() -> Option<u64> {
    memory().map(|(total, _)| total)
}

/// Physical memory in bytes: total, and available without swapping.
pub(crate) fn memory() -> Option<(u64, u64)> {
    parse_memory(&read("/proc/meminfo")?)
}

/// Time spent by all processors together so far, in ticks: busy, and total.
pub(crate) fn processor_ticks() -> Option<(u64, u64)> {
    parse_ticks(&read("/proc/stat")?)
}

/// The contents of a file of the kernel. Not under Miri, which has no such files and prints a long warning for each.
fn read(path: &str) -> Option<String> {
    if cfg!(miri) { None } else { fs::read_to_string(path).ok() }
}

fn parse_memory(text: &str) -> Option<(u64, u64)> {
    let bytes = |key| {
        let kibibytes = field(text, key)?.strip_suffix("kB")?.trim();
        kibibytes.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((bytes("MemTotal")?, bytes("MemAvailable")?))
}

fn parse_ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal. Guest time, which follows, is part of user time.
    let ticks: Vec<u64> =
        line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let total = ticks.iter().sum::<u64>();
    let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
    Some((total - idle, total))
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:       16314480 kB\nMemFree:  1 kB\nMemAvailable:    8157240 kB\n";
        assert_eq!(parse_memory(text), Some((16_314_480 * 1024, 8_157_240 * 1024)));
        for broken in ["", "MemTotal: 5 kB", "MemTotal: x kB\nMemAvailable: 1 kB"] {
            assert_eq!(parse_memory(broken), None);
        }
    }

    #[test]
    fn busy_time_is_all_but_idle_time() {
        let text = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4\n";
        assert_eq!(parse_ticks(text), Some((81, 531)));
        assert_eq!(parse_ticks("cpu0 1 2 3 4"), None);
        assert_eq!(parse_ticks("cpu  1 2 x"), None);
    }

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC: 64 cores\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC: 64 cores"));
        assert_eq!(field(text, "model"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_described() {
        let (total, available) = memory().unwrap();
        assert!(available <= total && total > 0);
        assert!(processor_ticks().unwrap().1 > 0);
        assert!(!processor().name.is_empty());
        assert!(system_version().starts_with("Linux "));
    }
}
