"""Exchange with other libraries: what is exported, when it is ready, and that it is released once."""

import ctypes
import gc
import os
import sys
import threading
import time
import weakref

import numpy as np
import pyarrow
import pytest
from conftest import DTYPES, ends_well, given_back, opened, values

import device_runtime as dr


@pytest.fixture(params=["host", "sim:0"])
def addressed(request):
    """A device that works in memory which the host can address."""
    return opened(request.param)


def capsule_name(capsule):
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule).decode()


def deleter_of(capsule):
    """Takes the tensor out of a capsule. Returns the deleter, which the consumer calls when it has finished, and the tensor."""
    name = capsule_name(capsule).encode()
    assert name == b"dltensor_versioned"
    get, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = get(capsule, name)
    rename(capsule, USED)
    # After the version and the producer's private pointer.
    return ctypes.c_void_p.from_address(tensor + 16).value, tensor


# A capsule keeps the pointer to its name.
USED = ctypes.c_char_p(b"used_dltensor_versioned")


class Producer:
    """A NumPy array that supports only one protocol."""

    def __init__(self, array, *protocols):
        self.array = array
        for name in protocols:
            setattr(self, name, getattr(array, name))


class Legacy:
    """A producer from before version 1.0, without keyword arguments."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


LAYOUTS = {
    "row": values(7),
    "matrix": values((3, 4)),
    "columns": np.asfortranarray(values((3, 4))),
    "gaps": values((6, 8))[::2, 1::3],
    "backwards": values((3, 4))[::-1, ::-1],
    "repeated": np.broadcast_to(values(4), (3, 4)),
    "scalar": values(()),
    "empty": values((3, 0, 2)),
    "offset": values(10)[3:],
    "six dimensions": values((1, 2, 1, 3, 2, 2)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("protocol", ["__array_interface__", "__dlpack__"])
def test_numpy_and_back(host, layout, protocol):
    """Every NumPy layout is imported without a copy, and exported to NumPy again."""
    given = LAYOUTS[layout]
    protocols = [protocol] if protocol == "__array_interface__" else [protocol, "__dlpack_device__"]
    array = host.adopt(Producer(given, *protocols))
    assert array.shape == given.shape
    assert np.array_equal(array.get(), given)
    assert array.read_only == (not given.flags.writeable)
    for back in [np.from_dlpack(array), np.asarray(array)]:
        assert np.array_equal(back, given) and back.flags.writeable == given.flags.writeable
        if given.size:
            assert back.ctypes.data == given.ctypes.data and back.strides == given.strides


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_types_by_every_protocol(addressed, dtype):
    given = values((2, 3), dtype)
    array = addressed.array(given)
    for back in [np.from_dlpack(array), np.asarray(array)]:
        assert back.dtype == given.dtype and np.array_equal(back, given)
    assert np.array_equal(addressed.array(Legacy(given)).get(), given)
    row = addressed.array(given.ravel())
    if given.dtype.kind in "iuf":
        assert np.array_equal(pyarrow.array(row).to_numpy(zero_copy_only=True), given.ravel())
        assert np.array_equal(addressed.array(pyarrow.array(given.ravel())).get(), given.ravel())
    else:
        with pytest.raises(dr.InvalidArgumentError):
            row.__arrow_c_device_array__()


def test_arrow_sees_an_array_without_a_copy(host):
    array = host.array(values(10, "float32"))
    seen = pyarrow.array(array)
    assert seen.type == pyarrow.float32() and seen.buffers()[1].address == array.ptr
    assert pyarrow.array(array[2:5]).to_pylist() == [3, 4, 5]
    back = host.adopt(seen)
    assert back.read_only and back.ptr == array.ptr
    for wrong in [array[::2], array.reshape((2, 5))]:
        with pytest.raises(dr.InvalidArgumentError, match="a row"):
            wrong.__arrow_c_device_array__()
    with pytest.raises(Exception, match="nulls"):
        host.adopt(pyarrow.array([1, None, 3]))


def test_arrow_sees_what_an_opencl_device_changed(opencl):
    """An array buffer, changed on a device, and read by Arrow on the host, as with NumPy."""
    buffer = dr.ArrayBuffer(values(100, "float32"))
    scale = opencl.module("kernel void scale(global float *x) { x[get_global_id(0)] *= 2; }")["scale"]
    with dr.offload(opencl), buffer.read_write() as x:
        scale(dr.here(), 100, 1, [x])
    with buffer.read("host") as seen:
        assert pyarrow.array(seen).to_pylist() == list(range(2, 202, 2))
    assert buffer.transfers.count == 2


def test_absent_protocols_are_no_attributes(opencl, host):
    for device, absent in [
        (opencl, ["__array_interface__", "__cuda_array_interface__", "__sycl_usm_array_interface__"]),
        (host, ["__cuda_array_interface__", "__sycl_usm_array_interface__"]),
    ]:
        array = device.zeros(3)
        for name in absent:
            assert not hasattr(array, name), name
    with pytest.raises(TypeError, match="get"):
        np.asarray(opencl.zeros(3))


def test_memory_objects_are_copied_to_the_host_when_asked(opencl):
    array = opencl.array(values((3, 4)))[::2]
    assert array.__dlpack_device__() == (4, 0)
    with pytest.raises(Exception, match="(?i)device"):
        np.from_dlpack(array)
    copied = np.from_dlpack(array, device="cpu")
    assert np.array_equal(copied, values((3, 4))[::2]) and copied.flags.writeable
    with pytest.raises(BufferError, match="copied"):
        np.from_dlpack(array, device="cpu", copy=False)


@pytest.mark.parametrize("given", [values((3, 4)), values((3, 0, 2))], ids=["values", "empty"])
@pytest.mark.parametrize("selector", ["opencl:0", "opencl:0?memory=svm"])
def test_what_dlpack_has_no_number_for_is_copied_to_the_host(selector, given):
    """Memory of a context that SYCL does not know, and memory without elements."""
    array = opened(selector).array(given)
    copied = np.from_dlpack(array, device="cpu")
    assert np.array_equal(copied, given) and copied.shape == given.shape
    if "svm" in selector:
        with pytest.raises(BufferError, match="SYCL"):
            array.__dlpack_device__()


def test_a_copy_is_made_where_the_array_is(opencl):
    """A copy is made on the device and is independent, also of a part, and of an array that is lent on another stream."""
    array, stream = opencl.array(values((3, 4))), opencl.stream()
    buffer = dr.ArrayBuffer(values((3, 4)))
    with buffer.read(stream) as lent:
        for given in [array, array[::2, 1:], lent, lent[1:]]:
            expected = np.from_dlpack(given, device="cpu")
            copied = opencl.adopt(given.__dlpack__(max_version=(1, 0), copy=True))
            assert copied.handle != given.handle and np.array_equal(copied.get(), expected)
            copied.fill(0)
            opencl.synchronize()
            assert np.array_equal(np.from_dlpack(given, device="cpu"), expected)
    assert buffer.version == 0


def test_copies_of_host_memory(addressed):
    array = addressed.array(values(4))
    for copied in [np.from_dlpack(array, copy=True), np.array(array, copy=True)]:
        copied[:] = 0
    assert array.get().tolist() == [1, 2, 3, 4]


def test_memory_objects_go_from_device_to_array(opencl):
    array = opencl.array(values(10))
    other = opencl.adopt(array)
    other[2:4].fill(0)
    opencl.synchronize()
    assert other.handle == array.handle and array.get().tolist() == [1, 2, 0, 0, 5, 6, 7, 8, 9, 10]


def test_legacy_when_max_version_absent(addressed):
    array = addressed.zeros(3)
    assert capsule_name(array.__dlpack__()) == "dltensor"
    assert capsule_name(array.__dlpack__(max_version=(0, 8))) == "dltensor"
    assert capsule_name(array.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    assert capsule_name(array.__dlpack__(max_version=(7, 0))) == "dltensor_versioned"


def test_readonly_refused_as_legacy(host):
    locked = values(3)
    locked.flags.writeable = False
    array = host.adopt(locked)
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    assert not np.from_dlpack(array).flags.writeable


def test_type_error_retry_is_harmless(addressed):
    """NumPy calls again without keywords after a TypeError. So unknown arguments change nothing, and wrong ones are no TypeError."""
    array = addressed.zeros(3)
    with pytest.raises(TypeError):
        array.__dlpack__(unheard_of=1)
    for wrong in [{"stream": "one"}, {"max_version": 1}, {"dl_device": (1,)}, {"copy": "maybe"}, {"stream": 7}, {"dl_device": (2, 0)}]:
        with pytest.raises(BufferError):
            array.__dlpack__(**wrong)
    assert np.array_equal(np.from_dlpack(array), np.zeros(3))


class Watched(np.ndarray):
    """An array whose lifetime is counted."""


def watched():
    array = values(4).view(Watched)
    return array, weakref.ref(array)


def test_released_once(host):
    """Released by deletion, by an unused capsule, by a consumer that failed, and by a consumer that has finished."""
    given, alive = watched()
    array = host.adopt(given)
    before = sys.getrefcount(array)
    del given
    capsule = array.__dlpack__(max_version=(1, 0))
    del capsule
    with pytest.raises(dr.WrongDeviceError):
        opened("opencl:0").adopt(array)
    consumer = np.from_dlpack(array)
    other = host.adopt(array.__dlpack__(max_version=(1, 0)))
    assert sys.getrefcount(array) == before
    del array
    gc.collect()
    assert alive() is not None and consumer.tolist() == [1, 2, 3, 4]
    del consumer
    gc.collect()
    assert alive() is not None and other.get().tolist() == [1, 2, 3, 4]
    del other
    host.synchronize()
    # A reference that is dropped on a thread without Python is released by the next call.
    host.zeros(1)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("selector", ["host", "sim:0", "opencl:0"])
def test_unused_capsules_may_outlive_the_interpreter(selector):
    opened(selector)
    program = """
