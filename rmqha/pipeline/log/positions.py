"""Positions between two records that know the log they belong to.

A number alone would be taken for a place in any log.  So a position names the last
record below it and that record's fingerprint.  A store with the same bytes there has the same
log up to there, whatever folder it lies in; a log that was cut and has grown again has not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from errno import ENOENT
from typing import Any

from attrs import field, frozen

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import fingerprint
from rmqha.pipeline.log.errors import PositionInvalid
from rmqha.wire.log.log_identity import LogIdentity

VERSION = 1
"""Of what L{to_json} writes."""

_MOST = (1 << 63) - 1


@frozen
class Position:
    """A position.

    @ivar offset: Physical offset, between two records.
    @ivar last: Where the last record below it starts, -1 if there was none.
    @ivar sum: That record's fingerprint, C{""} if there was none.
    @ivar log: Whose log it is, as far as it was known.
    @ivar begun: Where the stream began that is here, -1 if unknown: below lies nothing of it.
    @ivar seen: Where the log ended when the read began that is here, -1 if unknown: queue offsets
        to begin with are about what was there then.
    """

    offset: int
    last: int = -1
    sum: str = ""
    log: LogIdentity = field(factory=LogIdentity)
    begun: int = field(default=-1, kw_only=True)
    seen: int = field(default=-1, kw_only=True)


def make(files: LogFiles, offset: int, last: int, log: LogIdentity | None = None) -> Position:
    """The position at C{offset}, behind the record at C{last}.

    @raise FileNotFoundError: If that record has gone meanwhile, by retention or a cut: no later
        run could read the position, so the log has to be looked at again.
    """
    log = log or LogIdentity()
    if last < 0:
        return Position(offset, log=log)
    found = fingerprint(files, last)
    if not found:
        raise FileNotFoundError(ENOENT, f"the record at byte {last} has gone", str(files.root))
    return Position(offset, last, found, log)


def to_json(
    positions: Mapping[str, Position], states: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Positions by store, always in the same order: Spark compares them as text.

    @param states: What holds stores up; not for a position that is to be gone on from.
    """
    states = states or {}
    return {
        "stores": {
            name: {
                "begun": position.begun,
                "identity": position.log.to_json(),
                "last": position.last,
                "log": position.log.broker,  # all that older releases know
                "offset": position.offset,
                "seen": position.seen,
                "sum": position.sum,
                **({"state": states[name]} if name in states else {}),
            }
            for name, position in sorted(positions.items())
        },
        "v": VERSION,
    }


def from_json(content: object) -> dict[str, Position]:
    """Read what L{to_json} made.

    @raise PositionInvalid: If it is something else.
    """
    if not isinstance(content, dict) or not isinstance(content.get("stores"), dict):
        raise PositionInvalid(_text(content), "it is not an object with stores")
    if content.get("v") != VERSION:
        raise PositionInvalid(_text(content), f"its version is not {VERSION}")
    positions = {}
    for name, found in content["stores"].items():
        position = found if isinstance(found, dict) else {}
        offset, last, total = position.get("offset"), position.get("last"), position.get("sum")
        broker = position.get("log", "")
        begun, seen = position.get("begun", -1), position.get("seen", -1)
        try:
            log = LogIdentity.from_json(position.get("identity", {"broker": broker}))
        except (TypeError, ValueError) as error:
            raise PositionInvalid(
                _text(content), f"store {name} has no identity of a log"
            ) from error
        if type(offset) is not int or type(last) is not int or not isinstance(total, str):
            raise PositionInvalid(_text(content), f"store {name} has no offset, last and sum")
        placed = 0 <= last < offset if total else last == -1 and offset >= 0
        whole = type(begun) is type(seen) is int
        if not placed or offset > _MOST or not whole or log.broker != broker:
            raise PositionInvalid(
                _text(content),
                f"store {name} has an offset, last record and sum that do not fit together",
            )
        positions[name] = Position(offset, last, total, log, begun=begun, seen=seen)
    return positions


def _text(content: object) -> str:
    return json.dumps(content, default=str)
