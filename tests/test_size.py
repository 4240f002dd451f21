"""How large the house is: each number goes down, or up in a change that says what it bought."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.imports import ROOT, imports_below, module_name, modules_in, parsed

PACKAGE = ROOT / "rmqha"

CODE = 62534
"""Lines of code, without docstrings, comments, blank lines and imports."""

ALONE = 20
"""Modules that one module alone imports, which stands beside them: they are a part of that."""

RELAYED = 150
"""Fields that a class takes only to hand them on."""


class SizeTests(SynchronousTestCase):
    def assertCount(self, most: int, found: int, what: str) -> None:
        """A count is its limit, or a little below it."""
        self.assertLessEqual(found, most, f"{what}: say in your change what the new ones buy")
        self.assertGreater(found, most - max(3, most // 100), f"{what}: lower the limit to {found}")

    def test_code(self) -> None:
        """Lines of code."""
        self.assertCount(CODE, sum(map(code_lines, modules_in(PACKAGE))), "lines of code")

    def test_modules_with_one_importer(self) -> None:
        """Files that are cut by a rule and not by an idea."""
        found = {
            name
            for name, users in importers().items()
            if len(users) == 1 and users.pop().rpartition(".")[0] == name.rpartition(".")[0]
        }
        self.assertCount(ALONE, len(found), "modules with one importer beside them")

    def test_relayed_fields(self) -> None:
        """Arguments that are carried by hand."""
        found = [
            name
            for path in modules_in(PACKAGE)
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.ClassDef)
            for name in relayed(node)
        ]
        self.assertCount(RELAYED, len(found), "fields that are only handed on")


def code_lines(path: Path) -> int:
    """A module's."""
    tree, lines = parsed(path), path.read_text(encoding="utf-8").splitlines()
    other = {number for number, line in enumerate(lines, 1) if line.strip()[:1] in ("", "#")}
    for node in ast.walk(tree):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or text:
            other |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    return len(lines) - len(other)


def importers() -> dict[str, set[str]]:
    """The modules of the product that import each of its modules."""
    found: dict[str, set[str]] = {module_name(path): set() for path in modules_in(PACKAGE)}
    for one in imports_below(PACKAGE):
        for name in (one.name, one.name.rpartition(".")[0]):
            if name in found:
                found[name].add(one.importer)
                break
    return found


def relayed(node: ast.ClassDef) -> Iterator[str]:
    """The fields of a class that are read only as arguments of calls."""
    reads, handed = Counter[str](), Counter[str]()
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            values = [*each.args, *(keyword.value for keyword in each.keywords)]
            handed.update(name for value in values if (name := _own(value)))
        elif (name := _own(each)) and isinstance(each.ctx, ast.Load):  # type: ignore[attr-defined]
            reads[name] += 1
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if "ClassVar" in ast.unparse(statement.annotation):
                continue  # it is the class's
            if isinstance(statement.value, ast.Call) and any(
                each.arg == "init" for each in statement.value.keywords
            ):
                continue  # it is not taken, but made here
            if handed[name] and handed[name] == reads[name]:
                yield name


def _own(node: ast.AST) -> str:
    """The name of an attribute of C{self}."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return ""
