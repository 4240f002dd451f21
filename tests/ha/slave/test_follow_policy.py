"""A slave that begins with nothing, and what a policy allows where logs differ."""

from __future__ import annotations

from pathlib import Path

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import Refused
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.repair import Divergence
from rmqha.ha.states import SyncState
from rmqha.wire.log.encode import blank
from tests.support.following import SIZE, SIZES, ThreeFilesCase
from tests.support.logs import Disk, content
from tests.support.scripted_master import Connection


class BootstrapTests(ThreeFilesCase):
    def stock(self, *, answers: bool = True) -> Connection:
        """A stock master answers an empty slave from its last file."""
        connection = self.accept(within=0.1)
        self.assertEqual(connection.reports(), [0])
        last = self.theirs.end - self.theirs.end % SIZE
        connection.heartbeat(last)
        connection.feed(self.theirs, last)
        self.assertFalse(connection.open)
        return connection

    def test_stock_blank_first(self) -> None:
        """A first file that is all blank gives its size as first bytes."""
        self.theirs = self.log(self.blank_first())
        self.theirs.end = self.theirs.confirmed = SIZE
        self.grow(700)
        mine = self.log()
        self.follow(mine)
        self.stock()
        self.accept(within=0.1).feed(self.theirs, 1)
        self.assertEqual(content(mine), content(self.theirs))

    def blank_first(self) -> Path:
        """A folder with one file that is a blank."""
        folder = self.folder()
        (folder / f"{0:020d}").write_bytes(blank(SIZE).ljust(SIZE, b"\0"))
        return folder

    def test_stock_expired(self) -> None:
        """A stock master's oldest file is found by halving."""
        self.theirs = self.filled(*SIZES * 4)
        self.assertGreater(self.theirs.end, 12 * SIZE)
        mine = self.log()
        minimum = 5 * SIZE
        self.follow(mine)
        self.stock()
        asked = []
        for _ in range(10):
            connection = self.accept(within=6.1)
            start = connection.reports()[0]
            asked.append(start)
            if start < minimum:
                self.passes(6)
                self.assertFalse(connection.open)
                continue
            connection.feed(self.theirs, start)
            if connection.open:
                break
        self.assertEqual((start, mine.min_offset), (minimum, minimum))
        self.assertEqual(content(mine), content(self.theirs, minimum))
        self.assertLessEqual(len(asked), 7)

    def test_rmqha_expired(self) -> None:
        """A master of ours answers from its min, closes below; closes are searched twice."""
        mine = self.log()
        self.follow(mine)
        first = []
        for _ in range(20):
            connection = self.accept(within=0.1)
            start = connection.reports()[0]
            first.append(start)
            if start == 0:
                connection.feed(self.theirs, 2 * SIZE)
            elif start < 2 * SIZE:
                connection.close()
            else:
                connection.feed(self.theirs, start)
                connection.heartbeat(self.theirs.end)
            if connection.open:
                break
        self.assertEqual(first.count(0), 2)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs, 2 * SIZE))

    def test_restart_in_the_middle_of_the_search(self) -> None:
        """A master that goes away between two questions does not make us skip its oldest."""
        mine = self.log()
        self.follow(mine)
        self.stock()
        for _ in range(4):  # being stopped, and not open yet
            connection = self.accept(within=31)
            connection.close()
        for _ in range(10):
            connection = self.accept(within=31)
            start = connection.reports()[0]
            last = self.theirs.end - self.theirs.end % SIZE
            connection.feed(self.theirs, start or last)
            if connection.open:
                break
        self.assertEqual(content(mine), content(self.theirs))

    def test_master_that_closes_everything(self) -> None:
        """It is not asked in a hot loop, wherever the search stands."""
        self.follow(self.log())
        self.stock()
        for _ in range(30):
            if not self.endpoint.waiting:
                self.clock.advance(0.06)
            if self.endpoint.waiting:
                self.endpoint.accept().close()
        made = self.follower.sync.reconnects
        self.passes(20)
        for _ in range(100):
            self.clock.advance(0.06)
            if self.endpoint.waiting:
                self.endpoint.accept().close()
        self.assertLess(self.follower.sync.reconnects - made, 30)

    def test_silent_where_it_had_bytes(self) -> None:
        """A settled start that falls silent is looked for again."""
        mine = self.log()
        self.follow(mine)
        self.stock()
        self.accept(within=0.1).feed(self.theirs, 1, 1 + 50)
        self.assertEqual(self.follower.sync._search.question(mine, mine.end).report, 1)

    def test_last_file(self) -> None:
        """haFirstSync=last-file takes what a stock master gives."""
        mine = self.log()
        connection = self.begun(mine, first_sync="last-file")
        last = self.theirs.end - self.theirs.end % SIZE
        connection.feed(self.theirs, last)
        connection.heartbeat(self.theirs.end)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs, last))

    def test_opening_heartbeat_of_a_full_master(self) -> None:
        """A stock master's opening heartbeat at 0 does not make us in sync with nothing."""
        connection = self.begun(self.log())
        connection.heartbeat(0)
        connection.feed(self.theirs, 0, 2000)
        self.assertState("bootstrapping")
        self.passes(2)
        self.assertState("bootstrapping")

    def test_below_min_starts_over(self) -> None:
        """A copy whose continuation is deleted starts over by itself, whatever the policy."""
        mine = self.copied(self.theirs, SIZE + 700)
        self.begun(mine, is_bootstrapping=True)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.accept(within=0.1)
        self.passes(6)
        self.accept(within=0.1).feed(self.theirs, 2 * SIZE)
        self.assertState("below-min")
        self.turn()
        policy, divergence, done = self.repairs[0]
        self.assertIs(policy, DivergencePolicy.REBOOTSTRAP)
        self.assertIsNone(divergence)
        self.mine = self.log()
        done.callback("starts over")
        self.assertEqual(self.accept(within=0.1).reports(), [0])


