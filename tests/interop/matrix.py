"""
The table of what was tried with whom: filled by a run, written to C{docs/interop.md}.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

from attrs import asdict, frozen

from tests.support.nodes import ROOT

#: Where tests leave their results for whoever started them.
RESULTS = "RMQHA_INTEROP_RESULTS"

PAGE = ROOT / "docs" / "interop.md"

HEAD = """\
# Beside real RocketMQ

<!-- This page is written by `make interop`; do not edit it. -->

Each row was tried with brokers of Apache RocketMQ as they are published, their processes and ours
on one machine, with small files so that a log has many.  "Byte-equal" means that every log file has
the same SHA-256 on both sides; "derived files" are the consume queues and the index.

{when}

| Peer | Version | Roles | Scenario | Result |
| --- | --- | --- | --- | --- |
"""


@frozen(kw_only=True)
class Result:
    """
    One row.

    @ivar seconds: How long it took.
    @ivar table: The page's part.
    """

    peer: str
    version: str
    roles: str
    scenario: str
    result: str
    seconds: float
    order: int = 0
    table: str = "brokers"


def record(result: Result) -> None:
    """
    Leave a result, if anybody asked for them.
    """
    where = os.environ.get(RESULTS)
    if where:
        with open(where, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def recorded(path: Path) -> list[Result]:
    """
    What a run has left.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Result(**json.loads(line)) for line in lines]


def page(results: Iterable[Result]) -> str:
    """
    The page.
    """
    rows = sorted(results, key=lambda row: (row.roles, row.scenario, row.version, row.peer))
    text = [HEAD.format(when=facts(len(rows)))]
    for row in rows:
        cells = [row.peer, row.version, row.roles, row.scenario]
        cells.append(f"{row.result} ({row.seconds:.0f} s)")
        text.append(f"| {' | '.join(_cell(cell) for cell in cells)} |\n")
    return "".join(text)


def _cell(text: str) -> str:
    """
    Text of one cell: scenarios quote as reStructuredText does.
    """
    return text.replace("``", "`").replace("|", r"\|")


def facts(count: int) -> str:
    """
    When and where it was run.
    """
    today = datetime.datetime.now(datetime.UTC).date()
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = said.splitlines()[0] if said else "no java"
    return (
        f"Last run: {today}, {count} rows, Python {platform.python_version()}, `{java}`, "
        f"{os.cpu_count()} CPUs."
    )
