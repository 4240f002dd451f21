"""The table of what was tried with whom: filled by a run, written to C{docs/interop.md}."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import asdict, evolve, frozen

from lab.harness.nodes import ROOT

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
"""

OK, FAILED, SECOND = "ok", "failed", "ok at the second try"
NO_TLS = "no TLS in it"
"""What may come of it."""

CLIENTS = """
## Stock clients

Name servers and brokers of ours and of RocketMQ, with clients from their registries.  "JSON" and
"ROCKETMQ" are the forms of the Java client's headers; the other clients know one.  A scenario
without a result is not for that client.
"""

COMMANDS = """
## mqadmin

The stock tool of each version, its commands one after the other, given to a name server of ours
with a master and its slave, and to stock ones of that version to which the same was done before:
what it prints of ours is what it prints of theirs, in the sense of the last column.  Ids, times,
addresses and clients' names are never compared.  A dash means that a version has no such command.

"""


@frozen(kw_only=True)
class Result:
    """One row.

    @ivar roles: Who is what; of a command, what was found.
    @ivar seconds: How long it took.
    @ivar order: Rows of commands are in this order.
    @ivar table: The page's part: C{brokers}, C{clients} or C{mqadmin}.
    """

    peer: str
    version: str
    roles: str
    scenario: str
    result: str
    seconds: float
    order: int = 0
    table: str = "brokers"

    @property
    def what(self) -> tuple[str, ...]:
        """What was tried, whatever came of it."""
        return self.table, self.peer, self.version, self.roles, self.scenario

    @property
    def site(self) -> str:
        """Who serves, with the version of what is Java."""
        return f"{self.roles}, {self.version}" if "Java" in self.roles else self.roles


def record(result: Result) -> None:
    """Leave a result, if anybody asked for them."""
    where = os.environ.get(RESULTS)
    if where:
        with open(where, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def recorded(path: Path) -> list[Result]:
    """What a run has left."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Result(**json.loads(line)) for line in lines]


def repeated(first: Iterable[Result], second: Iterable[Result]) -> list[Result]:
    """What became of it all, where some of it was tried twice."""
    rows = {row.what: row for row in first}
    for row in second:
        before = rows.get(row.what, row)
        if before.result == FAILED and row.result == OK:
            row = evolve(row, result=SECOND)
        rows[row.what] = row
    return list(rows.values())


def page(results: Iterable[Result]) -> str:
    """The page."""
    rows = list(results)
    brokers = [row for row in rows if row.table == "brokers"]
    text = [HEAD.format(when=facts(len(rows)))]
    for roles in sorted({row.roles for row in brokers}):
        text.extend(_roles(roles, [row for row in brokers if row.roles == roles]))
    clients = [row for row in rows if row.table == "clients"]
    if clients:
        text.append(CLIENTS)
    for site in sorted({row.site for row in clients}):
        text.extend(_site(site, [row for row in clients if row.site == site]))
    text.extend(_commands([row for row in rows if row.table == "mqadmin"]))
    return "".join(text)


def _roles(roles: str, rows: list[Result]) -> Iterator[str]:
    """What was tried in these roles: a line for each scenario, a column for each version."""
    versions = sorted({(row.peer, row.version) for row in rows})
    yield f"\n## {_cell(roles[0].upper() + roles[1:])}\n\n"
    yield _line(["Scenario", *(" ".join(each).removeprefix("RocketMQ ") for each in versions)])
    yield _line(["---"] * (len(versions) + 1))
    for scenario in sorted({row.scenario for row in rows}):
        found = {(row.peer, row.version): row for row in rows if row.scenario == scenario}
        cells = [
            f"{found[each].result} ({found[each].seconds:.0f} s)" if each in found else "-"
            for each in versions
        ]
        yield _line([scenario, *cells])


def _site(site: str, rows: list[Result]) -> Iterator[str]:
    """What was tried at one site: a line for each scenario, a column for each client."""
    scenarios = sorted({row.scenario for row in rows})
    peers = sorted({row.peer for row in rows})
    yield f"\n### {site[0].upper()}{site[1:]}\n\n"
    yield _line(["Scenario", *peers])
    yield _line(["---"] * (len(peers) + 1))
    for scenario in scenarios:
        cells = []
        for peer in peers:
            found = {row.result for row in rows if (row.scenario, row.peer) == (scenario, peer)}
            cells.append(" and ".join(sorted(found)))
        yield _line([scenario, *cells])


def _commands(rows: list[Result]) -> Iterator[str]:
    """What mqadmin was asked: a line for each command, a column for each version."""
    versions = sorted({row.version for row in rows})
    if not rows:
        return
    yield COMMANDS
    yield _line(["Command", *versions, "What it prints"])
    yield _line(["---"] * (len(versions) + 2))
    commands: dict[str, dict[str, Result]] = {}
    for row in sorted(rows, key=lambda row: (row.order, row.version)):
        commands.setdefault(row.scenario, {})[row.version] = row
    for command, found in commands.items():
        cells = [found[version].result if version in found else "-" for version in versions]
        senses = sorted({row.roles for row in found.values()})
        yield _line([command, *cells, " or ".join(senses)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _cell(text: str) -> str:
    """Text of one cell: scenarios quote as reStructuredText does."""
    return text.replace("``", "`").replace("|", r"\|")


def facts(count: int) -> str:
    """When and where it was run."""
    today = datetime.datetime.now(datetime.UTC).date()
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = said.splitlines()[0] if said else "no java"
    return (
        f"Last run: {today}, {count} rows, Python {platform.python_version()}, `{java}`, "
        f"{os.cpu_count()} CPUs."
    )
