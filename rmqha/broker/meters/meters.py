"""How much happens: messages in and out, of the last minute, hour and day.

Messages in and their bytes are counted by the queues that get their units, and summed up when
samples are taken or somebody asks: a message pays next to nothing for it.

Source: docs/protocol/remoting.md, Statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import localtime

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.meters.latency import PutTimes
from rmqha.durations import Durations
from rmqha.periodic import NodePart, Periodic, in_slices
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.unit_files import Tally
from rmqha.wire.remoting.bodies.status import BrokerStats, StatsItem

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

STEPS = ((MINUTE, 10.0), (HOUR, 600.0), (DAY, 3600.0))
"""Each span, and the seconds between two samples in it."""

TICK = 10.0
"""Seconds between two looks at all meters."""

LONGEST = 600.0
"""Seconds over which rates are told at most."""

SENT_BACK = "SNDBCK_PUT_NUMS"
"""What counts the messages that consumers gave back."""

_OF_TOPICS = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
_OF_QUEUES = "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"


@define(eq=False)
class Meter:
    """Something that is counted.

    @ivar total: What was counted since the start.
    @ivar times: In how many steps; of messages in, and their bytes, each is one.
    @ivar morning: The total at the last midnight; 0 if the start was later.
    @ivar yesterday: The total at the midnight before.
    """

    total: int = 0
    times: int = 0
    morning: int = 0
    yesterday: int = 0
    _samples: dict[float, deque[tuple[float, int, int]]] = field(factory=dict, init=False)

    def add(self, count: int, times: int = 1) -> None:
        """Count what happened.

        @param count: How many messages, or bytes.
        """
        self.total += count
        self.times += times

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
class Meters(NodePart):
    """All that is counted on a broker.

    @ivar today: Which day it is where the operator is.
    @ivar pulls: Pulls that were answered with messages.
    @ivar misses: Pulls that were answered without.
    @ivar got: Messages that went out.
    @ivar delivered: Timer messages that came to their queues.
    @ivar pulled: By group, topic and queue id, where the next pull will begin.
    @ivar puts_took: How long it took until a write was answered.
    @ivar reads_took: How long it took to find what a pull wants.
    @ivar came: Messages that came, their bytes, and how large they were.
    """

    clock: IReactorTime
    cluster: str
    today: Callable[[], int] = lambda: localtime().tm_yday
    pulls: Flow = field(factory=Flow, init=False)
    misses: Flow = field(factory=Flow, init=False)
    got: Flow = field(factory=Flow, init=False)
    delivered: Meter = field(factory=Meter, init=False)
    pulled: dict[tuple[str, str, int], int] = field(factory=dict, init=False)
    puts_took: PutTimes = field(factory=PutTimes, init=False)
    reads_took: Durations = field(factory=Durations, init=False)
    came: Tally = field(factory=Tally, init=False)
    _puts: Flow = field(factory=Flow, init=False)
    # By the name of the statistic, and its key.
    _meters: dict[str, dict[str, Meter]] = field(factory=dict, init=False)
    # Of each queue that something ever came to: messages, of the topic and its own, and bytes.
    _of_queues: dict[tuple[str, int], tuple[Meter, ...]] = field(factory=dict, init=False)
    # Those of what went out, by group, topic and queue id.
    _went: dict[tuple[str, str, int], tuple[Meter, ...]] = field(factory=dict, init=False)
    _queues: ConsumeQueues | None = field(default=None, init=False)
    # When samples were taken last.
    _ticked: float = field(init=False)
    _day: int = field(init=False)
    _stopped: bool = field(default=False, init=False)
    _ticking: Periodic = field(init=False)
    _looking: Periodic = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._ticking = Periodic("statistics of the last minutes", self.clock, self.tick)
        self._looking = Periodic("statistics of the last seconds", self.clock, self._look)
        self._day = self.today()
        self._ticked = self.clock.seconds()
        self._meters["BROKER_PUT_NUMS"] = {self.cluster: self._puts}
        self._meters["BROKER_GET_NUMS"] = {self.cluster: self.got}

    def start(self) -> None:
        """Begin to sample: counts every L{TICK} seconds, the day's end every second."""
        self._ticking.start(TICK, now=True)
        self._looking.start(1.0, now=True)

    def watch(self, queues: ConsumeQueues) -> None:
        """Count what comes to queues from now on: what was sent to a master, or came to a slave.
        Nobody else may.
        """
        self._queues, self.came = queues, queues.tally_anew()

    @property
    def puts(self) -> Flow:
        """Messages that came."""
        self._puts.total = self._puts.times = self.came.messages
        return self._puts

    def stop(self) -> Deferred[None]:
        """Count no more.

        @return: Fires when no sample is being taken.
        """
        self._stopped = True
        self._looking.stop()
        return self._ticking.stop()

    def tick(self) -> Deferred[None]:
        """Take one sample of every meter, in slices: each queue that was ever written has two."""
        return Deferred.fromCoroutine(in_slices(self.clock, self._tick()))

    def _tick(self) -> Iterator[None]:
        for queue in self._queues or ():
            if self._stopped:
                return
            self._sum_up(queue)
            yield
        now, day = self.clock.seconds(), self.today()
        each = [meter for meters in self._meters.values() for meter in meters.values()]
        self._ticked, _ = now, self.puts
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

    def _sum_up(self, queue: ConsumeQueue) -> None:
        """Count what came to a queue since this was last done."""
        count, size = queue.take_came()
        if not count:
            return
        topic, queue_id = key = queue.topic, queue.queue_id
        meters = self._of_queues.get(key)
        if meters is None:
            names = dict.fromkeys(_OF_TOPICS, topic)
            names |= dict.fromkeys(_OF_QUEUES, f"{topic}@{queue_id}")
            # There was nothing of it yet at the last samples.
            meters = tuple(self._meter(*name, self._ticked) for name in names.items())
            self._of_queues[key] = meters
        for meter, more in zip(meters, (count, size, count, size), strict=True):
            meter.add(more, count)

    def went(self, group: str, topic: str, queue_id: int, begin: int, end: int, size: int) -> None:
        """A pull was answered.

        @param begin: The queue offset it asked for.
        @param end: The one to ask for next.
        @param size: Bytes of the messages that were sent; 0 for none.
        """
        key = group, topic, queue_id
        self.pulled[key] = end
        if not size:
            self.misses.add(1)
            return
        went = self._went.get(key)
        if went is None:
            went = self._went[key] = (
                self._meter("GROUP_GET_NUMS", f"{topic}@{group}"),
                self._meter("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}"),
                self._meter("GROUP_GET_SIZE", f"{topic}@{group}"),
                self._meter("QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}"),
            )
        self.pulls.add(1)
        self.got.add(end - begin)
        for meter in went[:2]:
            meter.add(end - begin)
        for meter in went[2:]:
            meter.add(size)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer gave a message back.

        @param topic: Where it was sent first.
        """
        self._meter(SENT_BACK, f"{topic}@{group}").add(1)

    def forget_topic(self, topic: str) -> None:
        """Drop the meters of a deleted topic."""
        self._keep(lambda name, key: name.startswith("BROKER_") or key.split("@")[0] != topic)
        self.pulled = {key: end for key, end in self.pulled.items() if key[1] != topic}
        self._of_queues = {key: each for key, each in self._of_queues.items() if key[0] != topic}

    def forget_group(self, group: str) -> None:
        """Drop the meters of a deleted group."""
        self._keep(
            lambda name, key: (
                not key.endswith(f"@{group}") or ("_PUT_" in name and name != SENT_BACK)
            )
        )
        self.pulled = {key: end for key, end in self.pulled.items() if key[0] != group}

    def _keep(self, wanted: Callable[[str, str], bool]) -> None:
        self._went.clear()
        self._meters = {
            name: {key: meter for key, meter in meters.items() if wanted(name, key)}
            for name, meters in self._meters.items()
        }

    def meter(self, name: str, key: str) -> Meter | None:
        """A statistic by its name in request 315, if anything of it was counted."""
        if self._queues is not None:
            for queue in tuple(self._queues.of(key.split("@")[0])):
                self._sum_up(queue)
        return self._meters.get(name, {}).get(key)

    def each(self, name: str) -> tuple[tuple[str, Meter], ...]:
        """All there are now of a statistic, by key."""
        for queue in self._queues or ():
            self._sum_up(queue)
        return tuple(self._meters.get(name, {}).items())

    def _meter(self, name: str, key: str, since: float | None = None) -> Meter:
        meters = self._meters.get(name)
        if meters is None:
            meters = self._meters[name] = {}
        meter = meters.get(key)
        if meter is None:
            meter = meters[key] = Meter()
            # The minute in which it begins counts too.
            meter.tick(self.clock.seconds() if since is None else since)
        return meter
