"""Tests for CUDA and HIP devices only: stream numbers and addresses. They also run on the stand-ins, which need no GPU."""

import ctypes
import time

import numpy as np
import pytest
from conftest import DTYPES, ends_well, given_back, values

import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

CUDA, HIP = 2, 10


@pytest.fixture(scope="module", params=["cuda:0", "hip:0"])
def gpu(request):
    try:
        return dr.Device(request.param)
    except dr.UnavailableError as error:
        pytest.skip(str(error))


def kind(gpu):
    return CUDA if gpu.id.startswith("cuda") else HIP


class ByCudaInterface:
    """A producer that supports only the CUDA array interface."""

    def __init__(self, array, **changes):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


class Recorder:
    """A DLPack producer that records the stream that it gets."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **keywords):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, **keywords)


def test_the_device_has_numbers(gpu):
    array = gpu.zeros(3)
    assert array.__dlpack_device__() == (kind(gpu), 0)
    assert not hasattr(array, "__array_interface__")
    with pytest.raises(Exception, match="(?i)device"):
        np.from_dlpack(array)
    assert np.array_equal(np.from_dlpack(array, device="cpu"), np.zeros(3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_goes_from_device_to_array(gpu, dtype):
    given = values((3, 4), dtype)
    array = gpu.array(given)
    for source in [array, ByCudaInterface(array)]:
        other = gpu.adopt(source)
        assert other.ptr == array.ptr and np.array_equal(other.get(), given)
    part = array[::-1, 1::2]
    said = part.__cuda_array_interface__
    assert said["shape"] == (3, 2) and said["strides"] == part.strides and said["version"] == 3
    assert said["data"] == (part.ptr, False) and said["typestr"] == given.dtype.str
    assert np.array_equal(gpu.adopt(ByCudaInterface(part)).get(), given[::-1, 1::2])


def test_the_interface_names_a_stream_while_work_is_pending(gpu):
    array, stream = gpu.zeros(1 << 20, "uint8"), gpu.stream()
    # Memory of earlier tests may still be freed on the default stream for a while.
    deadline = time.monotonic() + 30
    while array.__cuda_array_interface__["stream"] is not None:
        gpu.synchronize()
        assert time.monotonic() < deadline
    for value in range(1, 8):
        array.fill(value, stream)
    named = array.__cuda_array_interface__["stream"]
    if kind(gpu) == CUDA:
        assert named in (None, gpu.default_stream.handle)
    else:
        assert named is None
    assert (gpu.adopt(ByCudaInterface(array)).get() == 7).all()
    assert gpu.empty(0).__cuda_array_interface__["data"][0] == 0


def test_a_field_beside_an_exchange_is_read_only(gpu):
    [ranks] = Communicator.threads(1)
    quantities = [Quantity.scalar(FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))]))]
    halo = HaloExchange(ranks, Topology.cartesian((4,), (1,), (True,)), quantities, gpu)
    field = gpu.array(np.arange(6.0))

    def check(is_writable):
        assert field.__cuda_array_interface__["data"][1] is not is_writable
        assert gpu.adopt(field).read_only is not is_writable

    check(is_writable=True)
    halo.overlap([field], lambda progress: check(is_writable=False))
    check(is_writable=True)


def test_the_consumers_stream_waits(gpu):
    """An array is imported on a stream that the producer is requested to order, and can be used there at once."""
    array, work, consumer = gpu.zeros(1 << 20, "uint8"), gpu.stream(), gpu.stream()
    gpu.synchronize()
    for value in range(1, 8):
        array.fill(value, work)
    recorder = Recorder(array)
    other = gpu.adopt(recorder, consumer)
    assert recorder.streams == [consumer.handle]
    assert (other.get(stream=consumer) == 7).all()


def test_stream_minus_one_does_not_wait(gpu):
    """With stream -1 the consumer orders the work itself: no event is recorded, and nothing waits."""
    # Large enough to keep also a GPU busy for a while.
    array, stream = gpu.zeros(1 << 26, "uint8"), gpu.stream()
    gpu.synchronize()
    for value in range(1, 30):
        array.fill(value, stream)
    capsule = array.__dlpack__(stream=-1, max_version=(1, 0))
    assert not stream.is_done
    stream.synchronize()
    assert (gpu.adopt(capsule).get() == 29).all()


@pytest.mark.parametrize("order", [{}, {"stream": -1}])
def test_a_copy_is_made_on_the_device(gpu, order):
    """A copy comes after the work enqueued so far. For a consumer that orders the array's work itself, the copy is finished."""
    array, stream = gpu.zeros((1 << 10, 1 << 10), "uint8"), gpu.stream()
    reader = gpu.stream() if order else gpu.default_stream
    gpu.synchronize()
    for given in [array, array[::3, 1:]]:
        for value in range(1, 8):
            array.fill(value, stream)
        copied = gpu.adopt(given.__dlpack__(max_version=(1, 0), copy=True, **order))
        assert copied.ptr != given.ptr and (copied.get(stream=reader) == 7).all()
        copied.fill(0, reader)
        gpu.synchronize()
    assert (array.get() == 7).all()