import builtins, sys
import device_runtime as dr
array = dr.Device(sys.argv[1]).zeros(10)
builtins.legacy = array.__dlpack__()
builtins.versioned = array.__dlpack__(max_version=(1, 0))
if sys.argv[1] != "opencl:0":
    builtins.arrow = array.__arrow_c_device_array__()
"""
    ends_well(program, selector)


def test_other_threads_run_while_a_consumer_gives_back(opencl):
    """Returned device memory waits for the device, also if the thread holds the interpreter."""
    source = """
        kernel void slow(global volatile float *x, long turns) {
            for (long i = 0; i < turns; i++) x[0] = x[0] + 1;
        }
    """
    slow, stream = opencl.module(source)["slow"], opencl.stream()
    deleter, tensor = deleter_of(opencl.zeros(3).__dlpack__(max_version=(1, 0)))
    # As consumers do that do not release the interpreter.
    give_back = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)
    busy = opencl.zeros(1, "float32")
    opencl.synchronize()
    ticks, over = [0], threading.Event()

    def tick():
        while not over.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    slow(stream, 1, 1, [busy, np.int64(100_000_000)])
    before, start = ticks[0], time.monotonic()
    give_back(tensor)
    waited, ticked = time.monotonic() - start, ticks[0] - before
    done = stream.is_done
    over.set()
    thread.join()
    assert done and waited > 0.05 and ticked > 5


@pytest.mark.skipif(sys.platform != "linux", reason="threads of Linux")
def test_threads_unknown_to_python_give_back_without_it(opencl):
    """A thread that waits for such a thread may hold the interpreter."""
    deleter, tensor = deleter_of(opencl.zeros(3).__dlpack__(max_version=(1, 0)))
    # Calls that do not release the interpreter.
    system, thread = ctypes.PyDLL(None), ctypes.c_ulong()
    start, argument = ctypes.c_void_p(deleter), ctypes.c_void_p(tensor)
    assert system.pthread_create(ctypes.byref(thread), None, start, argument) == 0
    until = (ctypes.c_long * 2)(int(time.time()) + 20, 0)
    assert system.pthread_timedjoin_np(thread, None, until) == 0


def test_second_use_refused(addressed):
    capsule = addressed.array(values(3)).__dlpack__(max_version=(1, 0))
    assert addressed.adopt(capsule).get().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="used before"):
        addressed.adopt(capsule)
    assert capsule_name(capsule) == "used_dltensor_versioned"
    arrow = addressed.array(values(3)).__arrow_c_device_array__()

    class Again:
        def __arrow_c_device_array__(self, requested_schema=None):
            return arrow

    assert addressed.adopt(Again()).size == 3
    with pytest.raises(dr.InvalidArgumentError, match="given back"):
        addressed.adopt(Again())


def test_a_pending_array_is_waited_for():
    """Slow work of a simulated device has finished when a consumer without streams gets the array."""
    device = opened("sim:0?seed=3")
    stream = device.stream()
    for protocol in [np.from_dlpack, np.asarray, pyarrow.array]:
        array = device.zeros(1 << 20, "uint8")
        device.synchronize()
        for value in range(1, 20):
            array.fill(value, stream)
        assert set(np.asarray(protocol(array))) == {19}


def test_pinned_none_waits_on_host(device):
    """The host reads pinned memory, so its attribute waits for copies."""
    stream = device.stream()
    array = device.full(1 << 18, 7, "uint8", stream=stream)
    pinned = device.pinned(1 << 18, "uint8")
    array.get(pinned, stream)
    assert (np.asarray(pinned) == 7).all()


def test_foreign_arrays_are_checked(host):
    def said(**changes):
        given = values(4)
        said = {**given.__array_interface__, **changes}
        return type("Said", (), {"__array_interface__": said, "given": given})()

    for changes, error in [
        ({"version": 2}, "version"),
        ({"typestr": ">f8"}, "byte order"),
        ({"typestr": "<M8[s]"}, "typestr"),
        ({"shape": (-1,)}, "-1"),
        ({"strides": (4,)}, "multiple"),
        ({"strides": (8, 8)}, "2 strides"),
        ({"data": (0, False)}, "null"),
        ({"mask": np.zeros(4, bool)}, "mask"),
        ({"shape": (1 << 62, 1 << 62)}, "."),
        ({"strides": (1 << 62,)}, "."),
        ({"shape": (1,) * 7}, "7 dimensions"),
    ]:
        with pytest.raises(dr.Error, match=error):
            host.adopt(said(**changes))
    with pytest.raises(KeyError):
        host.adopt(type("Said", (), {"__array_interface__": {}})())
    with pytest.raises(TypeError, match="speaks no protocol"):
        host.adopt(object())
    with pytest.raises(dr.WrongDeviceError):
        opened("opencl:0").adopt(values(4))


def said_to_be(kind, tensor):
    """The tensor of a capsule, marked as being on device 0 of the given kind."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # After the version, the producer's pointer, the deleter, the flags, and the address of the elements.
    place = get(tensor, b"dltensor_versioned") + 40
    ctypes.c_int32.from_address(place).value = kind
    return tensor


