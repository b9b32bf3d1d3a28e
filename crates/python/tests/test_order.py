"""The order of operations on one memory: each comes after the unfinished work that it depends on, on any stream."""

import numpy as np
import pytest
from conftest import opened

import device_runtime as dr

LARGE = 4_000_000


def test_operations_on_named_streams_come_after_writes_on_others(device):
    for _ in range(100):
        first, second, third = device.stream(), device.stream(), device.stream()
        array = device.full((1000, 50), 1, stream=first)
        array[::2].fill(2, second)
        array[:, 10:].fill(3, third)
        copied = array.copy(stream=first)
        seen = copied.get(stream=second)
        assert (seen[1::2, :10] == 1).all() and (seen[::2, :10] == 2).all() and (seen[:, 10:] == 3).all()


def test_a_write_comes_after_reads_on_other_streams(device):
    for _ in range(100):
        reader, other, writer = device.stream(), device.stream(), device.stream()
        array = device.full(50_000, 1, stream=writer)
        copied = [array.copy(stream=reader), array.copy(stream=other)]
        array.fill(2, writer)
        assert all((copy.get() == 1).all() for copy in copied)


SCALE = """
kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }
kernel void add(global float *to, global const float *x) { to[get_global_id(0)] += x[get_global_id(0)]; }
"""


def test_launches_are_ordered_with_operations_that_name_no_stream(opencl):
    module = opencl.module(SCALE)
    scale, add = module["scale"], module["add"]
    assert [writes for *_, writes in add.parameters] == [True, False]
    for _ in range(200):
        stream, other = opencl.stream(), opencl.stream()
        array = opencl.full(100_000, 3.0, "float32")
        scale(stream, 1000, 100, [array, 2.0])
        total = opencl.zeros(100_000, "float32")
        add(other, 1000, 100, [total, array])
        scale(stream, 1000, 100, [array, 0.0])
        assert (total.get() == 6).all() and (array.get() == 0).all()


def overtakes(device, later):
    """How often work of one element, enqueued on a second stream, is done before a long copy of the whole array."""
    first, second = device.stream(), device.stream()
    array, count = device.zeros(LARGE, "float32", stream=first), 0
    for _ in range(50):
        aside = array.copy(stream=first)
        copied = first.record()
        later(array[:1], second)
        second.synchronize()
        count += not copied.is_done
        first.synchronize()
        del aside
    return count


def test_reads_and_relaxed_writes_do_not_wait_for_reads(host):
    assert overtakes(host, lambda part, stream: part.copy(stream=stream)) > 0
    assert overtakes(host, lambda part, stream: part.fill(1, stream, relaxed=True)) > 0


def test_work_after_relaxed_work_waits_for_it(device):
    """A stream that has waited for an earlier write waits for a relaxed one, too."""
    for _ in range(100):
        first, second = device.stream(), device.stream()
        array = device.full(100_000, 1, stream=first)
        before = array.copy(stream=second)
        second.synchronize()
        array.fill(2, first, relaxed=True)
        after = array.copy(stream=second)
        assert (before.get() == 1).all() and (after.get() == 2).all()


@pytest.mark.parametrize("call", ["get", "set", "fill", "copy"])
def test_relaxed_calls_of_each_kind(device, call):
    stream = device.stream()
    array = device.full(100, 1.0, stream=stream)
    stream.synchronize()
    words = {"get": (), "set": (np.full(100, 2.0),), "fill": (2.0,), "copy": ()}[call]
    done = getattr(array, call)(*words, stream=stream, relaxed=True)
    stream.synchronize()
    expected = {"get": done, "copy": done, "set": array, "fill": array}[call]
    expected = expected if isinstance(expected, np.ndarray) else expected.get()
    assert (expected == (1.0 if done is not None else 2.0)).all()


def test_a_stream_of_another_device_is_refused(device):
    array = device.zeros(4)
    stranger = opened("host").stream()
    with pytest.raises(dr.WrongDeviceError):
        array.fill(1, stranger)
    assert (array.get() == 0).all()
