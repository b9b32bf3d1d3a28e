"""Devices, streams, events, modules and launches."""

import threading
import time

import numpy as np
import pytest
from conftest import opened

import device_runtime as dr

TWICE = "kernel void twice(global float *x, float a, uint n) { uint i = get_global_id(0); if (i < n) x[i] *= a; }"


def test_devices_are_listed_with_the_reason_of_those_that_are_absent():
    listed = {info.id for info in dr.devices()}
    assert {"host:0", "sim:0"} <= listed
    backends = dr.backends()
    assert set(backends) == {"cuda", "embedded", "hip", "host", "opencl", "sim"}
    assert backends["host"] is None
    for name, why in backends.items():
        present = any(device.split(":")[0] == name for device in listed)
        assert present or isinstance(why, dr.Error), name


def test_a_device_says_what_it_is(device):
    info = device.info
    assert info.id == device.id and info.name and info.compute_units > 0
    assert info.pci is None or len(info.pci) == 3
    assert info.limits["max_block_threads"] >= 1
    assert device.capabilities["region_copy"] in {"native", "emulated"}
    assert set(device.load()) == {"memory_free", "memory_used", "processor_busy", "memory_busy"}


def test_errors_have_kind_code_and_name(opencl):
    with pytest.raises(dr.UnknownDeviceError, match="no backend") as raised:
        dr.Device("nothing:0")
    assert raised.value.kind == "unknown device" and raised.value.code is None
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, dr.Error)
    with pytest.raises(dr.InvalidModuleError) as raised:
        opencl.module("kernel void broken( {")
    assert raised.value.name == "CL_BUILD_PROGRAM_FAILURE" and raised.value.code == -11
    assert "error" in raised.value.log and raised.value.device == opencl.id


def test_one_device_opened_twice_is_two(host):
    other = opened("host")
    assert other != host and other.id == host.id
    with pytest.raises(dr.WrongDeviceError, match="opened separately"):
        host.zeros(3, stream=other.default_stream)


def test_events_order_streams_and_tell_time(device):
    one, two = device.stream(), device.stream()
    array = device.zeros(1000, "float32", stream=one)
    with one.timer() as timer:
        array.fill(1, one)
    two.wait(one.record())
    array.fill(2, two)
    assert (array.get(stream=two) == 2).all()
    assert timer.elapsed() >= 0
    start, end = device.event(), device.event()
    start.record(two)
    end.record(two)
    end.synchronize(timeout=10)
    assert end.is_done and end.elapsed_since(start) >= 0
    with pytest.raises(dr.InvalidArgumentError, match="never recorded"):
        end.elapsed_since(device.event())


def test_handles_are_numbers(opencl):
    stream = opencl.stream()
    assert opencl.handle and stream.handle and stream.record().handle
    assert stream.handle != opencl.default_stream.handle
    assert opencl.zeros(3).handle


SPIN = "kernel void spin(global volatile uint *x, uint n) { for (uint i = 0; i < n; i++) x[0] = x[0] * 3 + i; }"


def test_waiting_ends_at_its_timeout_and_lets_other_threads_run(opencl):
    """While a thread waits for the device, other threads run."""
    spin, stream, counter = opencl.module(SPIN)["spin"], opencl.stream(), opencl.zeros(1, "uint32")
    opencl.synchronize()
    steps = 1 << 22
    while True:
        with stream.timer() as timer:
            spin(stream, 1, 1, [counter, steps])
        try:
            stream.synchronize(timeout=0.01)
        except dr.TimeoutError as error:
            assert isinstance(error, TimeoutError) and "10ms" in str(error)
            break
        assert steps < 1 << 31, "the device is too fast to be waited for"
        steps *= 4
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    spin(stream, 1, 1, [counter, min(16 * steps, (1 << 32) - 1)])
    start = time.perf_counter()
    stream.synchronize(timeout=120)
    end = time.perf_counter()
    done.set()
    thread.join()
    assert timer.elapsed() > 0.005 and stream.is_done
    assert sum(start < at < end for at in ticks) >= 3
    with pytest.raises(dr.InvalidArgumentError, match="-1"):
        stream.synchronize(timeout=-1)


