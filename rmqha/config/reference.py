"""The guide's chapter on configuration, made from the settings classes.

Run C{python -m rmqha.config.reference > docs/guide/configuration.rst} after a change
of a key; a test compares the two.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Mapping

from attrs import AttrsInstance

from rmqha.config.keys import Key, Origin, keys_of
from rmqha.config.vocabulary import BROKER_FILE, NAMESRV_FILE, SECTIONS

_INTRO = """\
Configuration
=============

.. Made by ``python -m rmqha.config.reference``; edit the classes in ``rmqha/config`` instead.

A node reads one file, a RocketMQ ``broker.conf`` as it is: Java ``.properties`` text in UTF-8
or Latin-1, with RocketMQ's names, units and defaults. ``--set key=value`` replaces a key of the
file, ``--role master`` or ``--role slave`` stands for ``brokerRole`` and must not contradict it.
``rmqha config check FILE`` shows every key's value and where it comes from.

RocketMQ ignores keys it does not know and values it cannot parse. Here they are refused, all at
once, each with its file and line and the nearest key there is. Where RocketMQ clamps a number, so
does rmqha, and says so. Whitespace around a value is ignored. A comment needs a line of its own.

Keys are RocketMQ 4.9's unless they are marked: (RocketMQ 5) for those 4.9 does not have, (rmqha)
for our own. Behind a name stands the default; what a key takes stands in brackets where its default
does not show it: one of some words, or a number's unit and bounds. A number without bounds is from
0 or 1 up to what RocketMQ's own type holds. Peers are addresses or CIDR networks, and several of
anything are separated by ;.
"""

_HEADINGS = {
    "broker": ("Broker", "What the broker is, and what its clients may do."),
    "remoting": ("Clients", "The client ports: their address and TLS."),
    "store": ("Store", "The files: where they are, when they are flushed and deleted."),
    "pull": ("Consumers", "What pulls and queries return, and how long they wait."),
    "transactions": ("Transactions", "When the producers of half messages are asked about them."),
    "timers": ("Timer messages", "Messages that are delivered at a time of their own."),
    "pop": ("POP", "How groups of RocketMQ 5 share out what they consume."),
    "registration": ("Name servers", "When and how a broker registers with them."),
    "ha": ("Replication", "Both sides of the HA port."),
    "tls": ("TLS", "What a node connects with, and replication; the client ports' keys are above."),
    "controller": ("Controller mode", "A set whose master is elected."),
    "etcd": ("etcd", "Where controllerType=etcd has it coordinate a set."),
    "admin": (
        "Admin",
        "The HTTP port for people and monitoring, and administration by the client port.",
    ),
    "log": ("Log", "How the log looks that twistd writes, and how much of it is kept."),
    "access": (
        "Access control",
        "Who may ask what of the client port; the guide has a chapter on it.",
    ),
}
"""Title and introduction of each section of a C{broker.conf}."""

_NAMESRV_INTRO = (
    "The file of ``--role namesrv``, a RocketMQ ``namesrv.properties``. It has the keys of the "
    "sections Clients, Admin and Log too, but for ``adminAllowedPeers``; ``rmqha config check "
    "--role namesrv FILE`` shows them all."
)

_FIRST = (
    *("brokerRole", "brokerName", "brokerId", "brokerClusterName", "namesrvAddr"),
    *("storePathRootDir", "flushDiskType", "mappedFileSizeCommitLog"),
    *("listenPort", "haListenPort", "brokerIP1", "brokerIP2", "haMasterAddress", "inSyncReplicas"),
    *("haMaxReceiveBytesPerSecond", "fileReservedTime", "deleteWhen", "messageDelayLevel"),
    *("haAllowedPeers", "clientAllowedPeers"),
)
"""What a pair needs, in the order in which a person asks."""

_FIRST_INTRO = "Twenty keys that are written most; all others are in the sections after this one."

_MARKS = {Origin.RMQ49: "", Origin.RMQ53: " (RocketMQ 5)", Origin.OURS: " (rmqha)"}

_SHOWN_BY_DEFAULT = {
    *("true or false", "a text that is not empty", "any text", "one file", "one file, or nothing"),
    *("addresses or CIDR networks, separated by , or ;", "names of hosts, separated by , or ;"),
    *("an IPv4 or IPv6 address", "an IPv4 or IPv6 address, or nothing"),
    *("host:port, port 1 to 65535", "host:port, several separated by ;"),
    "host:port, several separated by ; or ,",
}
_NO_BOUND = {2**31 - 1, 2**63 - 1}


_REFUSED_INTRO = (
    "Keys of RocketMQ that change what an acknowledgement promises, who may connect, what "
    "lies on the disk or where it lies. Ignoring them would be a silent lie, so a node "
    "does not start with them. Behind a name stands what counts as on."
)


def reference() -> str:
    """The chapter, as reStructuredText."""
    rows = {row[0]: row for section in _HEADINGS for row in _key_rows(section)}
    first = {cell: row for cell, row in rows.items() if _names(cell) & set(_FIRST)}
    parts = [
        _INTRO,
        *_section("What a pair needs", _FIRST_INTRO, sorted(first.values(), key=_place)),
    ]
    for section, (title, intro) in _HEADINGS.items():
        parts += _section(title, intro, [row for row in _key_rows(section) if row[0] not in first])
    refused: list[tuple[str, ...]] = [
        (f"``{name}``", foreign.when, f"{foreign.reason}.")
        for name, foreign in BROKER_FILE.unsupported.items()
    ]
    parts += _section("Refused when switched on", _REFUSED_INTRO, refused)
    ignored = (
        f"{len(BROKER_FILE.harmless)} keys of RocketMQ mean nothing here. A node names those "
        "of its file once when it starts, and ``rmqha config check FILE`` names them too."
    )
    dead = ", ".join(f"``{name}``" for name in sorted(BROKER_FILE.dead))
    told = f"Dead keys, which RocketMQ does not read either, are named with their line: {dead}."
    parts += [_heading("Accepted and ignored", ignored), _harmless(BROKER_FILE.harmless)]
    parts.append(textwrap.fill(told, 98, break_long_words=False, break_on_hyphens=False) + "\n")
    parts += _section("A name server", _NAMESRV_INTRO, _key_rows("namesrv"))
    others = [
        f"``{name}`` ({foreign.reason})"
        for name, foreign in NAMESRV_FILE.unsupported.items()
        if name not in BROKER_FILE.unsupported
    ]
    told = (
        "A name server does not start with these switched on, nor with the keys of TLS that a "
        f"broker refuses: {'; '.join(others)}. It accepts and ignores the following."
    )
    return "\n".join([*parts, textwrap.fill(told, 98) + "\n", _harmless(NAMESRV_FILE.harmless)])


def _section(title: str, intro: str, rows: list[tuple[str, ...]]) -> list[str]:
    return [_heading(title, intro), _list(rows)]


def _names(cell: str) -> set[str]:
    """The keys that a first cell names."""
    return set(re.findall(r"``(.+?)``", cell))


def _place(row: tuple[str, ...]) -> int:
    """Where a row stands in the first table."""
    return min(_FIRST.index(name) for name in _names(row[0]) & set(_FIRST))


def _key_rows(section: str) -> list[tuple[str, ...]]:
    declared = SECTIONS[section]
    said = _docstrings(declared)
    return [_key_row(key, said[key.field]) for key in keys_of(section, declared)]


def _key_row(key: Key, meaning: str) -> tuple[str, ...]:
    if key.derived is not None:
        default = _as_rst(key.derived.words)
    else:
        default = f"``{key.default}``" if key.default else "empty"
    name = ", also ".join(f"``{key_name}``" for key_name in key.names)
    return (name + _MARKS[key.origin], default, f"{_as_rst(meaning)}{_allowed(key.kind.allowed)}")


def _allowed(words: str) -> str:
    """What a key takes, in the fewest words: what its default shows needs none."""
    if words in _SHOWN_BY_DEFAULT:
        return ""
    if words.startswith("one of "):
        return f" ({words.removeprefix('one of ')})"
    found = re.fullmatch(r"a whole (?:number(?: of (.+))?|(percentage)) from (\d+) to (\d+)", words)
    if found is None:
        return f" Allowed: {words}."
    unit = found[1] or found[2] or ""
    bounds = f"{found[3]} or more" if int(found[4]) in _NO_BOUND else f"{found[3]} to {found[4]}"
    if bounds in {"0 or more", "1 or more"}:
        bounds = ""
    said = ", ".join(filter(None, (unit.replace("milliseconds", "ms"), bounds)))
    return f" ({said})" if said else ""


def _docstrings(declared: type[AttrsInstance]) -> dict[str, str]:
    """What the docstrings below a class's fields say.  Python drops them, so the source is read.

    @return: By field, each in one line.
    """
    body = ast.parse(textwrap.dedent(inspect.getsource(declared))).body[0]
    assert isinstance(body, ast.ClassDef)
    said = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                said[name] = " ".join(text.split())
    return said


def _as_rst(epytext: str) -> str:
    return re.sub(r"C\{(.*?)\}", r"``\1``", epytext)


def _heading(title: str, intro: str) -> str:
    return f"{title}\n{'-' * len(title)}\n\n{textwrap.fill(intro, 98)}\n"


def _list(rows: list[tuple[str, ...]]) -> str:
    """A definition for each key: its names and its default, and below them what it means."""
    return "\n".join(f"{name}: {default}\n    {meaning}" for name, default, meaning in rows) + "\n"


def _harmless(keys: Mapping[str, str]) -> str:
    """The reasons, each with how many keys have it and the first of them."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in keys.items():
        by_reason.setdefault(reason, []).append(name)
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 60 10 30", ""]
    rows = [(reason, len(names), f"``{min(names)}``") for reason, names in by_reason.items()]
    for because, count, one in (("Because", "Keys", "One of them"), *rows):
        lines += [f"   * - {because}", f"     - {count}", f"     - {one}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
