"""The examples of the README run, and print the output shown there."""

import contextlib
import io
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_example(opencl):
    pytest.importorskip("pyarrow")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(blocks("python")[0], {})
    assert printed.getvalue() == blocks("text")[0]


def test_the_halo_example():
    """A job of one process. It runs in a separate process, because it initialises MPI."""
    pytest.importorskip("mpi4py")
    job = subprocess.run([sys.executable, "-c", blocks("python")[1]], capture_output=True, text=True, timeout=120)
    assert job.returncode == 0, job.stderr
