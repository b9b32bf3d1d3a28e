//! Lists every device that can be opened and its abilities, and the reason why a backend has no device.
//!
//! ```text
//! cargo run --package runtime --example devices --all-features -- --json
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter;
use std::process::ExitCode;

use clap::Parser;
use comfy_table::{Table, presets};
use runtime::{BACKENDS, Capabilities, DeviceInfo, Error, ErrorKind};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Lists every device that can be opened, and why a backend has none.
#[derive(Debug, Parser)]
#[command(name = "devices")]
struct Args {
    /// Prints JSON
    #[arg(long)]
    json: bool,

    /// Ends with an error if this backend has no device
    #[arg(long, value_name = "BACKEND")]
    require: Option<String>,
}

/// The output. The JSON uses the names of these fields.
#[derive(serde::Serialize)]
struct Report {
    devices: Vec<Found>,
    absent: Vec<Absent>,
}

#[derive(serde::Serialize)]
struct Found {
    id: String,
    backend: String,
    kind: &'static str,
    name: String,
    vendor: String,
    architecture: String,
    driver_version: String,
    /// In hexadecimal.
    uuid: Option<String>,
    pci: Option<String>,
    memory_bytes: Option<u64>,
    compute_units: u32,
    subgroup_size: u32,
    formats: Vec<&'static str>,
    /// Formats that the device could support, and what is missing for each.
    absent_formats: BTreeMap<&'static str, String>,
    limits: FoundLimits,
    capabilities: Abilities,
}

#[derive(serde::Serialize)]
struct FoundLimits {
    max_allocation_bytes: usize,
    allocation_alignment: usize,
    argument_alignment: usize,
    max_grid: [u32; 3],
    max_block: [u32; 3],
    max_block_threads: u32,
    max_shared_bytes: u32,
    max_arguments: usize,
    max_argument_bytes: usize,
    priorities: (i32, i32),
}

struct Abilities(Capabilities);

impl Serialize for Abilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, support) in self.0.iter() {
            map.serialize_entry(name, &support.to_string())?;
        }
        map.end()
    }
}

/// A backend without devices, or a device that cannot be opened.
#[derive(serde::Serialize)]
struct Absent {
    name: String,
    /// Whether this is a fault, and not only a machine without such a device.
    broken: bool,
    reason: String,
}

impl Absent {
    fn new(name: impl Into<String>, error: &Error) -> Self {
        Self {
            name: name.into(),
            broken: error.kind() != ErrorKind::Unavailable,
            reason: error.to_string(),
        }
    }
}

impl Report {
    fn gather() -> Self {
        let registry = runtime::registry();
        let (mut devices, mut absent) = (Vec::new(), Vec::new());
        for listing in registry.list() {
            let infos = match listing.devices {
                Ok(infos) if infos.is_empty() => {
                    let reason = "the driver works and finds no device".to_owned();
                    absent.push(Absent { name: listing.backend, broken: false, reason });
                    continue;
                }
                Ok(infos) => infos,
                Err(error) => {
                    absent.push(Absent::new(listing.backend, &error));
                    continue;
                }
            };
            for info in infos {
                let id = info.id.to_string();
                match registry.open(&id) {
                    Ok(device) => devices.push(Found::new(device.info(), *device.capabilities())),
                    Err(error) => absent.push(Absent::new(id, &error)),
                }
            }
        }
        for (name, _) in BACKENDS.iter().filter(|(_, compiled)| !compiled) {
            let reason = format!("not compiled in: build with --features {name}");
            absent.push(Absent { name: (*name).to_owned(), broken: false, reason });
        }
        Self { devices, absent }
    }
}

