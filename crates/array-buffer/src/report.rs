//! Transfers that were made, and their causes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coherence::{Exchange, ReplicaId};
use comfy_table::{CellAlignment, Table, presets};
use parking_lot::Mutex;
use runtime_core::Traffic;

/// An access that made a transfer necessary, and the line of the program that made the access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of access: `read`, `write`, `prefetch` and so on.
    pub access: &'static str,
    /// The place of the access: a device, or `host`.
    pub place: String,
    /// The call in the program.
    pub call_site: &'static Location<'static>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {} at {}:{}",
            self.access,
            self.place,
            self.call_site.file(),
            self.call_site.line()
        )
    }
}

/// Transfers from one place to another that have the same causes: one call that needed the bytes, and one call that
/// wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The source: a device, or `host`.
    pub from: String,
    /// The destination: a device, or `host`.
    pub to: String,
    /// The number of transfers, and their bytes.
    pub traffic: Traffic,
    /// The access that needed the bytes.
    pub wanted_by: Cause,
    /// The access that wrote the bytes elsewhere; `None` for values that the buffer was made with.
    pub invalidated_by: Option<Cause>,
}

/// Parts that have left a device because another access needed memory there: see
/// [`MemoryBudget`](crate::MemoryBudget).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The device.
    pub from: String,
    /// The number of parts, and the bytes of their memory. Copies to the host are [transfers](Transfer).
    pub traffic: Traffic,
    /// The access that needed memory.
    pub wanted_by: Cause,
}

/// Exchanges that accesses to stale ghosts have run: see
/// [`on_stale_ghosts`](crate::ArrayBuffer::on_stale_ghosts).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The direction of the exchange.
    pub exchange: Exchange,
    /// The device of the exchange.
    pub on: String,
    /// The number of completed exchanges.
    pub count: u64,
    /// The access that needed the exchange.
    pub wanted_by: Cause,
}

/// The transfers of one array, grouped by cause. Displays as a table.
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
    evictions: Vec<Eviction>,
    refreshes: Vec<Refresh>,
    waits: u64,
}

impl TransferReport {
    /// All groups of transfers, in the order of their first transfer.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// All groups of evictions that made room for other accesses, in the order of their first eviction.
    pub fn evictions(&self) -> &[Eviction] {
        &self.evictions
    }

    /// All groups of refreshes of ghosts, in the order of their first refresh.
    pub fn refreshes(&self) -> &[Refresh] {
        &self.refreshes
    }

    /// How often a [`prefetch`](crate::ArrayBuffer::prefetch) or [`prefetch_host`](crate::ArrayBuffer::prefetch_host)
    /// held its caller: for a copy that it made in the calling thread, or for room under a
    /// [`MemoryBudget`](crate::MemoryBudget), which [counts](crate::MemoryBudget::waits) the latter too. See
    /// [blocking](crate#blocking).
    pub fn prefetches_that_waited(&self) -> u64 {
        self.waits
    }

    /// The total of all transfers.
    pub fn total(&self) -> Traffic {
        self.sum(|_| true)
    }

    /// The total of the transfers from one place to another. Places have the names that [`Transfer::from`] uses.
    pub fn between(&self, from: &str, to: &str) -> Traffic {
        self.sum(|transfer| transfer.from == from && transfer.to == to)
    }

    fn sum(&self, which: impl Fn(&Transfer) -> bool) -> Traffic {
        let traffic = self.transfers.iter().filter(|transfer| which(transfer));
        traffic.fold(Traffic::default(), |sum, transfer| add(sum, transfer.traffic))
    }
}

/// Adds the transfers of two arrays. Groups that differ only in their array are merged.
///
/// ```
/// use array_buffer::ArrayBuffer;
/// use backend_sim::{SimConfig, SimDevice};
/// use runtime_core::Device;
///
/// let stream = Device::new(SimDevice::new(0, SimConfig::new()))?.default_stream();
/// let [x, y] = [2, 3].map(|len| ArrayBuffer::from_vec(vec![1.0_f64; len], len).unwrap());
/// for array in [&x, &y] {
///     array.read(&stream)?;
/// }
/// let both = x.transfers() + y.transfers();
/// assert_eq!(both.transfers().len(), 1);
/// assert_eq!((both.total().count, both.total().bytes), (2, 40));
/// # Ok::<(), array_buffer::Error>(())
/// ```
impl Add for TransferReport {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for transfer in other.transfers {
            let same = |known: &&mut Transfer| {
                (&known.from, &known.to) == (&transfer.from, &transfer.to)
                    && known.wanted_by == transfer.wanted_by
                    && known.invalidated_by == transfer.invalidated_by
            };
            match self.transfers.iter_mut().find(same) {
                Some(known) => known.traffic = add(known.traffic, transfer.traffic),
                None => self.transfers.push(transfer),
            }
        }
        for eviction in other.evictions {
            let same = |known: &&mut Eviction| {
                (&known.from, &known.wanted_by) == (&eviction.from, &eviction.wanted_by)
            };
            match self.evictions.iter_mut().find(same) {
                Some(known) => known.traffic = add(known.traffic, eviction.traffic),
                None => self.evictions.push(eviction),
            }
        }
        for refresh in other.refreshes {
            let same = |known: &&mut Refresh| {
                (known.exchange, &known.on) == (refresh.exchange, &refresh.on)
                    && known.wanted_by == refresh.wanted_by
            };
            match self.refreshes.iter_mut().find(same) {
                Some(known) => known.count += refresh.count,
                None => self.refreshes.push(refresh),
            }
        }
        self.waits += other.waits;
        self
    }
}

