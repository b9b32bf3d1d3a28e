//! The closing table.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{Table, presets};
use runtime::array::{Cause, Transfer, TransferReport};
use runtime::{DeviceInfo, Traffic};

use crate::args::Spacing;
use crate::check::{Bounded, Checks};
use crate::diffusion::{Schedule, Scheme, Timing};
use crate::ranks::RankKind;
use crate::traffic::Totals;

/// The work done, its speed, and the checks of the result. Displays as a table.
pub(crate) struct Report {
    pub(crate) shape: (usize, usize),
    pub(crate) spacing: Spacing,
    pub(crate) scheme: Scheme,
    pub(crate) schedule: Schedule,
    /// The device of the first rank.
    pub(crate) device: DeviceInfo,
    pub(crate) ranks: RankKind,
    /// Number of blocks down and across, one for each rank.
    pub(crate) grid: [usize; 2],
    pub(crate) totals: Totals,
    /// The transfers of the first rank.
    pub(crate) transfers: TransferReport,
    pub(crate) timing: Timing,
    pub(crate) from_device: Duration,
    pub(crate) checks: Checks,
    pub(crate) checking: Duration,
    /// The change in metres at the ends of the picture's scale of changes.
    pub(crate) deepest: f64,
    pub(crate) written: Vec<PathBuf>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            shape: (rows, columns),
            spacing,
            scheme,
            schedule,
            device,
            grid: [down, across],
            totals,
            transfers,
            timing,
            checks,
            ..
        } = self;
        let (steps, pictures) = (schedule.steps, schedule.pictures());
        let updates = *rows as f64 * *columns as f64 * steps as f64;
        let rate = updates / timing.steps.as_secs_f64();
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let mut row = |what: &str, value: String| {
            table.add_row([what.to_owned(), value]);
        };

        let several = down * across > 1;
        let (first, of_first) = if several { (" of rank 0", "rank 0: ") } else { ("", "") };

        row(&format!("device{first}"), format!("{}, {}", device.id, device.name));
        if several {
            let ranks = match self.ranks {
                RankKind::Thread => "threads of this process",
                RankKind::Process => "processes of an MPI job",
            };
            row("ranks", format!("{}, {ranks}, in {down} x {across} blocks", down * across));
        }
        row("terrain", format!("{rows} x {columns} cells of {} m x {} m", spacing.dy, spacing.dx));
        row(
            "model",
            format!(
                "{steps} steps of {}, {} in all",
                years(scheme.dt),
                years(scheme.dt * steps as f64)
            ),
        );
        row("cells per second", format!("{:.0} million", rate / 1e6));
        row("time", {
            let [to, steps, from] = [timing.to_device, timing.steps, self.from_device].map(seconds);
            format!("{steps} for the steps, {to} to the device, {from} back")
        });
        row("pictures on the way", format!("{pictures} in {}", seconds(timing.pictures)));
        row("launches", totals.launches.to_string());
        if several {
            let Traffic { count, bytes } = totals.messages;
            row("sent between ranks", format!("{bytes} bytes in {count} messages"));
        }
        row("moved", format!("{}: the fewest that will do", traffic(totals.moved)));
        for Transfer { from, to, traffic: moved, wanted_by, invalidated_by } in
            transfers.transfers()
        {
            let written = match invalidated_by {
                Some(writer) => format!("after {}", cause(writer)),
                None => "as it was read in".to_owned(),
            };
            row(
                &format!("{of_first}{from} to {to}"),
                format!("{} for {}, {written}", traffic(*moved), cause(wanted_by)),
            );
        }
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

/// The access, and its source line in this program.
fn cause(Cause { access, place, call_site }: &Cause) -> String {
    let file = Path::new(call_site.file()).file_name().unwrap_or_default().display();
    format!("{access} on {place} ({file}:{})", call_site.line())
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
