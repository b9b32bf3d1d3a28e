"""The type stubs are complete, and type checkers accept them."""

import ast
import importlib.metadata
import pathlib
import subprocess
import sys

import pytest
import stub_docs

import device_runtime as dr
from device_runtime import _native, halo

STUBS = pathlib.Path(dr.__file__).with_name("_native.pyi")


def stubbed():
    classes, functions = {}, set()
    for node in ast.parse(STUBS.read_text()).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            functions.add(node.name)
    return classes, functions


def test_the_stubs_are_complete():
    classes, functions = stubbed()
    assert set(_native.__all__) == set(classes) | functions
    for name, stated in classes.items():
        found = vars(getattr(_native, name))
        public = {member for member in found if not member.startswith("_")}
        if issubclass(getattr(_native, name), Exception):
            continue
        assert {member for member in stated if not member.startswith("_")} == public, name
        special = {member for member in stated if member.startswith("__")} - {"__new__"}
        assert special <= set(found), name


def test_everything_is_documented_and_exported():
    exported = set(dr.__all__) | set(halo.__all__)
    assert set(_native.__all__) <= exported
    for name in _native.__all__:
        thing = getattr(_native, name)
        assert thing.__doc__, name
        if isinstance(thing, type) and not issubclass(thing, Exception):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"
    assert dr.Device.__module__ == "device_runtime"


def test_the_stubs_have_the_docstrings():
    text = STUBS.read_text()
    assert stub_docs.documented(text) == text, "python tests/stub_docs.py writes them"
    assert '"""The number of elements along each dimension."""' in text


def test_the_version_is_that_of_the_package():
    assert dr.__version__ == importlib.metadata.version("device-runtime")


def test_the_stubs_are_what_stubtest_finds():
    pytest.importorskip("mypy")
    words = ["-m", "mypy.stubtest", "--concise", "--ignore-disjoint-bases", "device_runtime"]
    checked = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_typed_program_is_checked(tmp_path):
    """Correct lines have no error; each line that is marked as wrong has one."""
    pytest.importorskip("mypy")
    program = pathlib.Path(__file__).with_name("typed_program.py")
    words = ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    checked = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr
