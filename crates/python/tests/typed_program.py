"""A program for type checkers. Lines with `type: ignore` are wrong, and must be reported as errors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology


def arrays(device: dr.Device) -> dr.DeviceArray:
    array = device.array(np.arange(12.0)).reshape(3, -1)
    assert_type(array.get(), NDArray[Any])
    out: NDArray[np.float64] = np.empty((3, 4))
    assert_type(array.get(out), NDArray[np.float64])
    pinned = device.pinned(array.shape)
    assert_type(array.get(pinned, device.stream()), dr.PinnedArray)
    for row in array:
        assert_type(row, dr.DeviceArray)
    array[0] = np.float64(2)
    array.fill("two", stream=1)  # type: ignore[arg-type]
    return array.transpose((1, 0)).reshape((-1,))


def buffers(device: dr.Device) -> NDArray[Any]:
    buffer = dr.ArrayBuffer(np.arange(12.0), copy=True)
    buffer.page_lock(device)
    buffer.page_lock("host")  # type: ignore[arg-type]
    with dr.offload(device) as stream, buffer.read_write() as values:
        assert_type(stream, dr.Stream)
        values.fill(1)
        stream.check()
    buffer.read(3)  # type: ignore[arg-type]
    assert_type(buffer.transfers.between("host", device.id), tuple[int, int])
    return buffer.get()


def halos(device: dr.Device) -> None:
    [ranks] = Communicator.threads(1)
    field = FieldSpec("t", np.float32, [Dim.axis(0, 4, (1, 1))])
    halo = HaloExchange(ranks, Topology.cartesian((4,), (1,), (True,)), [Quantity.scalar(field)], device)
    array = device.zeros(field.shape, field.dtype)
    assert_type(halo.overlap([array], lambda progress: progress.poll()), bool)
    halo.exchange(array)  # type: ignore[arg-type]


def failures() -> str | None:
    try:
        dr.Device("nothing")
    except dr.UnknownDeviceError as error:
        return error.kind
    return dr.__version__
