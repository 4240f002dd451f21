"""A slave's node with slaves behind it: when it lets them in, and as what."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import DiskFull
from rmqha.ha.epoch import Epoch
from rmqha.ha.master.master import GATHERING
from rmqha.logfiles.log_writer import crashed_from
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.service import StoreService
from rmqha.wire.ha_frame import TransferDecoder, encode_report
from tests.roles.nodes import PuppetSlave, settings
from tests.roles.test_slave import SlaveCase
from tests.support.following import SIZE
from tests.support.logs import now
from tests.support.scripted_master import Connection, frames


class CascadeCase(SlaveCase):
    """A slave that has its HA port open, for those who connect by hand."""

    def start(self, *, wait: bool = True, run: Any = now, **keys: Any) -> PuppetSlave:
        given = settings(self.root, **{"listen_port": 10922, **keys})
        self.node = PuppetSlave(given, self.reactor, run)
        self.node.startService()
        self.addCleanup(self.end)
        if wait:
            self.successResultOf(self.node.ready)
        return self.node

    def ask(self, offset: int, host: str = "10.0.0.9") -> Connection | None:
        """A slave behind ours connects and reports: C{None} if it is not let in."""
        protocol = self.node.serving.gate.buildProtocol(IPv4Address("TCP", host, 4000))
        if protocol is None:
            return None
        behind = Connection(protocol, self.reactor)
        behind.send(encode_report(offset))
        self.turn()
        return behind

    def sent(self, behind: Connection) -> int:
        """How many bytes of log it was sent."""
        events = TransferDecoder().receive(behind.transport.value())
        return sum(len(event.data) for event in events if hasattr(event, "data"))

    def copied(self, **keys: Any) -> Connection:
        """The node is in sync with its master."""
        self.start(**keys)
        upstream = self.accept(1)
        upstream.feed(self.theirs, upstream.reports()[0])
        upstream.heartbeat(self.theirs.end)
        self.assertEqual(self.state, "in-sync")
        return upstream

    @property
    def status(self) -> dict[str, Any]:
        return self.node.status()


class LettingInTests(CascadeCase):
    def test_not_while_it_copies(self) -> None:
        """An unfinished copy may start over, so it is nobody's master yet."""
        self.start()
        upstream = self.accept()
        upstream.feed(self.theirs, 0, 2 * SIZE)
        self.assertEqual(self.state, "bootstrapping")
        self.assertIsNone(self.ask(0))
        self.assertEqual(self.status["closedConnections"], {"not-serving": 1})
        upstream.feed(self.theirs, 2 * SIZE)
        self.assertEqual(self.state, "in-sync")
        behind = self.ask(0)
        assert behind is not None
        self.assertEqual(self.sent(behind), self.theirs.end)

    def test_its_epoch_begins_with_the_copy(self) -> None:
        """What was copied is history everybody shares, whoever had it from where."""
        self.copied()
        end = self.theirs.end
        self.assertEqual(self.status["epoch"]["start"], end)
        behind = self.ask(end - 1000)
        assert behind is not None
        self.assertTrue(behind.open)
        self.assertEqual(self.sent(behind), 1000)

    def test_counts(self) -> None:
        """What slaves were sent stays counted when sent away, and that of those who left."""
        self.copied()
        for host, lacks in (("10.0.0.8", 1000), ("10.0.0.9", 0)):
            behind = self.ask(self.theirs.end - lacks, host)
            assert behind is not None
        behind.close()
        self.turn()
        counted = {"sentBytes": 1000, "closedConnections": {"peer": 1}}
        self.assertEqual({name: self.status[name] for name in counted}, counted)
        ended = Deferred.fromCoroutine(self.node.serving.end())
        self.assertNoResult(ended)
        self.assertEqual(self.status["sentBytes"], 1000)
        self.assertEqual(self.status["closedConnections"]["peer"], 1)
        self.reactor.advance(60)
        self.successResultOf(ended)
        self.assertEqual(self.status["sentBytes"], 1000)

    def test_passes_on(self) -> None:
        """What arrives and is verified goes on within milliseconds; part of a record does not."""
        upstream = self.copied()
        end = self.theirs.end
        behind = self.ask(end)
        assert behind is not None
        self.put(self.theirs, 900)
        upstream.frame(end, bytes(self.theirs.read(end, 500)))
        self.reactor.advance(GATHERING)
        self.assertEqual(self.sent(behind), 0)
        upstream.frame(end + 500, bytes(self.theirs.read(end + 500, 400)))
        self.reactor.advance(GATHERING)
        self.assertEqual(self.sent(behind), 900)
        behind.send(encode_report(end + 900))
        (row,) = self.status["replicas"]
        self.assertEqual((row["acked"], row["state"]), (end + 900, "in-sync"))
        self.assertEqual(self.status["upstream"]["state"], "in-sync")
        self.assertEqual(self.status["syncGuarantee"], "none: a slave takes no writes")

    def test_retention(self) -> None:
        """What a slave behind ours still needs is kept."""
        self.copied()
        self.assertIsNone(self.node.store.environment.held_from())
        self.ask(SIZE + 700)
        self.assertEqual(self.node.store.environment.held_from(), SIZE + 700)

    def test_serves_while_its_master_is_away(self) -> None:
        """What it has is as good as before."""
        self.copied()
        self.stop()
        self.start()
        behind = self.ask(SIZE)
        assert behind is not None
        self.assertTrue(behind.open)
        self.assertGreater(self.sent(behind), self.theirs.end - SIZE - 1000)

    def test_off(self) -> None:
        """With haListenPort=0 there is no port, and no epoch."""
        self.copied(listen_port=0)
        self.assertEqual(self.node._ports, [])
        self.assertNotIn("epoch", self.status)
        self.assertEqual(self.status["replicas"], [])

    def test_full_disk(self) -> None:
        """That the epoch cannot be written down keeps nobody from following."""
        self.copied()
        self.stop()
        real = Epoch.save
        full = True

        def save(epoch: Epoch, log: CommitLog) -> None:
            if full:
                raise DiskFull("epoch.json", 145)
            real(epoch, log)

        self.patch(Epoch, "save", save)
        self.start()
        self.assertIsNone(self.ask(0))
        self.assertEqual(self.status["state"], "disk-full")
        full = False
        self.reactor.advance(5)
        self.assertIsNotNone(self.ask(0))


