"""Halo exchange over MPI, in jobs whose programs use mpi4py.

`HALO_MPI_MPIEXEC` names the launcher.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import halo_cases
import pytest


def over_mpi(size, *words):
    """Returns what a program printed that ran as a job of this many ranks."""
    launcher = os.environ.get("HALO_MPI_MPIEXEC", "mpiexec")
    if shutil.which(launcher) is None:
        pytest.skip(f"no {launcher}")
    pytest.importorskip("mpi4py")
    # For containers, and for more ranks than cores. Only Open MPI needs these variables: version 4, and version 5.
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    job = subprocess.run(
        [launcher, "-n", str(size), sys.executable, *words],
        env={**os.environ, **allowed},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout


@pytest.mark.parametrize("size", [1, 3])
def test_every_element_arrives_over_mpi(size):
    script = pathlib.Path(halo_cases.__file__)
    assert over_mpi(size, str(script), "host", "sim:0", "opencl:0").count("is done") == size


LATE_RANK = """
import time
from mpi4py import MPI
import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

def rank(world, cells=2_000_000):
    device = dr.Device("host")
    field = FieldSpec("t", "float64", [Dim.axis(0, cells, (cells, cells))])
    topology = Topology.cartesian((2 * cells,), (2,), (True,))
    late = world.rank == 1
    ranks = Communicator.mpi(world)
    halo = HaloExchange(ranks, topology, [Quantity.scalar(field)], device, timeout=5 if late else 1)
    values = device.zeros(3 * cells)
    time.sleep(3 if late else 0)
    try:
        halo.exchange([values])
    except dr.TimeoutError:
        print("timeout")

rank(MPI.COMM_WORLD)
print("the end")
"""


def test_messages_that_mpi_has_not_finished_keep_their_memory():
    printed = over_mpi(2, "-c", LATE_RANK)
    assert printed.count("the end") == 2
    assert "timeout" in printed


FINALIZED = """
from mpi4py import MPI
import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

ranks = Communicator.mpi(MPI.COMM_WORLD)
field = FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))])
topology, device = Topology.cartesian((8,), (2,), (True,)), dr.Device("host")
halo, values = HaloExchange(ranks, topology, [Quantity.scalar(field)], device), device.zeros(6)
MPI.Finalize()
for call in [lambda: halo.exchange([values]), ranks.barrier, lambda: Communicator.mpi(MPI.COMM_WORLD)]:
    try:
        call()
    except dr.PeerLostError as error:
        assert "not running" in str(error), error
        print("refused")
"""


FAILURES = """
import random, time
import numpy as np
from mpi4py import MPI
import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

world, device = MPI.COMM_WORLD, dr.Device("host")
rank, size, ranks = world.rank, world.size, Communicator.mpi(world)
field = FieldSpec("t", "float64", [Dim.axis(0, 1, (1, 1))])
topology = Topology.cartesian((size,), (size,), (True,))
make = lambda timeout: HaloExchange(ranks, topology, [Quantity.scalar(field)], device, timeout=timeout)
halo, array = make(0.3), device.zeros(3)
numbers = random.Random(5)
for turn in range(60):
    if turn == 20:
        halo = make(60)
    # The same on all ranks.
    what = numbers.choices(["right", "right", "late", "absent"], k=size)[rank] if turn < 20 else "right"

    array.set(np.array([-1.0, 10 * turn + rank, -1]))
    try:
        time.sleep(0.4 if what == "late" else 0)
        if what != "absent":
            halo.exchange([array])
            assert array.get().tolist() == [10 * turn + (rank + other) % size for other in (-1, 0, 1)]
    except dr.Error:
        if turn >= 20:
            raise
    while True:
        try:
            halo.reset()
            break
        except dr.TimeoutError:
            pass
