"""Devices for the tests."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import device_runtime as dr

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def opened(selector):
    """Opens the device, or skips the test with the reason why it is absent."""
    try:
        return dr.Device(selector)
    except dr.UnavailableError as error:
        pytest.skip(str(error))


def given_back(buffer):
    """Returns the values of an array buffer once their holder has released them. Some memory is released by another thread."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return buffer.get()
        except dr.ConflictError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def ends_well(program, *arguments, env=None):
    """Runs a program, and checks that neither it nor the interpreter's exit prints anything."""
    words = [sys.executable, "-c", program, *arguments]
    env = {**os.environ, **(env or {})}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.fixture(scope="session", params=["host", "sim:0", "opencl:0"])
def device(request):
    return opened(request.param)


@pytest.fixture(scope="session")
def host():
    return opened("host")


@pytest.fixture(scope="session")
def opencl():
    return opened("opencl:0")


def values(shape, dtype="float64"):
    """Values that differ between elements, as far as the type allows."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)
