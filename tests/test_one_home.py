"""Facts with one home, held by tests: names fixed by RocketMQ or by a store's layout."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire import names as rocketmq
from rmqha.wire import store_layout
from tests.support.imports import ROOT

PACKAGE = ROOT / "rmqha"


class OneHomeTests(SynchronousTestCase):
    """A name that RocketMQ or a store's layout fixes is spelled in one module."""

    def names_of(self, module: ModuleType) -> set[str]:
        """The texts among a module's constants."""
        names: set[str] = set()
        for name, value in vars(module).items():
            if isinstance(value, str) and not name.startswith("_"):
                names.add(value)
            elif isinstance(value, (tuple, frozenset)):
                names.update(value)
        return names

    def spelled(self, home: ModuleType, wanted: Callable[[ast.AST, str], bool]) -> list[str]:
        """Where else such a name is spelled, that counts for the node around it and its text."""
        found = []
        for path in sorted(PACKAGE.rglob("*.py")):
            if path == Path(str(home.__file__)):
                continue
            for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
                for child in ast.iter_child_nodes(node):
                    text = child.value if isinstance(child, ast.Constant) else None
                    text = text.decode("latin-1") if isinstance(text, bytes) else text
                    if isinstance(text, str) and wanted(node, text):
                        found.append(f"{path.relative_to(ROOT)}:{child.lineno} {text!r}")
        return found

    def test_names_of_rocketmq(self) -> None:
        """Topics, groups and properties are spelled in C{wire/names.py} alone."""
        names = self.names_of(rocketmq)
        self.assertLess(30, len(names))
        self.assertEqual([], self.spelled(rocketmq, lambda node, text: text in names))

    def test_names_on_disk(self) -> None:
        """Files and folders of a store are spelled in C{wire/store_layout.py} alone: such words
        as C{index} mean other things too, but not where a path is put together.
        """
        names = self.names_of(store_layout)
        clear = {name for name in names if "." in name} | {store_layout.CONSUMEQUEUE}

        def wanted(node: ast.AST, text: str) -> bool:
            joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
            called = isinstance(node, ast.Call) and ast.unparse(node.func) in ("Path", "joinpath")
            named = isinstance(node, ast.Assign) and text == store_layout.COMMITLOG
            return text in clear or named or (text in names and (joined or called))

        self.assertLess(20, len(names))
        self.assertEqual([], self.spelled(store_layout, wanted))
