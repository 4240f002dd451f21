"""A node whose reactor turns are measured: what runs between two looks at its sockets.

It is twistd's own service tree, made by the same C{makeService} from the same command line; with
a clock around the wait for events, and a thread that looks where a long turn is.  How long each
phase took, and the longest turns, are written as JSON at the end.

Run it as C{python -m lab.bench.turn_child RESULTS --role master --conf FILE}.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from attrs import define, field
from twisted.application.service import MultiService
from twisted.logger import globalLogBeginner, textFileLogObserver

from rmqha.roles import tap

LOOK = 0.005
"""Seconds between two looks at the turn that is under way."""

LONG = 0.02
"""Seconds after which a turn is worth a look where it is."""

KEPT, DEPTH = 5, 12
"""Longest turns that are kept, and innermost calls of each."""


@define(eq=False)
class Turns:
    """The turns of one reactor.

    @ivar phase: What the node is doing, as the results name it; C{seconds} of each that is over.
    @ivar turns: The longest: wall seconds, processor seconds of the reactor's thread, and where
        they were.
    """

    phase: str = "start"
    seconds: dict[str, float] = field(factory=dict)
    turns: list[tuple[float, float, str]] = field(factory=list)
    _since: float = field(factory=time.perf_counter)
    _began: float = 0.0
    _used: float = 0.0
    _where: str = ""
    _collecting: float = 0.0
    _collected: float = 0.0

    def watch(self, reactor: Any) -> None:
        """Measure each turn of a reactor from now on."""
        reactor._poller = _Poller(reactor._poller, self)
        gc.callbacks.append(self._collection)
        thread = threading.get_ident()
        threading.Thread(target=self._look, args=(thread,), daemon=True).start()

    def enter(self, phase: str) -> None:
        """The phase is over, and another begins."""
        now = time.perf_counter()
        self.seconds[self.phase] = now - self._since
        self.phase, self._since = phase, now

    def began(self) -> None:
        self._where, self._collected = "", 0.0
        self._used = time.thread_time()
        self._began = time.perf_counter()

    def over(self) -> None:
        if not self._began:
            return
        took, used = time.perf_counter() - self._began, time.thread_time() - self._used
        self._began = 0.0
        if len(self.turns) < KEPT or took > self.turns[-1][0]:
            where = self._where
            if self._collected >= took / 2:
                # No thread runs meanwhile, not even the one that looks.
                where = f"garbage collection, {1000 * self._collected:.0f} ms"
            self.turns.append((took, used, f"{self.phase}: {where}"))
            self.turns.sort(reverse=True)
            del self.turns[KEPT:]

    def _collection(self, what: str, _: dict[str, int]) -> None:
        now = time.perf_counter()
        if what == "start":
            self._collecting = now
        else:
            self._collected += now - self._collecting

    def _look(self, thread: int) -> None:
        """Look where a long turn is.  If nobody could look for long, some thread was in a call that
        keeps all others: it is just behind it.
        """
        own, looked = threading.get_ident(), time.perf_counter()
        while True:
            time.sleep(LOOK)
            before, looked = looked, time.perf_counter()
            began, kept = self._began, looked - before > LONG
            if not began or self._where or (looked - began < LONG and not kept):
                continue
            frames = sys._current_frames()
            wanted = [other for other in frames if other not in (own, thread)] if kept else [thread]
            self._where = "; ".join(_shown(frames[one]) for one in wanted)


def _shown(frame: FrameType) -> str:
    calls = traceback.extract_stack(frame)[-DEPTH:]
    return " > ".join(f"{Path(one.filename).stem}.{one.name}:{one.lineno}" for one in calls)


@define(eq=False)
class _Poller:
    """The reactor's C{epoll}, with a look at the clock before and behind it."""

    inner: Any
    turns: Turns

    def poll(self, timeout: float, most: int) -> Any:
        """Wait for events: a turn is over, and the next begins."""
        self.turns.over()
        try:
            return self.inner.poll(timeout, most)
        finally:
            self.turns.began()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def main(arguments: list[str]) -> int:
    """Start the node as twistd does, and write the results when it has stopped."""
    turns = Turns()
    from twisted.internet import reactor

    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    results, *arguments = arguments
    options = tap.Options()
    options.parseOptions(arguments)
    node: Any = tap.makeService(options)
    whole = MultiService()
    node.setServiceParent(whole)
    turns.watch(reactor)

    def serving() -> None:
        if node.clients.serving:
            turns.enter("serving")
        else:
            reactor.callLater(0.01, serving)

    def stop() -> Any:
        turns.enter("stop")
        return whole.stopService()

    whole.startService()
    serving()
    reactor.addSystemEventTrigger("before", "shutdown", stop)
    reactor.run()
    turns.enter("end")
    found = {"seconds": turns.seconds, "turns": turns.turns}
    Path(results).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