impl Found {
    fn new(info: &DeviceInfo, capabilities: Capabilities) -> Self {
        let limits = &info.limits;
        Self {
            id: info.id.to_string(),
            backend: info.id.backend().to_owned(),
            kind: info.kind.name(),
            name: info.name.clone(),
            vendor: info.vendor.clone(),
            architecture: info.architecture.clone(),
            driver_version: info.driver_version.clone(),
            uuid: info.uuid.map(|uuid| uuid.iter().map(|byte| format!("{byte:02x}")).collect()),
            pci: info.pci.map(|pci| pci.to_string()),
            memory_bytes: info.memory_bytes,
            compute_units: info.compute_units,
            subgroup_size: info.subgroup_size,
            formats: info.formats.iter().map(|format| format.name()).collect(),
            absent_formats: info
                .absent_formats
                .iter()
                .map(|(format, why)| (format.name(), why.clone()))
                .collect(),
            limits: FoundLimits {
                max_allocation_bytes: limits.max_allocation_bytes,
                allocation_alignment: limits.allocation_alignment.get(),
                argument_alignment: limits.argument_alignment.get(),
                max_grid: limits.max_grid,
                max_block: limits.max_block,
                max_block_threads: limits.max_block_threads,
                max_shared_bytes: limits.max_shared_bytes,
                max_arguments: limits.max_arguments,
                max_argument_bytes: limits.max_argument_bytes,
                priorities: limits.priorities,
            },
            capabilities: Abilities(capabilities),
        }
    }
}

fn main() -> io::Result<ExitCode> {
    let args = Args::parse();
    let report = Report::gather();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&report, &mut out)?;
    }
    match args.require {
        Some(backend) if report.devices.iter().all(|device| device.backend != backend) => {
            eprintln!("error: {backend} has no device");
            Ok(ExitCode::FAILURE)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for devices in report.devices.chunk_by(|a, b| a.backend == b.backend) {
        writeln!(out, "{}\n", table(devices))?;
    }
    if report.devices.is_empty() {
        writeln!(out, "no devices\n")?;
    }
    for device in &report.devices {
        for (format, why) in &device.absent_formats {
            writeln!(out, "{}: no {format}: {why}", device.id)?;
        }
    }
    for Absent { name, broken, reason } in &report.absent {
        writeln!(out, "{name}: {}{reason}", if *broken { "BROKEN: " } else { "" })?;
    }
    Ok(())
}

/// A table with a column for each device.
fn table(devices: &[Found]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(iter::once("").chain(devices.iter().map(|device| device.id.as_str())));
    let mut row = |what: &str, value: &dyn Fn(&Found) -> String| {
        table.add_row(iter::once(what.to_owned()).chain(devices.iter().map(value)));
    };
    row("name", &|d| d.name.clone());
    row("vendor", &|d| d.vendor.clone());
    row("kind", &|d| d.kind.to_owned());
    row("architecture", &|d| d.architecture.clone());
    row("driver", &|d| format!("{} {}", d.backend, d.driver_version));
    if devices.iter().any(|d| d.pci.is_some()) {
        row("PCI address", &|d| d.pci.clone().unwrap_or_default());
    }
    if devices.iter().any(|d| d.uuid.is_some()) {
        row("UUID", &|d| d.uuid.clone().unwrap_or_default());
    }
    row("memory", &|d| d.memory_bytes.map_or("unknown".to_owned(), bytes));
    row("compute units", &|d| d.compute_units.to_string());
    row("subgroup size", &|d| d.subgroup_size.to_string());
    row("module formats", &|d| d.formats.join(", "));
    row("largest allocation", &|d| bytes(d.limits.max_allocation_bytes as u64));
    row("alignment", &|d| bytes(d.limits.allocation_alignment as u64));
    row("largest grid", &|d| d.limits.max_grid.map(number).join(" x "));
    row("largest block", &|d| d.limits.max_block.map(number).join(" x "));
    row("work-items of a block", &|d| number(d.limits.max_block_threads));
    row("shared memory", &|d| bytes(d.limits.max_shared_bytes.into()));
    row("kernel arguments", &|d| {
        format!("{} of {}", d.limits.max_arguments, bytes(d.limits.max_argument_bytes as u64))
    });
    row("stream priorities", &|d| {
        format!("{} to {}", d.limits.priorities.0, d.limits.priorities.1)
    });
    for (index, (name, _)) in devices[0].capabilities.0.iter().enumerate() {
        let support =
            |d: &Found| d.capabilities.0.iter().nth(index).map(|(_, support)| support.to_string());
        row(&name.replace('_', " "), &|d| support(d).unwrap_or_default());
    }
    table
}

fn number(value: u32) -> String {
    if value == u32::MAX { "2^32 - 1".to_owned() } else { value.to_string() }
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}
