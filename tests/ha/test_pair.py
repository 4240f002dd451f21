"""The real master and the real slave, over transports in memory."""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock, deferLater
from twisted.test.iosim import FakeTransport, IOPump, connect
from zope.interface import implementer

from rmqha.config.ha_settings import DivergencePolicy, FirstSync, HASettings
from rmqha.errors import Refused
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.repair import Divergence, plan_cut
from rmqha.ha.slave.reportable import flushed_end
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.recovery import cut
from rmqha.store.log.truncate import quarantine
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, STORED, LogTestCase, content, encoded
from tests.support.masters import feeding

SIZES = (700, 1500, 900, 600) * 5


@implementer(IStreamClientEndpoint)
class Wire:
    """Connects to the master's factory; C{None} while it is down, C{"closing"} while it closes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.master: Any = None
        self.pumps: list[IOPump] = []
        self.ends: list[tuple[FakeTransport, FakeTransport]] = []
        self.made = 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, or fail, in the reactor's next turn."""
        return deferLater(self.clock, 0.0, self._connect, protocolFactory)

    def _connect(self, protocolFactory: IProtocolFactory) -> IProtocol:
        if self.master is None:
            raise ConnectionRefusedError
        self.made += 1
        client = protocolFactory.buildProtocol(IPv4Address("TCP", "10.0.0.1", 10912))
        assert client is not None, "it has a protocol"
        address = IPv4Address("TCP", "10.0.0.2", 40000 + self.made)
        server = None if self.master == "closing" else self.master.buildProtocol(address)
        mine = FakeTransport(client, isServer=False)
        if server is None:
            client.makeConnection(mine)
            self.clock.callLater(0, mine.reportDisconnect)
            return client
        theirs = FakeTransport(server, isServer=True, peerAddress=address)
        self.pumps.append(connect(server, theirs, client, mine, greet=False))
        self.ends.append((theirs, mine))
        return client

    def cut(self) -> None:
        """The newest connection is cut."""
        if self.ends and not self.ends[-1][0].disconnected:
            self.ends[-1][0].loseConnection()

    def pump(self) -> None:
        """Let everything through that was written."""
        moved = True
        while moved:
            moved = False
            for pump in self.pumps:
                moved = bool(pump.pump()) or moved


class Pair(LogTestCase):
    """A master with five files, a slave, and no time passing."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.wire = Wire(self.clock)
        self.theirs = self.filled(*SIZES)
        self.factory: MasterFactory | None = None

    def serve(self, **keys: Any) -> MasterFactory:
        """Start a master on its log: a new epoch."""
        settings = HASettings(**({"batch": 1000} | keys))
        factory = feeding(self.theirs, self.clock, settings)
        self.transfer = factory.transfer
        factory.start()
        self.factory = self.wire.master = factory
        self.addCleanup(self.unserve)
        return factory

    def unserve(self) -> None:
        factory, self.factory = self.factory, None
        self.wire.master = None
        if factory is not None:
            stopped = factory.stop()
            self.settle()
            self.clock.advance(1)
            self.settle()
            self.successResultOf(stopped)

    def follow(self, mine: CommitLog, **keys: Any) -> Follower:
        self.mine = mine
        self.marks: list[bool] = []
        self.repaired: list[str] = []
        self.follower = Follower(
            sync=FollowState(
                port=MasterClientPort(None, self.clock, "10.0.0.1:10912", self.wire),
                current_log=lambda: self.mine,
                settings=HASettings(**({"batch": 1000} | keys)),
                bootstrapping=self.marks.append,
            ),
            repair=self.repair,
        )
        self.follower.startService()
        self.addCleanup(self.unfollow)
        self.settle()
        return self.follower

    def unfollow(self) -> None:
        stopped = self.follower.stopService()
        self.settle()
        self.successResultOf(stopped)

    def repair(self, policy: DivergencePolicy, divergence: Divergence | None) -> Deferred[str]:
        """What a node does, without its store."""
        self.repaired.append(policy.value)
        if policy is DivergencePolicy.REBOOTSTRAP:
            self.mine = self.log()
            return succeed("aside")
        assert divergence is not None, "it is known"
        try:
            at = plan_cut(self.mine, divergence, self.follower.sync.settings.max_truncate)
        except Refused as error:
            return fail(error)
        old = self.mine
        self.kept = quarantine(self.folder(), old.folder, at, old.end)
        cut(old.folder, at)
        self.mine = CommitLog(folder=old.folder, end=at, allocator=old.allocator)
        return succeed(f"cut at {at}")

    def settle(self) -> None:
        """Everything that needs no time happens."""
        for _ in range(5):
            self.wire.pump()
            self.clock.advance(0)

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)
            self.settle()

    def assertEqualLogs(self) -> None:
        """In sync, and byte for byte."""
        self.assertEqual(self.follower.sync.state.value, "in-sync", self.follower.sync.reason)
        low = max(self.mine.min_offset, self.theirs.min_offset)
        self.assertEqual(content(self.mine, low), content(self.theirs, low))
        self.assertEqual(self.mine.confirmed, self.theirs.end)

    def part(self, *sizes: int, end: int | None = None, topic: str = "TopicB") -> CommitLog:
        """A log that has the master's bytes up to C{end}, and then others."""
        log = self.log()
        stop = self.theirs.end if end is None else end
        append_frame(log, 0, content(self.theirs, 0, stop))
        log.verify()
        for size in sizes:
            log.put([encoded(size, topic=topic)], [0], STORED)
        return log


