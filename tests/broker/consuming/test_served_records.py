"""What is sent to consumers is what they asked for, or nothing."""

from __future__ import annotations

import random
import sys
from struct import pack_into, unpack_from

from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.consuming.served_records import first_wrong
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.log.layout import MAGIC_AT, MAGIC_V2, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.pull import QueryMessageRequest, ViewMessageRequest
from tests.broker.consumer_side import TOPIC, Consuming, ConsumingTestCase, bodies, pull
from tests.support.log_lines import log_lines
from tests.support.logs import STORED, encoded


class HeadTests(SynchronousTestCase):
    kinds = 7
    """How many sizes they have."""

    def made(self, count: int) -> tuple[bytearray, list[int], list[int], list[int]]:
        """Records side by side from byte 5000 on, whose queue offsets begin at 70."""
        data, starts, sizes = bytearray(), [], []
        for number in range(count):
            size = 130 + number % self.kinds
            record = encoded(size)
            pack_into(">qq", record, QUEUE_OFFSET_AT, 70 + number, 5000 + len(data))
            starts.append(5000 + len(data))
            sizes.append(size)
            data += record
        return data, starts, sizes, list(range(70, 70 + count))

    def test_right(self) -> None:
        """Records that are what they should be, few and many, of either version."""
        for count in (1, 2, 6, 7, 32, 200):
            data, *told = self.made(count)
            self.assertEqual(first_wrong(memoryview(data), *told), count)
            for start in told[0][::3]:
                pack_into(">i", data, start - 5000 + MAGIC_AT, MAGIC_V2)
            self.assertEqual(first_wrong(memoryview(data), *told), count)

    def test_wrong(self) -> None:
        """The first that is not is found, whatever is wrong: magic, size, offset, number."""
        for count in (1, 6, 7, 40):
            for row in {0, count // 2, count - 1}:
                for place in (0, 3, MAGIC_AT, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT + 7):
                    data, *told = self.made(count)
                    data[told[0][row] - 5000 + place] ^= 1
                    self.assertEqual(first_wrong(memoryview(data), *told), row, (count, place))

    def test_wild_units(self) -> None:
        """Sizes that no record has are wrong, and nothing is read behind the view."""
        for count in (1, 6, 7, 40):
            for size in (0, -1, 90, -(1 << 31)):
                data, starts, sizes, numbers = self.made(count)
                sizes[-1] = size
                self.assertEqual(first_wrong(memoryview(data), starts, sizes, numbers), count - 1)


class AlikeTests(HeadTests):
    """The same where all records have one size."""

    kinds = 1


class ServedTestCase(ConsumingTestCase):
    """A broker with 40 messages in a queue, of which some are damaged."""

    broker: Consuming

    def setUp(self) -> None:
        self.broker = self.consuming(store={"settings": {"file_size": 1 << 16}})
        self.peer = self.broker.peer()
        self.begins = []
        for number in range(40):
            body = b"%02d" % number * 500
            tags = "ABC"[number % 3]
            self.begins.append(self.broker.put(body, tags=tags, KEYS="key").begin)
        self.broker.dispatch()
        self.errors = log_lines(self, least=LogLevel.error)

    def write(self, offset: int, data: bytes) -> None:
        """Let the disk lose something."""
        file = self.broker.store.log.folder.at(offset)
        file.view[offset - file.start : offset - file.start + len(data)] = data

    def numbers(self, answer: Command) -> list[int]:
        return [int(body[:2]) for body in bodies(answer)]

    def assert_refused(self, answer: Command, offset: int, *words: str) -> None:
        """Nothing comes but an error that names the place."""
        self.assertEqual((answer.code, bytes(answer.body)), (ResponseCode.SYSTEM_ERROR, b""))
        path = self.broker.store.log.folder.at(offset).path
        remark = answer.remark or ""
        for word in (str(path), f"byte {offset}", *words):
            self.assertIn(word, remark)


class PullTests(ServedTestCase):
    def test_before_and_at(self) -> None:
        """Before a bad record all is sent; who asks for it is told; what follows can be had."""
        bad = self.begins[5]
        self.write(bad, bytes(700))
        answer = self.ask(self.peer, pull())
        self.assertEqual(self.numbers(answer), [0, 1, 2, 3, 4])
        self.assertEqual(answer.ext["nextBeginOffset"], "5")
        for _ in range(3):
            answer = self.ask(self.peer, pull(5))
            self.assert_refused(answer, bad, f"message 5 of queue 0 of topic {TOPIC}", "nothing")
        self.assertEqual((self.broker.served.faults, len(self.errors)), (3, 1))
        self.assertIn(f"byte {bad}", self.errors[0])
        self.assertEqual(self.numbers(self.ask(self.peer, pull(6)))[:2], [6, 7])

    def test_tags(self) -> None:
        """With a filter only what would be sent is looked at."""
        self.write(self.begins[4], bytes(8))
        answer = self.ask(self.peer, pull(subscription="A"))
        self.assertEqual(self.numbers(answer), [*range(0, 40, 3)])
        answer = self.ask(self.peer, pull(subscription="B"))
        self.assertEqual((self.numbers(answer), answer.ext["nextBeginOffset"]), ([1], "4"))
        self.assert_refused(self.ask(self.peer, pull(2, subscription="B")), self.begins[4])

    def test_another_record(self) -> None:
        """A whole, valid record of another place, or of another message, is not sent either."""
        log = self.broker.store.log
        copied = bytes(log.read(self.begins[20], self.begins[21] - self.begins[20]))
        self.write(self.begins[7], copied)
        answer = self.ask(self.peer, pull(7))
        self.assert_refused(answer, self.begins[7], "stored offset is another")
        moved = bytearray(copied)
        pack_into(">q", moved, PHYSICAL_OFFSET_AT, self.begins[7])
        self.write(self.begins[7], bytes(moved))
        self.assert_refused(self.ask(self.peer, pull(7)), self.begins[7], "another message")

    def test_queue_that_lies(self) -> None:
        """A unit that points nowhere, or behind the log's end, is an error too."""
        queue = self.broker.store.queues.get(TOPIC, 0)
        assert queue is not None
        real = queue.units
        for offset, size in (
            (1 << 40, 100),
            (self.begins[0] + 1, 1000),
            (self.begins[39], 1 << 30),
        ):
            lie = UNIT.pack(offset, size, 0)

            def units(first: int, most: int, lie: bytes = lie) -> bytes:
                raw = bytearray(real(first, most))
                place = (9 - first) * 20
                if 0 <= place < len(raw):
                    raw[place : place + 20] = lie
                return bytes(raw)

            patched = self.patch(type(queue), "units", lambda _, *given: units(*given))
            answer = self.ask(self.peer, pull())
            self.assertEqual(self.numbers(answer), [*range(9)])
            answer = self.ask(self.peer, pull(9))
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("message 9 of queue 0", answer.remark or "")
            patched.restore()

    def heads(self, body: bytes) -> list[tuple[int, int]]:
        """Queue offset and physical offset of each record, as a client finds them."""
        found, place = [], 0
        while place < len(body):
            size, number, offset = unpack_from(">i16xqq", body, place)
            found.append((number, offset))
            place += size
        self.assertEqual(place, len(body))
        return found

    def test_any_damage(self) -> None:
        """Whatever the disk makes of the log, whole records come with the right numbers."""
        seed = random.randrange(1 << 32)
        sys.stdout.write(f"seed {seed}\n")
        chance = random.Random(seed)
        log = self.broker.store.log
        for _ in range(150):
            size = chance.randint(1, 4000)
            place = chance.randrange(log.end - size)
            before = bytes(log.read(place, size))
            size = len(before)
            piece = chance.choice((bytes(size), chance.randbytes(size), bytes(log.read(0, size))))
            self.write(place, piece)
            offset, got = 0, []
            while offset < 40:
                answer = self.ask(self.peer, pull(offset, max_msg_nums=chance.randint(1, 40)))
                if answer.code == ResponseCode.SUCCESS:
                    told = [number for number, _ in self.heads(bytes(answer.body))]
                    self.assertEqual(
                        self.heads(bytes(answer.body)),
                        [(number, self.begins[number]) for number in told],
                    )
                    got += told
                    offset = int(answer.ext["nextBeginOffset"])
                else:
                    self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
                    offset += 1
            harmed = [
                number
                for number, begin in enumerate(self.begins)
                if begin < place + size and place < begin + 1200
            ]
            self.assertEqual(set(range(40)) - set(got) - set(harmed), set())
            self.write(place, before)

    def test_known_damage(self) -> None:
        """What the scrubber has found is not sent, whatever its head says."""
        begin, end = self.begins[3], self.begins[4]
        self.broker.served.damage = lambda start, stop: (
            f"damage at rest: file at byte {begin}: body crc"
            if start < end and begin < stop
            else ""
        )
        self.assertEqual(self.numbers(self.ask(self.peer, pull())), [0, 1, 2])
        answer = self.ask(self.peer, pull(3))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("damage at rest: file", answer.remark or "")
        self.assertEqual(self.numbers(self.ask(self.peer, pull(4)))[0], 4)
        self.assertEqual(self.broker.served.faults, 1)

    def test_doubt(self) -> None:
        """What may not be the master's is not sent; that is no fault of the disk's."""
        at = self.begins[2] + 50
        self.broker.served.doubt = lambda start, stop: "diverged: byte 7" if stop > at else ""
        self.assertEqual(self.numbers(self.ask(self.peer, pull())), [0, 1])
        for offset in (2, 3, 39):
            answer = self.ask(self.peer, pull(offset))
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertTrue((answer.remark or "").endswith("is not served: diverged: byte 7"))
        self.assertEqual((self.broker.served.faults, self.errors), (0, []))


class LookupTests(ServedTestCase):
    def view(self, offset: int) -> Command:
        """Ask for a message by its place."""
        return self.ask(
            self.peer,
            Command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset)),
        )

    def query(self) -> Command:
        request = QueryMessageRequest(
            topic=TOPIC, key="key", max_num=64, begin_timestamp=0, end_timestamp=STORED * 2
        )
        return self.ask(self.peer, Command.request(RequestCode.QUERY_MESSAGE, request))

    def test_view(self) -> None:
        """A damaged body is named; so is what the scrubber knows, and what may differ."""
        begin = self.begins[4]
        self.write(begin + 300, b"damage")
        self.assert_refused(self.view(begin), begin, "body crc")
        self.assertEqual(self.broker.served.faults, 1)
        self.assertEqual(self.numbers(self.view(self.begins[5])), [5])
        self.broker.served.doubt = lambda start, stop: "diverged" * (stop > self.begins[6])
        self.assertEqual(self.numbers(self.view(self.begins[5])), [5])
        answer = self.view(self.begins[6])
        self.assertEqual(
            answer.remark, f"the message at byte {self.begins[6]} is not served: diverged"
        )
        self.broker.served.damage = lambda start, stop: "damage at rest: there"
        self.write(begin, bytes(100))
        self.broker.served.doubt = lambda start, stop: ""
        self.assertIn("damage at rest: there", self.view(begin).remark or "")

    def test_by_key(self) -> None:
        """Sound messages come, others are counted; without sound ones the error has the place."""
        self.write(self.begins[4] + 300, b"damage")
        self.write(self.begins[7], bytes(4))
        wanted = [number for number in range(40) if number not in (4, 7)]
        self.assertEqual(self.numbers(self.query()), wanted)
        self.assertEqual((self.broker.served.faults, len(self.errors)), (2, 2))
        for begin in self.begins:
            self.write(begin, bytes(4))
        self.assert_refused(self.query(), self.begins[0])