class Says:
    """A producer that returns preset answers."""

    def __init__(self, tensor, array=None):
        self.tensor, self.array = tensor, array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **asked):
        return self.tensor(**asked)

    def __array__(self, *asked, **keywords):
        return self.array


@pytest.mark.parametrize("given", ["opencl", "cuda", "said to be the host's"])
def test_the_host_does_not_follow_addresses_of_devices(host, given):
    """Not from a capsule, and not if the producer says that it is host memory."""

    def source():
        if given == "cuda":
            return said_to_be(2, host.zeros(4).__dlpack__(max_version=(1, 0)))
        tensor = opened("opencl:0").zeros(4).__dlpack__
        return tensor(max_version=(1, 0)) if given == "opencl" else Says(tensor)

    array = host.zeros(4)
    for take in [host.array, host.adopt, dr.ArrayBuffer, array.set, array.get]:
        with pytest.raises(dr.WrongDeviceError):
            take(source())


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_asked_once(host, order):
    """Later answers of a producer do not change the shape of the exported array."""
    given = np.arange(1_000_000.0).reshape(1000, 1000)[::2, ::2]
    source = Says(given.__dlpack__, np.zeros((1, 1)))
    assert np.array_equal(host.array(source, order=order).get(), given)
    assert np.array_equal(dr.ArrayBuffer(source).get(), given)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "bool"])
