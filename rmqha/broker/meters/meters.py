"""How much happens: messages in and out, of the last minute, hour and day.

Messages in are counted where units are dispatched, and their bytes are summed up from the units
when samples are taken, so sending pays nothing for it.

Source: docs/protocol/remoting.md, Statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import localtime
from typing import Any

import numpy as np
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.meters.latency import PutTimes
from rmqha.durations import Durations
from rmqha.periodic import Job, Periodic, in_slices
from rmqha.store.derived.consume_queues import ConsumeQueues, Moves
from rmqha.store.derived.dispatch import Dispatcher, OnUnits
from rmqha.wire.columnar.queue_units import UNIT_TYPE
from rmqha.wire.remoting.bodies.status import BrokerStats, StatsItem
from rmqha.wire.store_layout import BLANK_SIZE

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

STEPS = ((MINUTE, 10.0), (HOUR, 600.0), (DAY, 3600.0))
"""Each span, and the seconds between two samples in it."""

TICK = 10.0
"""Seconds between two looks at all meters."""

LONGEST = 600.0
"""Seconds over which rates are told at most."""

SENT_BACK = "SNDBCK_PUT_NUMS"
"""What counts the messages that consumers gave back."""

PIECE = 4096
"""Most units that are looked at in one go."""

SIZES = tuple(1024 * size for size in (1, 4, 512, 1024, 2048, 4096))
"""What RocketMQ 5.x shows sizes of messages by, in bytes."""


@define(eq=False)
class Meter:
    """Something that is counted.

    @ivar total: What was counted since the start.
    @ivar times: In how many steps.
    @ivar morning: The total at the last midnight; 0 if the start was later.
    @ivar yesterday: The total at the midnight before.
    """

    total: int = 0
    times: int = 0
    morning: int = 0
    yesterday: int = 0
    _samples: dict[float, deque[tuple[float, int, int]]] = field(factory=dict, init=False)

    def add(self, count: int) -> None:
        """Count what happened.

        @param count: How many messages, or bytes, that once.
        """
        self.total += count
        self.times += 1

    def tick(self, now: float) -> None:
        """Take samples where it is time.

        @param now: In the clock's seconds.
        """
        for span, step in STEPS:
            samples = self._samples.setdefault(span, deque())
            if not samples or now - samples[-1][0] >= step:
                samples.append((now, self.total, self.times))
            while len(samples) > 1 and now - samples[1][0] >= span:
                samples.popleft()

    def midnight(self) -> None:
        """A day begins: what was counted until now is yesterday's."""
        self.yesterday, self.morning = self.morning, self.total

    def over(self, span: float) -> StatsItem:
        """What was counted in a span's samples."""
        samples = self._samples.get(span)
        if not samples or len(samples) < 2:
            return StatsItem()
        (began, total, times), (ended, last, last_times) = samples[0], samples[-1]
        count, steps = last - total, last_times - times
        return StatsItem(
            sum=count, tps=count / (ended - began), avgpt=count / steps if steps else 0.0
        )

    def stats(self) -> BrokerStats:
        """Of the last minute, hour and day."""
        return BrokerStats(
            stats_minute=self.over(MINUTE), stats_hour=self.over(HOUR), stats_day=self.over(DAY)
        )


@define(eq=False)
class Flow(Meter):
    """Something that is also looked at every second, for rates over a short time."""

    _seconds: deque[tuple[float, int]] = field(factory=deque, init=False)

    def look(self, now: float) -> None:
        """Take a sample.

        @param now: In the clock's seconds.
        """
        seconds = self._seconds
        seconds.append((now, self.total))
        while now - seconds[0][0] > LONGEST:
            seconds.popleft()

    def rate(self, seconds: float) -> float:
        """How much of it a second, over so many seconds, or all there were."""
        if not self._seconds:
            return 0.0
        ended, last = self._seconds[-1]
        began, total = next(row for row in self._seconds if ended - row[0] <= seconds)
        return (last - total) / (ended - began) if ended > began else 0.0


@define(eq=False)
class _Came:
    """What came to one queue.

    @ivar topic: Counts its topic's messages.
    @ivar queue: Counts its own.
    @ivar start: From which queue offset on bytes are not summed up yet.
    @ivar end: To which.
    """

    topic: Meter
    queue: Meter
    start: int = 0
    end: int = 0


