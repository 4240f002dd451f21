"""What makes a node unhealthy, by its roles."""

from __future__ import annotations

from attrs import evolve
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from rmqha.config.broker_settings import BrokerRole
from rmqha.health import HealthProbe
from tests.roles.nodes import NodeReactor, settings
from tests.roles.test_metadata import PlainMaster
from tests.roles.test_slave import SlaveCase
from tests.support.health import unhealthy
from tests.support.logs import LogTestCase, message

ALARM = 60.0
"""C{haNoMasterAlarm} unless it is set."""


class HealthLines:
    """What the log says of health."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, event: LogEvent) -> None:
        line = formatEvent(event)
        if "ealthy" in line:
            self.lines.append(f"{event['log_level'].name} {line}")

    def install(self, case: LogTestCase) -> HealthLines:
        globalLogPublisher.addObserver(self.note)
        case.addCleanup(globalLogPublisher.removeObserver, self.note)
        return self


class SlaveTests(SlaveCase):
    """A slave whose master comes and goes."""

    def advance(self, seconds: float) -> None:
        """Time passes, in the steps of a reactor that looks at its timers."""
        for _ in range(round(seconds * 2)):
            self.reactor.advance(0.5)

    def test_no_master(self) -> None:
        """A slave that hears nothing from a master for haNoMasterAlarm is unhealthy, says so once,
        and goes on to serve; when it hears one again it is well, and says that once.
        """
        lines = HealthLines().install(self)
        self.start()
        connection = self.accept()
        connection.feed(self.theirs, 0)
        connection.heartbeat(self.theirs.end)
        self.advance(3)
        connection.close()
        self.advance(ALARM - 4)
        self.assertEqual(unhealthy(self.node), "")
        self.advance(4)
        self.assertIn("no-master: nothing was heard from a master for 6", unhealthy(self.node))
        self.assertEqual(unhealthy(self.node, HealthProbe.READY), "")
        self.assertEqual(unhealthy(self.node, HealthProbe.LIVE), "")
        self.advance(100)
        self.assertEqual(len(lines.lines), 1, lines.lines)
        self.assertIn("warn Unhealthy: no-master: nothing was heard", lines.lines[0])
        connection = self.accept(60.0)
        # A connection is no master yet.
        self.assertIn("no-master", unhealthy(self.node))
        connection.heartbeat(self.theirs.end)
        self.assertEqual(unhealthy(self.node), "")
        self.advance(1)
        self.assertEqual(len(lines.lines), 2, lines.lines)
        self.assertIn("info Healthy again: no-master is over after 1", lines.lines[1])

    def test_never_a_master(self) -> None:
        """The time counts from the start too, and in the status."""
        self.start(master=None)
        self.advance(ALARM + 1)
        self.assertIn("no master address", unhealthy(self.node))
        upstream = self.node.status()["upstream"]
        self.assertAlmostEqual(upstream["secondsSilent"], ALARM + 1, delta=0.6)

    def test_alarm_off(self) -> None:
        """0 turns it off, another value moves it."""
        self.start(master=None, no_master_alarm=0.0)
        self.advance(ALARM * 2)
        self.assertEqual(unhealthy(self.node), "")
        self.end()
        self.start(master=None, no_master_alarm=5.0)
        self.advance(6.0)
        self.assertIn("no-master", unhealthy(self.node))

    def test_first_copy(self) -> None:
        """A slave that is still copying is healthy, and not ready."""
        self.start()
        connection = self.accept()
        self.assertIn("first-copy", unhealthy(self.node, HealthProbe.READY))
        self.assertEqual(unhealthy(self.node), "")
        connection.feed(self.theirs, 0)
        connection.heartbeat(self.theirs.end)
        self.assertNotIn("first-copy", unhealthy(self.node, HealthProbe.READY))

    def test_doubtful(self) -> None:
        """What a slave doubts is not ready; a full disk holds what is right."""
        self.parted("stop")
        self.assertIn("replication-ahead: ", unhealthy(self.node, HealthProbe.READY))
        self.assertEqual(unhealthy(self.node, HealthProbe.LIVE), "")


class MasterTests(LogTestCase):
    def begin(self, role: BrokerRole) -> PlainMaster:
        self.reactor = NodeReactor()
        given = settings(self.folder() / "store", role="master", master=None)
        given = evolve(given, broker=evolve(given.broker, role=role))
        self.node = PlainMaster(given, self.reactor)
        self.node.startService()
        self.addCleanup(self.stop)
        self.reactor.advance(4.0)
        return self.node

    def stop(self) -> None:
        stopped = self.node.stopService()
        self.reactor.advance(5.0)
        self.reactor.advance(5.0)
        self.successResultOf(stopped)

    def test_sync_without_replicas(self) -> None:
        """A SYNC_MASTER without a replica is unhealthy, said once, but ready to be found."""
        lines = HealthLines().install(self)
        node = self.begin(BrokerRole.SYNC_MASTER)
        self.assertIn("too-few-replicas: 0 of 1", unhealthy(node))
        self.assertNotIn("too-few-replicas", unhealthy(node, HealthProbe.READY))
        self.reactor.pump([1.0] * 10)
        self.assertEqual(len(lines.lines), 1, lines.lines)
        self.assertIn("warn Unhealthy: too-few-replicas", lines.lines[0])

    def test_async(self) -> None:
        """An ASYNC_MASTER without replicas is well; one that is away is told, until dropped."""
        node = self.begin(BrokerRole.ASYNC_MASTER)
        self.assertEqual(unhealthy(node), "")
        slot = node.serving.slots.proved("10.0.0.5", 0, began=1, opened=0.0)
        assert slot is not None
        node.serving.slots.left(slot, 0, sent=0, heard=0.0)
        self.reactor.advance(3.0)
        self.assertEqual(unhealthy(node), "")
        self.reactor.advance(1.0)
        self.assertIn("replica-away: 10.0.0.5 for 4 s", unhealthy(node))
        self.assertEqual(unhealthy(node, HealthProbe.READY), "")
        self.assertTrue(node.drop_slot("10.0.0.5"))
        self.assertEqual(unhealthy(node), "")

    def test_writes(self) -> None:
        """An ASYNC_MASTER counts its writes, though they wait for nobody."""
        node = self.begin(BrokerRole.ASYNC_MASTER)
        self.assertEqual(node.status()["writes"], {})
        assert node.broker is not None and node.broker.writer is not None
        node.broker.writer.put(message(300))
        self.reactor.advance(0.1)
        self.assertEqual(node.status()["writes"], {"PUT_OK": 1})

    def test_no_writes(self) -> None:
        """A master that takes no writes is not ready; read-only is an operator's matter too."""
        node = self.begin(BrokerRole.ASYNC_MASTER)
        for state in ("read-only", "disk-full", "failed"):
            node.store._refuse(state, "made up")
            self.assertIn(f"{state}: made up", unhealthy(node, HealthProbe.READY))
            self.assertEqual(unhealthy(node), f"{state}: made up")
            self.assertEqual(unhealthy(node, HealthProbe.LIVE), "")
            node.store._allow(state)