def test_a_check_raises_the_failure_of_finished_work_once_and_does_not_wait():
    device = opened("sim:0?link=1MiB&fail-copy=2:late")
    stream, source = device.stream(), device.pinned(1 << 17, "uint8")
    array = device.empty(source.shape, source.dtype)
    for _ in range(2):
        array.set(source, stream)
    stream.check()
    assert not stream.is_done, "the check waited"
    stream.record().synchronize(timeout=30)
    with pytest.raises(dr.DriverError, match="copy 2 fails"):
        stream.check()
    stream.check()
    stream.synchronize()


def test_kernels_are_launched_with_numbers_of_python(opencl):
    kernel = opencl.module(TWICE, "opencl_c", ["-cl-fast-relaxed-math"])["twice"]
    assert kernel.parameters == [
        ("memory", "float32", None, True),
        ("value", "float32", 4, None),
        ("value", "uint32", 4, None),
    ]
    with opencl.stream() as stream:
        array = opencl.full(1000, 1.5, "float32", stream=stream)
        kernel(stream, 4, 256, [array, 2, 1000])
        kernel(stream, (2, 1, 1), (256,), [array[500:], np.float32(2), np.uint32(500)])
    expected = np.full(1000, 3.0, "float32")
    expected[500:] = 6
    assert (array.get() == expected).all()
    assert opencl.statistics["launches"] >= 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ([], dr.InvalidArgumentError, "0 arguments for 3 parameters"),
        ([1.0, 2.0], dr.InvalidArgumentError, "'twice'|\"twice\".*: 2 arguments for 3 parameters"),
        (["array", 2.0, 3, object(), 5], dr.InvalidArgumentError, "5 arguments for 3 parameters"),
        ([1.0, 2.0, 3], TypeError, "argument 0: 1.0 for a memory parameter"),
        (["array", "array", 3], dr.InvalidArgumentError, "argument 1"),
        (["array", np.float64(2), 3], dr.InvalidArgumentError, "argument 1: float64 for a parameter of float32"),
        (["array", object(), 3], TypeError, "argument 1"),
        (["array", 2.0, -1], OverflowError, "argument 2"),
    ],
)
def test_wrong_arguments_are_named(opencl, arguments, error, text):
    kernel = opencl.module(TWICE)["twice"]
    array = opencl.zeros(3, "float32")
    given = [array if given == "array" else given for given in arguments]
    with pytest.raises(error, match=text):
        kernel(opencl.default_stream, 1, 1, given)


def test_launches_beyond_a_limit_are_refused(opencl):
    kernel = opencl.module(TWICE)["twice"]
    limit = opencl.info.limits["max_block_threads"]
    with pytest.raises(dr.InvalidArgumentError, match=f"{limit + 1}"):
        kernel(opencl.default_stream, 1, limit + 1, [opencl.zeros(3, "float32"), 1, 3])


@pytest.mark.parametrize("extent", [-1, (1, -1), (1, 1, 1, 1), 1 << 40, (1 << 40,)], ids=str)
def test_extents_of_launches_are_checked(opencl, extent):
    kernel, array = opencl.module(TWICE)["twice"], opencl.zeros(3, "float32")
    with pytest.raises(dr.InvalidArgumentError, match="extents|blocks"):
        kernel(opencl.default_stream, extent, 1, [array, 1, 3])
    kernel(opencl.default_stream, np.int64(3), np.array([1, 1]), [array, 1, 3])


def test_modules_say_what_they_lack(opencl, host):
    with pytest.raises(dr.KernelNotFoundError, match="nothing"):
        opencl.module(TWICE).kernel("nothing")
    with pytest.raises(dr.InvalidArgumentError, match="opencl_c"):
        opencl.module(TWICE, "fortran")
    with pytest.raises(dr.InvalidArgumentError, match="host functions"):
        host.module(TWICE)
    bundle = {"opencl_c": TWICE, "ptx": ".version 7.0"}
    assert opencl.module_bundle(bundle)["twice"].name == "twice"


def test_selectors_take_options():
    assert opened("sim:0?seed=7").zeros(3).get().tolist() == [0, 0, 0]
    for wrong in ["sim:0?no-such-option=1", "sim:0?seed=many", "host:x"]:
        with pytest.raises(dr.Error, match=wrong.split("?")[-1].split("=")[0].split(":")[-1]):
            dr.Device(wrong)


def test_pools_are_told_and_trimmed():
    device = opened("host")
    array = device.empty(1 << 20, "uint8")
    del array
    device.synchronize()
    reserved, used = device.pool_bytes
    assert reserved >= used
    device.trim_pool()
    assert device.pool_bytes[0] <= reserved
