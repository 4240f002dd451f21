"""Topics that were deleted, and queues of which the log has nothing any more."""

from __future__ import annotations

import shutil

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, pull, records, send
from lab.harness.writer import Driver
from rmqha.wire.remoting.codes import RequestCode
from tests.faults.test_metadata import LOOPBACK, MetadataTestCase, clients
from tests.faults.test_promote import PromotionTestCase
from tests.support import client


class TopicsTestCase(MetadataTestCase, PromotionTestCase):
    """What a client sees of a queue."""

    def bounds(self, node: Node, topic: str) -> tuple[int, int]:
        """Its first message, and just past its last."""
        codes = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
        found = (client.must(clients(node), code, topic=topic, queueId=0) for code in codes)
        first, end = (int(answer.ext["offset"]) for answer in found)
        return first, end

    def sent(self, node: Node, topic: str, *bodies: bytes, delay: int = 0) -> None:
        with Remote(node.port) as broker:
            for body in bodies:
                answer = broker.ask(send(topic, body, delay=delay))
                # Stored, whoever has it besides.
                self.assertIn(answer.code, (0, 10, 11, 12), answer.remark)

    def got(self, node: Node, topic: str, offset: int) -> list[bytes]:
        """What a consumer of the group finds that begins at an offset, and goes where sent."""
        found: list[bytes] = []
        with Remote(node.port) as broker:
            for _ in range(5):
                answer = broker.ask(pull(topic, "g", offset))
                offset = int(answer.ext["nextBeginOffset"])
                found += [record.body for record in records(answer)] if not answer.code else []
        return found


class DeletedTests(TopicsTestCase):
    """A topic is deleted on a master."""

    def test_stays(self) -> None:
        """It stays deleted on master and slave over a kill at once, more starts, what was to come
        later and a promotion; made again it has its new messages alone, on both nodes.
        """
        master, slave = self.with_tables()
        self.sent(master, "Demo", b"late", delay=3)
        slave.until_synced(master.status()["maxOffset"])
        client.must(clients(master), RequestCode.DELETE_TOPIC_IN_BROKER, topic="Demo")
        for end in (master.kill9, master.stop, master.kill9):
            end()
            master.start()
            self.assertNotIn("Demo", client.topic_names(clients(master)))
            self.assertEqual((0, 0), self.bounds(master, "Demo"))
        master.until(
            lambda status: status["remoting"]["delayed"]["levels"]["3"]["pending"] == 0, "due", 30
        )
        self.assertNotIn("Demo", client.topic_names(clients(master)))
        until(lambda: self.bounds(slave, "Demo") == (0, 0), "the slave has deleted it", 30)
        client.make_topic(clients(master), "Demo")
        self.sent(master, "Demo", b"a", b"b")
        slave.until_synced(master.status()["maxOffset"])
        self.assertEqual((40, 42), self.bounds(master, "Demo"))
        until(lambda: self.bounds(slave, "Demo") == (40, 42), "the slave has the new ones")
        self.assertEqual([b"a", b"b"], self.got(master, "Demo", 0))
        until(lambda: "Demo" in client.topic_names(clients(slave)), "the slave has the topic", 30)
        master.kill9()
        slave.kill9()
        self.promote(slave)
        new = self.as_master(slave, master, **LOOPBACK)
        self.assertEqual([b"a", b"b"], self.got(new, "Demo", 0))
        new.stop()
        for node in (master, slave):
            self.rmqha("verify", node.root, "--deep", "--conf", node.conf)


class IdleTests(TopicsTestCase):
    """All messages of a topic have expired, and its group has read them."""

    def idle(self) -> Driver:
        """A master whose log has nothing any more of the topic, stopped."""
        master = self.master(brokerRole="ASYNC_MASTER", **LOOPBACK).start()
        client.make_topic(clients(master), "Idle", 1)
        client.make_group(clients(master), "g")
        self.sent(master, "Idle", *[b"old"] * 20)
        until(lambda: self.bounds(master, "Idle") == (0, 20), "dispatched")
        client.commit(clients(master), "g", "Idle", 0, 20)
        master.put(1200, topic="Busy", size=2000, concurrency=8).wait()
        self.assertEqual(0, master.stop(), master.tail())
        first, *_ = sorted((master.root / "commitlog").iterdir())
        first.unlink()
        return master

    def test_next_ten(self) -> None:
        """The group gets the next ten messages after a rebuild without the old queues, from a slave
        that joined empty and was promoted; and the old master comes back without a pass over its
        log.
        """
        master = self.idle()
        shutil.rmtree(master.root / "consumequeue")
        self.rmqha("rebuild", master.root, "--conf", master.conf)
        master.start()
        self.assertEqual((20, 20), self.bounds(master, "Idle"))
        keys = {**LOOPBACK, "haMasterClientAddress": clients(master)}
        slave = self.slave(master.address, **keys).start()
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: self.bounds(slave, "Idle") == (20, 20), "the slave knows its end", 30)
        master.kill9()
        slave.kill9()
        promoted = self.promote(slave)
        self.assertEqual([], promoted["movedConsumers"])
        new = self.as_master(slave, master, **{**LOOPBACK, "brokerRole": "ASYNC_MASTER"})
        self.assertEqual((20, 20), self.bounds(new, "Idle"))
        self.sent(new, "Idle", *[b"new"] * 10)
        until(lambda: self.bounds(new, "Idle") == (20, 30), "dispatched")
        self.assertEqual([b"new"] * 10, self.got(new, "Idle", 20))
        rejoined = self.as_slave(master, new, **LOOPBACK)
        rejoined.until_synced(new.status()["maxOffset"])
        until(lambda: self.bounds(rejoined, "Idle") == (20, 30), "the old master has them")
        self.assertNotIn("Rebuilding consume queues", rejoined.log())
