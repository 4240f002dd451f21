"""How far a stream is behind the logs it reads, in bytes and in seconds.

Spark tells after each batch where the stream stands and where the logs end.  The seconds
are those since the first record was stored that the stream has not read yet.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen
from pyspark.sql.streaming.listener import StreamingQueryListener

from rmqha.errors import NotAStore, RmqhaError
from rmqha.logfiles.log_files import LogFiles, first_stored
from rmqha.pipeline.log.errors import LogEndsBefore
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import from_json
from rmqha.pipeline.log.topic_parts import bytes_of_topics
from rmqha.wire.log.published import SPAN


@frozen(kw_only=True)
class Lag:
    """Where a stream stands after a batch.

    @ivar ranges: Ranges that the batch had.
    @ivar bytes: Bytes of the logs behind the stream's position; of a store in L{held_up} as far as
        it is known.
    @ivar seconds: Since the first record there was stored; 0 if there is none, C{None} if
        this machine does not see the log.
    @ivar ends: The stream's position, physical offsets by store.
    @ivar took: How long the batch took, in seconds.
    @ivar held_up: Stores that do not get on, and why.
    @ivar topics: Bytes behind the position by topic, the most first, as far as the topic indexes
        that this machine sees speak of it: the last 16 MiB of a log are in none.
    """

    ranges: int
    bytes: int
    seconds: float | None
    ends: Mapping[str, int]
    took: float
    held_up: Mapping[str, str] = field(factory=dict)
    topics: Mapping[str, int] = field(factory=dict)


Told = Callable[[Lag], None]


def lag_of(progress: Any, stores: Mapping[str, Path]) -> Lag | None:
    """What a C{StreamingQueryProgress} says.

    @param stores: The stores' folders by name.
    @return: C{None} if it knows no position yet.
    """
    source = progress.sources[0] if progress.sources else None
    if source is None or not _known(source.endOffset):
        return None
    ends = {
        name: position.offset for name, position in from_json(json.loads(source.endOffset)).items()
    }
    logs = dict(ends)
    held_up: dict[str, str] = {}
    if _known(source.latestOffset):
        found = json.loads(source.latestOffset)
        latest = from_json(found)
        held_up = {name: s["state"] for name, s in found["stores"].items() if "state" in s}
        for name, position in latest.items():
            end, log = ends.get(name, 0), position.offset
            logs[name] = max(log, end)
            if log < end:
                held_up.setdefault(name, str(LogEndsBefore(name, end, log)))
    behind = {name: logs[name] - ends.get(name, 0) for name in logs}
    waits = [_since(stores.get(name), ends.get(name, 0)) for name in logs if behind[name]]
    known = [each for each in waits if each is not None]
    return Lag(
        ranges=int(progress.numInputRows or 0),
        bytes=sum(behind.values()),
        seconds=max(known) if known else None if waits else 0.0,
        ends=ends,
        took=int((progress.durationMs or {}).get("triggerExecution", 0)) / 1000,
        held_up=held_up,
        topics=_by_topic(stores, ends, logs),
    )


def _by_topic(
    stores: Mapping[str, Path], ends: Mapping[str, int], logs: Mapping[str, int]
) -> dict[str, int]:
    """Bytes between two places of logs by topic."""
    found: Counter[str] = Counter()
    for name, path in stores.items():
        if name in ends and logs[name] - ends[name] >= SPAN:
            try:
                found.update(bytes_of_topics(path, ends[name], logs[name]))
            except (OSError, RmqhaError):
                continue  # a store that this machine does not see
    return dict(found.most_common())


def _known(offset: str | None) -> bool:
    return bool(offset) and offset != "null"


def _since(path: Path | None, offset: int) -> float | None:
    """Seconds since the record at an offset was stored."""
    try:
        stored = None if path is None else _stored(path, offset)
    except (OSError, ValueError, NotAStore):
        return None
    return None if stored is None else max(0.0, time.time() - stored / 1000)


def _stored(path: Path, offset: int) -> int | None:
    files = LogFiles.find(path)
    here, above = files.at(offset), files.above(offset)
    places = [(here.path, offset - here.start)] if here is not None else []
    return first_stored([*places, *([(above.path, 0)] if above is not None else [])])


class Listener(StreamingQueryListener):
    """Tells the lag after each batch of one query.

    @ivar run: The query's run id; until it is known, no other query is.
    """

    def __init__(self, options: ReadOptions, told: Told) -> None:
        self.run: str | None = None
        self._options = options
        self._told = told

    def onQueryStarted(self, event: Any) -> None:
        """Called by Spark; there is no lag to report yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Tell how far it is."""
        if self.run not in (None, str(event.progress.runId)):
            return
        lag = lag_of(event.progress, dict(self._options.now().stores))
        if lag is not None:
            self._told(lag)

    def onQueryIdle(self, event: Any) -> None:
        """Called by Spark; the lag has not changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """The query itself tells why."""
