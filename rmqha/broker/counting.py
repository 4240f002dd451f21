"""
How much happens: messages in and out, of the last minute, hour and day.

Messages in are counted where units are dispatched, so sending pays nothing for it.

Source: docs/protocol/remoting.rst, Statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import localtime

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rmqha.store.dispatch import Dispatcher, OnUnits
from rmqha.store.queues import ConsumeQueues
from rmqha.wire.remoting.bodies.status import BrokerStats, StatsItem

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

STEPS = ((MINUTE, 10.0), (HOUR, 600.0), (DAY, 3600.0))
"""Each span, and the seconds between two samples in it."""

TICK = 10.0
"""Seconds between two looks at all meters."""


@define(eq=False)
class Meter:
    """
    Something that is counted.

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
        """
        Count.
        """
        self.total += count
        self.times += 1

    def tick(self, now: float) -> None:
        """
        Take samples where it is time.

        @param now: In the clock's seconds.
        """
        for span, step in STEPS:
            samples = self._samples.setdefault(span, deque())
            if not samples or now - samples[-1][0] >= step:
                samples.append((now, self.total, self.times))
            while len(samples) > 1 and now - samples[1][0] >= span:
                samples.popleft()

    def midnight(self) -> None:
        """
        A day begins.
        """
        self.yesterday, self.morning = self.morning, self.total

    def over(self, span: float) -> StatsItem:
        """
        What was counted in a span's samples.
        """
        samples = self._samples.get(span)
        if not samples or len(samples) < 2:
            return StatsItem()
        (began, total, times), (ended, last, last_times) = samples[0], samples[-1]
        count, steps = last - total, last_times - times
        return StatsItem(
            sum=count,
            tps=count / (ended - began),
            avgpt=count / steps if steps else 0.0,
        )

    def rate(self, seconds: float) -> float:
        """
        How much of it a second, over about so many seconds.
        """
        samples = self._samples.get(MINUTE if seconds <= MINUTE else HOUR)
        if not samples:
            return 0.0
        ended, last, _ = samples[-1]
        began, total, _ = next(
            (sample for sample in samples if ended - sample[0] <= seconds), samples[-1]
        )
        return (last - total) / (ended - began) if ended > began else 0.0

    def stats(self) -> BrokerStats:
        """
        Of the last minute, hour and day.
        """
        return BrokerStats(
            stats_minute=self.over(MINUTE), stats_hour=self.over(HOUR), stats_day=self.over(DAY)
        )


@define(eq=False)
class Counts:
    """
    All that is counted on a broker.

    @ivar today: Which day it is where the operator is.
    @ivar puts: Messages that came.
    @ivar pulls: Pulls that were answered with messages.
    @ivar misses: Pulls that were answered without.
    @ivar got: Messages that went out.
    """

    clock: IReactorTime
    cluster: str
    today: Callable[[], int] = lambda: localtime().tm_yday
    puts: Meter = field(factory=Meter, init=False)
    pulls: Meter = field(factory=Meter, init=False)
    misses: Meter = field(factory=Meter, init=False)
    got: Meter = field(factory=Meter, init=False)
    _meters: dict[tuple[str, str], Meter] = field(factory=dict, init=False)
    _ends: dict[tuple[str, int], int] = field(factory=dict, init=False)
    _units: list[OnUnits] = field(factory=list, init=False)
    _day: int = field(init=False)
    _ticking: LoopingCall = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._ticking = LoopingCall(self.tick)
        self._ticking.clock = self.clock
        self._day = self.today()
        self._meters["BROKER_PUT_NUMS", self.cluster] = self.puts
        self._meters["BROKER_GET_NUMS", self.cluster] = self.got

    def start(self, dispatcher: Dispatcher, queues: ConsumeQueues) -> None:
        """
        Begin to count.
        """
        self._ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
        self._units = dispatcher.on_units
        self._units.append(self.came)
        self._ticking.start(TICK).addErrback(
            lambda failure: self._log.failure("Nothing is counted any more", failure)
        )

    def stop(self) -> None:
        """
        Count no more.
        """
        if self._ticking.running:
            self._ticking.stop()
            self._units.remove(self.came)

    def tick(self) -> None:
        """
        Take samples.
        """
        now, day = self.clock.seconds(), self.today()
        for meter in (self.pulls, self.misses, *self._meters.values()):
            meter.tick(now)
            if day != self._day:
                meter.midnight()
        self._day = day

    def came(self, topic: str, queue_id: int, end: int) -> None:
        """
        A queue has grown.

        @param end: Just past its last message.
        """
        count = end - self._ends.get((topic, queue_id), 0)
        self._ends[topic, queue_id] = end
        if count > 0:
            self.puts.add(count)
            self._meter("TOPIC_PUT_NUMS", topic).add(count)
            self._meter("QUEUE_PUT_NUMS", f"{topic}@{queue_id}").add(count)

    def went(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None:
        """
        A pull was answered.

        @param count: Messages it passed; 0 for none.
        @param size: Bytes of those that were sent.
        """
        if not size:
            self.misses.add(1)
            return
        self.pulls.add(1)
        self.got.add(count)
        self._meter("GROUP_GET_NUMS", f"{topic}@{group}").add(count)
        self._meter("GROUP_GET_SIZE", f"{topic}@{group}").add(size)
        self._meter("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}").add(count)

    def meter(self, name: str, key: str) -> Meter | None:
        """
        A statistic by its name in request 315, if anything of it was counted.
        """
        return self._meters.get((name, key))

    def _meter(self, name: str, key: str) -> Meter:
        meter = self._meters.get((name, key))
        if meter is None:
            meter = self._meters[name, key] = Meter()
            # The minute in which it begins counts too.
            meter.tick(self.clock.seconds())
        return meter
