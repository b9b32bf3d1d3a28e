//! What a consumer asks of `__dlpack__`, and what the producer does for it.

use runtime_core::{Error, ErrorKind, NativeHandle, NativeKind, Result};

use super::PROTOCOL;
use super::abi::device;
use super::export::DlpackOptions;
use crate::state::State;
use crate::{ArrayExchange, MemoryKind, dl_device};

/// The arguments of `__dlpack__`, as the consumer gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DlpackRequest {
    /// The stream that the consumer will use the array on, as a number; −1 asks for no synchronisation.
    pub stream: Option<i64>,
    /// The highest version that the consumer reads; absent for those that read the old structure alone.
    pub max_version: Option<(u32, u32)>,
    /// Where the consumer wants the array; absent is where it is.
    pub dl_device: Option<(i32, i32)>,
    /// Whether it must be a copy, or must not be one.
    pub copy: Option<bool>,
}

/// What the producer does before it hands over an array that is [`Pending`](crate::Pending).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlpackFence {
    /// It waits, on the host: [`host_wait`](ArrayExchange::host_wait).
    HostWait,
    /// It makes this stream wait, the consumer's own or a default one (1 and 2 of CUDA, 0 of HIP):
    /// [`order_after`](ArrayExchange::order_after), with a stream taken up from the handle.
    Order(NativeHandle),
    /// Nothing: [`into_dlpack_unsynchronised`](ArrayExchange::into_dlpack_unsynchronised).
    Nothing,
}

/// A copy that the producer makes and hands over in place of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlpackCopy {
    /// On the array's device.
    Here,
    /// In memory of the host.
    Host,
}

impl<S: State> ArrayExchange<S> {
    /// What `__dlpack_device__` says: the numbers of the device's type and of the device. `sycl` is what the SYCL runtime
    /// counts the device as, for memory of its default context.
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
    /// How the tensor is to be written.
    pub fn options(&self) -> DlpackOptions {
        DlpackOptions { max_version: self.max_version, sycl_index: None }
    }

    /// The copy that has to be made, if one has. A copy of memory that the host reads is one in memory of the host, and so is
    /// what the host is to get of memory that the protocol has no number for. Nothing is changed by asking.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a device that the array is not on and that is not the host, for a copy that would be needed
    /// and is forbidden, for a stream beside the host, and for memory that the protocol has no number for.
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
                // The host reads these where they are.
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

    /// What has to be done before the array is handed over where it is.
    ///
    /// The host reads pinned and managed memory without a stream, so these wait on the host unless a stream is given;
    /// other memory of CUDA and HIP is ordered on the default stream then.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a number that is no stream of the array's device.
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
            // No number is standardised, and no consumer could be ordered by one.
            (_, _, None) => Ok(DlpackFence::HostWait),
            (_, api, Some(stream)) => refuse(stream, &format!("{api} has no numbers for streams")),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, PROTOCOL, message)
}
