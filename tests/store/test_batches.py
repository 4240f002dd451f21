"""Clients' batches in a store: written by compiled code or not, they are the same."""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from attrs import evolve
from hypothesis import given

from rmqha.errors import MessageIllegal, NotWritable
from rmqha.store import store as store_module
from rmqha.store.store import Store
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.record import Message, decode
from tests.support.logs import HOST, STORED, Disk, LogTestCase, content
from tests.wire.lane.test_batch_run import BATCHES
from tests.wire.log.test_encode import entry

FILE = 4096
HOST_TEXT = "7F00000100002A9F"
"""How an id begins."""
SIZES = {"file_size": FILE, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}


def batch(*sizes: int, **more: Any) -> Message:
    """A batch whose records have so many bytes each."""
    body = b"".join(entry(bytes(size - 91 - len("TopicA") - 10), b"") for size in sizes)
    given: dict[str, Any] = {"topic": "TopicA", "queue_id": 0, "properties": b"CLUSTER\x01C\x02"}
    return Message(
        body=body,
        born_timestamp=STORED,
        born_host=("127.0.0.1", 40000),
        store_host=HOST,
        **(given | more),
    )


@skipUnless(COMPILED, "the write lane is not compiled here")
class BothWaysTests(LogTestCase):
    """Two stores get the same batches: one writes them in the short way, one in the usual way."""

    def pair(self) -> tuple[Store, Store]:
        short, usual = (
            self.opened(self.folder() / "store", settings=SIZES, now_ms=lambda: STORED)
            for _ in range(2)
        )
        usual.compiled = False
        return short, usual

    def put(self, store: Store, message: Message) -> Any:
        try:
            return store.put(message, batch=True)
        except MessageIllegal as error:
            return error.field, error.value, error.limit
        except NotWritable:
            return store.state

    def drive(self, *messages: Message) -> list[Any]:
        """Put batches into both, compare, and return what became of each."""
        stores = self.pair()
        found = [[self.put(store, message) for message in messages] for store in stores]
        self.assertEqual(found[0], found[1])
        self.same(*stores)
        return found[0]

    def same(self, one: Store, other: Store) -> None:
        """Both hold the same, and would go on in the same way."""
        self.assertEqual(content(one.log), content(other.log))
        self.assertEqual(
            (one._next, one.last_stored, one.log.last_record, one.log.confirmed),
            (other._next, other.last_stored, other.log.last_record, other.log.confirmed),
        )

    def test_any(self) -> None:
        """Whatever comes, whole and broken."""
        one, other = self.pair()

        @given(BATCHES.map(lambda message: evolve(message, topic="T", queue_id=1)))
        def drive(message: Message) -> None:
            end = one.log.end
            self.assertEqual(self.put(one, message), self.put(other, message))
            self.assertEqual(content(one.log, end), content(other.log, end))

        drive()
        self.same(one, other)

    def test_rolls(self) -> None:
        """A batch lies in one file: the last one of a file fills it, or begins the next."""
        for last in (FILE - 1000 - 8, FILE - 1000 - 7):
            receipts = self.drive(batch(400, 600), batch(last - 300, 300), batch(200))
            begins = (1000 if last == FILE - 1008 else FILE, FILE + (0 if last == 3088 else last))
            self.assertEqual(begins, tuple(receipt.begin for receipt in receipts[1:]))
            self.assertEqual([0, 2, 4], [receipt.queue_offset for receipt in receipts])

    def test_too_long_for_a_file(self) -> None:
        """A batch of the size of a file is refused, and takes no queue offset."""
        found = self.drive(batch(2000, FILE - 2007), batch(300), batch(2000, FILE - 2008))
        self.assertEqual(("record", FILE - 7, FILE - 8), found[0])
        self.assertEqual((0, 0), (found[1].begin, found[1].queue_offset))
        self.assertEqual((FILE, 1), (found[2].begin, found[2].queue_offset))

    def test_with_others(self) -> None:
        """Batches, single messages and queues beside each other."""
        stores = self.pair()
        for store in stores:
            store.put(batch(200, 200), batch=True)
            store.put(batch(300, queue_id=1))
            store.put(batch(250), batch=False)
            store.put(batch(200, 220, queue_id=1), batch=True)
        self.same(*stores)
        self.assertEqual({("TopicA", 0): 3, ("TopicA", 1): 3}, stores[0]._next)

    def test_disk_full(self) -> None:
        """Without room nothing of a batch is stored; with it, it goes where it would."""
        stores = self.pair()
        disk = Disk().install(self)
        found = []
        for store in stores:
            disk.full = False
            store.put(batch(400, 600), batch=True)
            disk.full = True
            found.append([self.put(store, batch(2000, 1500)), store._room_wanted])
            disk.full = False
            store._look_at_disk()
            found[-1].append(self.put(store, batch(2000, 1500)))
        self.assertEqual((found[0], ["disk-full", 3500]), (found[1], found[0][:2]))
        self.same(*stores)

    def test_closed(self) -> None:
        """A store that takes no writes takes no batch."""
        stores = self.pair()
        for store in stores:
            store.fence("another is master")
            self.assertRaises(NotWritable, store.put, batch(300), batch=True)
        self.assertEqual((0, 0), (stores[0].log.end, stores[1].log.end))

    def test_short_way(self) -> None:
        """Usual batches are written in the short way, unusual ones in the other."""
        store, _ = self.pair()

        def usual(message: Message, *, max_message_size: int) -> list[bytearray]:
            raise AssertionError("the usual way")

        self.patch(store_module, "encode_batch", usual)
        receipt = store.put(batch(300, 301), batch=True)
        second = decode(store.log.read(300, 301), 0, 300)
        self.assertEqual(f"{HOST_TEXT}{0:016X},{HOST_TEXT}{300:016X}", receipt.message_id)
        self.assertEqual((1, STORED), (second.queue_offset, second.store_timestamp))
        many = b"".join(b"%d\x01v\x02" % number for number in range(100))
        self.assertRaises(AssertionError, store.put, batch(300, properties=many), batch=True)
