"""C{rmqha controller reset}: has a stopped member's store forget its set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rmqha.cli.common import JSON, STORE
from rmqha.controller.reset import LeftSet, leave_set
from rmqha.errors import NotAStore
from rmqha.logfiles.raw_log import RawLog


@click.command()
@click.argument("store", type=STORE)
@JSON
def reset(store: Path, as_json: bool) -> None:
    """Have STORE forget its set, because the controllers have lost what they knew of it.

    Identity, epoch labels and what the member was counted on to hold go into a folder
    rmqha/before-reset-N of the store; the log stays as it is.  Refused while a node is running on
    it.  Do it to all members, and then start the last master first: see docs/states.rst,
    Wiped controllers.
    """
    raw = RawLog.open(store)
    if raw.root is None:
        raise NotAStore(str(store), "reset needs a store's root, not a part of a store")
    left = leave_set(raw.root, raw.path)
    if as_json:
        click.echo(json.dumps(_as_json(left), ensure_ascii=False))
        return
    for line in _lines(left):
        click.echo(line)


def _lines(left: LeftSet) -> Iterator[str]:
    """What was done, for people."""
    one, newest = left.identity, left.newest
    if one is not None:
        yield f"it was id {one.id} of set {one.name} in cluster {one.cluster}"
    if newest is not None:
        led = "led by this member" if left.led_last else "not known to be led by this member"
        yield f"its newest master epoch is {newest.epoch}, from byte {newest.start}, {led}"
    yield f"moved into {left.folder}: {', '.join(left.moved)}"
    yield "start the members again when all are reset, the one that was master last first"


def _as_json(left: LeftSet) -> dict[str, Any]:
    one, newest = left.identity, left.newest
    return {
        "folder": str(left.folder),
        "moved": list(left.moved),
        "id": None if one is None else one.id,
        "set": None if one is None else one.name,
        "cluster": None if one is None else one.cluster,
        "newestEpoch": None if newest is None else newest.epoch,
        "newestEpochStart": None if newest is None else newest.start,
        "ledLast": left.led_last,
    }
