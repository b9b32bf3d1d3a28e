//! A consumer's arguments of `__dlpack__`, and the producer's actions for them.

use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result};

use super::PROTOCOL;
use super::abi::device;
use super::export::DlpackOptions;
use crate::state::State;
use crate::{ArrayExchange, MemoryKind, dl_device};

/// The arguments of `__dlpack__`, as the consumer passed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DlpackRequest {
    /// The number of the stream on which the consumer will use the array; −1 requests no synchronisation.
    pub stream: Option<i64>,
    /// The highest version that the consumer reads; `None` for consumers that read only the old structure.
    pub max_version: Option<(u32, u32)>,
    /// The device on which the consumer wants the array; `None` means its current device.
    pub dl_device: Option<(i32, i32)>,
    /// Whether the array must be copied, or must not be.
    pub copy: Option<bool>,
}

/// The producer's action before it exports an array that is [`Pending`](crate::Pending).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlpackFence {
    /// Wait on the host: [`host_wait`](ArrayExchange::host_wait).
    HostWait,
    /// Make this stream wait. It is the consumer's stream or a default stream (1 and 2 for CUDA, 0 for HIP):
    /// [`order_after`](ArrayExchange::order_after), with a stream made from the handle.
    Order(NativeHandle),
    /// Do nothing: [`into_dlpack_unsynchronised`](ArrayExchange::into_dlpack_unsynchronised).
    Nothing,
}

/// A copy that the producer makes and exports instead of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlpackCopy {
    /// On the array's device.
    Here,
    /// In host memory.
    Host,
}

impl<S: State> ArrayExchange<S> {
    /// The value of `__dlpack_device__`: the numbers of the device type and of the device. `sycl` is the SYCL runtime's
    /// number of the device, for memory of its default context.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for memory that the protocol has no number for.
    pub fn dlpack_device(&self, sycl: Option<i32>) -> Result<(i32, i32)> {
        let numbers = dl_device::numbers(&self.array, sycl, PROTOCOL)?;
        Ok((numbers.device_type, numbers.device_id))
    }
}

impl DlpackRequest {
    /// The options for writing the tensor.
    pub fn options(&self) -> DlpackOptions {
        DlpackOptions { max_version: self.max_version, sycl_index: None }
    }

    /// The copy that must be made, if any. Memory that the host can read is copied to host memory. So is memory that
    /// the protocol has no number for, if the consumer wants it on the host. The call changes nothing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a device that is neither the host nor the array's device, for a copy that is needed but
    /// forbidden, for a stream together with the host, and for memory that the protocol has no number for.
    pub fn required_copy<S: State>(
        &self,
        array: &ArrayExchange<S>,
        sycl: Option<i32>,
    ) -> Result<Option<DlpackCopy>> {
        let here = dl_device::numbers(&array.array, sycl, PROTOCOL);
        let readable = array.array.kind.is_host_readable();
        let moves = match (self.dl_device, here) {
            (Some((device::CPU, 0)), here) => {
                if let Some(stream) = self.stream {
                    return Err(invalid(format!("stream {stream} for an array on the host")));
                }
                // The host can read this memory in place.
                !(readable && here.is_ok())
            }
            (_, Err(unnumbered)) => return Err(unnumbered),
            (None, Ok(_)) => false,
            (Some(asked), Ok(here)) if asked == (here.device_type, here.device_id) => false,
            (Some((kind, id)), Ok(here)) => {
                let message = format!(
                    "device type {kind}, number {id}; the array is on {}, {}",
                    here.device_type, here.device_id
                );
                return Err(invalid(message));
            }
        };
        match (moves, self.copy) {
            (true, Some(false)) => Err(invalid("the array would have to be copied".into())),
            (true, _) => Ok(Some(DlpackCopy::Host)),
            (false, Some(true)) if readable => Ok(Some(DlpackCopy::Host)),
            (false, Some(true)) => Ok(Some(DlpackCopy::Here)),
            (false, _) => Ok(None),
        }
    }

    /// The action that is needed before the array is exported in place.
    ///
    /// The host can read pinned and managed memory without a stream. So for this memory the host waits, unless a stream
    /// is given; for stream −1 of CUDA and HIP it waits too. Without a stream, other memory of CUDA and HIP is ordered
    /// on the default stream, or the host waits if the consumer wants the array on the host.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a number that is not a stream of the array's device.
    pub fn fence<S: State>(&self, array: &ArrayExchange<S>) -> Result<DlpackFence> {
        let description = &array.array;
        let api = description.memory.map_or(description.device.backend(), |memory| memory.api);
        let to_host = self.dl_device.is_some_and(|(kind, _)| kind == device::CPU);
        let refuse = |stream: i64, why: &str| Err(invalid(format!("stream {stream}: {why}")));
        let order = |api: &'static str, raw| {
            Ok(DlpackFence::Order(NativeHandle { api, kind: NativeKind::Stream, raw }))
        };
        match (description.kind, api, self.stream) {
            (MemoryKind::Host, _, None) => Ok(DlpackFence::HostWait),
            (MemoryKind::Host, _, Some(stream)) => refuse(stream, "memory of the host has none"),
            _ if to_host && self.stream.is_none() => Ok(DlpackFence::HostWait),
            (kind, _, None) if kind.is_host_readable() => Ok(DlpackFence::HostWait),
            (kind, "cuda" | "hip", Some(-1)) if kind.is_host_readable() => {
                Ok(DlpackFence::HostWait)
            }
            (_, "cuda", None) => order("cuda", 1),
            (_, "hip", None) => order("hip", 0),
            (_, "cuda" | "hip", Some(-1)) => Ok(DlpackFence::Nothing),
            (_, "cuda", Some(0)) => refuse(0, "0 could be either default stream; 1 or 2 is taken"),
            (_, "hip", Some(stream @ (1 | 2))) => refuse(stream, "HIP has no such stream"),
            (_, api @ ("cuda" | "hip"), Some(stream)) => match usize::try_from(stream) {
                Ok(raw) => order(if api == "cuda" { "cuda" } else { "hip" }, raw),
                Err(_) => refuse(stream, "a negative number"),
            },
            // There is no standard number, and no number could order a consumer.
            (_, _, None) => Ok(DlpackFence::HostWait),
            (_, api, Some(stream)) => refuse(stream, &format!("{api} has no numbers for streams")),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}
