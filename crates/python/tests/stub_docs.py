"""Writes the docstrings of the extension module into the type stubs, where editors look for them: `python tests/stub_docs.py`.

Install the package first. A test checks that both agree.
"""

import ast
import inspect
import pathlib
import textwrap

from device_runtime import _native

STUBS = pathlib.Path(__file__).parents[1] / "python/device_runtime/_native.pyi"
WIDTH = 120


def things(tree):
    """The classes and functions of the stubs, each with the object that it describes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            kind = getattr(_native, node.name)
            # Errors say what they are by their name.
            if issubclass(kind, Exception):
                continue
            yield node, kind
            members = {}
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("__"):
                    # Of overloads, the first.
                    members.setdefault(item.name, item)
            yield from ((item, vars(kind)[name]) for name, item in members.items())
        elif isinstance(node, ast.FunctionDef):
            yield node, getattr(_native, node.name)


def docstring(thing, indent):
    """The lines of a docstring, wrapped anew."""
    width = WIDTH - len(indent)
    first, *others = inspect.getdoc(thing).split("\n\n")
    wrap = {"width": width, "break_long_words": False, "break_on_hyphens": False}
    paragraphs = [textwrap.wrap(first, initial_indent='"""', **wrap)]
    paragraphs += [textwrap.wrap(paragraph, **wrap) for paragraph in others]
    last = paragraphs[-1][-1]
    end = '\n"""' if len(last) + 3 > width else '"""'
    text = "\n\n".join("\n".join(lines) for lines in paragraphs)
    return textwrap.indent(text + end, indent).split("\n")


def documented(text):
    """The text of the stubs with the docstrings of the module."""
    lines = text.splitlines()
    for node, thing in sorted(things(ast.parse(text)), key=lambda pair: -pair[0].lineno):
        first = node.body[0]
        doc = docstring(thing, " " * (node.col_offset + 4))
        if ast.get_docstring(node) is not None:
            lines[first.lineno - 1 : first.end_lineno] = doc
        elif isinstance(node, ast.ClassDef):
            start = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", []))])
            lines[start - 1 : start - 1] = [*doc, ""]
        else:
            end = first.lineno
            lines[end - 1 : end] = [lines[end - 1].removesuffix(" ..."), *doc]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUBS.write_text(documented(STUBS.read_text()))
