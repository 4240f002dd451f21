"""Work that a node does again and again, and that outlives its own errors.

Twisted's C{LoopingCall} ends for good with the first exception that escapes.  A node whose
heartbeats, flushes or registrations ended like that would go on, and call itself healthy.  A
L{Periodic} goes on, says so in the log at a bounded rate, and remembers how it went: each node
lists its jobs in C{/status}, and a vital one that keeps failing makes C{/healthz} red.  One that
cannot run again before the process does makes C{/livez} red too.

A node is a L{tree} of parts.  What is in a field of a part, and is one itself, belongs to the node:
its health, its metrics and its jobs are found because it is there.

Source: docs/status.rst, Periodic jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.health import HealthProbe, HealthReason

LOG_EVERY = 60.0
"""Least seconds between two log lines about one job's failures."""

RED_AFTER = 3
"""Failures in a row from which on a vital job makes its node unhealthy."""

STUCK_AFTER = 600.0
"""Seconds after which a run of a vital job that is not over makes its node unhealthy: nothing
is run beside it.  A flush of very many files to a slow disk takes minutes."""

DEAD_AFTER = 1800.0
"""Seconds after which such a run will not end any more."""

SLICE = 0.002
"""Seconds of a reactor turn that work in slices takes."""

_RESTART = HealthProbe.LIVE | HealthProbe.HEALTH


class NodePart:
    """What a node is made of: what it says of itself the node says, because it is a part."""

    __slots__ = ()

    def health(self) -> Iterator[HealthReason]:
        """Why the node is not well because of it."""
        return iter(())

    def facts(self) -> Mapping[str, tuple[str, str]]:
        """What is so now, for L{rmqha.admin.events}."""
        return {}

    def samples(self) -> Iterator[Any]:
        """What C{/metrics} says of it, beside its status."""
        return iter(())

    def fields(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {}


@define(eq=False)
class Job(NodePart):
    """How work that is done again and again is going; somebody else says when it is done.

    @ivar name: For the log, C{/status} and C{/healthz}.
    @ivar clock: Its C{seconds} must not jump.
    @ivar vital: Whether a node that cannot do it is not well.
    @ivar interval: Seconds between two runs; C{None} for what is done when there is something
        to do.
    @ivar running: Whether it is to be done at all now.
    @ivar runs: How often it was begun.
    @ivar failures: How often it failed.
    @ivar failures_in_a_row: How often since it last succeeded.
    @ivar last_error: What the last failure was, in words; it stays when the job succeeds again.
    @ivar last_run: When it was last begun, in the clock's seconds; C{None} before.
    """

    name: str
    clock: IReactorTime
    vital: bool = field(default=False, kw_only=True)
    interval: float | None = field(default=None, init=False)
    running: bool = field(default=True, init=False)
    runs: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    failures_in_a_row: int = field(default=0, init=False)
    last_error: str = field(default="", init=False)
    last_run: float | None = field(default=None, init=False)

    def begun(self) -> None:
        """A run begins."""
        self.runs += 1
        self.last_run = self.clock.seconds()

    def succeeded(self) -> None:
        """A run has ended well."""
        self.failures_in_a_row = 0

    def failed(self, failure: Failure) -> None:
        """A run has failed."""
        self.failures += 1
        self.failures_in_a_row += 1
        kind = type(failure.value).__name__
        self.last_error = f"{kind}: {failure.getErrorMessage()}".removesuffix(": ")

    def health(self) -> Iterator[HealthReason]:
        """Why the node is not well because of this job."""
        if self.vital and self.running and self.failures_in_a_row >= RED_AFTER:
            times = self.failures_in_a_row
            yield HealthReason(
                "failing-job", f'"{self.name}" failed {times} times in a row: {self.last_error}'
            )

    def status(self) -> dict[str, Any]:
        """A row of C{periodicJobs} in C{/status}."""
        age = None if self.last_run is None else self.clock.seconds() - self.last_run
        return {
            "name": self.name,
            "vital": self.vital,
            "interval": self.interval,
            "secondsSinceRun": age,
            "runs": self.runs,
            "failures": self.failures,
            "failuresInARow": self.failures_in_a_row,
            "lastError": self.last_error,
        }


@define(eq=False)
class Periodic(Job):
    """Repeat a function by the clock, whatever it raises.

    A run that gives a C{Deferred} lasts until that fires: there is never a second run beside
    it, and the times that pass meanwhile are left out.

    @ivar function: What is repeated.
    @ivar running: Between L{start} and L{stop}; no error ends it.
    """

    function: Callable[[], object]
    running: bool = field(default=False, init=False)
    _loop: LoopingCall | None = field(default=None, init=False)
    _under_way: bool = field(default=False, init=False)
    _again: bool = field(default=False, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)
    _logged: float = field(default=float("-inf"), init=False)
    _told: bool = field(default=False, init=False)

    _log = Logger()

    def health(self) -> Iterator[HealthReason]:
        """A job's reasons, and that it will not run again."""
        yield from super().health()
        if not self.vital or not self.running or self.last_run is None:
            return
        if self._loop is None or not self._loop.running:
            yield HealthReason(
                "dead-job", f'nothing repeats "{self.name}" any more', fails=_RESTART
            )
            return
        age = self.clock.seconds() - self.last_run
        if self._under_way and age >= STUCK_AFTER:
            yield HealthReason(
                "stuck-job",
                f'a run of "{self.name}" is not over after {age:.0f} s',
                fails=_RESTART if age >= DEAD_AFTER else HealthProbe.HEALTH,
            )

    def start(self, interval: float, *, now: bool = False) -> None:
        """Begin to repeat it.  When it was begun already, only the interval changes, and counts
        from now.

        @param interval: Seconds from the start of one run to that of the next.
        @param now: Run at once too, and not only after the first interval.
        """
        if self.running and interval == self.interval:
            return
        self.running, self.interval = True, interval
        self._repeat(interval, now=now)

    def hurry(self) -> None:
        """Run at once; when a run is under way, once more after it."""
        if self._under_way:
            self._again = True
        elif self.running and self.interval is not None:
            self._repeat(self.interval, now=True)

    def _repeat(self, interval: float, *, now: bool) -> None:
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        self._loop = LoopingCall(self._run)
        self._loop.clock = self.clock
        self._loop.start(interval, now=now)

    def stop(self) -> Deferred[None]:
        """Repeat it no more.  Doing it twice is the same as once.

        @return: Fires when no run is under way, however that one ended.
        """
        self.running = False
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        return self._idle()

    def _idle(self) -> Deferred[None]:
        if not self._under_way:
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._waiting.append(idle)
        return idle

    def _run(self) -> Deferred[None]:
        if self._under_way:
            # It was begun by the loop before this one.
            return self._idle()
        self._under_way = True
        self.begun()
        return maybeDeferred(self.function).addCallbacks(self._well, self._badly).addBoth(self._end)

    def _well(self, _: object) -> None:
        if self._told:
            self._told = False
            self._log.info(
                'The job "{job}" works again after {failures} failures',
                job=self.name,
                failures=self.failures_in_a_row,
            )
        self.succeeded()

    def _badly(self, failure: Failure) -> None:
        self.failed(failure)
        now = self.clock.seconds()
        if now - self._logged < LOG_EVERY:
            return
        self._logged, self._told = now, True
        self._log.failure(
            'The job "{job}" failed ({failures} in a row), and goes on every {interval:g} s',
            failure,
            job=self.name,
            failures=self.failures_in_a_row,
            interval=self.interval,
        )

    def _end(self, _: object) -> None:
        self._under_way = False
        waiting, self._waiting = self._waiting, []
        for idle in waiting:
            idle.callback(None)
        again, self._again = self._again, False
        if again:
            self.hurry()


class Watch(NodePart):
    """A part that looks at something again and again; its class is made by attrs.

    @ivar job: What the look is called in log and status.
    @ivar every: Seconds between two looks.
    @ivar at_once: Whether the first one is at the start.
    """

    job: str
    every: float
    at_once = False
    clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self.looking = Periodic(self.job, self.clock, self.look)

    def look(self) -> object:
        raise NotImplementedError

    def start(self) -> None:
        """Look from now on."""
        self.looking.start(self.every, now=self.at_once)

    def stop(self) -> Any:
        """Look no more.  A look that is under way is not waited for: it may never end."""
        self.looking.stop()


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for each in kind.__mro__ for name in vars(each).get("__slots__", ()))


