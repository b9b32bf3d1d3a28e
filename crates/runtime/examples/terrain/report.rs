//! The closing table.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::{Table, presets};
use runtime::{DeviceInfo, Statistics, Traffic};

use crate::args::Spacing;
use crate::check::{Bounded, Checks};
use crate::diffusion::{Scheme, Timing};

/// What was done, how fast, and how it was checked. Displays as a table.
pub(crate) struct Report {
    pub(crate) shape: (usize, usize),
    pub(crate) spacing: Spacing,
    pub(crate) scheme: Scheme,
    pub(crate) steps: u64,
    pub(crate) device: DeviceInfo,
    pub(crate) statistics: Statistics,
    pub(crate) timing: Timing,
    pub(crate) checks: Checks,
    pub(crate) checking: Duration,
    /// Metres that the ends of the picture's scale of changes stand for.
    pub(crate) deepest: f64,
    pub(crate) written: Vec<PathBuf>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            shape: (rows, columns),
            spacing,
            scheme,
            steps,
            device,
            statistics,
            timing,
            checks,
            ..
        } = self;
        let updates = *rows as f64 * *columns as f64 * *steps as f64;
        let rate = updates / timing.steps.as_secs_f64();
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let mut row = |what: &str, value: String| {
            table.add_row([what.to_owned(), value]);
        };

        row("device", format!("{}, {}", device.id, device.name));
        row("terrain", format!("{rows} x {columns} cells of {} m x {} m", spacing.dy, spacing.dx));
        row(
            "model",
            format!(
                "{steps} steps of {}, {} in all",
                years(scheme.dt),
                years(scheme.dt * *steps as f64)
            ),
        );
        row("cells per second", format!("{:.0} million", rate / 1e6));
        row("time", {
            let [to, steps, from] =
                [timing.to_device, timing.steps, timing.from_device].map(seconds);
            format!("{steps} for the steps, {to} to the device, {from} back")
        });
        row("launches", statistics.launches.to_string());
        row("host to device", traffic(statistics.to_device));
        row("device to host", traffic(statistics.from_device));
        row("heights", {
            let (before, after) = (checks.before, checks.after);
            format!(
                "{:.1} m to {:.1} m, now {:.1} m to {:.1} m: no new extremes",
                before.lowest, before.highest, after.lowest, after.highest
            )
        });
        row("mass kept", format!("relative change {}", bounded(checks.mass, "")));
        row("equals reference", {
            format!("to {}, checked in {}", bounded(checks.reference, " m"), seconds(self.checking))
        });
        row(
            "picture",
            format!("before, after, change from -{0:.1} m (red) to {0:.1} m (blue)", self.deepest),
        );
        for path in &self.written {
            row("written", path.display().to_string());
        }
        table.fmt(f)
    }
}

fn bounded(Bounded { value, bound }: Bounded, unit: &str) -> String {
    format!("{value:.1e}{unit} (at most {bound:.1e}{unit})")
}

fn traffic(Traffic { count, bytes }: Traffic) -> String {
    format!("{bytes} bytes in {count} {}", if count == 1 { "transfer" } else { "transfers" })
}

fn years(years: f64) -> String {
    match years {
        ..10.0 => format!("{years:.1e} years"),
        10.0..1e6 => format!("{years:.0} years"),
        _ => format!("{:.2} million years", years / 1e6),
    }
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.1 { format!("{:.2} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}