def test_tensors_may_have_gaps(device, dtype):
    """An object that supports only DLPack can be read and written in any layout."""
    given = values((6, 8), dtype)[::2, 1::3]
    for order in ["C", "F"]:
        array = device.array(given.__dlpack__(max_version=(1, 0)), order=order)
        assert np.array_equal(array.get(), given)
        whole = np.zeros((6, 8), dtype)
        array.get(Producer(whole[::2, 1::3], "__dlpack__", "__dlpack_device__"))
        assert np.array_equal(whole[::2, 1::3], given)
        assert np.count_nonzero(whole) == np.count_nonzero(given)
    assert np.array_equal(dr.ArrayBuffer(given.__dlpack__(max_version=(1, 0))).get(), given)


@pytest.mark.parametrize("selector", ["opencl:0", "opencl:0?memory=svm"])
def test_who_wants_host_memory_is_told_where_the_values_are(selector):
    array = opened(selector).zeros(3)
    for take in [dr.ArrayBuffer, array.get]:
        with pytest.raises(dr.WrongDeviceError, match="opencl:0.*on the device"):
            take(array)


class Usm:
    """A SYCL array with this name of its context, which may also support other protocols."""

    def __init__(self, syclobj, array, *protocols):
        data = (array.ctypes.data, False)
        said = {"shape": array.shape, "typestr": array.dtype.str, "data": data, "syclobj": syclobj, "version": 1}
        self.__sycl_usm_array_interface__, self.array = said, array
        for name in protocols:
            setattr(self, name, getattr(array, name))


