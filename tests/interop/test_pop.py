"""POP between brokers of ours, stock ones and their clients."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, make_topic, send
from lab.stock.brokers import BOOT, Broker, Tool
from lab.stock.clients import Consumer, java_client
from rmqha.broker.pop.handles import RETRY_V2, PopHandle, retry_topic
from rmqha.nodes.summary import replicas_in_sync
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from tests.interop.cases import InteropTestCase
from tests.interop.sites import SiteTestCase
from tests.interop.test_metadata import OF_THEIRS, ROUND
from tests.interop.test_switchover import SYNC
from tests.support import client
from tests.support.pop_load import PopLoad
from tests.support.popping import handed_out

GROUP = "poppers"

COUNT = 400

HALF = 5_000
"""Messages before a member stands still, and meanwhile."""

BY_V2 = {"enableRetryTopicV2": "true"}
"""Has messages come again by the topics of which a group's name cannot be another one's."""


class JavaConsumerTests(SiteTestCase):
    """A stock 5.3.3 push consumer in POP mode, whose queues the broker gives it."""

    version = "5.3.3"
    names_of = "Java"

    def mode(self, topic: str, mode: str, share: int = 0) -> None:
        """Say how the group consumes, with the stock tool."""
        line = f"setConsumeMode -b {self.address} -t {topic} -g {GROUP} -m {mode} -q {share}"
        said = self.tool.do("mqadmin", BOOT, words=line.split(), seconds=0, namesrv=self.names)
        self.assertIn("success", said["printed"], said)

    def members(self, count: int) -> list[Consumer]:
        """Consumers that pop, each in a process of its own."""

        def one(number: int) -> Consumer:
            folder = self.folder / f"member-{number}"
            folder.mkdir()
            tool = Tool(folder, self.version)
            self._processes.append(tool)
            return java_client(tool.start(), self.names).consume("Popped", GROUP, pop=True)

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    def test_shares(self) -> None:
        """Three members share what comes; one stands still, is handed some, and is killed, and that
        comes again when its time is over, and nothing else does; then they pull.
        """
        java = self.java()
        with self.row(java, "pops, shares, and goes on when a member is killed; then it pulls"):
            self.make_topic("Popped", 8)
            # A group is known when its first consumer was there.
            java.consume("Popped", GROUP).stop()
            self.mode("Popped", "POP")
            members = self.members(3)
            self.serving.until(lambda status: self.waiting(status) >= 3, "they wait", 60)
            java.send_surely("Popped", [f"first {n}" for n in range(HALF)])
            self.until_all(members, "first", 90, HALF)
            self.assertTrue(all(member.got for member in members), "each has a share")
            dead = members[0]
            dead.client.process.freeze()
            java.send_surely("Popped", [f"second {n}" for n in range(HALF)])

            def others_have_the_rest(status: dict[str, Any]) -> bool:
                got = {body for member in members[1:] for body in member.bodies}
                seen = sum(body.startswith("second") for body in got)
                return 0 < self.held(status) == HALF - seen

            told = self.serving.until(others_have_the_rest, "it is handed some", 30)
            killed = time.monotonic()
            dead.client.process.kill9()
            self.until_all(members, "second", 120, HALF)
            waited = time.monotonic() - killed
            counts = Counter(body for member in members for body in member.bodies)
            again = sum(counts.values()) - len(counts)
            held = self.held(told)
            self.fill(java, f"{held} held by the dead one came in {waited:.0f} s", "ok")
            self.assertLessEqual(again, held, "of what was acknowledged, some came twice")
            self.assertLess(waited, 75, "sixty seconds are a consumer's")
            self.mode("Popped", "PULL")
            java.send_surely("Popped", [f"third {n}" for n in range(COUNT)])
            self.until_all(members, "third", 120)
            for member in members[1:]:
                member.stop()

    def test_some_queues_each(self) -> None:
        """Three members have their own queues and those of one other, then four those of two; then
        one pulls while the others pop.
        """
        java = self.java()
        self.make_topic("Popped", 8)
        java.consume("Popped", GROUP).stop()
        members: list[Consumer] = []
        for share in (1, 2):
            with self.row(java, f"pops its queues and those of {share} more"):
                self.mode("Popped", "POP", share)
                members += [java.consume("Popped", GROUP, pop=True) for _ in range(3 // share)]
                java.send_surely("Popped", [f"share {share} {n}" for n in range(COUNT)])
                self.until_all(members, f"share {share}", 90)
        with self.row(java, "pulls while others pop"):
            puller = java.consume("Popped", GROUP)
            java.send_surely("Popped", [f"mixed {n}" for n in range(COUNT)])
            self.until_all([*members, puller], "mixed", 90)
        for member in (*members, puller):
            member.stop()

    def test_beside_others(self) -> None:
        """While a group pops a topic, some of whose messages came at a time of their own, others
        read it as before: a 4.9.7 client sends and consumes, lite pull consumers subscribe it or
        take its queues themselves, and a pull consumer reads queue by queue.
        """
        java = self.java()
        folder = self.folder / "old"
        folder.mkdir()
        tool = Tool(folder, "4.9.7")
        self._processes.append(tool)
        old = java_client(tool.start(), self.names)
        with self.row(java, "pops beside 4.9.7 clients and consumers that pull"):
            self.make_topic("Popped", 8)
            java.consume("Popped", GROUP).stop()
            self.mode("Popped", "POP")
            member = java.consume("Popped", GROUP, pop=True)
            plain = old.consume("Popped", "plain")
            timed = [f"timed {n}" for n in range(COUNT)]
            with Remote(int(self.address.rpartition(":")[2])) as sender:
                asked = [
                    send("Popped", body.encode(), at % 8, later=5000)
                    for at, body in enumerate(timed)
                ]
                self.assertEqual({0}, {answer.code for answer in sender.ask_all(asked)})
            sent = [f"plain {n}" for n in range(COUNT)]
            old.send_surely("Popped", sent)
            self.until_all([member], "plain", 90)
            self.until_all([member], "timed", 90)
            plain.until_got([*sent, *timed])
            told = {"topic": "Popped", "tags": "*", "count": 2 * COUNT}
            for number, client in enumerate((java, old)):
                told["group"] = f"lite-{number}"
                polled = client.process.do("lite", 90, namesrv=self.names, **told)
                self.assertEqual(sorted([*sent, *timed]), sorted(one["body"] for one in polled))
            pulled = self.tool.pull("Popped", self.names)
            self.assertEqual(len({row.place for row in pulled}), 2 * COUNT)
        with self.row(java, "pops beside consumers that assign themselves queues"):
            for number, client in enumerate((java, old)):
                told |= {"group": f"assigned-{number}", "assigned": True}
                polled = client.process.do("lite", 90, namesrv=self.names, **told)
                self.assertEqual(sorted([*sent, *timed]), sorted(one["body"] for one in polled))
            for consumer in (member, plain):
                self.assertEqual(len(consumer.bodies), len(set(consumer.bodies)), "twice")
                consumer.stop()

    def waiting(self, status: dict[str, Any]) -> int:
        return int(status["remoting"]["pop"]["waiting"])

    def held(self, status: dict[str, Any]) -> int:
        """How many messages are handed out and not acknowledged."""
        return int(status["remoting"]["pop"]["unacked"].get(GROUP, 0))

    def until_all(
        self, members: list[Consumer], word: str, seconds: float, count: int = COUNT
    ) -> None:
        """Wait until each message of a kind came."""
        wanted = {f"{word} {n}" for n in range(count)}

        def left() -> set[str]:
            return wanted.difference(*(member.bodies for member in members))

        until(
            lambda: not left(), f"all of {word} come", seconds, tell=lambda: f"{len(left())} left"
        )

    def test_again(self) -> None:
        """A message that a listener failed with comes again after its ten seconds."""
        client = self.java()
        with self.row(client, "gets again what it failed with"):
            self.make_topic("Again", 1)
            client.consume("Again", GROUP).stop()
            self.mode("Again", "POP")
            consumer = client.consume("Again", GROUP, pop=True, fail=True)
            self.serving.until(lambda status: status["remoting"]["pop"]["waiting"], "it waits", 40)
            client.send_surely("Again", ["failed"])
            until(lambda: len(consumer.got) > 1, "it comes again", 40, pause=0.02)
            heard = time.time()
            again = consumer.got[1]
            self.assertEqual((again.topic, again.times), ("Again", 1))
            # From when it was stored the first time until its listener has it the second time.
            late = heard - consumer.got[0].stored / 1000 - 10
            self.fill(client, f"{late:.2f} s after the ten", "ok")
            self.assertTrue(0 <= late < 1.5, late)
            consumer.stop()


class PromotionTests(InteropTestCase):
    """Messages are handed out and acknowledged, the master is killed, and its slave takes over."""

    version = "5.3.3"
    long = True

    def setUp(self) -> None:
        super().setUp()
        seed = os.environ.get("RMQHA_SEED") or str(SystemRandom().randrange(10**9))
        self.random = Random(f"{seed} {self.id()}")
        self.load = PopLoad(random=self.random)
        sys.stdout.write(f"RMQHA_SEED={seed} {self.id()}\n")

    def revived(self, node: Node) -> int:
        """How many messages have come again."""
        return int(node.status()["remoting"]["pop"]["revived"])

    def assertAll(self, again: int = 0) -> None:
        """Each message was handed out, and none that was done with.

        @param again: How many of them may be.
        """
        books = self.load.books
        sys.stdout.write(f"{books}\n")
        self.assertGreater(len(books.done), 100)
        self.assertEqual(books.lost, set(), "never handed out, or not done with")
        self.assertLessEqual(len(books.wrong), again, f"handed out again: {books.wrong}")

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def test_ours_of_theirs(self) -> None:
        """Our slave of a stock master, which is killed while they do."""
        with self.scenario(
            "POP: our slave takes over from a Java master", "Java master, our slave"
        ):
            master = self.broker(timerWheelEnable="true", role="SYNC_MASTER", **SYNC).start()
            given = {**OF_THEIRS, "namesrvAddr": self.tool.names}
            slave = self.our_slave(master.address, **given).start()
            slave.until_synced(master.max_offset())
            with self.load.on(master.port):
                self.work(self.random.uniform(12.0, 16.0))
                master.kill9()
            heir = self.our_heir(slave, **given)
            self.load.drain(heir.port, 15)
            self.assertAll()
        for node in (slave, heir):
            self.assertEqual([], node.complaints(), node.log()[-20_000:])

    def test_theirs_of_ours(self) -> None:
        """A stock slave of our master, which is killed when the slave has had its offsets, as it
        asks for them once a minute; what is open comes again.
        """
        with self.scenario(
            "POP: a Java slave takes over from our master", "our master, Java slave"
        ):
            given = {**OF_THEIRS, "namesrvAddr": self.tool.names, "brokerRole": "SYNC_MASTER"}
            master = Node(self.folder, "master", "master", **given)
            self._processes.append(master)
            address = f"127.0.0.1:{master.start().port}"
            slave = self.broker("java-slave", timerWheelEnable="true", role="SLAVE")
            slave.start()
            master.until(lambda status: replicas_in_sync(status).startswith("1"), "a replica", 60)
            with self.load.on(master.port):
                self.work(self.random.uniform(5.0, 8.0))
            open_for = 60_000
            # Of some the time is changed, to twice that at most.
            ends = time.monotonic() + 2 * open_for / 1000
            with Remote(master.port) as client:
                for number in range(100):
                    answer = client.ask(send(self.load.topic, b"open %d" % number, number % 4))
                    self.assertEqual(0, answer.code, answer.remark)
                    self.load.books.sent.add(b"open %d" % number)
                while self.load.consume(client, 0.5, open_for):
                    pass
            self.until_offsets(address, slave)
            # The slave asks every three seconds how far timers are: what came again since it lets
            # come once more.
            unheard = -self.revived(master)
            self.work(8.0)
            unheard += self.revived(master)
            master.kill9()
            slave.stop()
            slave.keys |= {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
            slave.start()
            self.load.drain(slave.port, max(15.0, ends + 15.0 - time.monotonic()))
            sys.stdout.write(f"{unheard} came again just before\n")
            self.assertAll(unheard)
        self.assertEqual([], master.complaints(), master.log()[-20_000:])

    def until_offsets(self, address: str, slave: Broker) -> None:
        """Wait until a stock slave has our master's offsets of the group."""

        load = self.load
        places = [*((load.topic, at) for at in range(4)), (f"%RETRY%{load.group}_{load.topic}", 0)]

        def offsets(where: str) -> list[int | None]:
            return [client.committed(where, load.group, *place) for place in places]

        until(
            lambda: offsets(address) == offsets(slave.client_address),
            "the Java slave has the offsets",
            ROUND,
            tell=lambda: f"{offsets(address)} {offsets(slave.client_address)}",
            pause=0.5,
        )


