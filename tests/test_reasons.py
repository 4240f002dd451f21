"""Each reason why a node is not well stands in one table of the guide; so does each exit code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli import common
from rmqha.ha.states import NodeState, SyncState
from rmqha.nodes.next_steps import NEXT_STEPS, next_step
from rmqha.roles.host import exit_codes

ROOT = Path(__file__).resolve().parent.parent
#: Node states that no reason is made of.
WELL = {NodeState.SERVING}


def first_column(page: str, heading: str) -> str:
    """The first cells of the table that has a column of this heading first."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.split(f"   * - {heading}\n", 1)[1].split("\n\n", 1)[0]
    return "\n".join(re.findall(r"^   \* - (.*)$", table, re.MULTILINE))


def reasons() -> set[str]:
    """The names of all reasons that the code gives, as patterns."""
    found = set[str]()
    for path in (ROOT / "rmqha").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HealthReason":
                name = node.args[0]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                fixed = [str(one.value) if isinstance(one, ast.Constant) else "" for one in parts]
                found.add("[a-z-]*".join(map(re.escape, fixed)) if any(fixed) else "")
    return found - {""} | {state.value for state in NodeState if state not in WELL}


class TableTests(SynchronousTestCase):
    """The tables of docs/status.rst, Health, and docs/guide/systemd.rst, Exit codes."""

    def test_reasons(self) -> None:
        """What the code can say is in the table, and nothing else is."""
        told = re.findall(r"``([a-z-]+)``", first_column("status.rst", "Reason"))
        self.assertEqual(len(told), len(set(told)), "one twice")
        patterns = reasons()
        missing = [one for one in patterns if not any(re.fullmatch(one, name) for name in told)]
        strange = [name for name in told if not any(re.fullmatch(one, name) for one in patterns)]
        self.assertEqual((missing, strange), ([], []))

    def test_next_steps(self) -> None:
        """C{rmqha doctor} knows what comes next after each of them, on a page that is there."""
        told = re.findall(r"``([a-z-]+)``", first_column("status.rst", "Reason"))
        stops = [f"replication-{state}" for state in SyncState if state.is_stop]
        names = [*(name for name in told if name != "replication-"), *stops]
        self.assertEqual([name for name in names if next_step(name) is None], [])
        for step in NEXT_STEPS.values():
            page, _, title = step.page.partition(", ")
            text = (ROOT / "docs" / page).read_text(encoding="utf-8")
            self.assertTrue(not title or f"\n{title}\n" in text, step.page)

    def test_exit_codes(self) -> None:
        """The same of exit codes."""
        told = [int(one) for one in first_column("guide/systemd.rst", "Code").split()]
        codes = {0, common.FAILED, click.UsageError.exit_code, common.UNREACHABLE}
        codes |= {exit_codes.FAILED, exit_codes.FOR_A_PERSON, common.INTERRUPTED}
        self.assertEqual(told, sorted(codes))