def test_arrays_of_unknown_contexts_go_by_other_protocols(addressed, opencl):
    """A SYCL queue is an object of another package."""
    queue, given = object(), values(4)
    for protocols in [["__dlpack__", "__dlpack_device__"], ["__array_interface__"]]:
        assert addressed.adopt(Usm(queue, given, *protocols)).ptr == given.ctypes.data
    for device in [addressed, opencl]:
        with pytest.raises(TypeError, match="'object'.*filter selector"):
            device.adopt(Usm(queue, given))


@pytest.mark.parametrize("speaks", ["selector", "DLPack"])
def test_memory_of_other_contexts_is_refused(device, host, speaks):
    """The device decides whether an address belongs to its context, independent of the given selector or number."""
    given = values(4)
    source = Usm("opencl:cpu:0", given)
    if speaks == "DLPack":
        source = Usm(object(), given)
        tensor = said_to_be(14, host.adopt(given).__dlpack__(max_version=(1, 0)))
        source.__dlpack_device__, source.__dlpack__ = lambda: (14, 0), lambda **asked: tensor
    with pytest.raises(dr.WrongDeviceError, match="does not share"):
        device.adopt(source)


def test_masks_are_refused(host):
    masked = np.ma.array(values(4), mask=[True, False, False, False])
    array = host.zeros(4)
    for take in [host.array, host.adopt, dr.ArrayBuffer, array.set, array.get]:
        with pytest.raises(dr.InvalidArgumentError, match="mask"):
            take(masked)
    assert np.array_equal(host.array(np.ma.array(values(4))).get(), values(4))


def test_scalars_of_numpy_are_kept(host):
    """Their memory is kept alive by the value of their interface."""
    array = host.adopt(np.float64(3.5))
    others = [np.full((), 7.0) for _ in range(100)]
    assert array.get() == 3.5 and len(others) == 100


def test_unaligned_memory_is_refused(host):
    raw = np.zeros(33, "uint8")
    unaligned = raw[1:33].view("float64")
    with pytest.raises(dr.InvalidArgumentError, match="aligned"):
        host.adopt(unaligned)
    assert np.array_equal(host.array(unaligned.copy()).get(), np.zeros(4))


@pytest.mark.parametrize("take", [np.from_dlpack, np.asarray, pyarrow.array, "adopt", dr.ArrayBuffer])
def test_lent_memory_is_held_by_whatever_takes_it(addressed, take):
    """An address would outlive the access. So lent arrays give no address, and use protocols with an owner."""
    buffer = dr.ArrayBuffer(values(4))
    with buffer.read_write(addressed) as x:
        with pytest.raises(AttributeError, match="lent by an array buffer"):
            x.__array_interface__
        taken = addressed.adopt(x[:]) if take == "adopt" else take(x)
    with pytest.raises(dr.ConflictError, match="held for writing"):
        buffer.get()
    del taken
    assert given_back(buffer).tolist() == [1, 2, 3, 4]


def test_numpy_makes_arrays_of_lent_ones(addressed):
    buffer = dr.ArrayBuffer(values(4))
    with buffer.read(addressed) as x:
        seen = np.asarray(x)
        assert seen.tolist() == [1, 2, 3, 4] and not seen.flags.writeable
        assert np.asarray(x, "float32").dtype == "float32" and np.array(x).flags.writeable
        with pytest.raises(ValueError):
            np.array(x, "float32", copy=False)
        assert np.asarray(x[::2], copy=False).tolist() == [1, 3]


