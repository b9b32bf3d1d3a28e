"""Halo exchange over threads."""

import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import halo_cases
import numpy as np
import pytest
from conftest import opened

import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology


def on_ranks(size, work):
    """Returns the result of `work` on each rank. The ranks are threads."""
    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(work, ranks) for ranks in Communicator.threads(size)]
        return [future.result(timeout=120) for future in futures]


@pytest.mark.parametrize("split", [(1, 1), (3, 1), (1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("order", [None, (1, 0)], ids=["rows", "columns"])
def test_every_element_arrives(device, split, order):
    on_ranks(split[0] * split[1], lambda ranks: halo_cases.exchange(ranks, device, split, order))


def test_ranks_with_devices_of_their_own_send_messages():
    def work(ranks):
        return halo_cases.exchange(ranks, opened("sim:0"), (2, 1))

    for rank, statistics in enumerate(on_ranks(2, work)):
        assert statistics[1 - rank]["sent"][0] == statistics[1 - rank]["received"][0] >= 4


def test_a_rank_that_leaves_is_missed():
    def work(ranks):
        if ranks.rank == 1:
            return None
        del_after = ranks
        with pytest.raises(dr.PeerLostError):
            del_after.barrier(timeout=30)

    first, second = Communicator.threads(2)
    del second
    work(first)


def test_a_late_rank_does_not_ruin_the_communicator():
    late = threading.Event()

    def work(ranks):
        topology = Topology.cartesian((8,), (2,), (True,))
        quantities = [Quantity.scalar(FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))]))]
        make = functools.partial(HaloExchange, ranks, topology, quantities, opened("host"))
        if ranks.rank == 0:
            with pytest.raises(dr.TimeoutError):
                make(timeout=0.1)
            with pytest.raises(dr.ConflictError, match="reset"):
                ranks.all_gather(b"A")
            late.set()
        else:
            assert late.wait(60)
            with pytest.raises(dr.TimeoutError):
                make(timeout=30)
        ranks.reset(30)
        assert ranks.all_gather(bytes([ranks.rank]), 30) == b"\x00\x01"
        make(timeout=30)

    on_ranks(2, work)


def test_what_does_not_fit_is_refused_on_every_rank():
    def work(ranks):
        device = opened("host")
        topology = Topology.cartesian((8,), (2,), (True,))
        name = f"field {ranks.rank}"
        field = FieldSpec(name, "float64", [Dim.axis(0, 4, (1 + ranks.rank, 1))])
        with pytest.raises(dr.InvalidArgumentError):
            HaloExchange(ranks, topology, [Quantity.scalar(field)], device, timeout=30)

    on_ranks(2, work)


def test_other_fields_than_planned_are_refused(host):
    [ranks] = Communicator.threads(1)
    topology = Topology.cartesian((4,), (1,), (True,))
    field = FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))])
    halo = HaloExchange(ranks, topology, [Quantity.scalar(field)], host)
    for wrong in [[], [host.zeros(5)], [host.zeros(6, "float32")], [opened("sim:0").zeros(6)]]:
        with pytest.raises(dr.Error):
            halo.exchange(wrong)
    for device in ["sim:0", "host"]:
        with pytest.raises(dr.WrongDeviceError, match="field t of rank 0"):
            halo.exchange([opened(device).zeros(6)])
    with pytest.raises(dr.InvalidArgumentError, match="median"):
        halo.reduce([host.zeros(6)], "median")
    array = host.array(np.arange(6.0))
    halo.exchange([array])
    assert array.get().tolist() == [4, 1, 2, 3, 4, 1]


def test_progress_is_lent_for_the_work_alone(host):
    [ranks] = Communicator.threads(1)
    topology = Topology.cartesian((4,), (1,), (True,))
    halo = HaloExchange(ranks, topology, [Quantity.scalar(FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))]))], host)
    kept = []
    halo.overlap([host.zeros(6)], kept.append)
    with pytest.raises(dr.ConflictError):
        kept[0].poll()
    array = host.array(np.arange(6.0))
    with pytest.raises(dr.ConflictError, match="is running"):
        halo.overlap([array], lambda progress: halo.statistics())
    with pytest.raises(ZeroDivisionError):
        halo.overlap([array], lambda progress: 1 / 0)
    assert array.get()[0] == 4
    halo.exchange([array])


