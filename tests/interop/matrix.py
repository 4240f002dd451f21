"""The table of what was tried with whom: filled by a run, written to C{docs/interop.md}."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import asdict, evolve, frozen

from lab.harness.nodes import ROOT
from tests.support.commands import ended

#: Where tests leave their results for whoever started them.
RESULTS = "RMQHA_INTEROP_RESULTS"

PAGE = ROOT / "docs" / "interop.md"

HEAD = """\
# Beside real RocketMQ

<!-- This page is written by `make interop`; do not edit it. -->

Tried with brokers of Apache RocketMQ as they are published, their processes and ours on one
machine, with small files so that a log has many: kills (-9), stops, lost tails, parted links,
`SYNC` and `ASYNC`, in the end byte-equal logs (the same SHA-256 of every file) and the same consume
queues and index.  What a scenario does, and what it holds, is told by its test in `tests/interop`.

{when}
"""

OK, FAILED, SECOND = "ok", "failed", "ok at the second try"
NO_TLS = "no TLS in it"
"""What may come of it."""

CLIENTS = """
## Stock clients

Name servers and brokers of ours and of RocketMQ, with clients from their registries: sends (sync,
async, one-way, batch, ordered, compressed), push, pull and lite pull consumers, filters by tags and
SQL, delays, transactions, request and reply, retries and dead letters, message queries, trace, TLS
and signatures.  "JSON" and "ROCKETMQ" are the forms of the Java client's headers.
"""

COMMANDS = """
## mqadmin

The stock tool of each version, given to a name server of ours with a master and its slave (or an
elected set), and to stock ones to which the same was done: it prints the same of both, in the sense
of the first column.  Ids, times, addresses and clients' names are never compared.  A version behind
a command: the other one has no such command.

"""


@frozen(kw_only=True)
class Result:
    """One row of a part of the page; of a command, C{roles} is what was found."""

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
    text.extend(_counts("Roles", brokers, [row.roles for row in brokers]))
    clients = [row for row in rows if row.table == "clients"]
    if clients:
        text.append(CLIENTS)
        text.extend(_counts("Name server and broker", clients, [row.site for row in clients]))
    text.extend(_commands([row for row in rows if row.table == "mqadmin"]))
    return "".join(text)


def _counts(heading: str, rows: list[Result], sites: list[str]) -> Iterator[str]:
    """How many scenarios went well: a line for each site, with its versions or clients; what did
    not go well at once is named below.
    """
    yield f"\n{_line([heading, 'Beside', 'Scenarios'])}{_line(['---'] * 3)}"
    found: dict[tuple[str, str], list[Result]] = {}
    for row, site in zip(rows, sites, strict=True):
        beside = row.peer if row.table == "clients" else row.version
        found.setdefault((site, beside), []).append(row)
    by_site: dict[str, list[tuple[str, str]]] = {}
    for (site, beside), tried in sorted(found.items()):
        by_site.setdefault(site, []).append((beside, _count(tried)))
    for site, told in by_site.items():
        for count in dict.fromkeys(count for _, count in told):
            those = "; ".join(beside for beside, said in told if said == count)
            yield _line([site[0].upper() + site[1:], those, count])
    yield from _odd(found)


def _count(rows: list[Result]) -> str:
    """How many scenarios there are, and how many of them gave no C{ok} at once."""
    odd = sum(row.result != OK for row in rows)
    return (
        f"{len(rows)} ok" if not odd else f"{len(rows) - odd} of {len(rows)} ok, the others below"
    )


def _odd(found: dict[tuple[str, str], list[Result]]) -> Iterator[str]:
    """What gave another result than C{ok}: a line for each, with its sentence."""
    lines = [
        f"* {site}, {beside}: {_cell(row.scenario)}: {row.result}\n"
        for (site, beside), tried in sorted(found.items())
        for row in tried
        if row.result != OK
    ]
    if lines:
        yield "\nNot `ok` at once:\n\n"
        yield from lines


def _commands(rows: list[Result]) -> Iterator[str]:
    """What mqadmin was asked: a line for each sense in which it prints the same, with the
    commands; what did not go well stands behind them.
    """
    if not rows:
        return
    yield COMMANDS
    yield _line(["What it prints", "Commands"])
    yield _line(["---"] * 2)
    every = sorted({row.version for row in rows})
    senses: dict[str, dict[str, list[Result]]] = {}
    for row in sorted(rows, key=lambda row: (row.order, row.version)):
        name = row.scenario.replace("`", "").split()[0].rstrip(",")
        senses.setdefault(row.roles, {}).setdefault(name, []).append(row)
    for sense, commands in senses.items():
        cells = []
        for name, tried in sorted(commands.items()):
            versions = sorted({row.version for row in tried})
            said = [] if versions == every else versions
            said += sorted({row.result for row in tried} - {OK})
            cells.append(f"`{name}`" + (f" ({', '.join(said)})" if said else ""))
        yield _line([sense, ", ".join(cells)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _cell(text: str) -> str:
    """Text of one cell: scenarios quote as reStructuredText does."""
    return text.replace("``", "`").replace("|", r"\|")


def facts(count: int) -> str:
    """When and where it was run."""
    today = datetime.datetime.now(datetime.UTC).date()
    said = ended("java", "-version").stderr
    java = said.splitlines()[0] if said else "no java"
    return (
        f"Last run: {today}, {count} rows, Python {platform.python_version()}, `{java}`, "
        f"{os.cpu_count()} CPUs."
    )
