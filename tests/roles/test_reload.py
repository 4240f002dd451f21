"""What changes while a node runs: by a reload of its configuration, and by request."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.logger import formatEvent

from rmqha.config.errors import ConfigProblems
from rmqha.config.load import load
from rmqha.config.settings import LogLevelName, Settings
from rmqha.config.values import NETWORKS
from rmqha.errors import BadValue
from rmqha.periodic import jobs_of
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.support.log_lines import log_events
from tests.support.logs import LogTestCase


class ReloadTests(LogTestCase):
    """A slave whose configuration file is edited."""

    def setUp(self) -> None:
        self.reactor = NodeReactor()
        self.given = settings(self.folder() / "store")
        self.node = PuppetSlave(self.given, self.reactor)
        self.node.reread = lambda: self.given
        self.node.startService()
        self.addCleanup(self.stop)
        self.successResultOf(self.node.ready)
        self.events = log_events(self)

    def stop(self) -> None:
        stopped = self.node.stopService()
        for _ in range(5):
            self.reactor.advance(0)
        self.successResultOf(stopped)

    def told(self) -> str:
        return "\n".join(str(formatEvent(event)) for event in self.events)

    def edit(self, **sections: Any) -> None:
        """Change keys of sections in the file, and have it read."""
        self.given = evolve(
            self.given,
            **{
                name: evolve(getattr(self.given, name), **fields)
                for name, fields in sections.items()
            },
        )
        self.node.reload()

    def test_store(self) -> None:
        """How long files are kept, and how often is flushed, changes at once; the log says so."""
        self.edit(store={"file_reserved": 7200.0, "flush_interval": 0.25, "disk_max_used": 0.5})
        store = self.node.store
        self.assertEqual(store.retention.settings.file_reserved, 7200.0)
        self.assertEqual(store.retention.settings.disk_max_used, 0.5)
        (flushing,) = jobs_of(store.flusher)
        self.assertEqual(flushing.interval, 0.25)
        self.assertIn(
            "A reload of the configuration changed fileReservedTime from 72 to 2", self.told()
        )

    def test_log_level(self) -> None:
        """The log's level changes by a reload, and by request."""
        levels: list[str] = []
        self.node.log_from = lambda level: levels.append(level.value)
        self.edit(log={"level": LogLevelName.DEBUG})
        assert self.node.broker is not None
        self.node.broker.current.change({"logLevel": "warn"})
        self.assertEqual(["debug", "warn"], levels)
        self.assertIn(
            "A reload of the configuration changed logLevel from info to debug", self.told()
        )

    def test_restart(self) -> None:
        """What needs a restart is named and does not change."""
        before = self.node.settings
        self.edit(broker={"name": "another"}, store={"max_msgs_num_batch": 5})
        self.assertEqual(before, self.node.settings)
        self.assertIn("Only the next start changes brokerName", self.told())
        self.assertIn("Only the next start changes maxMsgsNumBatch from 64 to 5", self.told())

    def test_wrong(self) -> None:
        """A file with anything wrong in it changes nothing."""
        before = self.node.settings

        def wrong() -> Settings:
            raise ConfigProblems((BadValue("deleteWhen", "noon", "hours of the day"),))

        self.node.reread = wrong
        self.node.reload()
        self.assertEqual(before, self.node.settings)
        self.assertIn("All settings stay as they are", self.told())
        self.assertIn("deleteWhen=noon", self.told())

    def test_request(self) -> None:
        """A change by request is the node's too, and the next reload takes it back."""
        assert self.node.broker is not None
        self.node.broker.current.change({"fileReservedTime": "5", "deleteWhen": "03;15"})
        self.assertEqual(self.node.settings.store.delete_when, (3, 15))
        self.assertEqual(self.node.store.retention.settings.file_reserved, 18000.0)
        self.node.reload()
        self.assertEqual(self.node.settings.store.delete_when, (4,))
        self.assertEqual(self.node.store.retention.settings.file_reserved, 259200.0)

    def test_events(self) -> None:
        """O8: a change is an event, by whichever way it came; what changes nothing says so."""
        self.edit(store={"file_reserved": 7200.0})
        assert self.node.broker is not None
        self.node.broker.current.change({"deleteWhen": "03;15"})
        noted = [row["text"] for row in self.node.events.rows() if row["kind"] == "configuration"]
        self.assertEqual(["fileReservedTime from 72 to 2", "deleteWhen from 04 to 03;15"], noted)
        self.edit(store={"delete_when": (3, 15)})
        self.assertIn("A reload of the configuration changed nothing", self.told())

    def test_notes(self) -> None:
        """O8: what a file says beyond what is taken is said at a reload as at a start."""
        self.edit()
        self.given = evolve(self.given, notes=("diskSpaceWarningLevelRatio is 90 instead of 92",))
        self.node.reload()
        self.assertIn("is 90 instead of 92", self.told())

    def test_recovering(self) -> None:
        """While there is no broker, what changes is there for the next one."""
        self.node.shut_broker()
        self.edit(pull={"slave_read": True})
        self.assertTrue(self.node.settings.pull.slave_read)

    def test_all_roles(self) -> None:
        """Every key that can change has a value that a file can say again."""
        fresh = load(None, ("clientAllowedPeers=10.0.0.0/24;10.1.0.1", "deleteWhen=03;15"), "slave")
        self.given = evolve(
            self.given,
            remoting=fresh.remoting,
            store=evolve(self.given.store, delete_when=fresh.store.delete_when),
        )
        self.node.reload()
        self.assertEqual(
            self.node.settings.remoting.allowed_peers, NETWORKS.parse("10.0.0.0/24,10.1.0.1")
        )
        self.assertIn("clientAllowedPeers from empty to 10.0.0.0/24,10.1.0.1/32", self.told())