def test_a_buffer_is_exchanged(host):
    [ranks] = Communicator.threads(1)
    topology = Topology.cartesian((4,), (1,), (True,))
    halo = HaloExchange(ranks, topology, [Quantity.scalar(FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))]))], host)
    buffer = dr.ArrayBuffer(np.arange(6.0))
    with buffer.read_write(host.stream()) as x:
        halo.exchange([x])
    assert buffer.get().tolist() == [4, 1, 2, 3, 4, 1]


def test_decompositions():
    sphere = Topology.cubed_sphere(48, (1, 2))
    assert sphere.ranks == 12 and sphere.axes == 2 and sphere.block(3)[2] == [24, 48, 1]
    assert ([-1, 0, 0], 9, "quarter") in sphere.neighbours(0)
    fold = Topology.of_blocks(2, [(8, 4, 1)], [(0, (0, 1, 0), 0, "half")])
    assert fold.neighbours(0) == [([0, 1, 0], 0, "half")]
    for wrong in [(4, [(1, 1, 1)], []), (2, [(8, 4, 1)], [(0, (0, 2, 0), 0, "half")]), (2, [(8, 4, 1)], [(0, (0, 1, 0), 0, "twist")])]:
        with pytest.raises(dr.InvalidArgumentError):
            Topology.of_blocks(*wrong)
    staggered = Dim.axis(0, 4, (2, 1), allocated=(3, 1), staggered=True)
    assert staggered.owned == slice(3, 8, 1)
    field = FieldSpec("u", "float32", [Dim.free(3), staggered])
    assert field.shape == (3, 9) and field.owned == (slice(0, 3, 1), slice(3, 8, 1)) and field.dtype == np.float32
    with pytest.raises(dr.InvalidArgumentError, match="order and strides"):
        FieldSpec("u", "float32", [Dim.free(3)], order=[0], strides=[4])
    with pytest.raises(dr.InvalidArgumentError, match="spinor"):
        Quantity("spinor", [field])


def test_an_exchange_without_a_stream_comes_after_all_work():
    device = opened("sim:0?seed=3")
    [ranks] = Communicator.threads(1)
    topology = Topology.cartesian((1 << 20,), (1,), (True,))
    field = FieldSpec("t", "uint8", [Dim.axis(0, 1 << 20, (1, 1))])
    halo = HaloExchange(ranks, topology, [Quantity.scalar(field)], device)
    array, stream = device.zeros(field.shape, "uint8"), device.stream()
    device.synchronize()
    for value in range(1, 20):
        array[field.owned].fill(value, stream)
    halo.exchange([array])
    assert array[0].get() == array[-1].get() == 19


SCALAR = FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))])