class FollowTests(Pair):
    def test_bootstrap(self) -> None:
        """An empty slave gets everything from the first byte."""
        self.serve()
        self.follow(self.log())
        self.assertEqualLogs()
        self.assertEqual((self.marks, self.wire.made), ([True, False], 1))

    def test_bootstrap_above_zero(self) -> None:
        """From the master's min, if that is all it has."""
        self.theirs.drop_first().remove()
        self.theirs.drop_first().remove()
        self.serve()
        self.follow(self.log())
        self.passes(2)
        self.assertEqualLogs()
        self.assertEqual(self.mine.min_offset, 2 * FILE_SIZE)

    def test_bootstrap_from_stock_behaviour(self) -> None:
        """A master that gives an empty slave only its last file has the rest taken anyway."""
        self.serve(first_sync=FirstSync.LAST_FILE)
        self.follow(self.log())
        self.passes(2)
        self.assertEqualLogs()
        self.assertEqual(self.mine.min_offset, 0)

    def test_master_with_only_later_files_and_stock_behaviour(self) -> None:
        """Then the first file is found by asking."""
        self.theirs.drop_first().remove()
        self.serve(first_sync=FirstSync.LAST_FILE)
        self.follow(self.log())
        self.passes(3)
        self.assertEqualLogs()
        self.assertEqual(self.mine.min_offset, FILE_SIZE)

    def test_last_file(self) -> None:
        """haFirstSync=last-file on the slave takes that."""
        self.serve(first_sync=FirstSync.LAST_FILE)
        self.follow(self.log(), first_sync=FirstSync.LAST_FILE)
        self.assertEqualLogs()
        self.assertEqual(self.mine.min_offset, 4 * FILE_SIZE)

    def test_sync_writes(self) -> None:
        """Writes are acknowledged by the slave's reports, as they come."""
        self.serve()
        self.follow(self.log())
        for _ in range(10):
            begin = self.theirs.put([encoded(300)], [0], STORED)
            waiting = self.transfer.wait(begin, self.theirs.end)
            self.assertNoResult(waiting)
            self.settle()
            self.assertEqual(self.successResultOf(waiting), PutStatus.PUT_OK)
            self.assertEqual(self.follower.sync.state.value, "in-sync")
        self.assertEqualLogs()

    def test_only_flushed(self) -> None:
        """A SYNC_FLUSH slave acknowledges when its disk has it."""
        self.serve()
        self.follow(self.log())
        self.follower.reportable = flushed_end
        self.unfollow()
        self.follower.startService()
        self.settle()
        # A master in its own run, so that the slave's old bytes are history.
        begin = self.theirs.put([encoded(300)], [0], STORED)
        waiting = self.transfer.wait(begin, self.theirs.end)
        self.settle()
        self.mine.now_flushed(self.mine.end)
        self.settle()
        self.assertEqual(self.successResultOf(waiting), PutStatus.PUT_OK)

    def test_empty_pair(self) -> None:
        """Two empty logs are in sync; the first write is followed."""
        self.theirs = self.log()
        self.serve()
        self.follow(self.log())
        self.passes(1.5)
        self.assertEqual(self.follower.sync.state.value, "in-sync")
        self.theirs.put([encoded(300)], [0], STORED)
        self.settle()
        self.theirs.put([encoded(300)], [0], STORED)
        self.settle()
        self.passes(6)
        self.assertEqualLogs()

    def test_reconnect(self) -> None:
        """A cut connection is made again, compared, and costs nothing."""
        self.serve()
        self.follow(self.log())
        for _ in range(3):
            self.wire.cut()
            self.settle()
            self.assertEqual(self.follower.sync.state.value, "connecting")
            self.theirs.put([encoded(900)], [0], STORED)
            self.passes(1.5)
            self.assertEqualLogs()

    def test_master_restarts(self) -> None:
        """While a master recovers it closes what connects; then all goes on."""
        self.serve()
        self.follow(self.log())
        self.unserve()
        self.passes(3)
        self.wire.master = "closing"
        self.passes(5)
        self.assertIn(self.follower.sync.state.value, ("connecting", "probing"))
        self.serve()
        self.passes(31)
        self.assertEqualLogs()

    def test_housekeeping(self) -> None:
        """An idle pair stays connected: heartbeats one way, reports the other."""
        self.serve()
        self.follow(self.log())
        self.passes(120)
        self.assertEqualLogs()
        self.assertEqual(self.wire.made, 1)

    def test_random_life(self) -> None:
        """Writes, cuts, restarts in any order: never anything but a prefix, and equal at last."""
        seed = random.SystemRandom().randrange(1 << 32)
        choose = random.Random(seed)
        self.serve()
        self.follow(self.log())
        for _ in range(60):
            deed = choose.randrange(5)
            if deed < 3:
                self.theirs.put([encoded(choose.randint(130, 3000))], [0], STORED)
            elif deed == 3 and self.wire.ends:
                self.wire.cut()
                self.settle()
            else:
                self.unserve()
                self.serve()
            self.passes(choose.choice((0.0, 0.5, 3.0)))
            held = content(self.mine)
            self.assertEqual(held, content(self.theirs)[: len(held)], f"seed {seed}")
        self.passes(31)
        self.assertEqualLogs()


