"""Array buffers: what is copied, when, and how accesses end."""

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import DTYPES, ends_well, opened, values

import device_runtime as dr

PLUS = "kernel void plus(global double *x, double a) { x[get_global_id(0)] += a; }"


def test_numpy_sees_what_an_opencl_device_changed(opencl):
    """The example of the README: two transfers, and no copy on the host."""
    given = values(1000)
    expected = given + 3
    buffer, plus = dr.ArrayBuffer(given), opencl.module(PLUS)["plus"]
    with dr.offload(opencl.stream()) as stream:
        for _ in range(3):
            with buffer.read_write() as x:
                plus(stream, 1000, 1, [x, 1.0])
    assert buffer.transfers.count == 1
    with buffer.read() as seen:
        assert np.array_equal(seen, expected) and seen.ctypes.data == given.ctypes.data
    assert np.array_equal(given, expected)
    assert (buffer.transfers.count, buffer.transfers.bytes) == (2, 2 * given.nbytes)
    assert buffer.transfers.between("host", opencl.id) == (1, given.nbytes)
    assert f"{opencl.id} -> host: 1 transfers of 8000 bytes" in str(buffer.transfers)
    assert buffer.version == 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4, 1, 2, 2)])
def test_all_types_and_shapes(device, dtype, shape):
    given = values(shape, dtype)
    buffer = dr.ArrayBuffer(given, copy=True)
    assert buffer.shape == shape and buffer.dtype == given.dtype and buffer.nbytes == given.nbytes
    with buffer.read(device) as x:
        assert x.read_only and np.array_equal(x.get(), given)
        with pytest.raises(dr.InvalidArgumentError, match="read"):
            x.fill(0)
    with buffer.write(device) as x:
        x.fill(1)
    assert np.array_equal(buffer.get(), np.ones(shape, dtype))


def test_what_is_valid_does_not_move(device):
    buffer = dr.ArrayBuffer(values(100))
    with buffer.read(device):
        pass
    moved = buffer.transfers.count
    assert moved == (0 if device.id.startswith("host") else 1)
    with buffer.read(device), buffer.read("host"):
        pass
    assert buffer.transfers.count == moved
    assert buffer.is_valid_on(device) and buffer.is_valid_on("host")
    with buffer.write(device) as x:
        x.fill(0)
    assert buffer.transfers.count == moved


def test_a_source_is_taken_up_or_copied():
    given = values((3, 4))
    with dr.ArrayBuffer(given).read_write("host") as x:
        x[:] = 9
    assert (given == 9).all()
    with dr.ArrayBuffer(given, copy=True).read_write("host") as x:
        x[:] = 8
    assert (given == 9).all()
    locked = values(3)
    locked.flags.writeable = False
    unaligned = np.zeros(33, "uint8")[1:].view("float64")
    for other in [locked, values((4, 4)).T, values(8)[::2], unaligned, [1.0, 2.0]]:
        assert np.array_equal(dr.ArrayBuffer(other).get(), np.asarray(other))
    with pytest.raises(dr.InvalidArgumentError, match="only to be read"):
        dr.ArrayBuffer(locked, copy=False)
    with pytest.raises(dr.InvalidArgumentError, match="row-major"):
        dr.ArrayBuffer(values((4, 4)).T, copy=False)
    with pytest.raises(dr.InvalidArgumentError, match="not aligned"):
        dr.ArrayBuffer(unaligned, copy=False)


def test_more_than_the_host_has_is_an_error():
    """Copies an array that claims to be larger than any memory."""
    given = values(4)
    source = type("Said", (), {"__array_interface__": {**given.__array_interface__, "shape": (1 << 44,)}})()
    with pytest.raises(dr.OutOfMemoryError, match=f"{1 << 47} bytes"):
        dr.ArrayBuffer(source, copy=True)


def test_accesses_end_with_their_block(device):
    buffer = dr.ArrayBuffer(values(5))
    with buffer.read_write(device) as x:
        part = x[1:]
        part.fill(0)
    for late in [x.get, part.get, lambda: x.fill(1)]:
        with pytest.raises(dr.ConflictError, match="ended"):
            late()
    with buffer.read_write("host") as seen:
        seen += 1
    assert not seen.flags.writeable
    assert buffer.get().tolist() == [2, 1, 1, 1, 1]
    access = buffer.read()
    with access, pytest.raises(dr.ConflictError, match="already"):
        access.__enter__()
    for left in [access, buffer.read()]:
        with pytest.raises(dr.ConflictError, match="was not entered, or was left already"):
            left.__exit__(None, None, None)


