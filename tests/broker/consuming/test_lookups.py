"""Finding single messages and places in queues."""

from __future__ import annotations

from typing import Any

from rmqha.wire.log.encode import encode, place
from rmqha.wire.log.record import Message
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.offsets import MaxOffsetRequest, QueueRequest, SearchOffsetRequest
from rmqha.wire.remoting.headers.pull import QueryMessageRequest, ViewMessageRequest
from tests.broker.consumer_side import TOPIC, ConsumingTestCase, bodies
from tests.support.logs import HOST, STORED


class PlaceTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.time = STORED
        self.broker = self.consuming(store={"now_ms": lambda: self.time})
        self.peer = self.broker.peer()

    def offset(self, code: int, header: Any) -> int:
        """The number a request is answered with."""
        answer = self.assert_answer(self.ask(self.peer, Command.request(code, header)), 0)
        (number,) = answer.ext.values()
        return int(number)

    def put_every_second(self, count: int) -> None:
        """Store messages a second apart."""
        for _ in range(count):
            self.broker.put()
            self.time += 1000
        self.broker.dispatch()

    def test_bounds(self) -> None:
        """A queue's first and next offset, and when its first message was stored."""
        first = QueueRequest(topic=TOPIC, queue_id=0)
        last = MaxOffsetRequest(topic=TOPIC, queue_id=0)
        asked = (
            (RequestCode.GET_MIN_OFFSET, first),
            (RequestCode.GET_MAX_OFFSET, last),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, first),
        )
        self.assertEqual([self.offset(*pair) for pair in asked], [0, 0, -1])
        self.put_every_second(3)
        self.assertEqual([self.offset(*pair) for pair in asked], [0, 3, STORED])

    def test_by_time(self) -> None:
        """The message nearest to a time; behind the last one it is the queue's end."""
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        self.put_every_second(5)
        for after, nearest, lower in (
            (-5000, 0, 0),
            (0, 0, 0),
            (1400, 1, 2),
            (1600, 2, 2),
            (3000, 3, 3),
            (4000, 4, 4),
            (4001, 5, 5),
            (999_999, 5, 5),
        ):
            for boundary, offset in ((None, nearest), ("lower", lower)):
                header = SearchOffsetRequest(
                    topic=TOPIC, queue_id=0, timestamp=STORED + after, boundary_type=boundary
                )
                self.assertEqual(self.offset(search, header), offset, (after, boundary))
        nowhere = SearchOffsetRequest(topic=TOPIC, queue_id=9, timestamp=STORED)
        self.assertEqual(self.offset(search, nowhere), 0)

    def test_clock_was_ahead(self) -> None:
        """Messages of minutes when the clock was a day ahead hide none of those that follow,
        wherever in the queue they are, from a search by time or by key.
        """
        day = 86_400_000
        for before, count in ((0, 1), (0, 3), (3, 1), (4, 4)):
            self.broker = self.consuming(store={"now_ms": lambda: self.time})
            self.peer = self.broker.peer()
            self.time = begin = STORED
            for number in range(before + count + 6):
                ahead = day * (before <= number < before + count)
                self.time += ahead
                self.broker.put(b"%d" % number, KEYS="k")
                self.time += 1000 - ahead
            self.broker.dispatch()
            for number in range(before + count, before + count + 6):
                at = begin + 1000 * number
                header = SearchOffsetRequest(topic=TOPIC, queue_id=0, timestamp=at)
                found = self.offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
                self.assertEqual(found, number, (before, count))
                range_ = {"begin_timestamp": at - 100, "end_timestamp": at + 100}
                request = QueryMessageRequest(topic=TOPIC, key="k", max_num=32, **range_)
                answer = self.ask(self.peer, Command.request(RequestCode.QUERY_MESSAGE, request))
                self.assertEqual(bodies(answer), [b"%d" % number], (before, count))


class MessageTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.peer = self.broker.peer()

    def view(self, offset: int) -> Command:
        """Ask for the message at a physical offset."""
        header = ViewMessageRequest(offset=offset)
        return self.ask(self.peer, Command.request(RequestCode.VIEW_MESSAGE_BY_ID, header))

    def query(self, key: str, **more: Any) -> Command:
        given: dict[str, Any] = {
            "topic": TOPIC,
            "key": key,
            "max_num": 32,
            "begin_timestamp": 0,
            "end_timestamp": (1 << 63) - 1,
        }
        header = QueryMessageRequest(**(given | more))
        return self.ask(self.peer, Command.request(RequestCode.QUERY_MESSAGE, header))

    def test_view(self) -> None:
        """A message is found where it stands, before and after it is dispatched."""
        self.broker.put(b"one")
        offset = self.broker.put(b"two").begin
        self.assertEqual(bodies(self.view(offset)), [b"two"])
        self.broker.dispatch()
        self.assertEqual(bodies(self.view(offset)), [b"two"])

    def test_view_of_nothing(self) -> None:
        """Any other place is no message."""
        begin = self.broker.put(b"one").begin
        self.broker.dispatch()
        for offset in (begin + 1, -1, 1 << 40, self.broker.store.log.end):
            self.assert_answer(
                self.view(offset),
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )

    def test_forged_record(self) -> None:
        """A body that looks like a record, at the right place, is none."""
        self.broker.put(b"real")
        log = self.broker.store.log
        forged = encode(
            Message(
                topic=TOPIC,
                queue_id=0,
                body=b"forged",
                born_timestamp=STORED,
                born_host=HOST,
                store_host=HOST,
            ),
            max_message_size=1000,
        )
        place(forged, queue_offset=0, offset=log.end + 88, store_timestamp=STORED)
        begin = self.broker.put(bytes(forged)).begin
        self.assertIsNotNone(self.broker.store.log.read(begin + 88, 4))
        self.broker.dispatch()
        self.assertEqual(self.view(begin + 88).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(bodies(self.view(begin)), [bytes(forged)])

    def test_by_key(self) -> None:
        """Messages with a key come in the order of the log, and with them how far the index is."""
        for number in range(5):
            self.broker.put(b"%d" % number, queue_id=number % 2, KEYS="odd" if number % 2 else "x")
        last = self.broker.put(b"last", KEYS="y").begin
        self.broker.dispatch()
        answer = self.query("odd")
        self.assertEqual(bodies(answer), [b"1", b"3"])
        self.assertEqual(
            answer.ext,
            {
                "indexLastUpdateTimestamp": f"{self.broker.store.last_stored}",
                "indexLastUpdatePhyoffset": f"{last}",
            },
        )

    def test_no_key(self) -> None:
        """Nothing found is its own code, with the same fields."""
        self.broker.put(KEYS="a")
        self.broker.dispatch()
        for more in ({}, {"max_num": -1}, {"begin_timestamp": 5, "end_timestamp": 4}):
            answer = self.query("a" if more else "b", **more)
            self.assert_answer(
                answer,
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
            )
            self.assertIn("indexLastUpdateTimestamp", answer.ext)

    def test_unique_key(self) -> None:
        """A look-up by a message's own id has its own limit."""
        for number in range(3):
            self.broker.put(b"%d" % number, UNIQ_KEY="id")
        self.broker.dispatch()
        self.assertEqual(len(bodies(self.query("id", max_num=1, unique_key_query=True))), 3)
        self.assertEqual(bodies(self.query("id", max_num=1)), [b"2"])

    def test_room(self) -> None:
        """No answer is bigger than a frame: the newest messages come."""
        broker = self.broker = self.consuming(
            store={"settings": {"file_size": 64 << 20, "max_message_size": 4 << 20}}
        )
        self.peer = broker.peer()
        for number in range(6):
            broker.put(bytes([number]) * (3 << 20), KEYS="big")
        broker.dispatch()
        self.assertEqual([body[0] for body in bodies(self.query("big"))], [3, 4, 5])
