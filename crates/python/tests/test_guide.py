"""The programs of the guide run, and print the output shown there."""

import contextlib
import io
import pathlib
import re

import pytest

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDE / page).read_text(), re.MULTILINE | re.DOTALL)


PROGRAMS = [(page, code) for page in ["python.md", "from/pycuda.md"] for code in blocks(page, "python")]


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[f"{page} {at}" for at, (page, _) in enumerate(PROGRAMS)])
def test_the_program(page, code, opencl):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() in ["", *blocks(page, "text")]
    assert ("print" in code) == bool(printed.getvalue())