def test_an_access_that_nobody_leaves_lasts_as_long_as_its_array():
    buffer = dr.ArrayBuffer(values(5))
    access = buffer.read_write("host")
    seen = access.__enter__()
    part = seen[1:]
    del access, seen
    gc.collect()
    with pytest.raises(dr.ConflictError, match="held for writing"):
        buffer.get()
    part[:] = 0
    del part
    gc.collect()
    assert buffer.get().tolist() == [1, 0, 0, 0, 0] and buffer.version == 1


def test_an_array_gives_nothing_to_write_after_its_access():
    buffer = dr.ArrayBuffer(values(5))
    with buffer.read_write("host") as seen:
        owner = seen.base
        np.asarray(owner)[0] = 7
    with pytest.raises(dr.ConflictError, match="ended"):
        np.asarray(owner)
    with pytest.raises(ValueError, match="WRITEABLE"):
        seen.flags.writeable = True
    assert seen[0] == 7 and buffer.get()[0] == 7


def test_a_block_that_raises_poisons_until_it_is_overwritten(device):
    buffer = dr.ArrayBuffer(values(5))
    with pytest.raises(ZeroDivisionError), buffer.read_write(device) as x:
        x.fill(1 / 0)
    assert buffer.status == "poisoned"
    with pytest.raises(dr.PoisonedError):
        buffer.get()
    with buffer.write("host") as x:
        x[:] = 2
    assert buffer.get().tolist() == [2] * 5
    with pytest.raises(dr.PoisonedError, match="nothing was written"), buffer.write(device):
        pass


def test_a_variable_checks_that_writes_are_complete():
    program = """
import device_runtime as dr
for place in "host", dr.Device("sim:0"):
    buffer = dr.ArrayBuffer.empty(4, "float64")
    with buffer.write(place) as x:
        x[...] = 1
    try:
        with buffer.write(place) as x:
            if place == "host":
                x[:3] = 2
            else:
                x[:3].fill(2)
    except dr.PoisonedError as error:
        assert "element [3] was not written" in str(error), error
        assert buffer.status == "poisoned"
    else:
        raise AssertionError("not found")
"""
    ends_well(program, env={"ARRAY_BUFFER_CHECK_WRITES": "1"})


def test_empty_buffers_are_written_first():
    buffer = dr.ArrayBuffer.empty((2, 3), "int32")
    assert buffer.status == "uninitialized"
    with pytest.raises(dr.UninitializedError):
        buffer.get()
    with buffer.write("host") as x:
        x[:] = 4
    assert buffer.get().tolist() == [[4] * 3] * 2


@pytest.mark.parametrize("how", ["read", "read_write", "write"])
@pytest.mark.parametrize("place", ["device", "host"])
def test_metadata_is_there_inside_of_accesses(device, how, place):
    """Metadata can be read in the block's thread and in others; these do not wait for the end of the block."""
    buffer = dr.ArrayBuffer(values((2, 3), "float32"))
    place = device if place == "device" else place

    def look():
        assert buffer.shape == (2, 3) and buffer.dtype == np.float32
        assert (buffer.size, buffer.nbytes, buffer.version) == (6, 24, 0)
        assert buffer.status == ("valid" if how == "read" else "in use")
        assert buffer.transfers.count <= 1 and buffer.is_valid_on(place) in (True, how != "write")
        assert repr(buffer) == "<ArrayBuffer float32 [2, 3], version 0>"
        return True

    with getattr(buffer, how)(place) as x:
        assert look()
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(look).result(timeout=30)
        if how != "read":
            x[...] = 1
    assert buffer.status == "valid" and buffer.version == (how != "read")


def test_metadata_of_other_threads_does_not_end_an_access(host):
    """A block that fails poisons its own array, also if another thread reads metadata when the block ends."""
    buffer, done = dr.ArrayBuffer(values(5)), threading.Event()

    def look():
        while not done.is_set():
            buffer.version, buffer.status

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(300):
            with pytest.raises(dr.PoisonedError, match="nothing was written"), buffer.write(host):
                pass
            with buffer.write("host") as x:
                x[:] = 1
    finally:
        done.set()
        thread.join()


def test_numpy_is_told_how_a_buffer_is_read(device):
    buffer = dr.ArrayBuffer(values(5))
    for wrong in [lambda: np.asarray(buffer), lambda: np.array(buffer), lambda: device.array(buffer)]:
        with pytest.raises(TypeError, match="buffer.read"):
            wrong()