/// An access: its place, its kind, and the call in the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessSite {
    pub(crate) at: ReplicaId,
    pub(crate) access: &'static str,
    pub(crate) call_site: &'static Location<'static>,
}

/// The transfers of one array, without place names, because every transfer adds to it.
#[derive(Default)]
pub(crate) struct Ledger {
    lines: Vec<Line>,
    /// What few arrays have.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    evictions: Vec<(AccessSite, Traffic)>,
    refreshes: Vec<(ReplicaId, Exchange, AccessSite, u64)>,
    waits: u64,
}

struct Line {
    from: ReplicaId,
    to: ReplicaId,
    wanted_by: AccessSite,
    invalidated_by: Option<AccessSite>,
    traffic: Traffic,
    total: Arc<Total>,
}

impl Ledger {
    /// Records a transfer. `name` returns the name of a replica's place.
    pub(crate) fn add(
        &mut self,
        (from, to): (ReplicaId, ReplicaId),
        bytes: usize,
        wanted_by: AccessSite,
        invalidated_by: Option<AccessSite>,
        name: impl Fn(ReplicaId) -> String,
    ) {
        let same = |line: &Line| {
            (line.from, line.to) == (from, to)
                && line.wanted_by == wanted_by
                && line.invalidated_by == invalidated_by
        };
        let index = self.lines.iter().position(same).unwrap_or_else(|| {
            let (traffic, total) = (Traffic::default(), total(name(from), name(to)));
            self.lines.push(Line { from, to, wanted_by, invalidated_by, traffic, total });
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        line.traffic = add(line.traffic, Traffic { count: 1, bytes: bytes as u64 });
        line.total.count.fetch_add(1, Ordering::Relaxed);
        line.total.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let AccessSite { access, call_site, .. } = wanted_by;
        tracing::debug!(from, to, bytes, access, %call_site, "array transfer");
    }

    /// Records that a part has left the device of `wanted_by`.
    pub(crate) fn add_eviction(&mut self, bytes: usize, wanted_by: AccessSite) {
        let one = Traffic { count: 1, bytes: bytes as u64 };
        let evictions = &mut self.rare.get_or_insert_default().evictions;
        match evictions.iter_mut().find(|(of, _)| *of == wanted_by) {
            Some((_, traffic)) => *traffic = add(*traffic, one),
            None => evictions.push((wanted_by, one)),
        }
    }

    /// Records that an exchange at a replica was completed for an access.
    pub(crate) fn add_refresh(&mut self, on: ReplicaId, exchange: Exchange, wanted_by: AccessSite) {
        let key = (on, exchange, wanted_by);
        let refreshes = &mut self.rare.get_or_insert_default().refreshes;
        match refreshes.iter_mut().find(|(on, of, by, _)| (*on, *of, *by) == key) {
            Some((.., count)) => *count += 1,
            None => refreshes.push((on, exchange, wanted_by, 1)),
        }
    }

    /// Records that copies of a prefetch, or room for it, held the caller.
    pub(crate) fn add_waits(&mut self, count: u64) {
        if count > 0 {
            self.rare.get_or_insert_default().waits += count;
        }
    }

    pub(crate) fn report(&self, name: impl Fn(ReplicaId) -> String) -> TransferReport {
        let cause = |site: AccessSite| Cause {
            access: site.access,
            place: name(site.at),
            call_site: site.call_site,
        };
        let transfer = |line: &Line| Transfer {
            from: name(line.from),
            to: name(line.to),
            traffic: line.traffic,
            wanted_by: cause(line.wanted_by),
            invalidated_by: line.invalidated_by.map(cause),
        };
        let eviction = |(site, traffic): &(AccessSite, Traffic)| Eviction {
            from: name(site.at),
            traffic: *traffic,
            wanted_by: cause(*site),
        };
        let refresh = |&(on, exchange, site, count): &(_, _, AccessSite, _)| Refresh {
            exchange,
            on: name(on),
            count,
            wanted_by: cause(site),
        };
        let rare = || self.rare.iter();
        TransferReport {
            transfers: self.lines.iter().map(transfer).collect(),
            evictions: rare().flat_map(|rare| &rare.evictions).map(eviction).collect(),
            refreshes: rare().flat_map(|rare| &rare.refreshes).map(refresh).collect(),
            waits: rare().map(|rare| rare.waits).sum(),
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
        for eviction in &self.evictions {
            table.add_row([
                eviction.from.clone(),
                "evicted".to_owned(),
                eviction.traffic.count.to_string(),
                eviction.traffic.bytes.to_string(),
                eviction.wanted_by.to_string(),
                String::new(),
            ]);
        }
        for refresh in &self.refreshes {
            table.add_row([
                refresh.on.clone(),
                refresh.exchange.name().to_owned(),
                refresh.count.to_string(),
                String::new(),
                refresh.wanted_by.to_string(),
                String::new(),
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

#[derive(Default)]
struct Total {
    count: AtomicU64,
    bytes: AtomicU64,
}

static TOTALS: Mutex<BTreeMap<(String, String), Arc<Total>>> = Mutex::new(BTreeMap::new());

fn total(from: String, to: String) -> Arc<Total> {
    Arc::clone(TOTALS.lock().entry((from, to)).or_default())
}

/// The transfers of all arrays in this process so far, by (from, to).
pub fn transfer_totals() -> BTreeMap<(String, String), Traffic> {
    let read = |total: &Total| Traffic {
        count: total.count.load(Ordering::Relaxed),
        bytes: total.bytes.load(Ordering::Relaxed),
    };
    TOTALS.lock().iter().map(|(places, total)| (places.clone(), read(total))).collect()
}
