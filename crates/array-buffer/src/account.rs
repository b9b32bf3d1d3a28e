//! What was moved, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

use comfy_table::{CellAlignment, Table, presets};
use parking_lot::Mutex;
use runtime_core::Traffic;

/// What somebody did with an array when a transfer became necessary, and where in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The access: `read`, `write`, `prefetch` and so on.
    pub access: &'static str,
    /// Where the values were wanted, or written: a device, or `host`.
    pub place: String,
    /// The call in the program.
    pub site: &'static Location<'static>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} at {}:{}", self.access, self.place, self.site.file(), self.site.line())
    }
}

/// Transfers from one place to another that one call caused, after writes of one other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where the bytes were: a device, or `host`.
    pub from: String,
    /// Where they went.
    pub to: String,
    /// How many transfers, and their bytes.
    pub traffic: Traffic,
    /// Who wanted the bytes.
    pub wanted_by: Cause,
    /// Who had written them elsewhere; `None` for values the buffer was made with.
    pub invalidated_by: Option<Cause>,
}

/// Transfers of one array, by their causes. Displays as a table.
///
/// ```
/// use array_buffer::ArrayBuffer;
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let device = Device::new(SimDevice::new(0, SimConfig::new()))?;
/// let array = ArrayBuffer::from_vec(vec![1.0_f64; 100], 100)?;
/// array.read(&device.default_stream())?;
/// let report = array.transfers();
/// assert_eq!((report.total().count, report.total().bytes), (1, 800));
/// assert!(report.to_string().contains("sim:0"));
/// # Ok::<(), array_buffer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferReport {
    transfers: Vec<Transfer>,
}

impl TransferReport {
    /// Every kind of transfer there was, in the order of their first.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// All transfers together.
    pub fn total(&self) -> Traffic {
        self.sum(|_| true)
    }

    /// Transfers from one place to another; places are named as by [`Transfer::from`].
    pub fn between(&self, from: &str, to: &str) -> Traffic {
        self.sum(|transfer| transfer.from == from && transfer.to == to)
    }

    fn sum(&self, which: impl Fn(&Transfer) -> bool) -> Traffic {
        let traffic = self.transfers.iter().filter(|transfer| which(transfer));
        traffic.fold(Traffic::default(), |sum, transfer| add(sum, transfer.traffic))
    }

    pub(crate) fn add(
        &mut self,
        from: &str,
        to: &str,
        bytes: usize,
        wanted_by: &Cause,
        invalidated_by: Option<&Cause>,
    ) {
        let traffic = Traffic { count: 1, bytes: bytes as u64 };
        tracing::debug!(%from, %to, bytes, wanted_by = %wanted_by, "array transfer");
        note_total(from, to, traffic);
        let same = |transfer: &&mut Transfer| {
            transfer.wanted_by == *wanted_by
                && transfer.invalidated_by.as_ref() == invalidated_by
                && transfer.from == from
                && transfer.to == to
        };
        match self.transfers.iter_mut().find(same) {
            Some(transfer) => transfer.traffic = add(transfer.traffic, traffic),
            None => self.transfers.push(Transfer {
                from: from.to_owned(),
                to: to.to_owned(),
                traffic,
                wanted_by: wanted_by.clone(),
                invalidated_by: invalidated_by.cloned(),
            }),
        }
    }
}

fn add(a: Traffic, b: Traffic) -> Traffic {
    Traffic { count: a.count + b.count, bytes: a.bytes + b.bytes }
}

impl fmt::Display for TransferReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["from", "to", "transfers", "bytes", "wanted by", "last written by"]);
        for transfer in &self.transfers {
            table.add_row([
                transfer.from.clone(),
                transfer.to.clone(),
                transfer.traffic.count.to_string(),
                transfer.traffic.bytes.to_string(),
                transfer.wanted_by.to_string(),
                transfer.invalidated_by.as_ref().map_or("its maker".to_owned(), Cause::to_string),
            ]);
        }
        let total = self.total();
        table.add_row(["", "total", &total.count.to_string(), &total.bytes.to_string(), "", ""]);
        for column in 2..4 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        write!(f, "{table}")
    }
}

static TOTALS: Mutex<BTreeMap<(String, String), Traffic>> = Mutex::new(BTreeMap::new());

fn note_total(from: &str, to: &str, traffic: Traffic) {
    let mut totals = TOTALS.lock();
    let sum = totals.entry((from.to_owned(), to.to_owned())).or_default();
    *sum = add(*sum, traffic);
}

/// Transfers of all arrays of this process so far, by (from, to).
pub fn transfer_totals() -> BTreeMap<(String, String), Traffic> {
    TOTALS.lock().clone()
}
