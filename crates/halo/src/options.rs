//! Choices of an exchange.

use std::time::Duration;

use runtime_core::Complex;
use runtime_core::{Bool, DType, Element, bf16, bytemuck, f16};

use crate::route::CONSTANT_BYTES;
use crate::transfer::Reach;

/// What becomes of ghosts where tiles meet in a corner and no cell lies, as at the eight corners of the cube.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MissingCorners {
    /// They stay as they are.
    #[default]
    Untouched,
    /// They are set to this value, rounded to the type of the field.
    Fill(f64),
    /// They are set to the mean of two ghosts next to the block: the one as far beyond the first side of the corner, and the
    /// one as far beyond the other. For floating-point elements; `finish`, or the `poll` that
    /// completes the exchange, then waits until unpacking is done.
    Average,
}

/// How messages get from the device to the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Staging {
    /// In the device's memory if the host addresses it, through page-locked host memory if the transport does not pass
    /// the device's memory, and otherwise whatever is faster.
    ///
    /// That is measured by [`HaloExchange::new`](crate::HaloExchange::new), if it is so on every rank and ranks do not
    /// read each other's [fields](HaloOptions::direct): messages as long as those of an exchange are sent a few times
    /// each way, the slowest rank counts, and all ranks choose the same.
    /// [`HaloTransformer::staging`](crate::HaloTransformer::staging) tells the choice,
    /// [`HaloStatistics::staging`](crate::HaloStatistics::staging) the times.
    /// If some rank has no choice, ranks that have one choose the device's memory.
    #[default]
    Auto,
    /// Through page-locked host memory.
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
    /// One message for each field, in the order of fields: one is unpacked while the next is on its way.
    Separate,
    /// [`Above`](Self::Above) [`LARGE`](Self::LARGE) bytes.
    Auto,
    /// A message of its own for each field that has more than so many bytes for that rank, and one message with all others,
    /// which comes first.
    Above(usize),
}

impl Messages {
    /// The bytes beyond which a field goes by itself with [`Auto`](Self::Auto): 256 KiB, a rule of thumb.
    ///
    /// Between two processes of one machine with two busy cores (Open MPI 4.1), eight fields of 8 KiB took twice as long in
    /// eight messages as in one; at 256 KiB there was less between the two than between runs; and what is gained came at
    /// 128 KiB for fields whose halos lie scattered, and at 2 MiB for halos in rows. A network has another bound, and so has a
    /// device whose launches are slow: measure, and say [`Above`](Self::Above).
    pub const LARGE: usize = 256 << 10;

    /// The bytes beyond which a field goes by itself.
    pub(crate) fn limit(self) -> usize {
        match self {
            Self::Aggregate => usize::MAX,
            Self::Separate => 0,
            Self::Auto => Self::LARGE,
            Self::Above(bytes) => bytes,
        }
    }
}

/// Choices of an exchange. All ranks have the same reach, missing corners, messages and channel; the rest is each rank's own.
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
    /// How long an exchange may wait for other ranks and for the device. A launch blocks until it is done, however long that
    /// takes, where the device does not copy regions itself: see [`RegionPlan`](runtime_core::RegionPlan).
    pub timeout: Duration,
    /// Whether edges and corners are exchanged.
    pub reach: Reach,
    /// What becomes of ghosts at corners without cells.
    pub missing_corners: MissingCorners,
    /// How messages get to the transport.
    pub staging: Staging,
    /// How fields share messages.
    pub messages: Messages,
    /// Whether ranks that are threads of one process, with fields on one opened device, copy out of each other's fields in
    /// [`exchange`](crate::HaloExchange::exchange) and [`overlap`](crate::HaloExchange::overlap), and send no messages.
    ///
    /// One opened device are clones of one [`Device`](runtime_core::Device): open it before the ranks begin. Ranks that
    /// open one each send messages. So do ranks on a host of whose fields neighbours would read little but rows shorter
    /// than a cache line, 32 KiB to 1 MiB: such lines have ghosts in them that are written meanwhile.
    pub direct: bool,
    /// Whether launches are timed by events: see [`HaloStatistics`](crate::HaloStatistics). Bytes are counted in any case.
    pub timing: bool,
    /// Bytes that message buffers may have together; four times those of one exchange by default.
    pub pool_bytes: Option<usize>,
    /// Tells exchanges apart that use one communicator at the same time: each has another channel. Ranks finish them in
    /// the same order.
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

/// A number as an element.
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