def test_lent_memory_tells_no_address(gpu):
    buffer = dr.ArrayBuffer(values(4))
    with buffer.read_write(gpu) as x:
        with pytest.raises(AttributeError, match="lent by an array buffer"):
            x.__cuda_array_interface__
        taken = gpu.adopt(x)
    with pytest.raises(dr.ConflictError, match="held for writing"):
        buffer.get()
    taken.fill(7)
    del taken
    assert given_back(buffer).tolist() == [7] * 4


def test_unused_capsules_may_outlive_the_interpreter(gpu):
    program = """
import builtins, sys
import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology
array = dr.Device(sys.argv[1]).zeros(10)
builtins.kept = array.__dlpack__(), array.__dlpack__(max_version=(1, 0)), array.__arrow_c_device_array__()
"""
    ends_well(program, gpu.id)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_numbers_of_default_streams(gpu, stream):
    """CUDA has streams 1 and 2, and its 0 is ambiguous; HIP has only 0."""
    array = gpu.zeros(3)
    if (kind(gpu) == CUDA) == (stream == 0):
        with pytest.raises(BufferError, match=f"stream {stream}"):
            array.__dlpack__(stream=stream)
    else:
        assert gpu.adopt(array.__dlpack__(stream=stream)).get().tolist() == [0, 0, 0]


def test_pinned_none_waits_on_host(gpu):
    """The host reads pinned memory without a stream, so the export waits for copies into it."""
    array, stream, pinned = gpu.zeros(1 << 20, "uint8"), gpu.stream(), gpu.pinned(1 << 20, "uint8")
    gpu.synchronize()
    for value in range(1, 8):
        array.fill(value, stream)
    array.get(pinned, stream)
    assert (np.from_dlpack(pinned) == 7).all()
    assert pinned.__dlpack_device__() == ((3 if kind(gpu) == CUDA else 11), 0)
    assert np.asarray(pinned).ctypes.data == np.from_dlpack(pinned).ctypes.data == pinned.ptr
    copied = np.from_dlpack(pinned, copy=True)
    assert copied.ctypes.data != pinned.ptr and (copied == 7).all()


def test_kernels_take_arrays_of_others(gpu):
    source = 'extern "C" __global__ void twice(float *x, unsigned n) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }'
    try:
        twice = gpu.module(source)["twice"]
    except dr.InvalidArgumentError as error:
        pytest.skip(str(error))
    array = gpu.array(values(1000, "float32"))
    gpu.synchronize()
    other = gpu.adopt(ByCudaInterface(array))
    with gpu.stream() as stream:
        twice(stream, 4, 256, [other, 1000])
    assert np.array_equal(array.get(), values(1000, "float32") * 2)


def test_device_memory_is_given_back_after_strangers(gpu):
    """A memory block whose address was exported is freed once the device has finished all its work."""
    array = gpu.zeros(1 << 16, "uint8")
    address = array.__cuda_array_interface__["data"][0]
    again = array.__cuda_array_interface__["data"][0]
    assert address == again and ctypes.c_void_p(address).value
    del array
    gpu.synchronize()
