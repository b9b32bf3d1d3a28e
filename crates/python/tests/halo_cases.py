"""The work of each rank of an exchange, with any transport. It also runs as a program of an MPI job."""

import sys

import numpy as np

from device_runtime import Device
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

CELLS, GHOST = (12, 10), -1.0


def block_with_ghosts(block, periodic):
    """The values of a block and of one cell around it, computed from the positions of the cells."""
    _, start, cells = block
    x = np.arange(start[0] - 1, start[0] + cells[0] + 1)
    y = np.arange(start[1] - 1, start[1] + cells[1] + 1)
    inside = [(0 <= n) & (n < CELLS[axis]) | periodic[axis] for axis, n in enumerate((x, y))]
    numbers = (y % CELLS[1])[:, None] * CELLS[0] + (x % CELLS[0])[None, :]
    return np.where(inside[1][:, None] & inside[0][None, :], numbers.astype("float64"), GHOST)


def exchange(ranks, device, split, order=None):
    """Exchanges a scalar of float64 and a vector of float32, and compares every element."""
    periodic = (True, False)
    topology = Topology.cartesian(CELLS, split, periodic)
    block = topology.block(ranks.rank)
    nx, ny = block[2][:2]
    dims = [Dim.axis(1, ny, (1, 1)), Dim.axis(0, nx, (1, 1))]
    scalar = FieldSpec("height", "float64", dims, order=order)
    u, v = (FieldSpec(name, "float32", dims) for name in "uv")
    quantities = [Quantity.scalar(scalar), Quantity.vector(u, v)]
    halo = HaloExchange(ranks, topology, quantities, device, timeout=30)
    expected = block_with_ghosts(block, periodic)
    given = np.full(scalar.shape, GHOST)
    given[scalar.owned] = expected[scalar.owned]
    fields = [
        device.array(given, order="F" if order else "C"),
        device.array(given.astype("float32")),
        device.array((given + 1000 * (given != GHOST)).astype("float32")),
    ]
    stream = device.stream()
    device.synchronize()
    for _ in range(3):
        halo.exchange(fields, stream)
    done = halo.overlap(fields, lambda progress: [progress.poll(), "worked"][1], stream)
    assert done == "worked"
    stream.synchronize()
    for field, ghosts in zip(fields, (expected, expected, expected + 1000 * (expected != GHOST)), strict=True):
        np.testing.assert_array_equal(field.get(), ghosts)
    ones = device.full(scalar.shape, 1.0, "float64", order="F" if order else "C", stream=stream)
    halo.reduce([ones, *fields[1:]], "sum", stream)
    stream.synchronize()
    # An element at a joined end of an axis has one ghost beyond it; in a corner, the numbers multiply.
    at_ends = []
    for axis, count in ((1, ny), (0, nx)):
        ends, start = np.ones(count), block[1][axis]
        ends[0] += periodic[axis] or start > 0
        ends[-1] += periodic[axis] or start + count < CELLS[axis]
        at_ends.append(ends)
    np.testing.assert_array_equal(ones.get()[scalar.owned], at_ends[0][:, None] * at_ends[1][None, :])
    statistics = halo.statistics()
    ranks.barrier(30)
    return statistics


def main():
    """One rank of an MPI job."""
    from mpi4py import MPI

    ranks = Communicator.mpi(MPI.COMM_WORLD)
    assert (ranks.rank, ranks.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    everybody = ranks.all_gather(bytes([ranks.rank]))
    assert everybody == bytes(range(ranks.size))
    for selector in sys.argv[1:]:
        device = Device(selector)
        statistics = exchange(ranks, device, (ranks.size, 1))
        # A rank that is its own neighbour copies, and sends no message.
        assert all(traffic["sent"][0] + traffic["copied"][0] >= 4 for traffic in statistics.values())
        exchange(ranks, device, (1, ranks.size), order=(1, 0))
    # Any communicator will do.
    part = Communicator.mpi(MPI.COMM_WORLD.Split(0, -ranks.rank))
    assert part.rank == ranks.size - 1 - ranks.rank
    part.barrier(30)
    print(f"rank {ranks.rank} of {ranks.size} is done")


if __name__ == "__main__":
    main()
