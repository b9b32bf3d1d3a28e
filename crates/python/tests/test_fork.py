"""Forks and subinterpreters get an error at once, and leave others alone."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, time
import numpy as np
import device_runtime as dr
from device_runtime.halo import Communicator

device = dr.Device(sys.argv[1])
stream, other = device.stream(), device.stream()
x, page = device.full(1000, 2.0), device.pinned(1000)
event, (ranks, peer) = stream.record(), Communicator.threads(2)
seen = np.from_dlpack(x, device="cpu")
buffer = dr.ArrayBuffer(np.zeros(1000))
with buffer.read_write(device) as lent:
    lent.fill(1)
with stream.timer() as timer:
    x.fill(3, stream)
calls = {
    "open": lambda: dr.Device(sys.argv[1]),
    "devices": dr.devices,
    "backends": dr.backends,
    "synchronize": device.synchronize,
    "stream": device.stream,
    "event": device.event,
    "empty": lambda: device.empty(3),
    "zeros": lambda: device.zeros(3),
    "array": lambda: device.array([1.0]),
    "pinned": lambda: device.pinned(3),
    "adopt": lambda: device.adopt(x),
    "module": lambda: device.module("", "opencl_c"),
    "load": device.load,
    "get": x.get,
    "get into pinned memory": lambda: x.get(page),
    "set": lambda: x.set(page),
    "fill": lambda: x.fill(1),
    "copy": x.copy,
    "from_dlpack": lambda: np.from_dlpack(x, device="cpu"),
    "pinned values": lambda: np.asarray(page),
    "stream.synchronize": stream.synchronize,
    "stream.record": stream.record,
    "stream.wait": lambda: stream.wait(event),
    "stream.is_done": lambda: stream.is_done,
    "stream.check": stream.check,
    "event.synchronize": event.synchronize,
    "event.is_done": lambda: event.is_done,
    "timer": timer.elapsed,
    "access": lambda: buffer.read(device).__enter__(),
    "access on the host": buffer.get,
    "prefetch": lambda: buffer.prefetch(device),
    "duplicate": buffer.duplicate,
    "barrier": ranks.barrier,
}
child = os.fork()
if child == 0:
    for name, call in calls.items():
        try:
            call()
            print(name, "was not refused")
        except (dr.UnsupportedError, BufferError) as error:
            assert "was forked" in str(error)
        except Exception as error:
            print(name, repr(error))
    sys.exit(0)
end = time.monotonic() + 30
while os.waitpid(child, os.WNOHANG)[0] == 0:
    if time.monotonic() > end:
        os.kill(child, 9)
        sys.exit("the fork hangs")
    time.sleep(0.01)
assert (x.get() == 3).all() and (buffer.get() == 1).all()
"""


def test_a_fork_of_a_process_with_a_device_is_refused_everything(device):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, device.id], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_process_may_fork_before_it_opens_a_device():
    program = """
import os, sys
import device_runtime as dr
child = os.fork()
device = dr.Device("host")
assert (device.full(10, 3.0).get() == 3).all()
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
if sys.argv[1] == "main":
    import device_runtime
code = '''
try:
    import device_runtime
except ImportError as error:
    assert "main interpreter only" in str(error)
else:
    raise SystemExit("it was imported")
'''
for _ in range(2):
    made = interpreters.create()
    failed = interpreters.run_string(made, code)
    assert not failed, failed
    interpreters.destroy(made)
import device_runtime as dr
assert (dr.Device("host").full(3, 2.0).get() == 2).all()
"""


@pytest.mark.parametrize("first", ["main", "other"])
def test_subinterpreters_are_refused(first):
    """The main interpreter works, whichever interpreter imported the package first."""
    words = [sys.executable, "-c", INTERPRETERS, first]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
