"""What the product says to people is in words that they would search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
#: Words that stand where the actor should: the replica, the client, the operator.
VAGUE = re.compile(r"\b(everybody|nobody|whoever|somebody|anybody)\b", re.IGNORECASE)


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """The texts in a module that are not docstrings: log lines, errors, reasons, help."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in silent and type(node.value) is str:
            yield node.lineno, node.value


class WordTests(SynchronousTestCase):
    """Log lines, errors, reasons in C{/status} and the commands' help."""

    def test_actors(self) -> None:
        """They name the actor, where vague words would hide it."""
        vague, seen = [], 0
        for path in sorted((ROOT / "rmqha").rglob("*.py")):
            if path.parent.name == "config":
                continue  # what its texts become, the reference of keys, is a page
            for line, text in spoken(path.read_text(encoding="utf-8")):
                seen += 1
                if VAGUE.search(text):
                    vague.append(f"{path.relative_to(ROOT)}:{line}: {text}")
        self.assertEqual(vague, [])
        self.assertGreater(seen, 2000)

    def test_docstrings_are_left_out(self) -> None:
        """Only what is said while the product runs is looked at, in f-strings too."""
        source = '"""nobody"""\ndef f(x):\n    """nobody"""\n    log.info(f"{x}: nobody")\n'
        self.assertEqual([text for _, text in spoken(source) if VAGUE.search(text)], [": nobody"])
