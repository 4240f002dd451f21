"""What happened to a node: its edges, and what was done to it, for the day after.

The latest are kept in memory, and where there is a store in a file of it too, so that a restart
keeps them.  States are looked at every second, as a monitor would look at them: one that lasts
less may never be told.

Source: docs/status.rst, Events.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha import event_file
from rmqha.event_file import Event
from rmqha.periodic import Watch

LOOK = 1.0
"""Seconds between two looks at the states."""

MOST = 1000
"""Events that are kept in memory."""

NOTHING = frozenset({"0", "no"})
"""Values that are no event where there was none before."""

Facts = Mapping[str, tuple[str, str]]
"""What is so now, by what it is about: a value, whose changes are events, and a detail, whose
changes are none."""


@define(eq=False)
class Events(Watch):
    """Those of one node.

    @ivar _facts: What is so now.
    @ivar in_thread: Runs what blocks.
    @ivar now_ms: Milliseconds since 1970.
    """

    _facts: Callable[[], Facts]
    clock: IReactorTime
    in_thread: Any
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    _kept: deque[Event] = field(factory=lambda: deque(maxlen=MOST), init=False)
    _known: dict[str, str] | None = field(default=None, init=False)
    _path: Path | None = field(default=None, init=False)
    _unsaved: list[Event] = field(factory=list, init=False)
    _saving: Deferred[None] | None = field(default=None, init=False)
    _told: bool = field(default=False, init=False)

    job = "recording events"
    every = LOOK
    at_once = True
    _log = Logger()

    def note(self, kind: str, text: str) -> None:
        """Something happened."""
        event = Event(self.now_ms(), kind, text)
        self._kept.append(event)
        self._unsaved.append(event)
        self._save()

    def look(self) -> None:
        """Note what is not as it was at the last look."""
        facts = self._facts()
        known, self._known = self._known, {name: value for name, (value, _) in facts.items()}
        if known is None:
            return
        for name, (value, detail) in facts.items():
            before = known.get(name)
            if before != value and not (before is None and value in NOTHING):
                edge = value if before is None else f"{before} -> {value}"
                self.note(name, f"{edge}: {detail}" if detail else edge)
        for name in known.keys() - facts.keys():
            self.note(name, f"{known[name]} -> gone")

    def rows(self) -> list[dict[str, Any]]:
        """C{/events}: all that are kept, oldest first."""
        return [asdict(event) for event in self._kept]

    # --- the file ------------------------------------------------------------------

    def keep_in(self, path: Path) -> Deferred[None]:
        """Keep them in a file from now on, with those that are in it.  Without that they are kept
        in memory alone.

        @return: Fires when they were read; never fails.
        """

        def had(events: list[Event]) -> None:
            both = [*events, *self._kept]
            self._kept.clear()
            self._kept.extend(both)

        def go_on(_: object) -> None:
            self._path = path
            self._save()

        reading: Deferred[list[Event]] = self.in_thread(event_file.read, path)
        return reading.addCallbacks(had, self._failed).addBoth(go_on)

    def leave(self) -> Deferred[None]:
        """The store is about to be closed: write what is not written yet, and no more.

        @return: Fires when that is done, or has failed.
        """
        return Deferred.fromCoroutine(self._left())

    async def _left(self) -> None:
        self._save()
        while self._saving is not None:
            await self._saving
        self._path = None

    def _save(self) -> None:
        path = self._path
        if path is None or self._saving is not None or not self._unsaved:
            return
        events, self._unsaved = self._unsaved, []
        saving = self._saving = Deferred()

        def over(_: object) -> None:
            self._saving = None
            self._save()
            saving.callback(None)

        self.in_thread(event_file.append, path, events).addErrback(self._failed).addBoth(over)

    def _failed(self, failure: Failure) -> None:
        if not self._told:
            self._told = True
            self._log.warn(
                "Events are not kept over a restart: {error}", error=failure.getErrorMessage()
            )