@define(eq=False)
class Meters:
    """All that is counted on a broker.

    @ivar today: Which day it is where the operator is.
    @ivar puts: Messages that came.
    @ivar pulls: Pulls that were answered with messages.
    @ivar misses: Pulls that were answered without.
    @ivar got: Messages that went out.
    @ivar delivered: Timer messages that came to their queues.
    @ivar pulled: By group, topic and queue id, where the next pull will begin.
    @ivar puts_took: How long it took until a write was answered.
    @ivar reads_took: How long it took to find what a pull wants.
    @ivar sizes: How many messages came that were not larger than each of L{SIZES}, and how many
        in all.
    """

    clock: IReactorTime
    cluster: str
    today: Callable[[], int] = lambda: localtime().tm_yday
    puts: Flow = field(factory=Flow, init=False)
    pulls: Flow = field(factory=Flow, init=False)
    misses: Flow = field(factory=Flow, init=False)
    got: Flow = field(factory=Flow, init=False)
    delivered: Meter = field(factory=Meter, init=False)
    pulled: dict[tuple[str, str, int], int] = field(factory=dict, init=False)
    puts_took: PutTimes = field(factory=PutTimes, init=False)
    reads_took: Durations = field(factory=Durations, init=False)
    sizes: np.ndarray[Any, np.dtype[np.int64]] = field(init=False)
    bytes_in: int = field(default=0, init=False)
    # By the name of the statistic, and its key.
    _meters: dict[str, dict[str, Meter]] = field(factory=dict, init=False)
    # All that ever came, and what of it is not summed up yet.
    _came: dict[tuple[str, int], _Came] = field(factory=dict, init=False)
    _unsized: dict[tuple[str, int], _Came] = field(factory=dict, init=False)
    _queues: ConsumeQueues | None = field(default=None, init=False)
    _units: list[OnUnits] = field(factory=list, init=False)
    _day: int = field(init=False)
    _stopped: bool = field(default=False, init=False)
    _ticking: Periodic = field(init=False)
    _looking: Periodic = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._ticking = Periodic("statistics of the last minutes", self.clock, self.tick)
        self._looking = Periodic("statistics of the last seconds", self.clock, self._look)
        self._day = self.today()
        self.sizes = np.zeros(len(SIZES) + 1, np.int64)
        self._meters["BROKER_PUT_NUMS"] = {self.cluster: self.puts}
        self._meters["BROKER_GET_NUMS"] = {self.cluster: self.got}

    def start(self) -> None:
        """Begin to sample: counts every L{TICK} seconds, the day's end every second."""
        self._ticking.start(TICK, now=True)
        self._looking.start(1.0, now=True)

    def jobs(self) -> Iterator[Job]:
        """What is done again and again."""
        yield self._ticking
        yield self._looking

    def watch(self, dispatcher: Dispatcher, queues: ConsumeQueues) -> None:
        """Count what is dispatched from now on: what was sent to a master, or came to a slave."""
        self._queues = queues
        self._units = dispatcher.on_units
        self._units.append(self.came)

    def stop(self) -> Deferred[None]:
        """Count no more.

        @return: Fires when no sample is being taken.
        """
        self._stopped = True
        self._looking.stop()
        if self.came in self._units:
            self._units.remove(self.came)
        return self._ticking.stop()

    def tick(self) -> Deferred[None]:
        """Take one sample of every meter, in slices: each queue that was ever written has two."""
        return Deferred.fromCoroutine(in_slices(self.clock, self._tick()))

    def _tick(self) -> Iterator[None]:
        for key in tuple(self._unsized):
            if self._stopped:
                return
            self._weigh(key)
            yield
        now, day = self.clock.seconds(), self.today()
        each = [meter for meters in self._meters.values() for meter in meters.values()]
        for meter in (self.pulls, self.misses, self.delivered, *each):
            meter.tick(now)
            if day != self._day:
                meter.midnight()
            yield
        self._day = day
        self.puts_took.tick(now)
        self.reads_took.tick(now)

    def _look(self) -> None:
        now = self.clock.seconds()
        for flow in (self.puts, self.pulls, self.misses, self.got):
            flow.look(now)

    def came(self, moves: Moves) -> None:
        """Queues have grown."""
        whole = 0
        for key, (before, end) in moves.items():
            came = self._came.get(key)
            if came is None:
                came = self._came[key] = self._first(*key)
            count = end - before
            whole += count
            meter = came.topic
            meter.total += count
            meter.times += 1
            meter = came.queue
            meter.total += count
            meter.times += 1
            if key not in self._unsized:
                self._unsized[key] = came
                came.start = before
            elif before < came.start:
                came.start = before
            came.end = end
            if end - came.start >= PIECE:
                self._weigh(key)
        self.puts.total += whole
        self.puts.times += len(moves)

    def _first(self, topic: str, queue_id: int) -> _Came:
        # Their minute begins now, not when they are first looked at.
        self._sizes((topic, queue_id))
        return _Came(
            self._meter("TOPIC_PUT_NUMS", topic),
            self._meter("QUEUE_PUT_NUMS", f"{topic}@{queue_id}"),
        )

    def _sizes(self, key: tuple[str, int]) -> tuple[Meter, Meter]:
        topic, queue_id = key
        whole = self._meter("TOPIC_PUT_SIZE", topic)
        return whole, self._meter("QUEUE_PUT_SIZE", f"{topic}@{queue_id}")

    def _weigh(self, key: tuple[str, int]) -> None:
        """Sum up the bytes of what came to a queue lately."""
        came = self._unsized.pop(key, None)
        if came is None:
            return
        start, end = came.start, came.end
        queue = None if self._queues is None else self._queues.get(*key)
        while queue is not None and start < end:
            try:
                raw = queue.units(start, min(PIECE, end - start))
            except OSError:
                return  # reads of the queue report it; here a number is too low
            sizes = np.frombuffer(raw, UNIT_TYPE)["size"]
            sizes = np.sort(sizes[sizes != BLANK_SIZE])
            size = int(sizes.sum(dtype=np.int64))
            self.sizes += [*np.searchsorted(sizes, SIZES, "right"), len(sizes)]
            self.bytes_in += size
            for meter in self._sizes(key):
                meter.add(size)
            start += PIECE

    def went(self, group: str, topic: str, queue_id: int, begin: int, end: int, size: int) -> None:
        """A pull was answered.

        @param begin: The queue offset it asked for.
        @param end: The one to ask for next.
        @param size: Bytes of the messages that were sent; 0 for none.
        """
        self.pulled[group, topic, queue_id] = end
        if not size:
            self.misses.add(1)
            return
        count = end - begin
        self.pulls.add(1)
        self.got.add(count)
        self._meter("GROUP_GET_NUMS", f"{topic}@{group}").add(count)
        self._meter("GROUP_GET_SIZE", f"{topic}@{group}").add(size)
        self._meter("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}").add(count)
        self._meter("QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}").add(size)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer gave a message back.

        @param topic: Where it was sent first.
        """
        self._meter(SENT_BACK, f"{topic}@{group}").add(1)

    def forget_topic(self, topic: str) -> None:
        """Drop the meters of a deleted topic."""
        self._keep(lambda name, key: name.startswith("BROKER_") or key.split("@")[0] != topic)
        self.pulled = {key: end for key, end in self.pulled.items() if key[1] != topic}
        for queues in (self._came, self._unsized):
            for key in tuple(key for key in queues if key[0] == topic):
                del queues[key]

    def forget_group(self, group: str) -> None:
        """Drop the meters of a deleted group."""
        self._keep(
            lambda name, key: (
                not key.endswith(f"@{group}") or ("_PUT_" in name and name != SENT_BACK)
            )
        )
        self.pulled = {key: end for key, end in self.pulled.items() if key[0] != group}

    def _keep(self, wanted: Callable[[str, str], bool]) -> None:
        self._meters = {
            name: {key: meter for key, meter in meters.items() if wanted(name, key)}
            for name, meters in self._meters.items()
        }

    def meter(self, name: str, key: str) -> Meter | None:
        """A statistic by its name in request 315, if anything of it was counted."""
        return self._meters.get(name, {}).get(key)

    def each(self, name: str) -> tuple[tuple[str, Meter], ...]:
        """All there are now of a statistic, by key."""
        return tuple(self._meters.get(name, {}).items())

    def _meter(self, name: str, key: str) -> Meter:
        meters = self._meters.get(name)
        if meters is None:
            meters = self._meters[name] = {}
        meter = meters.get(key)
        if meter is None:
            meter = meters[key] = Meter()
            # The minute in which it begins counts too.
            meter.tick(self.clock.seconds())
        return meter