class EpochTests(CascadeCase):
    def test_goes_on(self) -> None:
        """After a clean stop with the same log start and marks are the same."""
        upstream = self.copied()
        start = self.theirs.end
        behind = self.ask(start)
        assert behind is not None
        self.put(self.theirs, 900)
        upstream.feed(self.theirs, start)
        self.stop()
        self.start()
        self.assertEqual(self.status["epoch"]["start"], start)
        proven, other = self.ask(start + 900), self.ask(start + 900, "10.0.0.10")
        assert proven is not None and other is not None
        self.assertEqual((proven.open, other.open), (True, False))
        self.assertEqual(self.status["closedConnections"]["unproven"], 1)

    def test_a_slave_becomes_a_master(self) -> None:
        """That begins another epoch: the other slaves of the old master are right."""
        self.copied()
        start = self.theirs.end
        log = self.node.store.log
        self.stop()
        again = Epoch.begin(self.root, log, master=False)
        self.assertTrue(again.continued)
        self.assertIsNone(crashed_from(self.root))
        again.close(log, {})
        run = Epoch.begin(self.root, log, master=True)
        self.assertEqual((run.continued, run.start), (False, start))
        self.assertEqual(crashed_from(self.root), start)

    def test_truncate(self) -> None:
        """A cut closes all connections first; nobody who has what was cut is believed after."""
        old = self.parted("truncate")
        end = self.theirs.end
        self.assertEqual(self.state, "ahead")
        self.assertIsNone(self.ask(old.end))
        self.turn()
        self.catch_up()
        self.assertEqual(self.status["epoch"]["start"], end)
        ahead = self.ask(old.end)
        assert ahead is not None
        self.assertFalse(ahead.open)
        upstream = self.node.following.follower
        assert upstream is not None and upstream.sync.connection is not None
        while self.theirs.end < old.end:
            self.put(self.theirs, 777)
        upstream.sync.connection.dataReceived(b"".join(self.frames(end)))
        self.assertGreater(self.node.store.log.confirmed, old.end)
        unproven = self.ask(old.end)
        assert unproven is not None
        self.assertFalse(unproven.open)
        self.assertEqual(self.sent(unproven), 0)
        closed = self.status["closedConnections"]
        self.assertEqual((closed["ahead"], closed["unproven"]), (1, 1))

    def frames(self, start: int) -> list[bytes]:
        """What the master sends from C{start} on."""
        return list(frames(self.theirs, start))

    def test_a_stop_state_closes_all(self) -> None:
        """Whoever came before the node knew that it is ahead is closed, and refused as long."""
        self.parted("stop")
        self.stop()
        self.start(policy=DivergencePolicy.STOP)
        behind = self.ask(SIZE)
        assert behind is not None
        self.assertTrue(behind.open)
        connection = self.accept()
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)
        self.assertEqual(self.state, "ahead")
        self.reactor.pump([0.25] * 5)
        self.assertFalse(behind.open)
        self.assertIsNone(self.ask(SIZE))
        self.assertEqual(self.status["closedConnections"]["upstream"], 2)

    def test_refused_cut(self) -> None:
        """Where nothing is cut, the epoch is the one it was."""
        self.parted("truncate", max_truncate=10)
        start = self.status["epoch"]["start"]
        self.turn()
        self.assertIn("haMaxTruncateBytes", self.status["upstream"]["reason"])
        self.assertEqual(self.status["epoch"]["start"], start)

    def test_cut_while_it_is_read(self) -> None:
        """The slaves behind are gone before the store is closed."""
        self.parted("stop")
        self.stop()
        self.start(policy=DivergencePolicy.TRUNCATE)
        behind = self.ask(SIZE)
        assert behind is not None
        order: list[str] = []
        real = StoreService.stopService

        def stop(service: StoreService) -> Any:
            order.append("gone" if behind.transport.gone else "open")
            return real(service)

        self.patch(StoreService, "stopService", stop)
        connection = self.accept()
        connection.feed(self.theirs, connection.reports()[0])
        connection.heartbeat(self.theirs.end)
        self.turn()
        self.assertEqual(order, ["gone"], "the store was closed under it")
        self.catch_up()
        self.assertCopied()