class StoreTests(InteropTestCase):
    """One store, ours and a stock broker's in turn."""

    version = "5.3.3"
    roles = "POP"
    long = True

    def our_node(self, root: Path | None = None, **more: object) -> Node:
        keys = {**OF_THEIRS, "namesrvAddr": self.tool.names, **more}
        master = Node(self.folder, "master", "master", root=root, **keys)
        self._processes.append(master)
        return master.start()

    def stock(self, root: Path | None = None, **more: str) -> Broker:
        given = {"timerWheelEnable": "true", **more}
        return self.broker(role="ASYNC_MASTER", root=root, **given).start()

    def pop(
        self, client: Remote, invisible: int = 20_000, **more: Any
    ) -> list[tuple[bytes, PopHandle, str]]:
        asked = {"topic": self.topic, "max_msg_nums": 32} | more
        answer = client.ask(
            Command.request(
                RequestCode.POP_MESSAGE,
                PopMessageRequest(
                    consumer_group=GROUP,
                    queue_id=-1,
                    invisible_time=invisible,
                    poll_time=500,
                    born_time=int(time.time() * 1000),
                    **asked,
                ),
            )
        )
        return (
            []
            if answer.code
            else handed_out(answer, asked["topic"], GROUP, str(OF_THEIRS["brokerName"]))
        )

    @property
    def ordered(self) -> str:
        """A topic whose messages are popped in order."""
        return f"{self.topic}-ordered"

    def done(self, client: Remote, handle: PopHandle, topic: str) -> None:
        """Say that a message is done with."""
        request = AckMessageRequest(**self.said(handle, topic))
        answer = client.ask(Command.request(RequestCode.ACK_MESSAGE, request))
        self.assertEqual(answer.code, 0, answer.remark)

    def hands_out_in_order(self, client: Remote) -> None:
        """Of five messages two are acknowledged with one between them that is open."""
        self.assertEqual(client.ask(make_topic(self.ordered, 1)).code, 0)
        for number in range(5):
            self.assertEqual(client.ask(send(self.ordered, b"%d" % number)).code, 0)
        found: list[tuple[bytes, PopHandle, str]] = []

        def pops() -> bool:
            found[:] = self.pop(client, **self.in_order(3))
            return len(found) == 3

        until(pops, "three are handed out", 20)
        for at in (0, 2):
            _, handle, topic = found[at]
            self.done(client, handle, topic)

    def in_order(self, most: int) -> dict[str, object]:
        """What a pop in order asks for, by the same client each time."""
        return {"topic": self.ordered, "max_msg_nums": most, "order": True, "attempt_id": "a"}

    def takes_over_in_order(self, client: Remote) -> None:
        """What lies behind the first that is not acknowledged comes, in order."""
        found: list[bytes] = []

        def pops() -> bool:
            for body, handle, topic in self.pop(client, **self.in_order(32)):
                found.append(body)
                self.done(client, handle, topic)
            return len(found) >= 4

        until(pops, "the rest comes in order", 40, tell=lambda: str(found))
        self.assertEqual(found, [b"1", b"2", b"3", b"4"])

    def said(self, handle: PopHandle, topic: str) -> dict[str, object]:
        return {
            "consumer_group": GROUP,
            "topic": topic,
            "queue_id": handle.queue_id,
            "handle": str(handle),
            "offset": handle.offset,
        }

    def hands_out(self, port: int) -> None:
        """Of twelve messages four are acknowledged, four open, one of those for longer, and four
        not handed out; others are in order.
        """
        with Remote(port) as client:
            self.assertEqual(client.ask(make_topic(self.topic, 1)).code, 0)
            for number in range(8):
                self.assertEqual(client.ask(send(self.topic, b"%d" % number)).code, 0)
            until(lambda: len(self.first(client)) == 8, "they are handed out", 20)
            for number, (_, handle, topic) in enumerate(self.handed):
                if number < 4:
                    self.done(client, handle, topic)
            _, handle, topic = self.handed[4]
            change = ChangeInvisibleTimeRequest(**self.said(handle, topic), invisible_time=25_000)
            answer = client.ask(Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change))
            self.assertEqual(answer.code, 0, answer.remark)
            for number in range(8, 12):
                self.assertEqual(client.ask(send(self.topic, b"%d" % number)).code, 0)
            self.hands_out_in_order(client)

    handed: list[tuple[bytes, PopHandle, str]]

    def first(self, client: Remote, invisible: int = 20_000) -> list[tuple[bytes, PopHandle, str]]:
        self.handed = [*getattr(self, "handed", []), *self.pop(client, invisible)]
        return self.handed

    def comes_again(self, port: int) -> None:
        """Of eight messages four are acknowledged, and four come again by a topic of v2; four more
        are not handed out.
        """
        with Remote(port) as client:
            self.assertEqual(client.ask(make_topic(self.topic, 1)).code, 0)
            for number in range(8):
                self.assertEqual(client.ask(send(self.topic, b"%d" % number)).code, 0)
            until(lambda: len(self.first(client, 3000)) == 8, "they are handed out", 20)
            for _, handle, topic in self.handed[:4]:
                self.done(client, handle, topic)
            retry = retry_topic(GROUP, self.topic, RETRY_V2)
            asked = {"topic": retry, "queueId": "0"}

            def came() -> bool:
                answer = client.ask(Command(code=RequestCode.GET_MAX_OFFSET, ext=dict(asked)))
                return answer.code == 0 and int(answer.ext["offset"]) == 4

            until(came, "they come again", 60, pause=0.5)
            for number in range(8, 12):
                self.assertEqual(client.ask(send(self.topic, b"%d" % number)).code, 0)

    def takes_over(self, port: int, kind: str = "", twice: tuple[bytes, ...] = ()) -> None:
        """What is not acknowledged comes, and nothing else.

        @param kind: By which topics what came again does, if that is told.
        @param twice: What is handed out anew besides.
        """
        found: list[bytes] = []
        quiet = time.monotonic()
        with Remote(port) as client:
            # As long as anything that was handed out before could come.
            while time.monotonic() - quiet < 30:
                for body, handle, topic in self.pop(client):
                    quiet = time.monotonic()
                    found.append(body)
                    if kind and int(body) < 8:
                        self.assertEqual(handle.kind, kind)
                    self.done(client, handle, topic)
            if not kind:
                self.takes_over_in_order(client)
        again = len(found) - len(set(found))
        self.tell_of(f"{again} of {len(found)} came twice")
        wanted = [*(b"%d" % n for n in range(4, 12)), *twice]
        self.assertEqual(sorted(found, key=int), sorted(wanted, key=int))

    def test_their_store(self) -> None:
        """Ours goes on where a stock broker was killed."""
        with self.scenario("POP on a store that a Java master left"):
            java = self.stock()
            self.hands_out(java.port)
            self.until_written(java)
            java.kill9()
            self.takes_over(self.our_node(java.root).port)

    def test_their_store_by_v2(self) -> None:
        """What came again there by a topic of v2 is handed out here, once."""
        with self.scenario("POP with retry topics of v2, on a store that a Java master left"):
            java = self.stock(**BY_V2)
            self.comes_again(java.port)
            java.kill9()
            self.takes_over(self.our_node(java.root, **BY_V2).port, RETRY_V2)

    def test_our_store_by_v2(self) -> None:
        """And the other way round."""
        with self.scenario("POP with retry topics of v2, on a store that ours left"):
            ours = self.our_node(**BY_V2)
            self.comes_again(ours.port)
            ours.term()
            self.takes_over(self.stock(root=ours.root, **BY_V2).port, RETRY_V2)

    def tell_of(self, line: str) -> None:
        """Say it in the test's output."""
        print(line)  # noqa: T201

    def test_our_killed_store(self) -> None:
        """The same where ours was killed, as soon as the offsets that a stock broker reads are
        written: it does not know of the journal.
        """
        with self.scenario("POP on a store where ours was killed"):
            ours = self.our_node()
            self.hands_out(ours.port)
            self.until_written(ours)
            ours.kill9()
            self.takes_over(self.stock(root=ours.root).port)

    def until_written(self, node: Node | Broker) -> None:
        """Wait until the file says where the group is in both topics."""
        path = node.root / "config" / "consumerOffset.json"
        wanted = {f"{self.topic}@{GROUP}": {"0": 8}, f"{self.ordered}@{GROUP}": {"0": 1}}

        def written() -> bool:
            try:
                table = fastjson.loads(path.read_bytes())["offsetTable"]
            except (FileNotFoundError, fastjson.JsonInvalid):
                # A stock broker renames it, and writes it anew.
                return False
            return bool(wanted.items() <= table.items())

        until(written, "offsets are written", 20, pause=0.2)

    def test_our_store(self) -> None:
        """A stock broker goes on where ours was stopped; it makes nothing of the record by which
        ours knows that the group was set back.
        """
        with self.scenario("POP on a store that ours left"):
            ours = self.our_node()
            self.hands_out(ours.port)
            with Remote(ours.port) as client:
                back = {"consumerGroup": GROUP, "topic": self.topic, "queueId": 0}
                request = Command(
                    code=RequestCode.UPDATE_CONSUMER_OFFSET,
                    ext={name: str(value) for name, value in (back | {"commitOffset": 6}).items()},
                )
                self.assertEqual(client.ask(request).code, 0)
            ours.term()
            self.takes_over(self.stock(root=ours.root).port, twice=(b"6", b"7"))