def test_who_only_asks_writes_nothing(addressed):
    """Queries, refusals and copies do not count as writing; exporting a tensor does."""
    buffer = dr.ArrayBuffer.empty(4)
    with pytest.raises(dr.PoisonedError, match="nothing was written"), buffer.write(addressed) as x:
        x.__dlpack_device__()
        x.__dlpack__(max_version=(1, 0), copy=True)
        np.array(x), np.asarray(x, "float32")
        for refused in [{"stream": 7}, {"dl_device": (2, 0)}]:
            with pytest.raises(BufferError):
                x.__dlpack__(**refused)
    with buffer.write(addressed) as x:
        np.from_dlpack(x)[:] = 3
    assert buffer.get().tolist() == [3] * 4


def test_an_array_lent_by_a_buffer_holds_its_access(host):
    """A consumer that imports an array holds the access until it has finished. Its writes become the buffer's values."""
    buffer = dr.ArrayBuffer(values(4))
    with buffer.read_write(host) as x:
        seen = np.from_dlpack(x)
        seen[:] = 5
    with pytest.raises(dr.ConflictError, match="held for writing"):
        buffer.get()
    del seen
    assert buffer.get().tolist() == [5, 5, 5, 5] and buffer.version == 1


def test_an_adopted_array_of_this_package_shares_its_memory(device):
    """Whatever is adopted, it is the same memory: work on one array is ordered with work on the other."""
    given = device.array(values((4, 3)))
    part = given[1:, ::2]
    adopted = device.adopt(part)
    assert (adopted.handle, adopted.offset, adopted.strides) == (part.handle, part.offset, part.strides)
    for step in range(100):
        stream = device.stream()
        adopted.fill(step, stream)
        assert (given.get()[1:, ::2] == step).all()
    for _ in range(1_000_000):
        adopted = device.adopt(adopted)
    assert adopted.offset == part.offset and np.array_equal(adopted.get(), part.get())


def capsules(host, array):
    return host.adopt(array.__dlpack__(max_version=(1, 0)))


def pointers(host, array):
    return host.from_pointer(array.ptr, array.shape, owner=array)


def numpys(host, array):
    seen = np.from_dlpack(array)
    seen += 1
    return host.adopt(seen)


@pytest.mark.parametrize(
    ("another", "count", "adds"), [(capsules, 1_000_000, 0), (pointers, 1_000_000, 0), (numpys, 100_000, 1)]
)
@pytest.mark.parametrize("stack", [256 << 10, None])
def test_long_chains_of_owners_are_dropped(host, another, count, adds, stack):
    """A long chain of arrays, each made from the previous one. Deleting the last one needs no stack space for each."""
    given = host.array(values(4))
    last = [given]
    for _ in range(count):
        last.append(another(host, last.pop()))
    assert np.array_equal(last[0].get(), values(4) + adds * count)
    if stack is None:
        last.clear()
    else:
        with_usual = threading.stack_size(stack)
        thread = threading.Thread(target=last.clear)
        thread.start()
        threading.stack_size(with_usual)
        thread.join()
    assert np.array_equal(given.get(), values(4) + adds * count)


RELEASES = """
import os, sys, threading, time, warnings
import numpy as np
import pyarrow
import device_runtime as dr

started = threading.Event()

class Values:
    def __init__(self):
        self.values = np.zeros(4)
        self.__array_interface__ = self.values.__array_interface__

    def __del__(self, sleep=time.sleep):
        started.set()
        sleep(0.1)

class Arrow:
    def __init__(self, values):
        self.values = pyarrow.Array.from_buffers(pyarrow.float64(), 4, [None, pyarrow.py_buffer(values)])

    def __arrow_c_device_array__(self, requested_schema=None):
        return self.values.__arrow_c_device_array__(requested_schema)

device = dr.Device(sys.argv[1])
stream = device.stream()
source = np.asarray(Values())
array = device.adopt(Arrow(source) if sys.argv[2] == "arrow" else source)
large, to = device.zeros(1 << 24, stream=stream), device.empty(4)
to.set(array, stream)
# From here on, the device's own thread releases them.
del array, source
started.wait()
"""


@pytest.mark.parametrize("protocol", ["dlpack", "arrow"])
@pytest.mark.parametrize("selector", ["host", "sim:0"])
def test_a_program_may_end_while_a_device_releases_adopted_arrays(selector, protocol):
    # The interpreter ends slowly, so that the release would return to it meanwhile.
    program = """
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

sys.modules["slow"] = Slow()
"""
    for _ in range(3):
        ends_well(RELEASES + program, selector, protocol)