def refusal(use):
    """Repeats the use until it is refused, and returns the error."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            use()
        except dr.ConflictError as error:
            return str(error)
    raise AssertionError("it was never refused")


def test_nobody_else_uses_the_fields_of_a_running_exchange(device):
    topology, stream = Topology.cartesian((8,), (2,), (True,)), device.stream()
    arrays = [device.full(SCALAR.shape, float(rank)) for rank in range(2)]
    device.synchronize()

    def work(ranks):
        halo = HaloExchange(ranks, topology, [Quantity.scalar(SCALAR)], device)
        other = arrays[0]
        if ranks.rank == 1:
            # The exchange of the other rank waits for this rank.
            for use in [
                lambda: other.fill(0.0),
                lambda: other[2:].fill(0.0, stream),
                lambda: other.set(np.zeros(6)),
                lambda: other.set(device.zeros(6)),
                other.get,
                lambda: halo.exchange([other]),
            ]:
                assert "halo exchange" in refusal(use)
            with pytest.raises(BufferError, match="halo exchange"):
                other.__dlpack__()
        halo.exchange([arrays[ranks.rank]])

    on_ranks(2, work)
    assert [array.get().tolist() for array in arrays] == [[1, 0, 0, 0, 0, 1], [0, 1, 1, 1, 1, 0]]
    arrays[0].fill(0.0)


def test_work_beside_an_exchange_reads_its_fields_and_writes_other_elements(device):
    [ranks] = Communicator.threads(1)
    halo, another = (
        HaloExchange(ranks, Topology.cartesian((4,), (1,), (True,)), [Quantity.scalar(SCALAR)], device) for _ in range(2)
    )
    old, new = both = device.zeros((2, 6))
    old.set(np.arange(6.0))

    def work(progress):
        for write in [
            lambda: old.fill(9.0),
            lambda: old[2:3].fill(9.0, device.stream()),
            lambda: both[:, 1].fill(9.0),
            lambda: old.set(new),
            lambda: another.exchange([old]),
        ]:
            with pytest.raises(dr.ConflictError, match="halo exchange"):
                write()
        new.set(old)
        return old[1:-1].get()

    assert halo.overlap([old], work).tolist() == [1, 2, 3, 4]
    assert old.get().tolist() == [4, 1, 2, 3, 4, 1] and new.get()[1:-1].tolist() == [1, 2, 3, 4]
    another.exchange([old])
    old.fill(9.0)


def test_other_libraries_get_the_fields_beside_an_exchange_read_only(device):
    [ranks] = Communicator.threads(1)
    halo = HaloExchange(ranks, Topology.cartesian((4,), (1,), (True,)), [Quantity.scalar(SCALAR)], device)
    field, other = device.zeros((2, 6))
    field.set(np.arange(6.0))
    # Other devices' memory has no such interface.
    shows = [np.asarray, np.from_dlpack] if hasattr(field, "__array_interface__") else []
    latest = {"max_version": (1, 0)}

    def check(is_writable):
        assert [show(field).flags.writeable for show in shows] == [is_writable] * len(shows)
        adopted = [device.adopt(field), device.adopt(field.__dlpack__(**latest))]
        adopted += [device.adopt(show(field)) for show in shows]
        assert [array.read_only for array in adopted] == [not is_writable] * len(adopted)
        if is_writable:
            field.__dlpack__()
        else:
            with pytest.raises(BufferError, match="read-only"):
                field.__dlpack__()
            for array in adopted:
                with pytest.raises(dr.InvalidArgumentError, match="only to be read"):
                    array.fill(9.0)
        # Elements that the exchange does not use, and copies.
        assert not device.adopt(other).read_only
        assert not device.adopt(field.__dlpack__(copy=True, **latest)).read_only

    def work(progress):
        check(is_writable=False)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(check, is_writable=False).result()

    check(is_writable=True)
    halo.overlap([field], work)
    check(is_writable=True)
    assert field.get().tolist() == [4, 1, 2, 3, 4, 1]


def test_kernels_beside_an_exchange_read_its_fields(opencl):
    [ranks] = Communicator.threads(1)
    halo = HaloExchange(ranks, Topology.cartesian((4,), (1,), (True,)), [Quantity.scalar(SCALAR)], opencl)
    double = opencl.module(
        "kernel void twice(global double *to, global const double *of) { size_t i = get_global_id(0); to[i] = 2 * of[i]; }"
    )["twice"]
    old, new, stream = opencl.array(np.arange(6.0)), opencl.zeros(6), opencl.stream()
    opencl.synchronize()

    def work(progress):
        with pytest.raises(dr.ConflictError, match="halo exchange"):
            double(stream, 6, 1, [old, new])
        double(stream, 6, 1, [new, old])

    halo.overlap([old], work, stream)
    stream.synchronize()
    assert new.get()[1:-1].tolist() == [2, 4, 6, 8]


def test_a_dimension_whose_indices_do_not_fit_a_slice_is_refused():
    largest = (1 << 63) - 1
    assert Dim.free(largest).owned == slice(0, largest, 1)
    assert Dim.axis(0, largest - 2, (1, 1)).owned == slice(1, largest - 1, 1)
    for cells, make in [
        (largest + 1, lambda: Dim.free(largest + 1)),
        ((1 << 64) - 1, lambda: Dim.axis(0, (1 << 64) - 1, (1, 1))),
        (largest - 1, lambda: Dim.axis(0, largest - 1, (1, 1))),
        (largest, lambda: Dim.axis(0, largest, staggered=True)),
        (1, lambda: Dim.axis(0, 1, allocated=(largest, 0))),
    ]:
        with pytest.raises(dr.InvalidArgumentError, match=f"{cells} cells .* at most {largest} elements"):
            make()
