"""What clients were told of messages of all kinds, by byte, and clients that send them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from attrs import asdict, define, field

from lab.harness import compare_stores
from lab.harness.evidence import keep_evidence
from lab.harness.nodes import Node, Process, until
from lab.harness.remote import Remote, pull, records, send
from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles import json_table
from rmqha.logfiles.published import DELETED
from rmqha.store.offline.client_ledger import Acknowledged
from rmqha.wire.log.record import decode
from rmqha.wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.send import SendBackRequest
from tests.faults.test_newer_tables import LATER, PAID, commit, half, questions
from tests.support import client

ORDERS, GROUP = "Orders", "workers"
RETRY = f"%RETRY%{GROUP}"

QUEUES = 4

COMMIT, ROLL_BACK = 8, 12

#: Seconds between two messages of one client, and after one that was not acknowledged.
PACE, REFUSED = 0.002, 0.05


@define(kw_only=True)
class Entry:
    """What was acknowledged of one message.

    @ivar kind: C{plain}, C{delayed}, C{half}, or C{retry}, which a consumer sent back; C{deleted}
        and C{doomed} are plain and delayed ones of a topic that is deleted.
    @ivar offset: Where its record begins; of a retry, a record behind it that was replicated.
    @ivar left: Whether its producer says nothing until it is asked.
    """

    kind: str
    body: bytes
    offset: int
    topic: str
    queue: int
    queue_offset: int
    number: int = -1
    left: bool = False

    @property
    def acknowledged(self) -> Acknowledged:
        """What was told, for C{rmqha doctor}."""
        return Acknowledged(
            offset=self.offset,
            topic=self.topic,
            queue_id=self.queue,
            queue_offset=self.queue_offset,
            body=self.body.decode(),
        )


@define(eq=False)
class Ledger:
    """What was acknowledged, and what has to hold for it; what was decided of halves before they
    were
    sent, and which ones a producer was asked about.
    """

    entries: list[Entry] = field(factory=list)
    words: dict[int, int] = field(factory=dict)
    asked: set[int] = field(factory=set)
    numbers: count[int] = field(factory=count)

    def of(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    def save(self, path: Path, **told: object) -> None:
        """Write it, and what else is to be known."""
        rows = [{**asdict(entry), "body": entry.body.decode()} for entry in self.entries]
        told |= {"words": self.words, "asked": sorted(self.asked), "entries": rows}
        path.write_text(json.dumps(told, indent=0), encoding="utf-8")

    def keep(self, folder: Path, processes: Iterable[Process], **told: object) -> None:
        """Keep it, and a test's folder, for whoever looks why the test has failed.  What was sent
        back is in
        C{ledger.json} alone: nobody was told where its record is.
        """
        self.save(folder / "ledger.json", **told)
        keep_evidence(
            folder,
            processes,
            [entry.acknowledged for entry in self.entries if entry.kind != "retry"],
        )

    # --- what has to hold -----------------------------------------------------

    def until_delivered(self, node: Node) -> None:
        """Wait until a master has delivered all that comes later."""
        node.until(
            lambda status: (
                not any(
                    level["pending"] for level in status["remoting"]["delayed"]["levels"].values()
                )
            ),
            "all is delivered",
        )
        for kind, topic in (("delayed", LATER), ("retry", RETRY)):
            until_there(node.port, topic, {entry.body for entry in self.of(kind)})

    def until_decided(self, port: int) -> None:
        """Have a producer that answers what it is asked, until all that it committed can be read
        and all that it left open was asked about.
        """
        producer = Producer(port, self)
        producer.start()
        halves = self.of("half")
        wanted = {e.body for e in halves if self.words[e.number] == COMMIT}
        left = {e.number for e in halves if e.left}
        until(lambda: left <= self.asked, "all are asked about", pause=0.2)
        until_there(port, PAID, wanted)
        producer.enough.set()

    def check_pulled(self, port: int) -> None:
        """Consumers find plain messages where senders were told, and none rolled back."""
        plain = self.of("plain")
        found = {
            (topic, queue, at): record
            for topic, queue in {(entry.topic, entry.queue) for entry in plain}
            for at, record in pulled(port, topic, queue).items()
        }
        for entry in plain:
            there = found.get((entry.topic, entry.queue, entry.queue_offset))
            assert there == (entry.offset, entry.body), f"{entry}, and there is {there}"
        rolled = {b"half %d" % n for n, word in self.words.items() if word == ROLL_BACK}
        assert not rolled & bodies(port, PAID), "what was rolled back can be read"

    def check_bytes(self, settings: StoreSettings) -> None:
        """Each message is at its byte in a stopped node's log, with its place in its queue; that
        the queues' files say the same has been compared.
        """
        log = compare_stores.open_log(settings)
        for entry in self.entries:
            if entry.kind == "retry":
                continue
            assert entry.offset < log.end, f"{settings.root} ends at {log.end}: {entry}"
            length = int.from_bytes(log.read(entry.offset, 4), "big")
            record = decode(log.read(entry.offset, length), 0, entry.offset)
            wanted = entry.body, entry.topic, entry.queue, entry.queue_offset
            there = record.body, record.topic, record.queue_id, record.queue_offset
            assert wanted == there, f"{settings.root}: {entry}, and there is {there}"
        log.folder.close()


@define(eq=False)
class TablesLedger:
    """What was done to topics and a group, and what has to hold for it.

    @ivar gone: The topics that were deleted, and where the log ended then.
    @ivar floor: The least that the group's offset may be.
    """

    ledger: Ledger
    random: random.Random
    gone: dict[str, int] = field(factory=dict)
    again: set[str] = field(factory=set)
    floor: int = 0

    def told(self) -> dict[str, object]:
        """For whoever looks why a test has failed."""
        return {"gone": self.gone, "again": sorted(self.again), "floor": self.floor}

    def move_group(self, master: Node, *slaves: Node) -> None:
        """Commit how far the group is, and wait until slaves know."""
        places = [
            e.queue_offset for e in self.ledger.of("plain") if (e.topic, e.queue) == (ORDERS, 0)
        ]
        wanted = max([self.floor, *places])
        client.commit(clients_of(master), GROUP, ORDERS, 0, wanted)
        for slave in slaves:
            until(
                lambda slave=slave: client.committed(clients_of(slave), GROUP, ORDERS, 0) == wanted,
                f"{slave.name} knows",
                tell=slave.tail,
            )

    def check_group(self, master: Node) -> None:
        """The group is not behind where it was in the round before."""
        now = client.committed(clients_of(master), GROUP, ORDERS, 0) or 0
        assert now >= self.floor, f"{now}, and it was {self.floor}: {master.tail()}"
        self.floor = now

    def delete_topic(self, master: Node, name: str) -> None:
        """A topic with messages, one of them for later, is deleted; sometimes it is made again.
        Those that were made again get more.
        """
        clients = clients_of(master)
        client.make_topic(clients, name, QUEUES)
        sender = Sender(master.port, self.ledger, self.random.random())
        with Remote(master.port) as broker:
            before = [sender.plain(broker, name) for _ in range(3)]
            sender.delayed(broker, name, "doomed")
            client.must(clients, RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)
            self.gone[name] = master.status()["maxOffset"]
            for entry in filter(None, before):
                entry.kind = "deleted"
            if self.random.random() < 0.5:
                client.make_topic(clients, name, QUEUES)
                self.again.add(name)
                sender.plain(broker, name)
            living = sorted(self.again & self.gone.keys())
            for other in self.random.sample(living, min(3, len(living))):
                sender.plain(broker, other)

    def check_deleted(self, master: Node, *names: str) -> None:
        """No topic that was deleted has come back, and of these has each only what is new."""
        there = client.topic_names(clients_of(master))
        assert not there & (self.gone.keys() - self.again), there
        for name in self.gone.keys() & names:
            wanted = {entry.body for entry in self.ledger.of("plain") if entry.topic == name}
            for queue in range(QUEUES):
                found = bodies(master.port, name, queue)
                assert found <= wanted, f"{name}: {sorted(found - wanted)[:3]}"


class Sender(threading.Thread):
    """A client that sends messages of all kinds until its broker goes, or comes C{again}."""

    def __init__(self, port: int, ledger: Ledger, seed: float, *, again: bool = False) -> None:
        super().__init__(daemon=True)
        self.port, self.ledger, self.random = port, ledger, random.Random(seed)
        self.again = again
        self.enough = threading.Event()
        self._plain: list[Entry] = []
        self._sent_back: list[bytes] = []

    def run(self) -> None:
        """Send until something ends it."""
        kinds: tuple[Callable[[Remote], object], ...]
        kinds = self.plain, self.delayed, self.half, self.send_back
        while True:
            with suppress(OSError), Remote(self.port) as broker:
                while not self.enough.wait(PACE):
                    self.random.choices(kinds, (5, 2, 2, 1))[0](broker)
            if not self.again or self.enough.wait(REFUSED):
                return  # the broker has gone
            self._sent_back.clear()

    def plain(self, broker: Remote, topic: str = ORDERS) -> Entry | None:
        """A message: C{None} if it was not acknowledged."""
        body, queue = self._body(), self.random.randrange(QUEUES)
        entry = self._sent(broker, send(topic, body, queue), "plain", body, topic, queue)
        if entry is not None:
            self._plain.append(entry)
        return entry

    def delayed(self, broker: Remote, topic: str = LATER, kind: str = "delayed") -> None:
        """One that comes some seconds later."""
        body, level = self._body(), self.random.randint(1, 2)
        self._sent(broker, send(topic, body, delay=level), kind, body, SCHEDULE_TOPIC, level - 1)

    def half(self, broker: Remote) -> None:
        """One that is committed, rolled back, or neither."""
        number = next(self.ledger.numbers)
        word = self.ledger.words[number] = self.random.choice((COMMIT, COMMIT, ROLL_BACK))
        entry = self._sent(broker, half(number), "half", b"half %d" % number, HALF_TOPIC, 0)
        if entry is not None:
            entry.number, entry.left = number, self.random.random() < 0.3
            if not entry.left:
                broker.ask(commit(entry.queue_offset, entry.offset, word))

    def send_back(self, broker: Remote) -> None:
        """A message that was sent is given back as its consumer would."""
        if self._plain:
            entry = self._plain.pop(self.random.randrange(len(self._plain)))
            request = SendBackRequest(offset=entry.offset, group=GROUP, delay_level=1)
            answer = broker.ask(Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, request))
            if answer.code == 0:
                self._sent_back.append(entry.body)

    def _body(self) -> bytes:
        return b"%d " % next(self.ledger.numbers) + b"x" * self.random.choice((0, 300, 3000))

    def _sent(
        self, broker: Remote, command: Command, kind: str, body: bytes, topic: str, queue: int
    ) -> Entry | None:
        answer = broker.ask(command)
        if answer.code:
            # Its broker may be no master any more, and cut off what it alone has.
            self._sent_back.clear()
            self.enough.wait(REFUSED)
            return None
        offset, place = int(answer.ext["msgId"][-16:], 16), int(answer.ext["queueOffset"])
        entry = Entry(
            kind=kind, body=body, offset=offset, topic=topic, queue=queue, queue_offset=place
        )
        # What is sent back is answered 0 also without a replica, and nothing tells: one has it when
        # it has a record behind.
        for back in self._sent_back:
            self.ledger.entries.append(
                Entry(kind="retry", body=back, offset=offset, topic=RETRY, queue=0, queue_offset=-1)
            )
        self._sent_back.clear()
        self.ledger.entries.append(entry)
        return entry


class Producer(threading.Thread):
    """A producer that decides, as it had decided, whatever half message it is asked about."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.port, self.ledger = port, ledger
        self.enough = threading.Event()

    def run(self) -> None:
        """Answer until something ends it."""
        while not self.enough.wait(PACE):
            with suppress(OSError):  # nothing is asked any more
                for question in questions(self.port):
                    number = int(str(question.transaction_id).removeprefix("U"))
                    place = question.tran_state_table_offset, question.commit_log_offset
                    with Remote(self.port) as broker:
                        answer = broker.ask(commit(*place, self.ledger.words[number]))
                    if answer.code == 0:
                        self.ledger.asked.add(number)


