"""JSON headers of pulls that differ in three numbers only: those that a consumer sends for one
queue.

A header is split around its numbers: the request's own, the queue offset and the committed offset.
What is left is compared byte for byte with headers that were read in the usual way before; where it
is the same, only the numbers are read.  So there is no second reader that might understand a header
in another way.

Source: docs/protocol/remoting.md, JSON header and Pulling.
"""

from __future__ import annotations

import re
from operator import itemgetter

from attrs import evolve, frozen

from rmqha.wire.remoting.command import AlikeHeader, Command

_PULL = 11
MARK = b'"code":%d,' % _PULL
"""Stands in the header of a pull as clients write it."""

LONGEST = 1024
"""Most bytes of a header that is remembered."""

MOST = 4096
"""Most headers that are remembered: one for each queue, group and client that differs."""

_OPAQUE, _QUEUE, _COMMIT = b'"opaque":', b'"queueOffset":', b'"commitOffset":'
_NUMBERS = re.compile(rb'("opaque":"?|"queueOffset":"?|"commitOffset":"?)(0|[1-9][0-9]{0,17})')
# Text, name and number three times, and text.
_PARTS = 10
_texts = itemgetter(0, 1, 3, 4, 6, 7, 9)
_INT32_MAX = 0x7FFFFFFF


@frozen
class _Known:
    """A header that was read.

    @ivar header: The custom header of all that are alike, once somebody has read it.
    @ivar opaque: Which part is the request's number.
    @ivar queue: Which is the queue offset.
    @ivar commit: Which is the committed offset.
    """

    command: Command
    header: AlikeHeader
    opaque: int
    queue: int
    commit: int


class AlikePulls:
    """What was read, to read what is alike sooner."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], _Known] = {}

    def read(self, header: bytes) -> Command | None:
        """Read a header.

        @return: A command; C{None} if none that is alike was learned.
        """
        if len(header) > LONGEST:
            return None
        parts = _NUMBERS.split(header)
        known = self._known.get(_texts(parts)) if len(parts) == _PARTS else None
        if known is None:
            return None
        opaque = int(parts[known.opaque])
        queue_offset, commit_offset = int(parts[known.queue]), int(parts[known.commit])
        if opaque > _INT32_MAX:
            return None
        before = known.command
        ext = before.ext.copy()
        ext["queueOffset"], ext["commitOffset"] = str(queue_offset), str(commit_offset)
        return Command(
            code=before.code,
            opaque=opaque,
            flag=before.flag,
            language=before.language,
            version=before.version,
            remark=before.remark,
            ext=ext,
            serialize=before.serialize,
            alike=known.header,
            other={"queue_offset": queue_offset, "commit_offset": commit_offset},
        )

    def learn(self, header: bytes, command: Command) -> None:
        """Remember a header that was read in the usual way, if it is a pull's as clients write it:
        each of the three names is there once, in plain standard JSON.

        @param command: What it was read as; a copy is kept.
        """
        if command.code != _PULL or len(header) > LONGEST or b"\\" in header or b"'" in header:
            return
        parts = _NUMBERS.split(header)
        names = [name.rstrip(b'"') for name in parts[1::3]]
        if sorted(names) != [_COMMIT, _OPAQUE, _QUEUE]:
            return
        if any(header.count(name[1:-2]) > 1 for name in names):
            return
        opaque, queue, commit = (2 + 3 * names.index(name) for name in (_OPAQUE, _QUEUE, _COMMIT))
        ext = command.ext
        said = str(command.opaque), ext.get("queueOffset"), ext.get("commitOffset")
        if tuple(parts[part].decode() for part in (opaque, queue, commit)) != said:
            return
        if len(self._known) >= MOST:
            self._known.clear()
        # Not the command itself, which gets the request's body.
        kept = evolve(command, ext=ext.copy())
        self._known[_texts(parts)] = _Known(kept, AlikeHeader(), opaque, queue, commit)
