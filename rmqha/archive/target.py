"""Up to where a log is to be restored: an offset, or a moment."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Self

import numpy as np
from attrs import frozen

from rmqha.archive.errors import shown_time
from rmqha.logfiles.walk_file import Walked

MILLISECONDS = re.compile(r"(\d{1,18})ms", re.ASCII)

ALLOWED = (
    "an offset, a time with its zone such as 2026-01-31T12:00:00Z, or milliseconds since 1970 "
    "such as 1769860800000ms"
)


@frozen(kw_only=True)
class RestoreTarget:
    """The first byte, or the first moment, that is not to be restored any more.

    Records are in the order of their store times, almost: a clock that was set back leaves later
    records with earlier times.  So a moment means the place of the first record that was stored
    later; what follows it is left out, whatever its time is.

    @ivar offset: Physical offset; C{None} if it is a moment, or everything.
    @ivar time: Milliseconds since 1970; C{None} if it is an offset, or everything.
    """

    offset: int | None = None
    time: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a person wrote.

        @raise ValueError: If it is none of what is L{ALLOWED}.
        """
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return cls(offset=int(text))
        match = MILLISECONDS.fullmatch(text)
        if match is not None:
            return cls(time=int(match[1]))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not {ALLOWED}") from error
        if moment.tzinfo is None:
            raise ValueError(f"{text!r} has no time zone: append Z for UTC, or one such as +02:00")
        return cls(time=round(moment.timestamp() * 1000))

    def __str__(self) -> str:
        if self.offset is not None:
            return f"byte {self.offset}"
        return "the end" if self.time is None else shown_time(self.time)

    def wants(self, stored: int) -> bool:
        """Whether a moment is not before a record was stored.

        @param stored: In milliseconds since 1970.
        """
        return self.time is None or stored <= self.time

    def first_later(self, found: Walked) -> int | None:
        """The first record that was stored after the moment, as a physical offset."""
        if self.time is None or not len(found.block.start):
            return None
        later = found.store_times() > self.time
        return int(found.block.start[np.argmax(later)]) if later.any() else None