class PartedTests(Pair):
    def test_master_lost_its_tail(self) -> None:
        """A slave that is ahead says so, acknowledges nothing, and is not fed (F14)."""
        for extra in ((130,), (700, 900), (3000, 3000)):
            with self.subTest(extra=extra):
                self.serve()
                self.follow(self.part(*extra))
                self.passes(3)
                self.assertEqual(self.follower.sync.state.value, "ahead")
                more = self.mine.end - self.theirs.end
                self.assertIn(f"{more} bytes more", self.follower.sync.reason)
                waiting = self.transfer.wait(0, 700)
                self.assertEqual(self.successResultOf(waiting), PutStatus.SLAVE_NOT_AVAILABLE)
                self.unfollow()
                self.unserve()

    def test_does_not_become_right_by_waiting(self) -> None:
        """When the master has written past us, the difference is found."""
        self.serve()
        self.follow(self.part(700))
        self.passes(3)
        before = self.mine.end
        for _ in range(10):
            self.theirs.put([encoded(900)], [0], STORED)
        self.passes(31)
        self.assertEqual((self.follower.sync.state.value, self.mine.end), ("diverged", before))

    def test_truncate(self) -> None:
        """With the policy the tail is kept elsewhere, cut, and the logs are equal."""
        for extra in ((130,), (700, 900), (3000, 3000, 3000)):
            with self.subTest(extra=extra):
                self.serve()
                mine = self.part(*extra)
                tail = content(mine, self.theirs.end)
                self.follow(mine, policy=DivergencePolicy.TRUNCATE)
                self.passes(3)
                self.assertEqualLogs()
                self.assertEqual((self.repaired, self.kept.read_bytes()), (["truncate"], tail))
                self.unfollow()
                self.unserve()

    def test_truncate_a_difference(self) -> None:
        """The same where bytes differ, from the record that differs on."""
        self.serve()
        mine = self.part(900, 700, 3000, end=2 * FILE_SIZE + 2200)
        self.assertNotEqual(content(mine), content(self.theirs)[: mine.end])
        self.follow(mine, policy=DivergencePolicy.TRUNCATE)
        self.passes(3)
        self.assertEqualLogs()
        self.assertEqual(len(self.kept.read_bytes()), mine.end - (2 * FILE_SIZE + 2200))

    def test_too_much_to_cut(self) -> None:
        """Above haMaxTruncateBytes the state stays and says why."""
        self.serve()
        mine = self.part(900, 700)
        self.follow(mine, policy=DivergencePolicy.TRUNCATE, max_truncate=1599)
        self.passes(3)
        self.assertEqual(self.follower.sync.state.value, "ahead")
        self.assertIn("haMaxTruncateBytes", self.follower.sync.reason)
        self.assertIs(self.mine, mine)
        self.passes(100)
        self.assertLess(len(self.repaired), 6)

    def test_other_cluster(self) -> None:
        """A master of another cluster has nothing in common: nothing is cut."""
        self.serve()
        mine = self.log()
        for size in SIZES:
            mine.put([encoded(size, topic="Others")], [0], STORED)
        self.follow(mine, policy=DivergencePolicy.TRUNCATE)
        self.passes(3)
        self.assertEqual(self.follower.sync.state.value, "diverged")
        self.assertIn("no whole record", self.follower.sync.reason)
        self.assertIs(self.mine, mine)

    def test_rebootstrap(self) -> None:
        """Rebootstrap copies everything anew."""
        self.serve()
        mine = self.log()
        for size in SIZES:
            mine.put([encoded(size, topic="Others")], [0], STORED)
        self.follow(mine, policy=DivergencePolicy.REBOOTSTRAP)
        self.passes(3)
        self.assertEqualLogs()
        self.assertEqual(self.repaired, ["rebootstrap"])

    def test_wiped_master(self) -> None:
        """A master that lost everything is not followed into emptiness."""
        copy = self.part()
        self.theirs = self.log()
        for policy in DivergencePolicy:
            with self.subTest(policy=policy):
                self.serve()
                self.follow(copy, policy=policy)
                self.passes(20)
                self.assertEqual((self.follower.sync.state.value, self.repaired), ("ahead", []))
                self.assertIs(self.mine, copy)
                self.unfollow()
                self.unserve()

    def test_expired(self) -> None:
        """A slave whose continuation is deleted is below-min, at once (F30)."""
        mine = self.part(end=FILE_SIZE)
        self.theirs.drop_first().remove()
        self.theirs.drop_first().remove()
        self.serve()
        self.follow(mine)
        self.passes(3)
        self.assertEqual(self.follower.sync.state.value, "below-min")
        self.assertEqual(self.mine.end, FILE_SIZE)

    def test_expired_in_the_middle(self) -> None:
        """While our end is still there the rest is common ground."""
        mine = self.part(end=2 * FILE_SIZE + 700)
        self.theirs.drop_first().remove()
        self.theirs.drop_first().remove()
        self.serve()
        self.follow(mine)
        self.passes(3)
        self.assertEqualLogs()
