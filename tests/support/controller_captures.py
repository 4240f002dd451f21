"""What was recorded between stock members and controllers (C{tests/data/captures/controller})."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from lab.harness.golden import DATA

FOLDER = DATA / "captures" / "controller"

HA = tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("ha-*.jsonl.gz")))
"""The connections to HA ports."""

CONTROL = tuple(
    sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("control-*.jsonl.gz"))
)
"""The runs of which requests were recorded."""


@cache
def lines(name: str) -> tuple[dict[str, Any], ...]:
    """What was recorded, by time; of one cut short, without the line that says so."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return tuple(line for line in map(json.loads, file) if "hex" in line)


def chunks(name: str, sender: str) -> list[bytes]:
    """What C{slave} or C{master} sent, as it came."""
    return [bytes.fromhex(line["hex"]) for line in lines(name) if line["dir"] == sender]
