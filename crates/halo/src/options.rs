//! The options of an exchange.

use std::time::Duration;

use runtime_core::Combine;

/// The parts of a block's surroundings that are exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Sides, edges and corners.
    #[default]
    Full,
    /// Sides only: for stencils without diagonals.
    Faces,
    /// As [`Full`](Self::Full), axis by axis: messages with the ghosts beyond the ends of axis 0, then of axis 1, then
    /// of axis 2. Messages along an axis include the ghosts of earlier axes. So values for edges and corners go through
    /// one or two other ranks, and a rank has messages only with the neighbours beyond its sides.
    ///
    /// Each axis takes one launch to pack, and one to unpack the messages that are there. An axis begins when the
    /// messages of the axis before are unpacked. So there are fewer messages, and ranks wait for each other up to three
    /// times. Only for topologies of [`Topology::cartesian`](crate::Topology::cartesian) and its variants.
    ///
    /// Only halos that go through messages go axis by axis: [direct](HaloOptions::direct) copies and reductions are the
    /// same as with `Full`.
    ByAxis,
}

/// How to set ghosts at corners where tiles meet but no cell lies, as at the eight corners of the cube.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MissingCorners {
    /// Leaves them unchanged.
    #[default]
    Untouched,
    /// Sets them to this value, converted to the element type of the field: the fraction is dropped for integers, and
    /// values beyond the type become its least or greatest.
    Fill(f64),
    /// Sets each ghost to a mean. For each side that meets in the corner, the mean includes the ghost that is beyond
    /// this side at the same distance, in the row of cells next to the corner. Only for floating-point elements. It is
    /// computed in `f64`; if the sum is infinite there, so is the mean.
    /// `finish`, or the `poll` that completes the exchange, then waits until unpacking is done.
    Average,
}

/// How messages get from the device to the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Staging {
    /// Uses the device's memory if the host can address it. Otherwise uses pinned host memory if the transport does not
    /// accept the device's memory, and the faster of the two if it does.
    ///
    /// [`HaloExchange::new`](crate::HaloExchange::new) measures which is faster if every rank has this choice and ranks
    /// do not read each other's [fields](HaloOptions::direct). It sends messages of the same lengths as those of an
    /// exchange, a few times in each way. The time of the slowest rank counts, and all ranks choose the same.
    /// [`HaloTransformer::staging`](crate::HaloTransformer::staging) returns the choice,
    /// [`HaloStatistics::staging`](crate::HaloStatistics::staging) the times. If some rank does not have the choice,
    /// the ranks that have it use the device's memory.
    #[default]
    Auto,
    /// Through pinned (page-locked) host memory.
    Pinned,
    /// In the device's memory. [`HaloExchange::new`](crate::HaloExchange::new) refuses it if the transport does not
    /// pass this memory.
    Device,
}

/// How the fields that one rank sends to another share messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// One message with all fields.
    #[default]
    Aggregate,
    /// One message for each field, in the order of the fields: a message is unpacked while the next is in transit.
    Separate,
    /// [`Above`](Self::Above) [`LARGE`](Self::LARGE) bytes.
    Auto,
    /// A separate message for each field that has more than this number of bytes for the receiving rank, and one
    /// message with all other fields, which comes first.
    Above(usize),
}

impl Messages {
    /// The number of bytes above which [`Auto`](Self::Auto) sends a field in its own message: 256 KiB, an estimate.
    ///
    /// The estimate comes from measurements between two processes on one machine with two busy cores (Open MPI 4.1).
    /// Eight fields of 8 KiB took twice as long in eight messages as in one. At 256 KiB the difference was smaller than
    /// the difference between runs. Separate messages became faster at 128 KiB for fields whose halos are scattered in
    /// memory, and at 2 MiB for halos in rows. The best limit differs for a network, and for a device with slow
    /// launches: measure it and use [`Above`](Self::Above).
    pub const LARGE: usize = 256 << 10;

    /// The number of bytes above which a field gets its own message.
    pub(crate) fn limit(self) -> usize {
        match self {
            Self::Aggregate => usize::MAX,
            Self::Separate => 0,
            Self::Auto => Self::LARGE,
            Self::Above(bytes) => bytes,
        }
    }
}

