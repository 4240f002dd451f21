"""A real name server and master: clients' messages are replayed into another topic."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, send
from rmqha.pipeline.producing.messages import Outgoing
from rmqha.pipeline.producing.producer import Producer
from tests.faults.harness import BRISK, FaultTestCase
from tests.support.client import make_topic
from tests.support.spark_needs import need_java

try:
    from rmqha.pipeline.jobs.replay import DUPLICATE, replay
    from rmqha.pipeline.producing.settings import SendOptions
    from rmqha.pipeline.scan import scan
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

MESSAGES = 3000
TWICE = 50
PLAIN = 200


class ReplayTests(FaultTestCase):
    def setUp(self) -> None:
        need_java()
        super().setUp()
        self.names = NameServer(self.folder)
        self.node = Node(
            self.folder,
            "master",
            namesrvAddr=self.names.client_address,
            **{**BRISK, "brokerIP1": "127.0.0.1"},
        )
        self._processes += [self.names, self.node]
        self.names.start()
        self.node.start()
        self.address = f"127.0.0.1:{self.node.port}"
        for name, queues in (("Orders", 4), ("Again", 4), ("Few", 2)):
            make_topic(self.address, name, queues)
        self.sending = SendOptions(name_server=(self.names.client_address,))
        with Producer(self.sending) as producer:
            until(lambda: producer.routes.route("Few"), "the name server knows the topics")
            producer.send(self.orders())
        with Remote(self.node.port) as remote:
            answers = remote.ask_all([send("Orders", b"plain %d" % n, n % 4) for n in range(PLAIN)])
        self.assertEqual({0}, {answer.code for answer in answers})

    def orders(self) -> list[Outgoing]:
        """Messages, the last of them such as were sent before."""
        made = [
            Outgoing(
                "Orders",
                b"%d " % n + bytes(self.random.randrange(2000)),
                {"UNIQ_KEY": f"KEY{n}", "KEYS": f"k{n}", "TAGS": "A"},
                n % 4,
                flag=n,
            )
            for n in range(MESSAGES)
        ]
        return [*made, *made[:TWICE]]

    def read(self, topic: str) -> dict[int, list[tuple[Any, ...]]]:
        """What the log has of a topic, by queue."""
        self.node.until(
            lambda status: status["dispatchedOffset"] == status["maxOffset"], "dispatched"
        )
        end = self.node.status()["maxOffset"]
        until(lambda: self.published() >= end, "all is published")
        columns = "queue_id,queue_offset,body,uniq_key,keys,tags,flag,properties"
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in scan(self.node.root, topic=topic, columns=columns).read_all().to_pylist():
            queue = found[row["queue_id"]]
            self.assertEqual(len(queue), row["queue_offset"])
            self.assertNotIn("REAL_TOPIC", dict(row["properties"]))
            queue.append(tuple(row[name] for name in ("body", "uniq_key", "keys", "tags", "flag")))
        return found

    def published(self) -> int:
        from rmqha.logfiles.published import read_point

        point = read_point(self.node.root)
        return point.confirm if point is not None else -1

    def replay(self, **options: Any) -> Any:
        return replay(session(), str(self.node.root), self.sending, topic="Orders", **options)

    def test_there_and_back(self) -> None:
        """All bodies come once, with their keys, in the order of their queues; what was there
        twice is skipped; a dry run says so before.
        """
        before = self.read("Orders")
        self.assertEqual(MESSAGES + TWICE + PLAIN, sum(map(len, before.values())))
        planned = self.replay(to_topic="Again", dry_run=True)
        self.assertEqual({"Again": 4}, planned.queues)
        self.assertEqual({}, self.read("Again"))
        done = self.replay(to_topic="Again")
        self.assertEqual(planned.outcomes, done.outcomes)
        outcomes = {each.outcome: each.messages for each in done.outcomes}
        self.assertEqual({"sent": MESSAGES + PLAIN, DUPLICATE: TWICE}, outcomes)
        after = self.read("Again")
        for queue_id, queue in before.items():
            seen: set[str] = set()
            wanted = []
            for record in queue:
                key = record[1]
                if key is None or key not in seen:
                    wanted.append(record)
                    seen.add(key)
            found = after[queue_id]
            self.assertEqual([record[0] for record in wanted], [record[0] for record in found])
            for old, new in zip(wanted, found, strict=True):
                # One that had no key has one now.
                self.assertEqual(old[1:] if old[1] else (new[1], *old[2:]), new[1:])

    def test_fewer_queues(self) -> None:
        """Queues become one where there are fewer, and each is in its own order there."""
        before = self.read("Orders")
        self.replay(to_topic="Few", dedupe=False, tasks=3)
        after = self.read("Few")
        self.assertEqual({0, 1}, set(after))
        for queue_id, queue in before.items():
            mine = {record[0] for record in queue}
            found = [record[0] for record in after[queue_id % 2] if record[0] in mine]
            self.assertEqual([record[0] for record in queue], found)
