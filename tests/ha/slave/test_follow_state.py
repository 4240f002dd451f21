"""What a slave says of itself: its health, its numbers, and what it has of its master."""

from __future__ import annotations

import time

from attrs import define, field
from twisted.internet.defer import succeed

from rmqha.ha.slave.choice import PresentMaster
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.ha.states import SyncState
from rmqha.health import HealthProbe, HealthReason
from tests.support.following import SIZE, ThreeFilesCase
from tests.support.logs import Disk
from tests.support.scripted_master import Connection

BEGAN = 1000.0
"""What the clock says when a slave begins."""


class StateCase(ThreeFilesCase):
    """A slave that begins long after its clock."""

    def setUp(self) -> None:
        super().setUp()
        self.clock.advance(BEGAN)

    def health(self) -> list[HealthReason]:
        return list(self.follower.sync.health())


class HealthTests(StateCase):
    """What C{/healthz} and C{/readyz} say of a slave."""

    RIGHT = (SyncState.DISK_FULL, SyncState.LOWER_EPOCH)
    """Those stop states in which nothing is wrong with what is held."""

    WELL = (
        SyncState.CONNECTING,
        SyncState.PROBING,
        SyncState.BOOTSTRAPPING,
        SyncState.CATCHING_UP,
        SyncState.IN_SYNC,
        SyncState.STOPPED,
    )
    """Those that are no stop state, and that of a node that stops, which says so itself."""

    def test_every_state(self) -> None:
        """A slave that stands still is unhealthy, and not ready if its log is in doubt."""
        for state in SyncState:
            with self.subTest(state=state):
                self.follow(self.copied(self.theirs))
                self.follower.sync.become(state, "why")
                fails = HealthProbe.HEALTH
                if state not in self.RIGHT:
                    fails |= HealthProbe.READY
                reason = HealthReason(f"replication-{state.value}", "why", fails=fails, told=True)
                self.assertEqual(self.health(), [] if state in self.WELL else [reason])
                self.stop()

    def test_no_master(self) -> None:
        """A slave that hears nothing for just so long is unhealthy, and well with the next word."""
        connection = self.in_sync(self.copied(self.theirs), no_master_alarm=5.0)
        self.clock.advance(4.5)
        self.assertEqual(self.health(), [])
        self.clock.advance(0.5)
        text = "nothing was heard from a master for 5 s: "
        self.assertEqual(self.health(), [HealthReason("no-master", text)])
        connection.heartbeat(self.theirs.end)
        self.assertEqual(self.health(), [])

    def test_no_alarm(self) -> None:
        """With 0 it never is."""
        self.follow(self.copied(self.theirs), no_master_alarm=0.0)
        for _ in range(2):
            self.assertEqual(self.health(), [])
            self.clock.advance(0.9)

    def test_first_copy(self) -> None:
        """A copy that is not whole is not ready, whatever else there is."""
        copy = HealthReason(
            "first-copy", "the copy of the master's log is not complete", fails=HealthProbe.READY
        )
        connection = self.begun(self.log())
        connection.feed(self.theirs, 0, 2000)
        self.assertEqual(self.health(), [copy])
        self.follower.sync.become(SyncState.DISK_FULL, "why")
        self.assertEqual(
            self.health(), [HealthReason("replication-disk-full", "why", told=True), copy]
        )
        connection.feed(self.theirs, 2000)
        connection.heartbeat(self.theirs.end)
        self.assertEqual(self.health(), [])


class NumbersTests(StateCase):
    def numbers(self, *names: str) -> list[object]:
        status = self.follower.sync.status(0)
        return [status[name] for name in names]

    def test_silence(self) -> None:
        """Silence counts from the start, then from the last byte, whichever connection it was."""
        names = "secondsSilent", "secondsDisconnected"
        self.follow(self.copied(self.theirs))
        self.clock.advance(7)
        self.assertEqual(self.numbers(*names), [7.0, 7.0])
        connection = self.accept()
        self.assertEqual(self.numbers(*names), [7.0, 0.0])
        connection.feed(self.theirs, 1)
        self.assertEqual(self.numbers(*names), [0.0, 0.0])
        self.clock.advance(3)
        self.assertEqual(self.numbers(*names), [3.0, 0.0])
        connection.close()
        self.clock.advance(0.5)
        self.assertEqual(self.numbers(*names), [3.5, 3.5])

    def test_counters(self) -> None:
        """All connections count, and what all of them brought."""
        names = "reconnects", "probes", "received"
        end = self.theirs.end
        connection = self.begun(self.copied(self.theirs))
        self.assertEqual(self.numbers(*names), [0, 1, 0])
        for times in (1, 2):
            connection.feed(self.theirs, 1)
            self.assertEqual(self.numbers(*names), [times - 1, times, times * (end - 1)])
            connection.close()
            self.assertEqual(self.numbers(*names), [times, times, times * (end - 1)])
            connection = self.accept(within=1.3)

    def test_lag(self) -> None:
        """It is the age of the last record, and 0 where the master's clock is ahead of ours."""
        self.patch(time, "time", lambda: 1_700_000_000.0)
        self.begun(self.copied(self.theirs))
        for age, lag in ((60, 60.0), (-60, 0.0)):
            status = self.follower.sync.status((1_700_000_000 - age) * 1000)
            self.assertEqual(status["lagSeconds"], lag)

    def test_rate(self) -> None:
        """A slave with haMaxReceiveBytesPerSecond stops to read when more came."""
        for rate, state in ((1000, "paused"), (0, "producing")):
            self.theirs = self.filled(*[1500] * 60)
            connection = self.begun(self.log(), max_receive_rate=rate)
            connection.feed(self.theirs, 0)
            self.assertEqual(connection.transport.producerState, state)
            self.stop()