def test_two_writers_do_not_meet():
    buffer = dr.ArrayBuffer(values(5))
    with buffer.read_write("host"):
        with pytest.raises(dr.ConflictError, match="held for writing by this thread$"), buffer.read("host"):
            pass
        failures = []

        def other():
            try:
                with buffer.read_write("host", timeout=0.05):
                    failures.append("it was given")
            except dr.TimeoutError as error:
                failures.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert isinstance(failures[0], dr.TimeoutError) and "held for writing by another thread" in str(failures[0])


def test_views_of_an_access_are_of_its_stream(device):
    buffer, stream = dr.ArrayBuffer(values(5)), device.stream()
    with buffer.read_write(stream) as x:
        with pytest.raises(dr.WrongStreamError):
            x.fill(1, device.stream())
        x.fill(1, stream)
        x[1:].fill(2)
        assert np.array_equal(x.get(), [1, 2, 2, 2, 2])
        assert np.array_equal(np.from_dlpack(x, device="cpu", copy=True), [1, 2, 2, 2, 2])
    assert buffer.get().tolist() == [1, 2, 2, 2, 2]


def test_offload_nests_and_is_of_its_thread(host, device):
    one, two = host.stream(), device.stream()
    assert dr.here() is None
    with dr.offload(one) as current:
        assert current == one == dr.here()
        with dr.offload(two):
            assert dr.here() == two
            seen = []
            thread = threading.Thread(target=lambda: seen.append(dr.here()))
            thread.start()
            thread.join()
            assert seen == [None]
        assert dr.here() == one
        array = device.zeros(3)
    assert dr.here() is None and array.get().tolist() == [0, 0, 0]
    scope, failures = dr.offload(one), []

    def leave():
        try:
            scope.__exit__(None, None, None)
        except dr.ConflictError as error:
            failures.append(error)

    with scope:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        with pytest.raises(dr.ConflictError, match="already"):
            scope.__enter__()
    assert len(failures) == 1 and dr.here() is None


def test_offload_is_of_its_task(host):
    """A task that awaits in a block does not change the current stream of others; one started in the block begins with it."""
    one, two = host.stream(), host.stream()

    async def inner():
        return dr.here()

    async def task(stream, entered, other):
        with dr.offload(stream):
            entered.set()
            await other.wait()
            assert dr.here() == stream
            assert await asyncio.create_task(inner()) == stream
            # Blocks that end in another order than they began.
            three = dr.offload(host.stream())
            three.__enter__()
        assert dr.here() not in (None, stream)
        three.__exit__(None, None, None)
        assert dr.here() is None

    async def main():
        events = [asyncio.Event(), asyncio.Event()]
        tasks = [asyncio.create_task(task(one, *events)), asyncio.create_task(task(two, *reversed(events)))]
        await events[0].wait()
        assert dr.here() is None
        scope = dr.offload(one)
        await asyncio.create_task(entering(scope))
        with pytest.raises(dr.ConflictError, match="thread or task"):
            scope.__exit__(None, None, None)
        await asyncio.gather(*tasks)

    async def entering(scope):
        scope.__enter__()

    asyncio.run(main())
    assert dr.here() is None


def test_a_budget_refuses_transfers():
    device = opened("sim:0")
    buffer = dr.ArrayBuffer(values(10))
    with dr.transfer_budget(), pytest.raises(dr.LimitExceededError), buffer.read(device):
        pass
    with dr.transfer_budget(80, "to_device") as budget, buffer.read(device):
        pass
    assert budget.used == 80
    with pytest.raises(dr.InvalidArgumentError, match="sideways"):
        dr.transfer_budget(0, "sideways")


def test_messages_name_no_lines_of_rust():
    device, messages = opened("sim:0"), []
    buffer, empty = dr.ArrayBuffer(values(10)), dr.ArrayBuffer.empty(3)
    for fail in [
        lambda: within(buffer.read_write("host"), buffer.read("host")),
        lambda: empty.get(),
        lambda: within(dr.transfer_budget(), dr.ArrayBuffer(values(10)).read(device)),
    ]:
        with pytest.raises(dr.Error) as raised:
            fail()
        messages.append(str(raised.value))
    assert not any(word in message for message in messages for word in [".rs", "ThreadId"]), messages


def within(*scopes):
    with scopes[0], scopes[1]:
        pass


