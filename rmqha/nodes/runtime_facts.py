"""What a broker tells any client of itself, as facts: stock brokers do too.

Source: docs/protocol/remoting.md, Runtime information.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rmqha.nodes.facts import Fact
from rmqha.nodes.summary import duration, size


def runtime_facts(
    table: Mapping[str, str], now: Callable[[], float] = time.time
) -> tuple[Fact, ...]:
    """Those that a broker tells; a number that is none is left out.

    @param table: What it answered.
    @param now: Seconds since 1970.
    """
    booted, first, end = (
        _number(table.get(name))
        for name in ("bootTimestamp", "commitLogMinOffset", "commitLogMaxOffset")
    )
    version = table.get("brokerVersionDesc", "")
    up = "" if booted is None else f", up {duration(max(0.0, now() - booted / 1000))}"
    writes, p99, disk = (
        _number(table.get(name, "").split(" ")[0])
        for name in ("putTps", "putLatency99", "commitLogDiskRatio")
    )
    log = ""
    if first is not None and end is not None:
        log = f"bytes {first:.0f} to {end:.0f} ({size(end - first)})"
    found = (
        ("state", "answers its clients"),
        ("version", f"{version}{up}"),
        ("epoch", f"master epoch {table['masterEpoch']}" if "masterEpoch" in table else ""),
        ("log", log),
        ("writes", "" if writes is None else f"{writes:.1f} a second"),
        ("put p99", "" if p99 is None else f"{p99:.1f} ms"),
        ("disk", "" if disk is None else f"{disk:.0%} full"),
    )
    return tuple(Fact(name, text) for name, text in found if text)


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
