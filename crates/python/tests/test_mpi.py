"""Halo exchange over a communicator whose methods are Python code, which keeps what it is given and calls back."""

import collections
import contextlib
import gc
import random
import sys
import threading
import types

import numpy as np
import pytest

import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

SCALAR = FieldSpec("t", "float64", [Dim.axis(0, 4, (1, 1))])


ANY_SOURCE = -1


class Status:
    count = source = 0

    def Get_count(self):
        return self.count

    def Get_source(self):
        return self.source


class Sent(bytes):
    """The bytes of a message, and whether they were taken."""

    taken = False


class StandIn:
    """A rank of a stand-in for an mpi4py communicator. The ranks are threads. Each call runs `hooks[name]` once.

    `buffers` says whether a message is sent before its receive takes it.
    """

    def __init__(self, rank, size, lines):
        self.rank, self.size, self.lines, self.hooks, self.freed = rank, size, lines, {}, False
        self.buffers = True

    def called(self, name, *arguments):
        return self.hooks.pop(name, lambda *arguments: None)(*arguments)

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def Get_attr(self, key):
        return None

    def __bool__(self):
        return not self.freed

    def Isend(self, view, to, tag):
        sent = Sent(view)
        self.lines[self.rank, to, tag].append(sent)
        self.called("Isend", view)
        return StandInRequest(self, lambda: self.buffers or sent.taken)

    def Improbe(self, peer, tag, status):
        self.called("Improbe")
        peers = range(self.size) if peer == ANY_SOURCE else [peer]
        status.source = next((peer for peer in peers if self.lines[peer, self.rank, tag]), None)
        if status.source is None:
            return None
        sent = self.lines[status.source, self.rank, tag].popleft()
        status.count = self.called("Get_count") or len(sent)
        return StandInMessage(self, sent)


class StandInRequest:
    def __init__(self, comm, done=lambda: True):
        self.comm, self.done = comm, done

    def Test(self):
        self.comm.called("Test")
        return self.done()


class StandInMessage:
    def __init__(self, comm, sent):
        self.comm, self.sent = comm, sent

    def Irecv(self, view):
        view[:] = self.sent
        self.sent.taken = True
        self.comm.called("Irecv", view)
        return StandInRequest(self.comm)


@pytest.fixture
def ranks(monkeypatch):
    """The stand-ins of two ranks, and their communicators."""
    # As in Open MPI, only the communicator of all processes has the largest tag.
    world = types.SimpleNamespace(Get_attr=lambda key: 2**31 - 1)
    mpi = types.SimpleNamespace(
        Status=Status,
        ANY_SOURCE=ANY_SOURCE,
        TAG_UB=1,
        COMM_WORLD=world,
        Is_initialized=lambda: True,
        Is_finalized=lambda: False,
    )
    monkeypatch.setitem(sys.modules, "mpi4py", types.SimpleNamespace(MPI=mpi, __path__=[]))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    lines = collections.defaultdict(collections.deque)
    comms = [StandIn(rank, 2, lines) for rank in range(2)]
    return comms, [Communicator.mpi(comm) for comm in comms]


def test_tags_below_those_of_every_mpi_are_refused(ranks, monkeypatch):
    monkeypatch.setattr(sys.modules["mpi4py.MPI"].COMM_WORLD, "Get_attr", lambda key: 10)
    with pytest.raises(dr.InvalidArgumentError, match="is 10, less than 32767"):
        Communicator.mpi(ranks[0][0])


