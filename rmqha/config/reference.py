"""
The guide's chapter on configuration, made from the table of keys.

Run C{python -m rmqha.config.reference > docs/guide/configuration.rst} after a change
of the table; a test compares the two.
"""

from __future__ import annotations

import sys
import textwrap

from rmqha.config import namesrv
from rmqha.config.foreign import HARMLESS, UNSUPPORTED
from rmqha.config.keys import (
    ADMIN,
    BROKER,
    HA,
    PULL,
    REGISTRATION,
    REMOTING,
    STORE,
    TRANSACTIONS,
    Key,
    Origin,
)

_INTRO = """\
Configuration
=============

.. Made by ``python -m rmqha.config.reference``; edit ``rmqha/config/keys.py`` instead.

A node reads one file, a RocketMQ ``broker.conf`` as it is: Java ``.properties`` text in UTF-8
or Latin-1, with RocketMQ's names, units and defaults. ``--set key=value`` replaces a key of the
file, ``--role master`` or ``--role slave`` stands for ``brokerRole`` and must not contradict it.
``rmqha config check FILE`` shows every key's value and where it comes from.

RocketMQ ignores keys it does not know and values it cannot parse. Here they are refused, all at
once, each with its place and the nearest key there is. Where RocketMQ clamps a number, so does
rmqha, and says so. Blanks around a value do not count. A comment needs a line of its own.
"""

_SECTIONS: tuple[tuple[str, str, tuple[Key, ...]], ...] = (
    ("Broker", "Who the node is.", BROKER),
    ("Clients", "The client ports: how they are spoken with, and who may do what.", REMOTING),
    ("Store", "The files: where they lie, when they are flushed and deleted.", STORE),
    ("Consumers", "What they get, and how long they wait.", PULL),
    ("Transactions", "When producers are asked about theirs.", TRANSACTIONS),
    ("Name servers", "What they are told, and when.", REGISTRATION),
    ("Replication", "Both sides of the HA port.", HA),
    ("Admin", "The HTTP port for people and monitoring.", ADMIN),
)

_NAMESRV_INTRO = (
    "The file of ``--role namesrv``, a RocketMQ ``namesrv.properties``. It has the keys of the "
    "sections Clients and Admin too, but for ``adminAllowedPeers``; ``rmqha config check --role "
    "namesrv FILE`` shows them all."
)

_ORIGINS = {
    Origin.RMQ49: "RocketMQ",
    Origin.RMQ53: "RocketMQ 5",
    Origin.OURS: "rmqha",
}


_COLUMNS = ("Key", "Default", "From", "Meaning", "Allowed")


def reference() -> str:
    """
    The chapter, as reStructuredText.
    """
    parts = [_INTRO]
    for title, intro, keys in _SECTIONS:
        rows = [_key_row(key) for key in keys]
        parts.append(_heading(title, intro))
        parts.append(_table(_COLUMNS, rows))
    parts.append(
        _heading(
            "Refused when switched on",
            "Keys of RocketMQ that change what an acknowledgement promises, who may connect, what "
            "lies on the disk or where it lies. Ignoring them would be a silent lie, so a node "
            "does not start with them.",
        )
    )
    parts.append(
        _table(
            ("Key", "Counts as on when", "Why it is refused"),
            [
                (f"``{name}``", foreign.when, foreign.reason)
                for name, foreign in UNSUPPORTED.items()
            ],
        )
    )
    parts.append(
        _heading(
            "Accepted and ignored",
            "Keys of RocketMQ that mean nothing here. They are listed once when a node starts.",
        )
    )
    parts.extend(_harmless(HARMLESS))
    parts.append(_heading("A name server", _NAMESRV_INTRO))
    parts.append(_table(_COLUMNS, [_key_row(key) for key in namesrv.NAMESRV]))
    parts.append(
        textwrap.fill(
            "A name server does not start with these switched on: "
            + "; ".join(f"``{n}`` ({foreign.reason})" for n, foreign in namesrv.UNSUPPORTED.items())
            + ". It accepts and ignores the following.",
            98,
        )
        + "\n"
    )
    parts.extend(_harmless(namesrv.HARMLESS))
    return "\n".join(parts)


def _key_row(key: Key) -> tuple[str, ...]:
    default = key.absent or (f"``{key.default}``" if key.default else "empty")
    name = " ".join(f"``{key_name}``" for key_name in key.names)
    return name, default, _ORIGINS[key.origin], key.doc, key.kind.allowed


def _heading(title: str, intro: str) -> str:
    return f"{title}\n{'-' * len(title)}\n\n{textwrap.fill(intro, 98)}\n"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
    for row in (header, *rows):
        for position, cell in enumerate(row):
            lines.append(f"   {'* -' if position == 0 else '  -'} {cell}")
    return "\n".join(lines) + "\n"


def _harmless(keys: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in keys.items():
        by_reason.setdefault(reason, []).append(f"``{name}``")
    return [
        textwrap.fill(
            f"Because {reason}: {', '.join(sorted(names))}.",
            98,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for reason, names in by_reason.items()
    ]


if __name__ == "__main__":
    sys.stdout.write(reference())