class EndTests(ThreeFilesCase):
    """One who follows only to keep the bytes, and repairs nothing."""

    def test_ends(self) -> None:
        """Where its owner says so, following ends for good, whatever the policy is."""
        asked = []

        def ends(sync: FollowState) -> bool:
            asked.append((sync.state, sync.divergence))
            return True

        mine = self.changed(self.theirs, SIZE + 500)
        connection = self.begun(mine, ends=ends, policy=DivergencePolicy.TRUNCATE)
        connection.feed(self.theirs, connection.reports()[0])
        self.assertState("diverged")
        self.assertEqual(asked, [(SyncState.DIVERGED, Divergence(SIZE + 500, 1))])
        self.assertIdleFor(60)
        self.assertEqual(self.repairs, [])

    def test_goes_on(self) -> None:
        """Where its owner does not, it goes on as ever."""
        connection = self.in_sync(self.copied(self.theirs), ends=lambda sync: False)
        self.grow(1500, 1500, 1500)
        Disk(full=True).install(self)
        connection.feed(self.theirs, self.mine.end)
        self.assertState("disk-full")
        self.accept(within=6)


class PolicyTests(ThreeFilesCase):
    def diverge(self, **more: object) -> None:
        """A difference at byte 2500, found."""
        self.begun(self.changed(self.theirs, 2500), **more).feed(self.theirs, 1)
        self.assertState("diverged")
        self.turn()

    def test_refused(self) -> None:
        """A repair that is refused keeps the state, says why, and is not tried in a loop."""
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.repairs[0][2].errback(Refused("truncate", "too much"))
        self.assertState("diverged")
        self.assertIn("byte 2500 of", self.follower.sync.reason)
        self.assertTrue(self.follower.sync.reason.endswith("truncate refused: too much"))
        self.assertIdleFor(29)
        reason = self.follower.sync.reason
        self.accept(within=1.1).feed(self.theirs, 1)
        self.turn()
        self.repairs[1][2].errback(Refused("truncate", "too much"))
        self.assertEqual(self.follower.sync.reason, reason)

    def test_one_at_a_time(self) -> None:
        """While a repair runs there is no connection and no second one."""
        self.diverge(policy=DivergencePolicy.TRUNCATE)
        self.follower.bad_record(Refused("x", "y"))
        self.assertIdleFor(100)
        self.assertEqual(len(self.repairs), 1)