def on_ranks(work):
    """Returns what `work` returned or raised on each of two ranks. A rank that blocks forever fails the test."""
    ended = [None, None]

    def run(rank):
        try:
            ended[rank] = work(rank)
        except BaseException as error:
            ended[rank] = error

    threads = [threading.Thread(target=run, name=f"rank {rank}", args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a rank blocks"
    return ended


def halo(communicator, device, timeout=10.0):
    topology = Topology.cartesian((8,), (2,), (True,))
    return HaloExchange(communicator, topology, [Quantity.scalar(SCALAR)], device, timeout=timeout)


def values(rank):
    return np.arange(6.0) + 10 * rank


EXCHANGED = [[14, 1, 2, 3, 4, 11], [4, 11, 12, 13, 14, 1]]


def raised(use, kind):
    """Returns a use that must raise."""

    def checked(*arguments):
        with pytest.raises(kind):
            use()
        done.append(True)

    done = []
    return checked, done


@pytest.mark.parametrize("kept_as", [lambda view: view, lambda view: view[:], np.asarray], ids=["itself", "slice", "array"])
def test_bytes_that_a_communicator_keeps_are_not_used_again(ranks, host, kept_as):
    comms, communicators = ranks
    kept = []

    def keep(view):
        kept.append((kept_as(view), bytes(view)))

    def work(rank):
        exchange, array = halo(communicators[rank], host), host.array(values(rank))
        for turn in range(5):
            comms[rank].hooks.update(Isend=keep, Irecv=keep)
            array.fill(100.0 * turn + rank)
            exchange.exchange([array])
        array.set(values(rank))
        exchange.exchange([array])
        return array.get().tolist()

    assert on_ranks(work) == EXCHANGED
    del communicators, ranks
    gc.collect()
    _reused = [np.full(size, 0x41, "u1") for size in (8, 16, 24, 32) for _ in range(2000)]
    assert len(kept) == 20
    for bytes_kept, expected in kept:
        try:
            assert bytes(bytes_kept) == expected
        except ValueError as error:
            assert "released" in str(error)


def test_nothing_is_sent_on_a_freed_communicator(ranks):
    comms, communicators = ranks
    comms[0].freed = True
    for call in (communicators[0].barrier, communicators[0].reset):
        with pytest.raises(dr.PeerLostError, match="freed"):
            call(1.0)


def test_a_message_that_is_too_long_for_the_host_is_an_error(ranks):
    (comms, communicators), count = ranks, 2**62
    comms[0].hooks["Get_count"] = lambda: count
    first, second = on_ranks(lambda rank: communicators[rank].barrier(1.0))
    assert isinstance(first, dr.OutOfMemoryError) and str(count) in str(first)
    assert isinstance(second, (dr.Error, type(None)))


@pytest.mark.parametrize("hook", ["Improbe", "Irecv"])
def test_a_communicator_that_calls_its_own_rank_gets_an_error(ranks, host, hook):
    comms, communicators = ranks
    calls, done = raised(lambda: communicators[0].barrier(1.0), dr.ConflictError)

    def work(rank):
        exchange, array = halo(communicators[rank], host), host.array(values(rank))
        communicators[rank].barrier(10.0)
        if rank == 0:
            comms[0].hooks[hook] = calls
        exchange.exchange([array])
        return array.get().tolist()

    assert on_ranks(work) == EXCHANGED
    assert done


def test_progress_that_polls_itself_gets_an_error(ranks, host):
    comms, communicators = ranks
    done, hooked = [], threading.Event()

    def work(rank):
        exchange, array = halo(communicators[rank], host), host.array(values(rank))
        communicators[rank].barrier(10.0)
        assert rank == 0 or hooked.wait(30)

        def beside(progress):
            if rank == 0:
                calls, ended = raised(progress.poll, dr.ConflictError)
                comms[0].hooks["Improbe"] = calls
                hooked.set()
                while not ended:
                    progress.poll()
                done.extend(ended)

        exchange.overlap([array], beside)
        return array.get().tolist()

    assert on_ranks(work) == EXCHANGED
    assert done


@pytest.mark.parametrize("hook", ["Improbe", "Isend", "Irecv", "Test"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_an_exception_of_the_communicator_reaches_the_caller(ranks, hook, kind):
    comms, communicators = ranks
    given = kind("given")

    def fail(*arguments):
        raise given

    comms[0].hooks[hook] = fail
    first, second = on_ranks(lambda rank: communicators[rank].barrier(1.0))
    if kind is ZeroDivisionError:
        assert isinstance(first, dr.DriverError) and first.__cause__ is given and "given" in str(first)
    else:
        assert first is given
    with pytest.raises(dr.ConflictError):
        communicators[0].barrier(0.0)


@pytest.mark.parametrize("call", range(1, 12))
def test_an_interrupt_at_any_call_reaches_the_caller(ranks, monkeypatch, call):
    comms, communicators = ranks
    given, raised_once, calls = KeyboardInterrupt("given"), threading.Event(), []

    def is_initialized():
        if threading.current_thread().name == "rank 0":
            calls.append(None)
            if len(calls) == call:
                raised_once.set()
                raise given
        return True

    monkeypatch.setattr(sys.modules["mpi4py.MPI"], "Is_initialized", is_initialized)
    # The other rank comes late, so this rank waits.
    first, second = on_ranks(lambda rank: (rank == 0 or raised_once.wait(30)) and communicators[rank].barrier(0.5))
    assert first is given


def test_failed_exchanges_disturb_no_exchange_when_their_tags_are_used_again(ranks, host):
    _, communicators = ranks

    def work(rank):
        exchange, array = halo(communicators[rank], host, timeout=0.05), host.array(values(rank))
        # The same on both ranks.
        numbers = random.Random(7)
        for turn in range(60):
            takes_part = numbers.choices([True, False], k=2)
            if turn == 20:
                exchange = halo(communicators[rank], host)
            if turn >= 20:
                array.set(values(rank))
                exchange.exchange([array])
                assert array.get().tolist() == EXCHANGED[rank], turn
            elif takes_part[rank]:
                with contextlib.suppress(dr.TimeoutError):
                    exchange.exchange([array])
            while True:
                with contextlib.suppress(dr.TimeoutError):
                    exchange.reset()
                    break

    assert on_ranks(work) == [None, None]


def test_messages_of_other_exchanges_are_taken_while_a_rank_waits(ranks, host):
    comms, communicators = ranks
    for comm in comms:
        comm.buffers = False

    def work(rank):
        first, second = (halo(communicators[rank], host) for _ in range(2))
        one, two = host.array(values(rank)), host.array(values(rank))
        if rank == 0:
            first.overlap([one], lambda progress: second.exchange([two]))
        else:
            first.exchange([one])
            second.exchange([two])
        return one.get().tolist(), two.get().tolist()

    assert on_ranks(work) == [(values, values) for values in EXCHANGED]