print("the end")
"""


def test_failed_exchanges_disturb_no_exchange_when_their_tags_are_used_again():
    assert over_mpi(3, "-c", FAILURES).count("the end") == 3


def test_nothing_is_sent_after_mpi_is_finalized():
    assert over_mpi(2, "-c", FINALIZED).count("refused") == 6


ADOPTED = """
from mpi4py import MPI
import device_runtime as dr
from device_runtime.halo import Communicator

world = MPI.COMM_WORLD
part = world.Split(0, -world.rank)
ranks = Communicator.mpi(part)
assert (ranks.rank, ranks.size) == (part.rank, part.size)
again = Communicator.mpi(part)
for each in [ranks, again, Communicator.mpi(world)]:
    assert each.all_gather(bytes([each.rank])) == bytes(range(world.size))
# A message of the program is not taken for one of ours.
request = part.isend("hello", (part.rank + 1) % part.size, tag=1)
ranks.barrier()
assert part.recv(source=(part.rank - 1) % part.size, tag=1) == "hello"
request.wait()
part.Free()
for each in [ranks, again]:
    try:
        each.barrier()
    except dr.Error as error:
        assert "freed by its owner" in str(error), error
        print("refused")
for other, kind in [(part, dr.InvalidArgumentError), (MPI.COMM_NULL, dr.InvalidArgumentError), (MPI.INT, TypeError), (7, TypeError)]:
    try:
        Communicator.mpi(other)
    except kind as error:
        print("refused")
between = world.Split(world.rank == 0, 0).Create_intercomm(0, world, 1 if world.rank == 0 else 0)
try:
    Communicator.mpi(between)
except dr.InvalidArgumentError as error:
    assert "two groups" in str(error), error
    print("refused")
# More often than a library has communicators.
for turn in range(2100):
    own = MPI.COMM_SELF.Dup()
    assert Communicator.mpi(own).size == 1
    own.Free()
print("the end")
"""


def test_a_communicator_is_adopted_until_its_owner_frees_it():
    printed = over_mpi(2, "-c", ADOPTED)
    assert printed.count("refused") == 2 * 7
    assert printed.count("the end") == 2


LATE = """
from mpi4py import MPI
import device_runtime as dr
from device_runtime.halo import Communicator

if MPI.COMM_WORLD.rank == 0:
    try:
        Communicator.mpi(MPI.COMM_WORLD, timeout=1)
    except dr.TimeoutError as error:
        assert "other ranks have not called it" in str(error), error
        print("timeout")
MPI.COMM_WORLD.barrier()
# On rank 0 this continues the call that timed out.
Communicator.mpi(MPI.COMM_WORLD).barrier()
"""


def test_a_rank_that_does_not_adopt_is_a_timeout():
    assert "timeout" in over_mpi(2, "-c", LATE)


INTERRUPTED = """
import os, signal, threading, time
from mpi4py import MPI
from device_runtime.halo import Communicator, Dim, FieldSpec, Quantity, Topology

world = MPI.COMM_WORLD
made = None
if world.rank == 0:
    field = FieldSpec("t", "float64", [Dim.axis(0, 4, 1), Dim.free(3)], order=[1, 0])
    made = (Topology.cartesian([8], [2], [True]), Quantity.scalar(field))
topology, quantity = world.bcast(made)
assert repr(quantity).startswith("Quantity.scalar(FieldSpec('t', 'float64',") and topology.ranks == 2

ranks, sent = Communicator.mpi(world), []

def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

if world.rank == 0:
    threading.Timer(0.3, interrupt).start()
    try:
        ranks.barrier()
    except KeyboardInterrupt:
        print("interrupted after", time.monotonic() - sent[0], flush=True)
else:
    time.sleep(1)
ranks.reset()
ranks.barrier()
"""


def test_descriptions_travel_over_mpi_and_control_c_ends_its_waits():
    printed = over_mpi(2, "-c", INTERRUPTED)
    assert float(printed.removeprefix("interrupted after ")) < 0.3