class PresentTests(StateCase):
    """What a slave has, where name servers name another master: one that was proven is kept."""

    def in_sync_for_long(self) -> Connection:
        """One that was proven, two seconds ago."""
        connection = self.in_sync(self.copied(self.theirs, 2 * SIZE))
        self.clock.advance(2)
        self.assertPresent(2.0)
        return connection

    def assertPresent(self, silent: float | None) -> None:
        """Since when the master is silent, if it was proven."""
        present = PresentMaster(address="10.0.0.1:10912", silent=silent)
        self.assertEqual(self.follower.sync.present(), present)

    def test_not_proven(self) -> None:
        """One that has not shown our bytes yet is given up for another."""
        self.begun(self.copied(self.theirs)).heartbeat(1)
        self.assertPresent(None)

    def test_lost(self) -> None:
        """One that was proven is the same after its connection was lost."""
        self.in_sync_for_long().close()
        self.assertPresent(2.0)

    def test_our_disk(self) -> None:
        """A full disk of ours says nothing against it."""
        connection = self.in_sync_for_long()
        self.grow(1500, 1500, 1500)
        Disk(full=True).install(self)
        connection.feed(self.theirs, self.mine.end)
        self.assertState("disk-full")
        self.assertPresent(0.0)

    def test_bad_record(self) -> None:
        """A bad record, which may have been damaged on the way, does not either."""
        self.in_sync_for_long().frame(self.mine.end, b"\1" * 300)
        self.assertState("diverged")
        self.assertPresent(0.0)

    def test_other_log(self) -> None:
        """What another log was shown by is no longer ours."""
        self.in_sync_for_long().close()
        self.mine.folder.at(2500).view[2500] ^= 0xFF
        self.accept(within=1.3).feed(self.theirs, 1)
        self.assertState("diverged")
        self.assertPresent(None)


@define
class Believed:
    """Masters with the epoch 3 and above, and who of them were proven."""

    told: list[tuple[str, str, MasterBounds | None, int]] = field(factory=list)

    def too_low(self, address: str, epoch: int | None) -> str:
        return f"{address} has epoch {epoch}" if epoch is not None and epoch < 3 else ""

    def proven(self, address: str, client: str, bounds: MasterBounds | None, end: int) -> None:
        self.told.append((address, client, bounds, end))


class EpochTests(StateCase):
    def asking(self, epoch: int, believed: Believed | None) -> Connection:
        identity = BrokerIdentity(name="a", id=0, epoch=epoch)
        self.bounds = MasterBounds(0, self.theirs.end, 5, identity)
        return self.begun(
            self.copied(self.theirs), bounds=lambda: succeed(self.bounds), followed=believed
        )

    def test_lower(self) -> None:
        """An older master than one that was followed hears nothing, and is left alone."""
        believed = Believed()
        connection = self.asking(2, believed)
        self.turn()
        self.assertState("lower-epoch")
        self.assertEqual(self.follower.sync.reason, "10.0.0.1:10912 has epoch 2")
        self.assertEqual((connection.reports(), believed.told), ([], []))
        self.assertIdleFor(29)

    def test_followed(self) -> None:
        """Any other is followed, and is known from the first proof of each connection on."""
        believed = Believed()
        for epoch, masters in ((2, None), (3, believed)):
            connection = self.asking(epoch, masters)
            for _ in range(2):
                connection.feed(self.theirs, connection.reports()[0])
                for _ in range(2):
                    connection.heartbeat(self.theirs.end)
                self.assertState("in-sync")
                connection.close()
                connection = self.accept(within=2)
            self.stop()
        known = ("10.0.0.1:10912", "", self.bounds, self.theirs.end)
        self.assertEqual(believed.told, [known, known])