def test_moving_by_name():
    device = opened("sim:0")
    buffer = dr.ArrayBuffer(values(10))
    buffer.prefetch(device)
    assert buffer.is_valid_on(device)
    copy = buffer.duplicate()
    with buffer.write(device) as x:
        x.fill(1)
    assert not buffer.is_valid_on("host")
    buffer.evict(device)
    assert buffer.is_valid_on("host") and not buffer.is_valid_on(device)
    assert np.array_equal(copy.get(), values(10))


def test_page_locked_values_arrive_on_both_sides(device):
    empty, full = dr.ArrayBuffer.empty(1000), dr.ArrayBuffer(values(1000), copy=True)
    for buffer in [empty, full]:
        buffer.page_lock(device)
        buffer.page_lock(device)
    with empty.write("host") as x:
        x[:] = values(1000)
    for buffer in [empty, full]:
        buffer.prefetch(device)
        with buffer.read_write(device) as x:
            assert np.array_equal(x.get(), values(1000))
            x[1:].fill(7)
        buffer.prefetch("host")
        assert buffer.is_valid_on("host")
        assert buffer.get().tolist() == [1] + [7] * 999


def test_prefetches_of_page_locked_values_return_behind_a_busy_stream():
    """The values do not fit into the buffers through which values that are not page-locked are copied."""
    device = opened("sim:0?link=32MiB")
    buffer, stream = dr.ArrayBuffer.empty(1 << 20), device.stream()
    buffer.page_lock(device)
    with buffer.write("host") as x:
        x[:] = 1
    # Half a second.
    source, busy = device.pinned(1 << 24, "uint8"), device.empty(1 << 24, "uint8")
    busy.set(source, stream)
    buffer.prefetch(stream)
    assert not stream.is_done, "the prefetch waited"
    with buffer.read_write(stream) as x:
        x[1:].fill(2, stream)
        busy.set(source, stream)
    buffer.prefetch("host")
    assert not stream.is_done, "the prefetch waited"
    got = buffer.get()
    assert got[0] == 1 and (got[1:] == 2).all()


def test_memory_is_page_locked_for_one_device_and_only_if_nothing_else_uses_it():
    one, two = opened("sim:0"), opened("sim:1")
    given = np.arange(6.0)[1:]
    owned = dr.ArrayBuffer(given)
    with pytest.raises(dr.InvalidArgumentError, match="do not begin at a memory page"):
        owned.page_lock(one)
    assert owned.get().tolist() == given.tolist()

    buffer = dr.ArrayBuffer(given, copy=True)
    with buffer.read("host") as seen:
        with pytest.raises(dr.ConflictError, match="held for reading"):
            buffer.page_lock(one)
    part = seen[1:]
    del seen
    with pytest.raises(dr.ConflictError, match="NumPy array"):
        buffer.page_lock(one)
    assert part.tolist() == [2, 3, 4, 5]
    del part
    gc.collect()
    buffer.page_lock(one)
    with pytest.raises(dr.ConflictError, match="sim:0 already"):
        buffer.page_lock(two)
    with buffer.read(two) as x:
        assert x.get().tolist() == given.tolist()


def test_the_source_lives_as_long_as_its_buffer():
    class Owner(np.ndarray):
        pass

    given = values(1000).view(Owner)
    alive = weakref.ref(given)
    buffer = dr.ArrayBuffer(given)
    del given
    gc.collect()
    assert alive() is not None
    with buffer.read("host") as seen:
        pass
    del buffer
    gc.collect()
    assert np.array_equal(seen, values(1000))
    del seen
    gc.collect()
    assert alive() is None


def test_a_finalizer_that_uses_an_array_whose_operation_runs_it_gets_an_error(host):
    class Owner(np.ndarray):
        pass

    def finalize():
        with pytest.raises(dr.ConflictError):
            x.get()
        finalized.append(True)

    given, finalized, stream = values(1000).view(Owner), [], host.stream()
    weakref.finalize(given, finalize)
    buffer = dr.ArrayBuffer(given)
    access = buffer.read_write(stream)
    x, other = access.__enter__(), host.zeros(20_000_000)
    for value in range(20):
        other.fill(float(value), stream)
    # It waits for the fills. Meanwhile it becomes the only holder of the values.
    reader = threading.Thread(target=x.get, daemon=True)
    reader.start()
    time.sleep(0.1)
    access.__exit__(None, None, None)
    del access, buffer, given
    gc.collect()
    reader.join(30)
    assert not reader.is_alive(), "the reader waits for itself"
    # A thread of the device may release the values.
    deadline = time.monotonic() + 30
    while not finalized and time.monotonic() < deadline:
        time.sleep(0.001)
    assert finalized
