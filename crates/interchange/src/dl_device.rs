//! DLPack's device numbers, which Arrow uses too.

use runtime_core::{DeviceKind, Error, ErrorKind, Result};

use crate::description::{Description, host};
use crate::dlpack::abi::{DLDevice, device};
use crate::{ContextBinding, DeviceToken, MemoryKind};

/// The numbers of an array's device. `sycl` is the SYCL runtime's number of the device, for memory of its default
/// context.
///
/// # Errors
///
/// `InvalidArgument` for memory without a number.
pub(crate) fn numbers(
    array: &Description,
    sycl: Option<i32>,
    protocol: &'static str,
) -> Result<DLDevice> {
    let refuse = |why: &str| {
        let message = format!("{:?} memory of {}: {why}", array.kind, array.device);
        Error::new(ErrorKind::InvalidArgument, protocol, message)
    };
    let index =
        || i32::try_from(array.device.index()).map_err(|_| refuse("its index does not fit"));
    let api = array.memory.map_or(array.device.backend(), |memory| memory.api);
    let (device_type, device_id) = match (array.kind, api) {
        (MemoryKind::Host, _) => (device::CPU, 0),
        (MemoryKind::Pinned, "cuda") => (device::CUDA_HOST, 0),
        (MemoryKind::Pinned, "hip") => (device::ROCM_HOST, 0),
        (MemoryKind::Pinned, _) => (device::CPU, 0),
        (MemoryKind::Shared, "cuda") => (device::CUDA_MANAGED, 0),
        (MemoryKind::Device, "cuda") => (device::CUDA, index()?),
        // DLPack has no number for managed memory of HIP.
        (MemoryKind::Device | MemoryKind::Shared, "hip") => (device::ROCM, index()?),
        (MemoryKind::Object, "opencl") => (device::OPENCL, index()?),
        (MemoryKind::Device | MemoryKind::Shared, "opencl" | "sycl" | "level_zero") => {
            match (&array.context, sycl) {
                (ContextBinding::PlatformDefault, Some(index)) => (device::ONE_API, index),
                (ContextBinding::PlatformDefault, None) => {
                    return Err(refuse(
                        "the index of the device in the SYCL runtime was not given",
                    ));
                }
                (ContextBinding::Explicit(_), _) => {
                    return Err(refuse("it is not of the SYCL runtime's default context"));
                }
            }
        }
        _ => return Err(refuse("the protocol has no number for it")),
    };
    Ok(DLDevice { device_type, device_id })
}

/// Translates the numbers to the interface of the addresses, the kind of memory, and the device.
///
/// # Errors
///
/// `UnknownDevice` for an invalid number, or for memory that this crate does not support.
pub(crate) fn parse(
    numbers: DLDevice,
    protocol: &'static str,
) -> Result<(&'static str, MemoryKind, DeviceToken)> {
    let DLDevice { device_type, device_id } = numbers;
    let refuse = || {
        let message = format!("device type {device_type}, number {device_id}");
        Err(Error::new(ErrorKind::UnknownDevice, protocol, message))
    };
    let gpu = |api: &'static str, index| DeviceToken::new(api, Some(DeviceKind::Gpu), index);
    // Host memory and managed memory belong to no device: libraries write 0 or -1 as their number.
    let index = match (device_type, usize::try_from(device_id)) {
        (device::CPU | device::CUDA_HOST | device::ROCM_HOST | device::CUDA_MANAGED, _) => 0,
        (_, Ok(index)) => index,
        (_, Err(_)) => return refuse(),
    };
    Ok(match device_type {
        device::CPU => ("host", MemoryKind::Host, host()),
        device::CUDA => ("cuda", MemoryKind::Device, gpu("cuda", index)),
        device::CUDA_HOST => ("cuda", MemoryKind::Pinned, gpu("cuda", index)),
        device::CUDA_MANAGED => ("cuda", MemoryKind::Shared, gpu("cuda", index)),
        device::ROCM => ("hip", MemoryKind::Device, gpu("hip", index)),
        device::ROCM_HOST => ("hip", MemoryKind::Pinned, gpu("hip", index)),
        device::OPENCL => ("opencl", MemoryKind::Object, DeviceToken::new("opencl", None, index)),
        device::ONE_API => ("sycl", MemoryKind::Device, DeviceToken::new("sycl", None, index)),
        _ => return refuse(),
    })
}