def tree(whole: object) -> list[NodePart]:
    """The parts that are now in its fields, or in a tuple there, and those in theirs: each once."""
    found: dict[int, NodePart] = {id(whole): NodePart()}

    def look(at: Any) -> None:
        kind: Any = type(at)
        fields = [getattr(at, name, None) for name in _slots(kind)]
        fields += getattr(at, "__dict__", {}).values()
        for each in [value for value in fields if type(value) is tuple]:
            fields += each
        for part in [value for value in fields if isinstance(value, NodePart)]:
            if id(part) not in found:
                found[id(part)] = part
                look(part)

    look(whole)
    return list(found.values())[1:]


def jobs_of(whole: object) -> list[Job]:
    """What its parts do again and again."""
    return [part for part in tree(whole) if isinstance(part, Job)]


@define(eq=False)
class SingleRun:
    """Work of which one run at most is under way, and whose end can be waited for."""

    _over: Deferred[None] | None = field(default=None, init=False)

    @property
    def under_way(self) -> bool:
        return self._over is not None

    def begin(self, work: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        """Begin a run, where none is under way.

        @return: What the work gives; it fires when the run is over.
        """
        over: Deferred[None] = Deferred()

        def end(result: Any) -> Any:
            self._over = None
            over.callback(None)
            return result

        begun = work()
        self._over = over
        return begun.addBoth(end)

    def over(self) -> Deferred[None]:
        """@return: Fires when no run is under way."""
        done: Deferred[None] = Deferred()
        if self._over is None:
            done.callback(None)
        else:
            self._over.addCallback(done.callback)
        return done


def cancelled(call: IDelayedCall | None) -> IDelayedCall | None:
    """What was to be called later is not, if it was not called yet.

    @return: C{None}, for the field that had it.
    """
    if call is not None and call.active():
        call.cancel()
    return None


async def in_slices(clock: IReactorTime, steps: Iterable[object]) -> None:
    """Take steps on the reactor without keeping it: after L{SLICE} the rest waits for its next
    turn.

    @param steps: A generator, as a rule, that does a little before each C{yield}; what it looks at
        may have changed when it goes on.
    """
    until = clock.seconds() + SLICE
    for _ in steps:
        if clock.seconds() >= until:
            await deferLater(clock, 0.0)
            until = clock.seconds() + SLICE


def rows_of(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """C{periodicJobs} of C{/status}: those there are now."""
    return [job.status() for job in jobs if job.running]