def test_a_program_may_end_while_many_adopted_arrays_are_in_use():
    program = """
import numpy as np
import device_runtime as dr
device = dr.Device("host")
stream = device.stream()
for _ in range(100):
    device.adopt(np.zeros(1 << 18)).fill(1, stream)
"""
    for _ in range(20):
        ends_well(program)


def test_a_program_may_end_while_daemon_threads_release_adopted_arrays():
    program = """
def work():
    while True:
        device.adopt(np.asarray(Values()))

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

sys.modules["slow"] = Slow()
"""
    ends_well(RELEASES + program, "host", "dlpack")


def test_the_exit_of_a_thread_that_releases_an_array_does_not_wait_for_itself():
    program = """
import atexit, os
import numpy as np
import device_runtime as dr

class Values:
    def __init__(self):
        self.values = np.zeros(4)
        self.__array_interface__ = self.values.__array_interface__

    def __del__(self, end=atexit._run_exitfuncs):
        end()

array = dr.Device("host").adopt(np.asarray(Values()))
del array
"""
    started = time.monotonic()
    ends_well(program)
    assert time.monotonic() - started < 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_ends_without_waiting_for_threads_that_it_does_not_have():
    program = """
warnings.simplefilter("ignore")
end = time.monotonic() + 30
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0 and time.monotonic() < end
"""
    ends_well(RELEASES + program, "host", "dlpack")


def test_strides_of_an_array_without_elements_need_not_fit(host):
    array = host.zeros((0, 1 << 60))
    assert array.strides == array.__array_interface__["strides"] == (0, 8)
    assert host.pinned((0, 1 << 60)).strides == (0, 8)
    assert host.zeros((0, 3)).strides == (24, 8)


class Arrow:
    """A producer that supports only the Arrow C data interface."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


def test_the_arrow_data_interface_both_ways(addressed):
    array = addressed.array(values(10, "float32"))
    seen = pyarrow.array(Arrow(array))
    assert seen.type == pyarrow.float32() and seen.to_pylist() == list(range(1, 11))
    assert seen.buffers()[1].address == array.ptr
    back = addressed.adopt(Arrow(seen))
    assert back.read_only and back.ptr == array.ptr and np.array_equal(back.get(), array.get())
    for _ in range(1000):
        array.__arrow_c_array__()
        addressed.adopt(Arrow(pyarrow.array(np.arange(3))))
    with pytest.raises(dr.InvalidArgumentError, match="a row"):
        array[::2].__arrow_c_array__()
    with pytest.raises(BufferError, match="get()"):
        opened("opencl:0").zeros(3).__arrow_c_array__()


def test_unknown_keywords_of_arrow_are_not_implemented(host):
    array = host.zeros(3)
    assert len(array.__arrow_c_device_array__(later=None)) == 2
    with pytest.raises(NotImplementedError, match="later"):
        array.__arrow_c_device_array__(later=1)


def test_the_number_of_a_host_device_may_be_none(host):
    class Numberless(Legacy):
        def __dlpack_device__(self):
            return 1, None

    given = values(4)
    for take in [host.adopt, host.array, dr.ArrayBuffer]:
        assert np.array_equal(take(Numberless(given)).get(), given)


def test_bfloat16_is_adopted(addressed):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    given = np.arange(6).reshape(2, 3).astype(bfloat16)
    array = addressed.adopt(given[:, ::-1])
    assert array.dtype == bfloat16 and array.get().tolist() == [[2, 1, 0], [5, 4, 3]]
    array.fill(7)
    addressed.synchronize()
    assert (given == 7).all()
    given.flags.writeable = False
    assert addressed.adopt(given).read_only


def test_bytes_are_given_as_python_integers(opencl):
    source = """kernel void put(global int *to, uchar a, char b, bool_like c) { to[0] = a; to[1] = b; to[2] = c; }"""
    put = opencl.module(source.replace("bool_like", "unsigned char"))["put"]
    to, stream = opencl.zeros(3, "int32"), opencl.stream()
    put(stream, 1, 1, [to, 255, -128, True])
    assert to.get().tolist() == [255, -128, 1]
    for wrong in [256, -129]:
        with pytest.raises(OverflowError, match="argument 1"):
            put(stream, 1, 1, [to, wrong, 0, 0])
