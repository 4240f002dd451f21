"""F51: a store whose tables are newer than its log, as a promotion and a restore make it: what
waited for its time, and was done with behind the log's end, waits again.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, pull, records, send
from rmqha.logfiles import json_table
from rmqha.wire.names import HALF_TOPIC, TEMPLATE_TOPIC, TRANSACTION_GROUP
from rmqha.wire.remoting.bodies.clients import HeartbeatData, ProducerData
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext, to_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.clients import CheckTransactionRequest, EndTransactionRequest
from rmqha.wire.remoting.headers.send import SendMessageV2Request
from rmqha.wire.remoting.json_body import write
from tests.faults.harness import BRISK, FaultTestCase

LATER, PAID = "Later", "Paid"

DELAYED, HALVES = 8, 4

DELAY = 8
"""Seconds; long enough for the slave to be gone before."""

GROUP = "payers"

KEYS: dict[str, object] = {
    **BRISK,
    "brokerIP1": "127.0.0.1",
    "messageDelayLevel": f"{DELAY}s",
    "transactionCheckInterval": 500,
    "transactionTimeOut": 100,
}


def half(number: int) -> Command:
    """A message that is not decided yet."""
    request = SendMessageV2Request(
        producer_group=GROUP,
        topic=PAID,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=4,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U{number}\x02",
        reconsume_times=0,
    )
    body = b"half %d" % number
    return Command(code=RequestCode.SEND_MESSAGE_V2, ext=to_ext(request), body=body)


def commit(queue_offset: int, offset: int, word: int = 8) -> Command:
    """Its producer decides: 8 commits, 12 rolls back."""
    header = EndTransactionRequest(
        producer_group=GROUP,
        tran_state_table_offset=queue_offset,
        commit_log_offset=offset,
        commit_or_rollback=word,
        msg_id="",
    )
    return Command.request(RequestCode.END_TRANSACTION, header)


def questions(port: int) -> Iterator[CheckTransactionRequest]:
    """What a producer is asked about its half messages; it says nothing else."""
    body = HeartbeatData(client_id="p", producer_data_set=(ProducerData(group_name=GROUP),))
    decoder = FrameDecoder()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        beat = Command(code=RequestCode.HEART_BEAT, ext={}, body=write(body))
        connection.sendall(encode(beat))
        while data := connection.recv(1 << 16):
            for command in decoder.receive(data):
                if command.code == RequestCode.CHECK_TRANSACTION_STATE:
                    yield from_ext(CheckTransactionRequest, command.ext)


class NewerTablesTests(FaultTestCase):
    """A pair whose slave was away while messages came due and half messages were committed."""

    def node(self, role: str, name: str, root: Path | None = None, **keys: object) -> Node:
        node = Node(self.folder, role, name, **KEYS, **keys)
        if root is not None:
            node.root = node.keys["storePathRootDir"] = root
        self._processes.append(node)
        return node

    def rmqha(self, *arguments: str | Path) -> str:
        """Run the command, and return what it printed."""
        done = self.ended(*arguments)
        self.tell(done.stdout)
        return done.stdout

    def bodies(self, node: Node, topic: str) -> Counter[bytes]:
        """All that consumers of a topic get."""
        found: Counter[bytes] = Counter()
        offset = 0
        with Remote(node.port) as reader:
            while not (answer := reader.ask(pull(topic, "readers", offset))).code:
                offset = int(answer.ext["nextBeginOffset"])
                found.update(record.body for record in records(answer))
        return found

    def filled(self) -> tuple[Node, Node, int]:
        """A pair whose slave was killed before anything came due or was decided, and whose master
        was killed
        after all was done and written down; and where the slave's log ends.
        """
        master = self.node("master", "master", brokerRole="SYNC_MASTER").start()
        slave = self.node(
            "slave",
            "slave",
            haMasterAddress="{}:{}".format(*master.address),
            haMasterClientAddress=f"127.0.0.1:{master.port}",
        ).start()
        slave.until_synced(0)
        with Remote(master.port) as client:
            for topic in (LATER, PAID):
                client.ask(send(topic, b"first", queue_id=1))
            slave.until_synced(master.status()["maxOffset"])
            answers = client.ask_all([half(n) for n in range(HALVES)])
            answers += client.ask_all([send(LATER, b"%d" % n, delay=1) for n in range(DELAYED)])
            self.assertEqual({0}, {answer.code for answer in answers})
            end = master.status()["maxOffset"]
            slave.until_synced(end)
            slave.kill9()
            for answer in answers[:HALVES]:
                place = int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16)
                self.assertEqual(0, client.ask(commit(*place)).code)
        until(lambda: self.bodies(master, LATER).total() == DELAYED, "all came", DELAY + 20)
        self.assertEqual(HALVES, self.bodies(master, PAID).total())
        tables = master.root / "config"

        def told() -> bool:
            delays = json_table.read(tables / "delayOffset.json") or {"offsetTable": {}}
            groups = json_table.read(tables / "consumerOffset.json") or {"offsetTable": {}}
            halves = groups["offsetTable"].get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {})
            return (delays["offsetTable"].get(1), halves.get(0)) == (DELAYED, HALVES)

        until(told, "all is written down", 30)
        master.kill9()
        return master, slave, end

    def all_comes(self, root: Path, said: str, name: str) -> None:
        """A store's master delivers what came due, and asks about the decided, behind its end."""
        self.assertIn(f"{DELAYED} delayed messages wait again", said)
        self.assertIn(f"{HALVES} half messages wait again", said)
        new = self.node("master", name, root).start()
        until(lambda: self.bodies(new, LATER).total() == DELAYED, "all came", DELAY + 20)
        self.assertEqual({b"%d" % n for n in range(DELAYED)}, set(self.bodies(new, LATER)))
        self.assertEqual(0, self.bodies(new, PAID).total())
        asked: dict[int, int] = {}
        for question in questions(new.port):
            asked[question.tran_state_table_offset] = question.commit_log_offset
            if len(asked) == HALVES:
                break
        with Remote(new.port) as client:
            for place in asked.items():
                self.assertEqual(0, client.ask(commit(*place)).code)
        until(lambda: self.bodies(new, PAID).total() == HALVES, "all are committed")
        self.assertEqual({b"half %d" % n for n in range(HALVES)}, set(self.bodies(new, PAID)))
        new.term()
        self.assertEqual([], new.complaints())

    def test_promoted(self) -> None:
        """A slave promoted with the old master's tables loses nothing that waits in its log."""
        master, slave, _ = self.filled()
        copied = self.folder / "tables"
        shutil.copytree(master.root / "config", copied)
        command = ("promote", slave.root, "--conf", slave.conf, "--tables", copied)
        planned = self.rmqha(*command, "--dry-run")
        self.assertIn(f"{DELAYED} delayed messages wait again", planned)
        self.all_comes(slave.root, self.rmqha(*command), "promoted")

    def test_restored(self) -> None:
        """Nor does a store restored to a moment before, with the tables of now, its or given."""
        master, _, end = self.filled()
        tables = ("--tables", master.root)
        for name, source, more in (
            ("kept", master.root, ()),
            ("log", master.root / "commitlog", tables),
        ):
            dest = self.folder / name
            conf = self.node("master", name, dest)
            conf.write_conf()
            command = ("restore", source, dest, "--until", str(end), *more, "--conf", conf.conf)
            self.all_comes(dest, self.rmqha(*command), name)