/// Options of an exchange. Reach, missing corners, messages and channel must be the same on all ranks; each rank sets
/// the other options itself.
///
/// ```
/// use std::time::Duration;
/// use halo::{HaloOptions, Reach};
///
/// let options = HaloOptions { timeout: Duration::from_secs(5), reach: Reach::Faces, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HaloOptions {
    /// The longest time that an exchange waits for other ranks and for the device. If the device does not copy regions
    /// itself, each launch blocks until it is done, without this limit: see [`RegionPlan`](runtime_core::RegionPlan).
    /// Three waits may each last this long. If ranks read each other's fields directly, a rank waits for the fields of
    /// its peers, and later until its peers have read its own fields. Before [averages](MissingCorners::Average) are
    /// computed, it waits for the device.
    pub timeout: Duration,
    /// Whether edges and corners are exchanged.
    pub reach: Reach,
    /// How to set ghosts at corners without cells.
    pub missing_corners: MissingCorners,
    /// How messages get to the transport.
    pub staging: Staging,
    /// How fields share messages.
    pub messages: Messages,
    /// Whether ranks copy directly from each other's fields in [`exchange`](crate::HaloExchange::exchange) and
    /// [`overlap`](crate::HaloExchange::overlap), without messages. This is possible if the ranks are threads of one
    /// process with fields on the same opened device.
    ///
    /// Clones of one [`Device`](runtime_core::Device) are the same opened device: open it before the ranks start. Ranks
    /// that each open the device themselves send messages. Ranks on a host device also send messages if neighbours
    /// would mostly read rows shorter than a cache line, 32 KiB to 1 MiB in total: such cache lines also hold ghosts
    /// that are written at the same time.
    pub direct: bool,
    /// Whether events measure the times of launches: see [`HaloStatistics`](crate::HaloStatistics). Bytes are always
    /// counted.
    pub timing: bool,
    /// The most bytes that all message buffers may have together, at least those of the messages of one exchange in
    /// both directions. The default is four times as many;
    /// [`synchronize_shared`](crate::HaloExchange::synchronize_shared) raises it to four times its own.
    pub pool_bytes: Option<usize>,
    /// Distinguishes exchanges that use one communicator at the same time: each has its own channel. Ranks finish them
    /// in the same order.
    pub channel: u32,
}

impl Default for HaloOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            reach: Reach::default(),
            missing_corners: MissingCorners::default(),
            staging: Staging::default(),
            messages: Messages::default(),
            direct: true,
            timing: false,
            pool_bytes: None,
            channel: 0,
        }
    }
}

/// Options of a [`Forest`](crate::Forest). Channel and reductions must be the same on all ranks; each rank sets the
/// other options itself.
///
/// ```
/// use halo::{Combine, ForestOptions};
///
/// let options = ForestOptions { reductions: vec![Combine::Sum, Combine::Max], ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ForestOptions {
    /// The operations that [`reduce`](crate::Forest::reduce) will be called with, in any order. Others are refused.
    pub reductions: Vec<Combine>,
    /// The longest time that a broadcast or reduction waits for other ranks and for the device: see
    /// [`HaloOptions::timeout`].
    pub timeout: Duration,
    /// How messages get to the transport.
    pub staging: Staging,
    /// Whether events measure the times of launches: see [`HaloStatistics`](crate::HaloStatistics). Bytes are always
    /// counted.
    pub timing: bool,
    /// The most bytes that all message buffers may have together, at least those of the messages of one broadcast in
    /// both directions. The default is four times as many.
    pub pool_bytes: Option<usize>,
    /// Distinguishes exchanges that use one communicator at the same time: see [`HaloOptions::channel`].
    pub channel: u32,
}

impl Default for ForestOptions {
    fn default() -> Self {
        let HaloOptions { timeout, staging, timing, pool_bytes, channel, .. } =
            HaloOptions::default();
        Self { reductions: Vec::new(), timeout, staging, timing, pool_bytes, channel }
    }
}

/// The options that every kind of exchange has.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) staging: Staging,
    pub(crate) timing: bool,
    pub(crate) pool_bytes: Option<usize>,
    pub(crate) channel: u32,
}

impl From<&HaloOptions> for Settings {
    fn from(options: &HaloOptions) -> Self {
        let HaloOptions { timeout, staging, timing, pool_bytes, channel, .. } = *options;
        Self { timeout, staging, timing, pool_bytes, channel }
    }
}

impl From<&ForestOptions> for Settings {
    fn from(options: &ForestOptions) -> Self {
        let ForestOptions { timeout, staging, timing, pool_bytes, channel, .. } = *options;
        Self { timeout, staging, timing, pool_bytes, channel }
    }
}
