//! The options of an exchange.

use std::time::Duration;

use runtime_core::Complex;
use runtime_core::{Bool, DType, Element, bf16, bytemuck, f16};

use crate::engine::route::CONSTANT_BYTES;
use crate::plan::transfer::Reach;

/// How to set ghosts at corners where tiles meet but no cell lies, as at the eight corners of the cube.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MissingCorners {
    /// Leaves them unchanged.
    #[default]
    Untouched,
    /// Sets them to this value, rounded to the element type of the field.
    Fill(f64),
    /// Sets them to the mean of two ghosts next to the block: the ghost at the same distance beyond the first side of
    /// the corner, and the ghost at the same distance beyond the other side. Only for floating-point elements.
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
    /// do not read each other's [fields](HaloOptions::direct). It sends messages as long as those of an exchange a few
    /// times each way. The slowest rank counts, and all ranks choose the same.
    /// [`HaloTransformer::staging`](crate::HaloTransformer::staging) returns the choice,
    /// [`HaloStatistics::staging`](crate::HaloStatistics::staging) the times. If some rank does not have the choice,
    /// the ranks that have it use the device's memory.
    #[default]
    Auto,
    /// Through pinned (page-locked) host memory.
    Pinned,
    /// In the device's memory.
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
    /// The number of bytes above which [`Auto`](Self::Auto) sends a field in its own message: 256 KiB, a rule of thumb.
    ///
    /// It was measured between two processes on one machine with two busy cores (Open MPI 4.1). Eight fields of 8 KiB
    /// took twice as long in eight messages as in one. At 256 KiB the difference was smaller than the difference
    /// between runs. Separate messages became faster at 128 KiB for fields whose halos are scattered in memory, and at
    /// 2 MiB for halos in rows. The best limit differs for a network, and for a device with slow launches: measure it
    /// and use [`Above`](Self::Above).
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
    /// The most bytes that all message buffers may have together. The default is four times the bytes of one exchange.
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

/// Converts a number to the bytes of an element.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are rounded to the type on purpose, and saturate"
)]
pub(crate) fn element(dtype: DType, value: f64) -> [u8; CONSTANT_BYTES] {
    fn bytes(value: impl Element) -> [u8; CONSTANT_BYTES] {
        let mut bytes = [0; CONSTANT_BYTES];
        let value = bytemuck::bytes_of(&value);
        bytes[..value.len()].copy_from_slice(value);
        bytes
    }
    match dtype {
        DType::Bool => bytes(Bool::from(value != 0.0)),
        DType::I8 => bytes(value as i8),
        DType::I16 => bytes(value as i16),
        DType::I32 => bytes(value as i32),
        DType::I64 => bytes(value as i64),
        DType::U8 => bytes(value as u8),
        DType::U16 => bytes(value as u16),
        DType::U32 => bytes(value as u32),
        DType::U64 => bytes(value as u64),
        DType::F16 => bytes(f16::from_f64(value)),
        DType::BF16 => bytes(bf16::from_f64(value)),
        DType::F32 => bytes(value as f32),
        DType::F64 => bytes(value),
        DType::C64 => bytes(Complex::new(value as f32, 0.0)),
        DType::C128 => bytes(Complex::new(value, 0.0)),
    }
}
