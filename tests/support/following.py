"""A follower with a real log, a clock and a master played by hand."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rmqha.config.ha_settings import DivergencePolicy, HASettings
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.repair import Divergence
from rmqha.store.log.commit_log import CommitLog
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, STORED, LogTestCase, content, encoded
from tests.support.scripted_master import Connection, PuppetEndpoint

#: Frames of the masters in these tests.
BATCH = 1000


class FollowerCase(LogTestCase):
    """Tests of a follower: what it asked to be repaired, and said about bootstrapping."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = PuppetEndpoint(self.clock)
        self.repairs: list[tuple[DivergencePolicy, Divergence | None, Deferred[str]]] = []
        self.marks: list[bool] = []
        self.state_type = FollowState

    def copied(self, log: CommitLog, end: int | None = None, start: int | None = None) -> CommitLog:
        """A slave's log with the same bytes."""
        copy = self.log(file_size=log.file_size)
        begin = log.min_offset if start is None else start
        copy.begin(begin)
        append_frame(copy, begin, content(log, begin, log.end if end is None else end))
        copy.verify()
        return copy

    def changed(self, log: CommitLog, at: int) -> CommitLog:
        """A slave's log with one byte that is another, which its owner does not know."""
        copy = self.copied(log)
        file = copy.folder.at(at)
        file.view[at - file.start] ^= 0xFF
        return copy

    def follow(self, log: CommitLog, **more: Any) -> Follower:
        """Start to follow with a log, settings, and attributes of the follower."""
        names = ("is_bootstrapping", "reportable", "followed", "judge")
        bounds = more.pop("bounds", None)
        ends = {"ends": more.pop("ends")} if "ends" in more else {}
        own = {name: more.pop(name) for name in names if name in more}
        self.mine = log

        def repair(policy: DivergencePolicy, divergence: Divergence | None) -> Deferred[str]:
            done: Deferred[str] = Deferred()
            self.repairs.append((policy, divergence, done))
            return done

        self.follower = Follower(
            sync=self.state_type(
                port=MasterClientPort(bounds, self.clock, "10.0.0.1:10912", self.endpoint),
                current_log=lambda: self.mine,
                settings=HASettings(**({"batch": BATCH} | more)),
                bootstrapping=self.marks.append,
                **own,
            ),
            repair=repair,
            **ends,
        )
        self.follower.startService()
        self.addCleanup(self.ended)
        return self.follower

    def ended(self) -> None:
        if self.follower.running:
            self.stop()

    def stop(self) -> None:
        """Stop it, and see that it leaves nothing behind."""
        stopped = self.follower.stopService()
        for _, _, done in self.repairs:
            if not done.called:
                done.errback(RuntimeError("the test is over"))
                self.flushLoggedErrors(RuntimeError)
        self.turn()
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [], "calls are left")
        self.assertEqual(self.endpoint.waiting, [], "an attempt is left")
        self.assertEqual(self.mine.flush_listeners, [])

    def turn(self) -> None:
        """Let the reactor go round."""
        for _ in range(3):
            self.clock.advance(0)

    def accept(self, within: float = 0.0) -> Connection:
        """Accept the next connection, which must be asked for within some seconds."""
        self.turn()
        waited = 0.0
        while not self.endpoint.waiting and waited < within:
            self.clock.advance(0.01)
            waited += 0.01
        self.assertTrue(self.endpoint.waiting, f"no attempt within {within} s")
        return self.endpoint.accept()

    def assertIdleFor(self, seconds: float) -> None:
        self.clock.pump([0.25] * int(seconds * 4))
        self.assertEqual(self.endpoint.waiting, [])

    def passes(self, seconds: float, step: float = 0.25) -> None:
        self.clock.pump([step] * round(seconds / step))

    def assertState(self, state: str) -> None:
        self.assertEqual(self.follower.sync.state.value, state, self.follower.sync.reason)


#: A log of three files and a bit, with a blank at each end.
SIZES = ((700, 1500, 900, 600) * 3) + (700,)
SIZE = FILE_SIZE


class ThreeFilesCase(FollowerCase):
    """A master's log of three files and a bit."""

    def setUp(self) -> None:
        super().setUp()
        self.theirs = self.filled(*SIZES)
        self.assertGreater(self.theirs.end, 3 * SIZE)

    def grow(self, *sizes: int) -> None:
        for size in sizes:
            self.theirs.put([encoded(size)], [0], STORED)

    def begun(self, mine: CommitLog, **more: object) -> Connection:
        """Follow with a log, and have the first connection accepted."""
        self.follow(mine, **more)
        return self.accept()

    def in_sync(self, mine: CommitLog, **more: object) -> Connection:
        connection = self.begun(mine, **more)
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        return connection
