"""A log that is itself a copy, and a slave behind it: what it may conclude."""

from __future__ import annotations

import random
from typing import Any

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.slave.follower import Follower
from rmqha.ha.states import Standing, SyncState
from rmqha.store.log.commit_log import CommitLog
from tests.ha.test_pair import Pair
from tests.support.ha_frames import append_frame
from tests.support.logs import STORED, content, encoded

#: Frames of these tests.
BATCH = 1000


class CascadeCase(Pair):
    """A log, in full elsewhere, served by a slave whose standing the test decides."""

    def setUp(self) -> None:
        """The log of the one in the middle lacks some records."""
        super().setUp()
        self.standing = Standing.PART
        self.whole = self.part(700, 1500, 333, 800)

    def serve(self, **keys: Any) -> MasterFactory:
        factory = super().serve(**keys)
        factory.standing = lambda: self.standing
        return factory

    def ahead(self, **keys: Any) -> Follower:
        """A slave that has the whole log, and may cut."""
        mine = self.log()
        append_frame(mine, 0, content(self.whole))
        mine.verify()
        return self.follow(mine, policy=DivergencePolicy.TRUNCATE, **keys)

    def fetch(self, end: int | None = None) -> None:
        """The one in the middle gets more of the log from its master."""
        at = self.theirs.end
        stop = self.whole.end if end is None else end
        append_frame(self.theirs, at, content(self.whole, at, stop))
        self.theirs.verify()
        self.theirs.progress()
        self.settle()


class AheadTests(CascadeCase):
    """A slave that has more than the one it follows."""

    def test_waits(self) -> None:
        """However long the one in the middle lags, nothing is cut; then they are equal."""
        self.serve()
        self.ahead()
        end = self.mine.end
        for _ in range(3):
            self.passes(30)
            self.assertEqual((self.mine.end, self.repaired), (end, []))
            self.assertFalse(self.follower.sync.state.is_stop, self.follower.sync.reason)
        self.assertLess(self.wire.made, 12)
        self.fetch()
        self.standing = Standing.WHOLE
        self.passes(60)
        self.assertEqualLogs()
        self.assertEqual(self.repaired, [])

    def test_while_it_catches_up(self) -> None:
        """The same while the log grows, wherever it stops for a moment."""
        self.serve()
        self.ahead()
        chance = random.Random(7)
        while self.theirs.end < self.whole.end:
            self.fetch(min(self.whole.end, self.theirs.end + chance.randrange(1, 300)))
            self.passes(chance.random())
        self.standing = Standing.WHOLE
        self.passes(60)
        self.assertEqualLogs()
        self.assertEqual(self.repaired, [])

    def test_the_master_has_less(self) -> None:
        """In sync with its master, the end of the middle one is the log's: the policy holds."""
        self.serve()
        self.ahead()
        self.passes(10)
        self.standing = Standing.WHOLE
        self.passes(60)
        self.assertEqual(self.repaired, ["truncate"])
        self.assertEqualLogs()


class ServedTests(CascadeCase):
    """A slave that has no more than the one it follows."""

    def follower_of(self, end: int) -> CommitLog:
        """Follow with a log that ends at C{end}."""
        mine = self.log()
        append_frame(mine, 0, content(self.theirs, 0, end))
        mine.verify()
        self.follow(mine)
        return mine

    def test_served_meanwhile(self) -> None:
        """What is verified is served although more may come, up to the last whole frame."""
        self.serve()
        self.follow(self.log())
        self.passes(1)
        self.assertLess(self.theirs.end - self.mine.end, BATCH)
        self.assertFalse(self.follower.sync.state.is_stop)
        self.standing = Standing.WHOLE
        self.passes(1.1)
        self.assertEqualLogs()
        self.assertEqual(self.wire.made, 1)

    def test_once_told(self) -> None:
        """A connection told the end once gets every byte, and signs of life, through outages."""
        self.serve()
        self.standing = Standing.WHOLE
        self.follower_of(self.theirs.end - 3000)
        self.passes(1)
        self.assertEqualLogs()
        self.standing = Standing.PART
        for _ in range(3):
            self.fetch(self.theirs.end + 300)
            self.assertEqual(self.mine.end, self.theirs.confirmed)
            self.passes(25)
        self.assertEqual(self.wire.made, 1)
        self.assertFalse(self.follower.sync.state.is_stop)

    def test_never_past_what_is_verified(self) -> None:
        """Part of a record is not served."""
        self.standing = Standing.WHOLE
        self.serve()
        self.follow(self.log())
        self.fetch(self.theirs.end + 699)
        self.passes(1)
        self.assertGreater(self.theirs.end, self.theirs.confirmed)
        self.assertEqual(self.mine.end, self.theirs.confirmed)
        self.fetch()
        self.assertEqualLogs()

    def test_only_what_is_flushed(self) -> None:
        """With SYNC_FLUSH only what is on the disk is."""
        self.standing = Standing.WHOLE
        self.serve(send_flushed_only=True)
        self.follow(self.log())
        end = self.theirs.flushed
        self.fetch()
        self.passes(1)
        self.assertEqual(self.mine.end, end)
        self.theirs.now_flushed(self.theirs.end)
        self.settle()
        self.assertEqualLogs()

    def test_doubtful(self) -> None:
        """Who may not have its master's log lets nobody in and keeps nobody."""
        factory = self.serve()
        self.standing = Standing.WHOLE
        self.follower_of(self.theirs.end)
        self.assertEqualLogs()
        self.standing = Standing.DOUBTFUL
        self.passes(1.1)
        self.assertEqual((factory.connections, factory.replicas()), (0, []))
        self.passes(5)
        self.assertGreater(factory.closed["upstream"], 1)
        self.standing = Standing.PART
        self.passes(60)
        self.standing = Standing.WHOLE
        self.passes(31)
        self.theirs.put([encoded(500)], [0], STORED)
        self.settle()
        self.assertEqualLogs()
        self.assertEqual(self.repaired, [])


class StandingTests(CascadeCase):
    """What the states of a slave mean to those behind it."""

    def test_states(self) -> None:
        """Only in sync it knows the end; a stop makes its log doubtful, a full disk does not."""
        found: dict[Standing, set[str]] = {}
        for state in SyncState:
            found.setdefault(state.standing, set()).add(state.value)
        self.assertEqual(found[Standing.WHOLE], {"in-sync"})
        self.assertEqual(
            found[Standing.PART],
            {"connecting", "probing", "catching-up", "disk-full", "lower-epoch"},
        )
        self.assertLessEqual(
            {"diverged", "ahead", "gap", "bootstrapping"}, found[Standing.DOUBTFUL]
        )