def clients_of(node: Node) -> str:
    """Where a node's clients connect."""
    return f"127.0.0.1:{node.port}"


def until_told(name: str, master: Node, *slaves: Node) -> None:
    """Wait until slaves know that a topic was deleted, and made again, lest it stays."""

    def seen(node: Node) -> tuple[set[str], list[tuple[int, int]]]:
        ends = [bounds(clients_of(node), name, queue) for queue in range(QUEUES)]
        return client.topic_names(clients_of(node)), ends

    def known(node: Node) -> bool:
        return name in (json_table.read(node.root / DELETED) or {}).get("topics", {})

    def told(slave: Node) -> bool:
        # A topic that it never had has no bounds there, told or not.
        return (known(slave) or not known(master)) and seen(slave) == seen(master)

    for slave in slaves:
        until(lambda slave=slave: told(slave), f"{slave.name} is told", pause=0.2)


def bounds(address: str, topic: str, queue: int) -> tuple[int, int]:
    """A queue's first message, and just past its last."""
    codes = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
    found = (client.must(address, code, topic=topic, queueId=queue) for code in codes)
    first, end = (int(answer.ext["offset"]) for answer in found)
    return first, end


def pulled(port: int, topic: str, queue: int) -> dict[int, tuple[int, bytes]]:
    """What a consumer gets of a queue: offsets and bodies of its records, by their places."""
    found: dict[int, tuple[int, bytes]] = {}
    offset, end = bounds(f"127.0.0.1:{port}", topic, queue)
    if offset == end:
        return found
    with Remote(port) as broker:
        while not (answer := broker.ask(pull(topic, "readers", offset, queue))).code:
            offset = int(answer.ext["nextBeginOffset"])
            for record in records(answer):
                found[record.queue_offset] = record.stored_offset, record.body
    assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
    return found


def bodies(port: int, topic: str, queue: int = 0) -> set[bytes]:
    """The bodies of a queue's messages."""
    return {body for _, body in pulled(port, topic, queue).values()}


def until_there(port: int, topic: str, wanted: set[bytes]) -> None:
    """Wait until consumers get all of these."""
    until(
        lambda: wanted <= bodies(port, topic),
        f"{topic} is complete",
        tell=lambda: str(sorted(wanted - bodies(port, topic))[:10]),
        pause=0.2,
    )
