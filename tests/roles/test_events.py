"""What a node remembers of itself over a restart."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rmqha.event_file import event_path, read
from tests.roles.test_node import NodeCase


class NodeEventsTests(NodeCase):
    def test_restart(self) -> Deferred[None]:
        """A master's edges are there after a restart: starts, stops, states, its slave."""

        async def steps() -> None:
            ports = {"haListenPort": 0}
            master = await self.started(self.node("master"))
            port = master.settings.ha.listen_port
            slave = self.node("slave", haMasterAddress=f"127.0.0.1:{port}", **ports)
            await self.started(slave)
            await self.until(
                lambda: [row["kind"] for row in master.happened() if "replica" in row["kind"]]
            )
            await self.until(
                lambda: [row for row in slave.happened() if row["kind"] == "replication"]
            )
            await slave.stopService()
            await master.stopService()
            again = await self.started(self.node("master"))
            told = [(row["kind"], row["text"].split(",")[0]) for row in again.happened()]
            self.assertEqual(
                [row for row in told if row[0] in ("start", "stop")],
                [
                    ("start", "master started"),
                    ("stop", "master is stopping"),
                    ("start", "master started"),
                ],
            )
            self.assertIn(("state", "recovering -> serving"), told)
            self.assertTrue([kind for kind, _ in told if kind.startswith("replica 127.0.0.1")])
            await again.stopService()
            root = again.settings.store.root
            self.assertEqual(read(event_path(root))[-1].text, "master is stopping")

        return self.run_async(steps())
