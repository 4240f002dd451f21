"""What modules import and which classes they have, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]


@frozen
class Import:
    """One imported name, dotted, and the module that imports it.

    @ivar outermost: The statement stands alone at a module's top level.
    """

    path: Path
    line: int
    importer: str
    name: str
    outermost: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.name}"

    @property
    def top(self) -> str:
        """The package that is imported, or that a part of is."""
        return self.name.partition(".")[0]


def module_name(path: Path) -> str:
    """The dotted name of the module in a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_bytes(), str(path))


@cache
def imports_in(path: Path) -> tuple[Import, ...]:
    """Every import of a module, also those inside functions and conditions."""
    return tuple(_imports_in(path))


def _imports_in(path: Path) -> Iterator[Import]:
    tree = parsed(path)
    outermost = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(path, node.lineno, module_name(path), name, id(node) in outermost)


@cache
def modules_in(folder: Path) -> tuple[Path, ...]:
    """The files of all modules below a folder, packages' own among them."""
    return tuple(sorted(folder.rglob("*.py")))


def imports_below(folder: Path) -> list[Import]:
    """Every import of every module below a folder."""
    return [found for path in modules_in(folder) for found in imports_in(path)]


def public_classes(path: Path) -> list[str]:
    """The names of a module's classes that have no underscore before them."""
    return [
        node.name
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
