"""Device arrays: creation, indexing and copies."""

import array as python_array
import ctypes
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import DTYPES, opened, values

import device_runtime as dr

KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[1, 2, 3],
    np.s_[:, ::-1],
    np.s_[::-1, ::-1, ::-1],
    np.s_[..., 1:3],
    np.s_[1, ::2, ::-2],
    np.s_[:, None, 0],
    np.s_[None, ..., None],
    np.s_[0:0],
    np.s_[5:, 1:-1],
    np.s_[...],
    np.s_[()],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (2, 3), (2, 3, 2, 1, 2, 2)])
def test_values_come_back_as_they_went(device, dtype, shape):
    given = values(shape, dtype)
    array = device.array(given)
    assert array.shape == shape and array.dtype == given.dtype and array.nbytes == given.nbytes
    assert (array.size, array.ndim, array.itemsize) == (given.size, given.ndim, given.itemsize)
    back = array.get()
    assert back.dtype == given.dtype and np.array_equal(back, given)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indices_are_those_of_numpy(device, key):
    given = values((3, 4, 5), "int32")
    part = device.array(given)[key]
    assert part.shape == given[key].shape
    assert np.array_equal(part.get(), given[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_parts_are_set_as_in_numpy(device, key):
    given = values((3, 4, 5), "float32")
    array, expected = device.array(given), given.copy()
    array[key] = 7
    expected[key] = 7
    assert np.array_equal(array.get(), expected)
    fresh = values(given[key].shape, "float32") + 100
    array[key] = fresh
    expected[key] = fresh
    assert np.array_equal(array.get(), expected)


@pytest.mark.parametrize("key", [np.s_[3], np.s_[-4], np.s_[0, 0, 0, 0], np.s_[..., ...]], ids=str)
def test_indices_beyond_the_array_are_refused(device, key):
    with pytest.raises(IndexError):
        device.zeros((3, 4, 5))[key]


def test_other_indices_are_refused(device):
    with pytest.raises(TypeError, match="no index"):
        device.zeros(3)[[0, 1]]
    with pytest.raises(TypeError):
        len(device.zeros(()))
    with pytest.raises(ValueError, match="get"):
        bool(device.zeros(3))


def test_a_part_that_overlaps_its_source_is_set_right(device):
    given = values(10, "int64")
    array = device.array(given)
    array[1:] = array[:-1]
    assert array.get().tolist() == [1, *range(1, 10)]
    array[:] = array[::-1]
    assert array.get().tolist() == [*range(9, 0, -1), 1]


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("kind", ["get", "set", "pinned", "buffer"])
@pytest.mark.parametrize("selector", ["host", "sim:0"])
def test_copies_to_overlapping_memory_of_the_host_are_those_of_numpy(selector, kind, up):
    device, given = opened(selector), np.arange(3_000_001.0)
    to, of = (np.s_[1:], np.s_[:-1]) if up else (np.s_[:-1], np.s_[1:])
    expected = given.copy()
    expected[to] = given[of]
    array = device.array(given)
    if kind == "get":
        array[of].get(np.asarray(array)[to])
        found = array.get()
    elif kind == "set":
        array[to].set(np.asarray(array)[of])
        found = np.asarray(array)
    elif kind == "pinned":
        pinned = device.pinned(given.shape)
        pinned[:] = given
        found = np.asarray(pinned)
        device.adopt(found)[to].set(found[of])
    else:
        found = given.copy()
        with dr.ArrayBuffer(found).read_write(device) as x:
            x[to].set(found[of])
            found = x.get()
    assert np.array_equal(found, expected)


def test_strides_of_one_element_are_small(host):
    array = host.array(np.arange(5.0))
    for key in [np.s_[:: 2**63 - 1], np.s_[:: -(2**63) + 1], np.s_[3:3 : 2**62]]:
        part = array[key]
        expected = np.arange(5.0)[key]
        for shown in [np.asarray(part), np.from_dlpack(part), part.get()]:
            assert np.array_equal(shown, expected)


def test_orders(device):
    given = values((3, 4))
    columns = device.array(np.asfortranarray(given))
    assert columns.is_f_contiguous and not columns.is_c_contiguous and columns.strides == (8, 24)
    back = columns.get()
    assert back.flags.f_contiguous and np.array_equal(back, given)
    assert columns.get(order="C").flags.c_contiguous
    rows = columns.copy()
    assert rows.is_c_contiguous and np.array_equal(rows.get(), given)
    assert np.array_equal(columns.T.get(), given.T)
    assert np.array_equal(device.array(values((2, 3, 4))).transpose(1, 2, 0).get(), values((2, 3, 4)).transpose(1, 2, 0))
    assert device.empty((3, 4), order="F").strides == (8, 24)
    assert np.array_equal(device.array(given).reshape((2, 6)).get(), given.reshape(2, 6))
    with pytest.raises(dr.InvalidArgumentError):
        columns.reshape((2, 6))
    with pytest.raises(dr.InvalidArgumentError):
        columns.transpose(0, 0)
    with pytest.raises(ValueError, match="order"):
        device.empty(3, order="K")


def test_shapes_and_axes_are_those_of_numpy(device):
    given = values((2, 3, 4))
    array = device.array(given)
    for shape in [(-1,), (2, -1), (4, -1, 3), (-1, 24), (1, 24), (24,)]:
        assert np.array_equal(array.reshape(shape).get(), given.reshape(shape))
        assert np.array_equal(array.reshape(*shape).get(), given.reshape(shape))
    assert device.array([5]).reshape(()).shape == device.array([5]).reshape().shape == ()
    assert device.zeros((0, 3)).reshape(3, -1).shape == (3, 0)
    for wrong in [(-1, -1), (5, -1), (-2, 12), (0, -1), (23,), (1 << 62, 1 << 62)]:
        with pytest.raises(dr.InvalidArgumentError, match="reshape"):
            array.reshape(wrong)
    for axes in [(1, 0, 2), (2, 1, 0), (-1, 0, 1)]:
        assert np.array_equal(array.transpose(axes).get(), given.transpose(axes))
        assert np.array_equal(array.transpose(*axes).get(), given.transpose(axes))
    assert array.transpose(None).shape == array.transpose().shape == (4, 3, 2)
    for wrong in [(0, 1), (0, 1, 3), (0, 1, -4), (0, 0, 1), (0, 1, 2, 3)]:
        with pytest.raises(dr.InvalidArgumentError, match="transpose"):
            array.transpose(wrong)
    assert [part.shape for part in array] == [(3, 4)] * 2
    assert all(np.array_equal(part.get(), row) for part, row in zip(array, given, strict=True))
    with pytest.raises(TypeError):
        iter(device.zeros(()))


@pytest.mark.parametrize("shape", [-1, (-1,), (2, -3)], ids=str)
def test_negative_extents_are_refused(device, shape):
    for make in [device.empty, device.zeros, device.pinned, dr.ArrayBuffer.empty]:
        with pytest.raises(dr.InvalidArgumentError, match=r"-\d.*negative"):
            make(shape)
    with pytest.raises(OverflowError):
        device.empty(1 << 70)
    with pytest.raises(TypeError):
        device.empty(2.5)
    assert device.empty(np.int32(2)).shape == device.empty(np.array([2])).shape == (2,)


SCALARS = [np.float64(2), np.float32(2), np.array(2.0), np.array(2, "float32"), np.int8(2), 2, 2.0]


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_numbers_of_numpy_are_numbers(device, scalar):
    array = device.zeros(4)
    array[...] = scalar
    array[1:2] = np.int64(3)
    assert array.get().tolist() == [2, 3, 2, 2]
    array.fill(scalar)
    assert device.full(2, scalar).get().tolist() == array[:2].get().tolist() == [2, 2]
    flags = device.zeros(2, "bool")
    flags[0] = np.bool_(True)
    assert flags.get().tolist() == [True, False]
    numbers = device.zeros(2, "complex64")
    numbers[...] = np.complex64(1 + 2j)
    assert numbers.get().tolist() == [1 + 2j] * 2
    integers = device.full(2, np.uint8(7), "int32")
    assert integers.get().tolist() == [7, 7]
    with pytest.raises(TypeError):
        integers.fill(np.float64(2.5))
    with pytest.raises(OverflowError):
        device.zeros(2, "int8").fill(np.int64(300))


def test_get_fills_what_it_is_given(device):
    given = values((4, 6), "float32")
    array = device.array(given)
    for out in [np.zeros_like(given), np.zeros_like(given, order="F"), np.zeros((8, 6), "float32")[::2]]:
        assert array.get(out) is out and np.array_equal(out, given)
    with pytest.raises(dr.InvalidArgumentError, match="float64"):
        array.get(np.zeros((4, 6)))
    locked = np.zeros_like(given)
    locked.flags.writeable = False
    with pytest.raises(dr.InvalidArgumentError, match="read"):
        array.get(locked)


def test_get_fills_buffers_of_python(device):
    given = device.array(values(4))
    for out in [python_array.array("d", bytes(32)), memoryview(bytearray(32)).cast("d"), (ctypes.c_double * 4)()]:
        assert given.get(out) is out and list(out) == [1, 2, 3, 4]
    with pytest.raises(dr.InvalidArgumentError, match="only to be read"):
        given.get(memoryview(bytes(32)).cast("d"))


@pytest.mark.parametrize("out", [[0.0] * 4, (0.0,) * 4, 0.0, np.float64(0), "four"], ids=repr)
def test_get_refuses_what_would_not_show_the_values(device, out):
    given = device.array(values(np.shape(out)))
    with pytest.raises(TypeError, match="no array that can be written"):
        given.get(out)


def test_arrays_are_not_compared(device):
    """Comparing values would need the device, so it is refused. Arrays compare by identity, also as dictionary keys."""
    one, other = device.zeros(3), device.zeros(3)
    for ask in [
        lambda: one == other, lambda: one != other, lambda: one == 0, lambda: 0 == one, lambda: one < other,
        lambda: 0 in one, lambda: one in [other],
    ]:  # fmt: skip
        with pytest.raises(TypeError, match="get"):
            ask()
    assert one in [one] and {one: 1, other: 2}[one] == 1


def test_set_refuses_other_shapes_and_types(device):
    array = device.zeros((2, 3), "float32")
    for wrong in [np.zeros((3, 2), "float32"), np.zeros((2, 3)), device.zeros((2, 3), "int32")]:
        with pytest.raises(dr.InvalidArgumentError, match="set"):
            array.set(wrong)
    with pytest.raises(dr.InvalidArgumentError, match="M8"):
        device.array(np.zeros(3, "datetime64[s]"))
    with pytest.raises(dr.InvalidArgumentError, match="byte order"):
        device.empty(3, ">f8")
    with pytest.raises(OverflowError):
        device.full(3, 300, "int8")


def test_lists_and_numbers_become_arrays(device):
    assert device.array([[1, 2], [3, 4]], "float32").get().tolist() == [[1, 2], [3, 4]]
    assert device.array(5).get() == 5
    assert device.full((), 1 + 2j, "complex64").get() == 1 + 2j


def test_truth_values_are_no_indices(host):
    array = host.array([1.0, 2.0])
    for key in [False, True, (True,), np.True_]:
        with pytest.raises(TypeError, match="is no index"):
            array[key]
        with pytest.raises(TypeError, match="is no index"):
            array[key] = 1


def test_an_index_of_any_size_beyond_the_extent_is_an_index_error(host):
    array = host.array([1.0, 2.0])
    for index in [2, 1 << 63, -1 << 70]:
        with pytest.raises(IndexError, match=f"index {index} for an extent of 2"):
            array[index]


def test_an_exception_of_an_index_is_passed_on(host):
    class Index:
        def __index__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host.zeros(2)[Index()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_texts_and_times_are_no_numbers(host, dtype):
    array = host.zeros(2, dtype)
    times = [np.datetime64(5, "ns"), np.timedelta64(5, "ns"), np.array(5, "M8[ns]"), np.datetime64(5, "D")]
    for value in ["1", "1+2j", "False", np.str_("1"), np.array("1+2j"), b"1", None, *times]:
        with pytest.raises(TypeError):
            array.fill(value)
        with pytest.raises(TypeError):
            array[0] = value
    assert array.get().tolist() == [0, 0]


def test_fill_value_on_device(device):
    for dtype in DTYPES:
        assert (device.full(5, 1, dtype).get() == np.ones(5, dtype)).all()
    assert np.array_equal(device.zeros((3, 3))[::2, ::2].get(), np.zeros((2, 2)))


@pytest.mark.parametrize("value", [1 + 2**-11 + 2**-40, 65519.999999999, 2**-25 * (1 + 2**-50)])
def test_half_precision_is_rounded_once(host, value):
    assert host.full((), value, "float16").get() == np.float16(value)


def test_bfloat16_is_there_without_ml_dtypes(device):
    array = device.full(4, 1.0, "bfloat16")
    assert array.nbytes == 8 and array.get().view("uint16").tolist() == [0x3F80] * 4


def test_copies_between_devices(host, device):
    given = values((3, 4, 5))
    for source in [given, np.asfortranarray(given)]:
        array = host.array(source)
        assert np.array_equal(array.to_device(device).get(), given)
        assert np.array_equal(device.array(array).get(), given)
        assert np.array_equal(array[::2, :, ::-1].to_device(device).get(), given[::2, :, ::-1])
    assert array.to_device(host) is array
    with pytest.raises(dr.WrongDeviceError):
        dr.Device("sim:1").zeros(3).get(stream=host.stream())


def test_pinned_copies_are_asynchronous(device):
    given = values((4, 5), "float32")
    for order in "CF":
        source = device.pinned((4, 5), "float32", order)
        assert not np.asarray(source).any() and source.nbytes == given.nbytes
        np.asarray(source)[:] = given
        back, stream = device.pinned((4, 5), "float32", order), device.stream()
        array = device.empty((4, 5), "float32")
        array.set(source, stream)
        array.get(back, stream)
        stream.synchronize()
        assert np.array_equal(np.asarray(back), given)
    assert np.array_equal(device.array(source).get(), given)
    assert device.pinned(3, write_combined=True).size == 3


@pytest.mark.parametrize("order", "CF")
def test_pinned_arrays_are_indexed_as_those_of_numpy(device, order):
    given = values((2, 3), "float32")
    array, like = device.pinned((2, 3), "float32", order), np.asarray(given, order=order)
    assert (array.ndim, array.strides, array.itemsize, len(array)) == (2, like.strides, 4, 2)
    array[...] = given
    assert array[1, 2] == 6 and array[1].tolist() == [4, 5, 6] and [row[0] for row in array] == [1, 4]
    array[:, ::2] = 0
    assert array[1:].tolist() == [[0, 5, 0]]
    assert device.array(array).get().tolist() == [[0, 2, 0], [0, 5, 0]]
    with pytest.raises(IndexError):
        array[2]
    with pytest.raises(TypeError):
        len(device.pinned(()))
    stream = device.stream()
    device.full((2, 3), 9, "float32", stream=stream).get(array, stream)
    assert array[0, 0] == 9


def test_the_pointer_is_that_of_the_first_element(host):
    array = host.array(values((3, 4)))
    assert array[1:, 2:].ptr == array.ptr + 6 * 8
    assert array[::-1].ptr == array.ptr + 8 * 8
    assert array[1:].handle == array.handle and array[1:].offset == 32


def test_memory_objects_have_no_pointer(opencl):
    array = opencl.zeros(3)
    with pytest.raises(AttributeError, match="handle and offset"):
        array.ptr
    assert array.handle and array[1:].offset == 8


def test_memory_by_its_address(host):
    owner = values((3, 4))
    array = host.from_pointer(owner.ctypes.data, (3, 4), owner.dtype, owner=owner)
    array.fill(5)
    host.synchronize()
    assert (owner == 5).all()
    columns = host.from_pointer(owner.ctypes.data, (4, 3), owner.dtype, strides=(8, 32), owner=owner)
    assert np.array_equal(columns.get(), owner.T)
    assert host.from_pointer(0, (0, 3)).size == 0
    with pytest.raises(dr.InvalidArgumentError, match="multiple"):
        host.from_pointer(owner.ctypes.data, 3, "float64", strides=(4,))


@pytest.mark.parametrize("selector", ["host", "sim:0", "opencl:0", "opencl:0?memory=svm"])
def test_null_pointers_are_refused(selector):
    with pytest.raises(dr.InvalidArgumentError, match="null pointer for 3 elements"):
        opened(selector).from_pointer(0, 3)


def test_too_much_memory_is_an_error(device):
    with pytest.raises(MemoryError):
        device.empty(1 << 60, "uint8")
    with pytest.raises(dr.InvalidArgumentError):
        device.empty((1 << 40, 1 << 40))
    with pytest.raises(dr.InvalidArgumentError, match="at most 6"):
        device.empty((1,) * 7)


@pytest.fixture
def late():
    """An array whose values are still being written, on a stream that no operation names. All of them will be 19."""
    device = opened("sim:0?seed=3")
    array, stream = device.zeros(1 << 20, "uint8"), device.stream()
    device.synchronize()
    for value in range(1, 20):
        array.fill(value, stream)
    return array


READS = {
    "get": lambda x: x.get(),
    "get into an array": lambda x: x.get(np.empty(x.shape, "uint8")),
    "get into gaps": lambda x: x.get(np.empty((*x.shape, 2), "uint8")[:, 0]),
    "get into a pinned array": lambda x: np.asarray(x.get(x.device.pinned(x.shape, "uint8"))),
    "copy": lambda x: x.copy().get(),
    "array": lambda x: x.device.array(x).get(),
    "to_device": lambda x: x.to_device(opened("sim:1")).get(),
    "from_dlpack": lambda x: np.from_dlpack(x, copy=True),
    "by another current stream": lambda x: in_offload(x),
}


def in_offload(array):
    with dr.offload(array.device.stream()):
        return array.get()


@pytest.mark.parametrize("read", READS)
def test_reading_without_a_stream_comes_after_all_work(late, read):
    assert set(READS[read](late)) == {19}


def pinned(device, value):
    made = device.pinned(1 << 20, "uint8")
    np.asarray(made)[:] = value
    return made


WRITES = {
    "fill": lambda x: x.fill(7),
    "set from the host": lambda x: x.set(np.full(x.shape, 7, "uint8")),
    "set from a pinned array": lambda x: x.set(pinned(x.device, 7)),
    "set from the device": lambda x: x.set(x.device.full(x.shape, 7, "uint8")),
    "set from another device": lambda x: x.set(opened("sim:1").full(x.shape, 7, "uint8")),
    "an item": lambda x: x.__setitem__(..., 7),
}


@pytest.mark.parametrize("write", WRITES)
def test_writing_without_a_stream_comes_after_all_work(late, write):
    WRITES[write](late)
    late.device.synchronize()
    assert set(late.get()) == {7}


def test_copies_of_pinned_memory_without_a_stream_come_after_all_work(late):
    device, stream = late.device, late.device.stream()
    device.synchronize()
    page, other = pinned(device, 1), device.zeros(late.shape, "uint8")
    late.get(page, stream)
    other.set(page)
    assert set(other.get()) == {19}
    late.fill(5)
    other.set(page, stream)
    late.get(page)
    assert set(np.asarray(page)) == {5} and set(other.get()) == {19}


def test_operations_of_two_threads_that_name_no_stream_take_turns(opencl):
    """A torn read sees two values."""
    array, over = opencl.zeros(1 << 21, "uint8"), threading.Event()

    def write():
        with dr.offload(opencl.stream()) as stream:
            while not over.is_set():
                for value in range(8):
                    array.fill(value)
                stream.synchronize()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(write)
        try:
            with dr.offload(opencl.stream()):
                for _ in range(1000):
                    seen = array.get()
                    assert seen.min() == seen.max()
        finally:
            over.set()
        done.result(timeout=60)


PILES = """
import resource, sys
import device_runtime as dr
device = dr.Device(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
for value in range(400):
    array = device.full(1 << 24, value % 100, "uint8")
    assert array.shape == (1 << 24,)
assert (array.get() == 99).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before)
"""


def test_discarded_arrays_do_not_pile_up(device):
    """A loop of 400 arrays of 16 MiB: at most 512 MiB may still be in use, and as much may be freed later."""
    ended = subprocess.run([sys.executable, "-c", PILES, device.id], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) < 2000


def test_memory_that_work_still_uses_is_no_reason_to_run_out():
    """The device has 1 GiB. The first arrays are dropped while work uses them."""
    device = opened("sim:0?seed=3")
    for value in range(6):
        array = device.full(1 << 28, value, "uint8")
        array[:1000].copy()
    assert (array.get()[:10] == 5).all()
