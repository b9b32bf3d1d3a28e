"""Signals: Ctrl-C ends every wait at once, and nothing is lost."""

import signal
import subprocess
import sys

import pytest
from conftest import opened

# After a signal, the wait must end within 100 ms. The tests allow for other programs on the machine.
LIMIT = 0.1
SLACK = 0.2

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

device = dr.Device("opencl:0")
stream = device.stream()
slow = device.module(
    "kernel void slow(global volatile float *x, long n) { for (long i = 0; i < n; i++) x[0] += 1; }"
)["slow"]
x = device.zeros(1, "float32")
sent = []

def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

def work(n=3_000_000_000):
    slow(stream, 1, 1, [x, n])

def field(ranks, topology):
    _, _, (cells, _, _) = topology.block(ranks.rank)
    return FieldSpec("f", "float64", [Dim.axis(0, cells, (1, 1))])

def interrupted(wait):
    threading.Timer(0.3, interrupt).start()
    try:
        wait()
    except KeyboardInterrupt:
        return time.monotonic() - sent.pop()
    raise SystemExit("the wait was not interrupted")
"""

WAITS = {
    "stream": "work(); wait = stream.synchronize",
    "stream with a timeout": "work(); wait = lambda: stream.synchronize(60)",
    "end of a block": """
work()
def wait():
    with stream:
        pass
""",
    "event": "work(); wait = stream.record().synchronize",
    "time between events": "start = stream.record(); work(); end = stream.record(); wait = lambda: end.elapsed_since(start)",
    "timer": """
with stream.timer() as timer:
    work()
wait = timer.elapsed
""",
    "device": "work(); wait = device.synchronize",
    "get": "work(); wait = x.get",
    "get of a stream": "work(); wait = lambda: device.zeros(1).get(stream=stream)",
    "DLPack copy": "work(); wait = lambda: np.from_dlpack(x, device='cpu')",
    "pinned": "work(); page = device.pinned(1, 'float32'); x.get(page, stream); wait = lambda: np.asarray(page)",
    "array buffer": """
buffer = dr.ArrayBuffer(np.zeros(1, "float32"))
with buffer.read_write(stream) as x:
    work()
wait = buffer.get
""",
    "holder of an array buffer": """
buffer = dr.ArrayBuffer(np.zeros(1))
held = buffer.write("host")
holder = threading.Thread(target=held.__enter__)
holder.start()
holder.join()
wait = buffer.get
""",
    "gather": "ranks, other = Communicator.threads(2); wait = lambda: ranks.all_gather(b'1')",
    "making an exchange": """
ranks, other = Communicator.threads(2)
topology = Topology.cartesian([8], [2], [True])
wait = lambda: HaloExchange(ranks, topology, [Quantity.scalar(field(ranks, topology))], dr.Device("host"))
""",
    "exchange": """
host = dr.Device("host")
group = Communicator.threads(2)
topology = Topology.cartesian([8], [2], [True])
def make(ranks):
    return HaloExchange(ranks, topology, [Quantity.scalar(field(ranks, topology))], host, direct=DIRECT)
other = threading.Thread(target=lambda: made.append(make(group[1])))
made = []
other.start()
halo = make(group[0])
other.join()
wait = lambda: halo.exchange([host.zeros(6)])
""",
}
WAITS["direct exchange"] = WAITS["exchange"].replace("DIRECT", "True")
WAITS["exchange"] = WAITS["exchange"].replace("DIRECT", "False")
WAITS["barrier"] = "ranks, other = Communicator.threads(2); wait = ranks.barrier"


def run(program):
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


@pytest.mark.parametrize("wait", WAITS)
def test_control_c_ends_a_wait_at_once(opencl, wait):
    """The default handler raises KeyboardInterrupt."""
    seconds = run(PROGRAM + WAITS[wait] + "\nprint(interrupted(wait), flush=True)\nos._exit(0)")
    assert float(seconds) < LIMIT + SLACK


def test_an_interrupted_wait_loses_nothing(opencl):
    assert run(PROGRAM + """
for wait in [stream.synchronize, device.synchronize, x.get, lambda: stream.record().synchronize()]:
    x.fill(0)
    # Adding 1 changes no float above 2**24.
    work(1_000_000_000)
    interrupted(wait)
    assert not stream.is_done
    wait()
    assert x.get() == 2**24
group = Communicator.threads(2)
interrupted(group[0].barrier)
other = threading.Thread(target=lambda: (group[1].reset(), group[1].barrier()))
other.start()
group[0].reset()
group[0].barrier()
other.join()
print("done")
""") == "done\n"


def test_the_exception_of_any_handler_is_raised_as_it_is(opencl):
    assert run(PROGRAM + """
class Enough(Exception):
    pass

def stop(number, frame):
    raise Enough

signal.signal(signal.SIGALRM, stop)
group = Communicator.threads(2)
for wait in [stream.synchronize, group[0].barrier]:
    work()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        wait()
    except Enough as error:
        assert error.__cause__ is None
        print("raised", flush=True)
try:
    group[0].barrier()
except dr.ConflictError as error:
    assert error.__cause__ is None
    print("failed before", flush=True)
os._exit(0)
""") == "raised\nraised\nfailed before\n"


def test_a_handler_that_returns_does_not_end_a_wait():
    host, seen = opened("host"), []
    array, stream = host.zeros(1 << 24), host.stream()
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.01)
        while not seen:
            array.fill(2, stream)
            stream.synchronize()
        assert (array.get() == 2).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
