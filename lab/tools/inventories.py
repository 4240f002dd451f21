"""Write the link inventories that pydoctor needs to resolve names of other projects.

pydoctor would fetch them from each project's site; a documentation build that
fails on warnings must not depend on somebody else's server.  What C{rmqha}
imports is installed here, so the names are read from the modules themselves and
only the form of each project's addresses is written down.

Usage: C{python lab/tools/inventories.py FOLDER}; prints pydoctor's options, one a line.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zope.interface.interface import InterfaceClass

ROOT = Path(__file__).resolve().parent.parent.parent

#: Builtins that Python documents as types, and not among its functions.
BUILTIN_TYPES = (memoryview, bytes, bytearray, str, set, frozenset, dict, list, tuple, range)


def python_page(module: str, name: str, obj: object) -> str:
    """Address of a name in Python's library reference, below its base."""
    if module != "builtins":
        return f"library/{module}.html#{module}.{name}" if name else f"library/{module}.html"
    if inspect.isclass(obj) and issubclass(obj, BaseException):
        return f"library/exceptions.html#{name}"
    page = "constants" if not callable(obj) else "functions"
    if "." in name or obj in BUILTIN_TYPES:
        page = "stdtypes"
    return f"library/{page}.html#{name}"


def pydoctor_page(module: str, name: str, obj: object) -> str:
    """Address of a name in an API that pydoctor wrote, as Twisted's is."""
    if not name:
        return f"{module}.html"
    if "." in name:
        owner, member = name.rsplit(".", 1)
        return f"{module}.{owner}.html#{member}"
    home = getattr(obj, "__module__", None) or module
    if not str(home).startswith("twisted"):
        home = module
    if inspect.isclass(obj) or isinstance(obj, InterfaceClass):
        return f"{home}.{name}.html"
    return f"{home}.html#{name}"


def anchored(page: str) -> Callable[[str, str, object], str]:
    """Addresses of a project that has its whole API on one page."""
    return lambda module, name, _obj: f"{page}#{module}.{name}" if name else page


#: Top-level package: base address, and how an address below it is made.
SITES: dict[str, tuple[str, Callable[[str, str, object], str]]] = {
    "attrs": ("https://www.attrs.org/en/stable", anchored("api.html")),
    "click": ("https://click.palletsprojects.com/en/stable", anchored("api/")),
    "numpy": (
        "https://numpy.org/doc/stable/reference",
        lambda module, name, _obj: f"generated/{module}.{name}.html" if name else "index.html",
    ),
    "rich": ("https://rich.readthedocs.io/en/stable", anchored("reference.html")),
    "treq": ("https://treq.readthedocs.io/en/latest", anchored("api.html")),
    "twisted": ("https://docs.twisted.org/en/stable/api", pydoctor_page),
    "zope": ("https://zopeinterface.readthedocs.io/en/latest", anchored("api/index.html")),
}
PYTHON = ("https://docs.python.org/3", python_page)


def imported_modules() -> set[str]:
    """The modules of other projects that our sources import anywhere."""
    found = {"builtins"}
    for path in (ROOT / "rmqha").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.split(".")[0] not in ("rmqha", "__future__")}


def names(module: Any) -> Iterator[tuple[str, object]]:
    """The public names of a module and of its classes and interfaces, dotted."""
    yield "", module
    for name, obj in vars(module).items():
        if name.startswith("_") or inspect.ismodule(obj):
            continue
        yield name, obj
        if inspect.isclass(obj):
            yield from ((f"{name}.{member}", obj) for member in dir(obj) if member[0] != "_")
        elif isinstance(obj, InterfaceClass):
            yield from ((f"{name}.{member}", obj) for member in obj.names(all=True))


def write(path: Path, project: str, lines: list[str]) -> None:
    """Write one inventory in the format of Sphinx, version 2."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: 0\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    path.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))


def main(folder: Path) -> None:
    """Write an inventory for each site and print the options that name them."""
    lines: dict[tuple[str, str], list[str]] = {}
    for module_name in sorted(imported_modules()):
        top = module_name.split(".")[0]
        base, page = SITES.get(top, PYTHON if top in sys.stdlib_module_names else ("", None))
        if page is None:
            continue
        try:
            module = builtins if top == "builtins" else importlib.import_module(module_name)
        except ImportError:
            continue  # `from module import name` was taken for a module
        inventory = lines.setdefault((top if top in SITES else "python", base), [])
        for name, obj in names(module):
            prefix = "" if top == "builtins" else module_name
            full = ".".join(part for part in (prefix, name) if part)
            if full:
                inventory.append(f"{full} py:obj 1 {page(module_name, name, obj)} -\n")
    folder.mkdir(parents=True, exist_ok=True)
    for (project, base), entries in lines.items():
        path = folder / f"{project}.inv"
        write(path, project, entries)
        print(f"--intersphinx-file={path}::{base}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
