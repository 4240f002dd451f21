"""Messages are handed out, done with, or come again."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from unittest import skipUnless

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from rmqha.broker import broker
from rmqha.broker.pop.acks import AckRequests
from rmqha.broker.pop.revive import Revival
from rmqha.broker.tables.offset_journal import OffsetJournal
from rmqha.config.broker_settings import PopSettings, PullSettings
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.master_epoch import EpochJournal, MasterEpochs
from rmqha.metrics.catalog import of_status
from rmqha.store.derived.outcomes import next_pop_offsets
from rmqha.store.log.flush import Flusher
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.pop_record import CheckPoint
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Record
from rmqha.wire.names import FIRST_POP_TIME, REVIVE_GROUP
from rmqha.wire.remoting.bodies.clients import ConsumerData, HeartbeatData
from rmqha.wire.remoting.bodies.request_modes import GroupMode
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.broker.pop.support import PopTestCase, bodies, handles, records
from tests.broker.support import NOW, SEND_V2, sending
from tests.support.log_lines import log_lines


class ServedTestCase(PopTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve()


class HandingOutTests(ServedTestCase):
    """What a pop gets."""

    def test_each_once(self) -> None:
        """The next pop goes on behind the last one."""
        self.put(*(b"%d" % number for number in range(5)))
        first = self.pop(maxMsgNums=3)
        self.assertEqual(bodies(first), [b"0", b"1", b"2"])
        self.assertEqual(first.ext["restNum"], "2")
        self.assertEqual(first.ext["startOffsetInfo"], "0 0 0")
        self.assertEqual(first.ext["msgOffsetInfo"], "0 0 0,1,2")
        self.assertEqual(bodies(self.pop()), [b"3", b"4"])
        nothing = self.pop()
        self.assertEqual(nothing.code, ResponseCode.POLLING_TIMEOUT)
        self.assertEqual(nothing.remark, "NO_MESSAGE_IN_QUEUE")

    def test_all_queues(self) -> None:
        """Without a queue all of them are looked at."""
        self.put(b"a", queue_id=0)
        self.put(b"b", queue_id=1)
        self.assertEqual(sorted(bodies(self.pop(queueId=-1))), [b"a", b"b"])

    def test_check_point(self) -> None:
        """It is stored before the answer, as a stock broker stores it."""
        self.put(b"a", b"b")
        self.passes(1)
        answer = self.pop()
        self.passes(0.02)
        (record,) = self.waiting()
        told = json.loads(record.body)
        pop_time = int(answer.ext["popTime"])
        self.assertEqual(
            {name: told[name] for name in ("bm", "bn", "c", "d", "it", "n", "pt", "q", "so", "t")},
            {
                "bm": 0,
                "bn": "broker-a",
                "c": "G",
                "d": [0, 1],
                "it": 10_000,
                "n": 2,
                "pt": pop_time,
                "q": 0,
                "so": 0,
                "t": "T",
            },
        )
        self.assertEqual(
            record.properties,
            {
                "TAGS": "ck",
                "UNIQ_KEY": f"T@0@0@G@{pop_time}@broker-a@ck",
                "TIMER_DELIVER_MS": str(pop_time + 9000),
                "TIMER_OUT_MS": str((pop_time + 8999) // 1000 * 1000),
                "REAL_TOPIC": "rmq_sys_REVIVE_LOG_C",
                "REAL_QID": answer.ext["reviveQid"],
            },
        )

    def test_not_stored(self) -> None:
        """What the store does not take is not handed out, and comes when it does."""
        self.put(b"a")
        self.writer.outcome = NotWritable("test", "no room")
        self.assertEqual(self.pop().code, ResponseCode.SYSTEM_ERROR)
        self.writer.outcome = "PUT_OK"
        self.assertEqual(bodies(self.pop()), [b"a"])

    def test_nobody_else_has_it(self) -> None:
        """What a master that ends has stored may be cut off: its check point would be known
        nowhere, and an ack be answered for nothing.  So it is not handed out.
        """
        self.put(b"a")
        self.writer.outcome = PutStatus.SERVICE_NOT_AVAILABLE
        self.assertEqual(self.pop().code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.serving.offsets.get("G", "T", 0), 0)

    def test_tags(self) -> None:
        """Only what is wanted comes; what lies between is passed over, and not looked at again."""
        self.put(b"x", tags="X")
        self.put(b"a", b"b")
        self.put(b"y", tags="X")
        answer = self.pop(expType="TAG", exp="A")
        self.assertEqual(bodies(answer), [b"a", b"b"])
        self.assertEqual(answer.ext["startOffsetInfo"], "0 0 0")
        self.assertEqual(self.pop(expType="TAG", exp="A").code, ResponseCode.POLLING_TIMEOUT)
        self.skips(1)
        self.assertEqual(self.serving.offsets.get("G", "T", 0), 4)

    def test_last_first(self) -> None:
        """A group that begins at the end is handed the last message where the first has left
        memory, else all.
        """
        self.put(b"a", b"b")
        self.assertEqual(bodies(self.pop(initMode=1)), [b"a", b"b"])


class AckTests(ServedTestCase):
    """What becomes of them."""

    def test_done(self) -> None:
        """What is done with does not come again, and nothing is copied for it."""
        self.put(b"a", b"b")
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.assertEqual(len(self.serving.revival.points), 0)
        self.skips(12)
        self.assertIsNone(self.serving.lookup.bounds("%RETRY%G_T", 0))
        self.assertEqual(len(self.waiting()), 3, "a check point and two acks")
        self.assertEqual(self.serving.timers.waiting.topics, {})

    @skipUnless(COMPILED, "the lane is not compiled here")
    def test_finished_together(self) -> None:
        """Check points of which nothing is left are not looked at one by one, whoever wrote them;
        of others among them everything comes again that is left, also after a restart.
        """
        finished: list[int] = []
        real = Revival.finish

        def finish(revival: Revival, record: Record) -> Any:
            finished.append(record.queue_offset)
            return real(revival, record)

        self.patch(Revival, "finish", finish)
        self.put(*(b"%d" % number for number in range(60)))
        places = []
        for number in range(30):
            answer = self.pop(maxMsgNums=2)
            place = self.serving.store.next_offset("rmq_sys_wheel_timer", 0) - 1
            open_ones = 1 if number % 7 == 0 else 0
            for named in handles(answer)[open_ones:]:
                self.assertEqual(self.ack(named), 0)
            places += [place] * open_ones
            if number == 10:
                self.later(b"other", 10_000, topic="Other")
            if number == 15:
                self.passes(0.2)
                self.again()
                self.passes(0.2)
                self.who = self.client()
        self.assertEqual(self.serving.revival.points.places, set(places))
        self.skips(12)
        self.assertEqual(finished, places)
        self.assertEqual(self.got("%RETRY%G_T"), [b"0", b"14", b"28", b"42", b"56"])
        self.assertEqual(self.got("Other"), [b"other"])
        self.assertEqual(self.serving.timers.waiting.topics, {})
        self.assertEqual(self.serving.revival.points.places, set())
        self.skips(12)
        self.assertEqual(len(self.got("%RETRY%G_T")), 5)

    def test_settled(self) -> None:
        """A check point waits no more when its minute begins, if all its acks are as safe as any
        write by then; one whose acks are not waits on.
        """
        self.put(b"a", b"b", b"c", b"d")
        (first,), (second,), (third,), _ = (
            handles(self.pop(maxMsgNums=1, invisibleTime=150_000)) for _ in range(4)
        )
        self.writer.outcome = waits = Deferred()
        self.who.send(self.acking(first))
        self.assertEqual(self.who.heard(), [])
        self.writer.outcome = PutStatus.PUT_OK
        self.assertEqual(self.ack(second), 0)
        self.writer.outcome = PutStatus.FLUSH_SLAVE_TIMEOUT
        self.assertEqual(self.ack(third), 1)
        self.writer.outcome = PutStatus.PUT_OK
        timers = self.serving.timers
        self.passes(0.02)
        self.assertEqual(timers.waiting.topics.total(), 4)
        self.skips(140)
        progress = timers.progress()
        assert progress is not None
        self.assertEqual((timers.waiting.topics.total(), progress.low), (3, 0))
        waits.callback(PutStatus.PUT_OK)
        self.skips(20)
        self.assertEqual(self.got("%RETRY%G_T"), [b"d"])
        self.assertEqual(timers.waiting.topics, {})

    def test_settled_and_killed(self) -> None:
        """A start does not read what is settled, and hands out nothing of it again."""
        self.put(b"a", b"b")
        (first,), _ = (handles(self.pop(maxMsgNums=1, invisibleTime=150_000)) for _ in range(2))
        self.assertEqual(self.ack(first), 0)
        self.skips(140)
        progress = self.serving.timers.progress()
        assert progress is not None
        self.assertEqual(progress.low, 1)
        self.again()
        self.who = self.client()
        self.skips(20)
        self.assertEqual(self.got("%RETRY%G_T"), [b"b"])

    def test_comes_again(self) -> None:
        """What is not done with comes again when its time is over, and not sooner; by the retry
        topic, as a message of the topic asked for.
        """
        self.put(b"a", b"b")
        answer = self.pop()
        self.assertEqual(self.ack(handles(answer)[0]), 0)
        self.skips(9)
        self.passes(0.9)
        self.assertEqual(self.popped(), [])
        self.passes(0.2)
        again = self.pop()
        (record,) = records(again)
        self.assertEqual((record.body, record.topic), (b"b", "T"))
        self.assertEqual(record.reconsume_times, 1)
        self.assertEqual(record.properties[FIRST_POP_TIME], answer.ext["popTime"])
        self.assertEqual(again.ext["msgOffsetInfo"], "1 0 0")
        named = handles(again)[0]
        self.assertEqual(self.handle(record), named["extraInfo"])
        self.assertEqual(self.ack(named), 0)
        self.skips(12)
        self.assertEqual(self.popped(), [])

    def test_again_and_again(self) -> None:
        """What comes again comes again in the same topic."""
        self.put(b"a")
        for times in range(4):
            (record,) = records(self.pop())
            self.assertEqual(record.reconsume_times, times)
            self.skips(11)
        self.assertEqual(len(self.got("%RETRY%G_T")), 4)
        self.assertEqual(self.serving.topics.get("%RETRY%G_%RETRY%G_T"), None)

    def test_again_by_v2(self) -> None:
        """Where it is set, what comes again does so by the retry topic whose name cannot be
        another's, and wakes who waits; what came by the other one before goes on there.
        """
        self.put(b"a")
        self.pop()
        self.skips(11)
        self.again(pop=PopSettings(retry_v2=True))
        self.who = self.client()
        self.put(b"b")
        first = handles(self.pop())
        self.assertEqual({named["topic"] for named in first}, {"T", "%RETRY%G_T"})
        self.skips(11)
        again = [self.pop(), self.pop()]
        self.assertEqual([answer.ext["msgOffsetInfo"] for answer in again], ["1 0 1", "2 0 0"])
        self.assertEqual([bodies(answer) for answer in again], [[b"a"], [b"b"]])
        (record,) = records(again[1])
        self.assertEqual((record.topic, record.reconsume_times), ("T", 1))
        for answer in again:
            self.assertEqual(self.ack(handles(answer)[0]), 0)
        self.skips(12)
        self.assertEqual(self.popped(), [])

    def test_batch(self) -> None:
        """Several acks are one record."""
        self.put(*(b"%d" % number for number in range(5)))
        told = self.pop().ext
        body = {
            "acks": [
                {
                    "c": "G",
                    "t": "T",
                    "r": "0",
                    "so": 0,
                    "q": 0,
                    "rq": int(told["reviveQid"]),
                    "pt": int(told["popTime"]),
                    "it": 10_000,
                    "b": b64encode(bytes([0b10101])).decode(),
                }
            ],
            "brokerName": "broker-a",
        }
        code = RequestCode.BATCH_ACK_MESSAGE
        self.assertEqual(self.ask(code, json.dumps(body).encode()).code, 0)
        self.assertEqual(self.ask(code).code, ResponseCode.NO_MESSAGE)
        self.passes(0.02)
        self.assertEqual(json.loads(self.waiting()[1].body)["aol"], [0, 2, 4])
        self.skips(11)
        self.assertEqual(self.popped(), [b"1", b"3"])

    def test_together(self) -> None:
        """Acks that come together are one record of each check point, and each has its answer."""
        self.put(b"a", b"b", b"c")
        self.put(b"d", queue_id=1)
        named = [*handles(self.pop()), *handles(self.pop(queueId=1))]
        named[1], named[3] = named[3], named[1]
        asked = [*named, named[0], named[2] | {"topic": "X"}]
        self.who.send(*(self.acking(fields, number) for number, fields in enumerate(asked)))
        answers = {answer.opaque: answer.code for answer in self.who.heard()}
        self.assertEqual(answers, {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 17})
        self.passes(0.02)
        acks = [json.loads(record.body) for record in self.waiting()[2:]]
        told = [offset for each in acks for offset in each.get("aol", [each["ao"]])]
        self.assertEqual(sorted(told), [0, 0, 1, 2])
        self.assertLess(len(acks), 4)
        self.writer.outcome = NotWritable("test", "no room")
        self.skips(12)
        self.assertEqual(len(self.serving.revival.points), 0)

    def acked(self, named: list[dict[str, Any]], first: int = 0) -> list[int]:
        """Acknowledge messages together; who has an answer at once."""
        self.who.send(*(self.acking(each, first + at) for at, each in enumerate(named)))
        return [answer.opaque for answer in self.who.heard() if not answer.code]

    def test_bursts(self) -> None:
        """What comes within some milliseconds is one record, and one that comes alone again is
        stored at once.
        """
        self.put(b"a", b"b", b"c", b"d", b"e", b"f")
        named = handles(self.pop())
        self.assertEqual(self.acked(named[:2]), [])
        self.passes(0.003)
        self.assertEqual(self.acked(named[2:3], 2), [])
        self.passes(0.003)
        self.assertEqual([answer.opaque for answer in self.who.heard()], [0, 1, 2])
        self.assertEqual(self.acked(named[3:4], 3), [], "more may come")
        self.passes(0.006)
        self.assertEqual([answer.opaque for answer in self.who.heard()], [3])
        self.assertEqual(self.acked(named[4:5], 4), [4], "its client waits for each answer")
        self.assertEqual(self.acked(named[5:], 5), [5])
        self.passes(0.02)
        acks = [json.loads(record.body) for record in self.waiting()[1:]]
        self.assertEqual([told.get("aol", told["ao"]) for told in acks], [[0, 1, 2], 3, 4, 5])

    def test_due_in_a_burst(self) -> None:
        """What is acknowledged and not stored does not come again."""
        self.put(b"a", b"b", b"c")
        named = handles(self.pop())
        self.skips(9.9)
        due = int(named[0]["extraInfo"].split()[1]) + 10_000
        self.passes((due - 2 - self.now()) / 1000)
        self.assertEqual(self.acked(named[:2]), [])
        self.skips(1)
        self.assertEqual([answer.code for answer in self.who.heard()], [0, 0])
        self.assertEqual(self.popped(), [b"c"])

    def test_ends_in_a_burst(self) -> None:
        """What is acknowledged is stored when its topic or group goes, with its connection gone,
        and at the end.
        """
        self.put(*(b"%d" % number for number in range(9)))
        ends = (
            lambda: self.serving.pop.topic_gone("X"),
            lambda: self.serving.pop.group_gone("X"),
            self.serving.pop.stop,
        )
        for end in ends:
            named = handles(self.pop(maxMsgNums=3))
            self.assertEqual(self.acked(named[:2]), [])
            end()
            self.assertEqual([answer.code for answer in self.who.heard()], [0, 0])
        self.passes(0.02)
        acks = [json.loads(record.body) for record in self.waiting() if b"aol" in record.body]
        self.assertEqual([told["aol"] for told in acks], [[0, 1], [3, 4], [6, 7]])

    def test_client_gone_in_a_burst(self) -> None:
        """What it acknowledged is stored."""
        self.put(b"a", b"b", b"c")
        named = handles(self.pop())
        self.assertEqual(self.acked(named[:2]), [])
        self.who.connection.connectionLost()
        self.passes(0.02)
        self.who = self.client()
        self.skips(11)
        self.assertEqual(self.popped(), [b"c"])

    def test_refused_in_a_burst(self) -> None:
        """Where the store takes nothing by then, each is told so, and comes again."""
        self.put(b"a", b"b", b"c")
        self.assertEqual(self.acked(handles(self.pop())[:2]), [])
        self.writer.outcome = NotWritable("test", "no room")
        self.passes(0.006)
        self.assertEqual([answer.code for answer in self.who.heard()], [1, 1])
        self.writer.outcome = "PUT_OK"
        self.skips(11)
        self.assertEqual(self.popped(), [b"a", b"b", b"c"])

    def test_together_with_a_change(self) -> None:
        """What is acknowledged cannot be given another time by who comes a moment later."""
        self.put(b"a", b"b")
        first, second = handles(self.pop())
        later = first | {"invisibleTime": 20_000}
        codes = RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        self.who.send(
            *(
                Command(
                    code=code,
                    opaque=number,
                    version=407,
                    ext={name: str(value) for name, value in fields.items()},
                )
                for number, (code, fields) in enumerate(
                    [(codes[0], first), (codes[1], later), (codes[0], second)]
                )
            )
        )
        answers = {answer.opaque: answer.code for answer in self.who.heard()}
        self.assertEqual(answers, {0: 0, 1: ResponseCode.NO_MESSAGE, 2: 0})
        self.skips(25)
        self.assertEqual(self.popped(), [])

    def test_together_not_stored(self) -> None:
        """Where the store takes nothing each is told so."""
        self.put(b"a", b"b")
        named = handles(self.pop())
        self.writer.outcome = NotWritable("test", "no room")
        self.who.send(*(self.acking(fields, number) for number, fields in enumerate(named)))
        self.assertEqual([answer.code for answer in self.who.heard()], [1, 1])
        self.writer.outcome = "PUT_OK"
        self.skips(11)
        self.assertEqual(self.popped(), [b"a", b"b"])

    def test_bits_that_are_none(self) -> None:
        """A batch whose bits cannot be read is refused, and what it meant comes again."""
        self.put(b"a")
        told = self.pop().ext
        body = {"acks": [{"c": "G", "t": "T", "pt": int(told["popTime"]), "b": "%"}]}
        answer = self.ask(RequestCode.BATCH_ACK_MESSAGE, json.dumps(body).encode())
        self.assertEqual(answer.code, ResponseCode.MESSAGE_ILLEGAL)
        self.skips(11)
        self.assertEqual(self.popped(), [b"a"])

    def test_damaged(self) -> None:
        """A message that is damaged when it is due, and a check point that is, are counted."""
        self.put(b"body-of-a")
        self.pop()
        self.put(b"b", queue_id=1)
        self.pop(queueId=1)
        self.passes(0.02)
        _, second = self.waiting()
        log = self.serving.store.log
        for place, size, text in (
            (0, log.end, b"body-of-a"),
            (second.offset, second.size, b'"q":1'),
        ):
            view = log.folder.at(place).view
            start = place - log.folder.at(place).start
            at = bytes(view[start : start + size]).index(text) + start
            view[at + len(text) - 1] ^= 1
        self.skips(11)
        self.assertEqual(self.popped(queueId=-1), [])
        self.assertEqual(self.serving.pop.status()["notRevived"], 2)

    def test_no_room(self) -> None:
        """A message whose properties have no room for another one comes again without it."""
        told = {"UNIQ_KEY": "U1", "TAGS": "A", "key": "v" * 32_728}
        answer = self.client().ask(SEND_V2, sending("T", properties=told), b"a")
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        self.passes(0.02)
        self.pop()
        self.skips(11)
        self.assertEqual(bodies(self.pop()), [b"a"])

    def test_change(self) -> None:
        """A message may have another time, from now on; its old handle is dead."""
        self.put(b"a")
        (named,) = handles(self.pop())
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        self.skips(5)
        changed = self.ask(code, **named, invisibleTime=30_000)
        self.assertEqual((changed.code, changed.ext["invisibleTime"]), (0, "30000"))
        self.assertEqual(self.ask(code, **named, invisibleTime=1).code, ResponseCode.NO_MESSAGE)
        self.skips(28)
        self.assertEqual(self.popped(), [])
        self.skips(3)
        self.assertEqual(self.popped(), [b"a"])
        self.assertEqual(self.ask(code, **named, invisibleTime=1).code, ResponseCode.NO_MESSAGE)

    def test_at_once(self) -> None:
        """No time at all: it comes now."""
        self.put(b"a")
        (named,) = handles(self.pop())
        self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **named, invisibleTime=0)
        self.passes(0.1)
        self.assertEqual(self.popped(), [b"a"])

    def test_not_stored(self) -> None:
        """An ack that the store does not take is no ack."""
        self.put(b"a")
        (named,) = handles(self.pop())
        self.writer.outcome = NotWritable("test", "no room")
        self.assertEqual(self.ack(named), ResponseCode.SYSTEM_ERROR)
        self.writer.outcome = "PUT_OK"
        self.skips(11)
        self.assertEqual(self.popped(), [b"a"])

    def test_foreign(self) -> None:
        """An ack of what nobody was handed leaves no trace; a handle that is none is an error."""
        self.put(b"a")
        (named,) = handles(self.pop())
        for changed in ({"consumerGroup": "G2"}, {"extraInfo": "0 1 10000 0 0 broker-a 0 0"}):
            self.assertEqual(self.ack(named | changed), 0)
        self.assertEqual(self.ack(named | {"extraInfo": "0 1 2"}), ResponseCode.SYSTEM_ERROR)
        self.assertEqual(
            self.ack(named | {"extraInfo": "0 1 10000 8 0 broker-a 0 0"}),
            ResponseCode.MESSAGE_ILLEGAL,
        )
        self.assertEqual(self.ack(named | {"topic": "X"}), ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(self.ack(named | {"queueId": 7}), ResponseCode.MESSAGE_ILLEGAL)
        self.assertEqual(self.ack(named | {"offset": 9}), ResponseCode.NO_MESSAGE)
        self.passes(0.02)
        self.assertEqual(len(self.waiting()), 1)

    def test_topic_gone(self) -> None:
        """What was handed out of a topic that is deleted does not come again, nor what came again
        before; it is empty when it is made anew.
        """
        self.put(b"a", b"b")
        self.pop(maxMsgNums=1)
        self.skips(11)
        self.assertEqual(self.got("%RETRY%G_T"), [b"a"])
        self.pop(queueId=1)
        gone = self.who.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        self.passes(0.1)
        for answer in [gone] if gone else self.who.heard():
            self.assertEqual(answer.code, 0, answer.remark)
        self.assertIsNone(self.serving.topics.get("%RETRY%G_T"))
        self.assertEqual(len(self.serving.revival.points), 0)
        self.serving.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.put(b"c")
        self.assertEqual(self.popped(queueId=-1), [b"c"])
        self.skips(11)
        self.assertIsNone(self.serving.topics.get("%RETRY%G_T"))
        self.assertEqual(self.popped(queueId=-1), [])

    def test_reset(self) -> None:
        """An administrator moves the group: the broker does it at once."""
        self.put(b"a", b"b", b"c")
        self.assertEqual(self.popped(), [b"a", b"b", b"c"])
        told = {"topic": "T", "group": "G", "timestamp": 0, "isForce": "true"}
        answer = self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **told, queueId=0, offset=1)
        self.assertEqual(answer.code, 0, answer.remark)
        self.assertEqual(self.popped(), [b"b", b"c"])

    def test_reset_by_time(self) -> None:
        """To a time too: what was stored since is handed out again, acknowledged or not, and what
        is open comes again besides.
        """
        self.put(b"a")
        self.skips(5)
        since = self.now()
        self.skips(5)
        self.put(b"b", b"c")
        for named in handles(self.pop())[:2]:
            self.assertEqual(self.ack(named), 0)
        self.resets(since)
        self.assertEqual(self.popped(), [b"b", b"c"])
        self.skips(11)
        self.assertEqual(self.popped(), [b"c"])

    def test_reset_of_who_waits(self) -> None:
        """A group whose consumers were handed nothing since the start is moved as well: nobody else
        has their position.
        """
        self.put(b"a", b"b")
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.skips(6)
        self.stop()
        self.serve()
        self.joins()
        self.assertEqual(self.popped(), [])
        self.resets(NOW)
        self.assertEqual(self.popped(), [b"a", b"b"])

    def test_reset_of_who_pulls_now(self) -> None:
        """A group that popped before and was told to pull since keeps its positions itself, as one
        of that name does that was made after it was deleted: its consumers are told to move.
        """
        self.put(b"a", b"b")
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.joins()
        self.serving.modes.put(GroupMode(topic="T", consumer_group="G"))
        self.assertEqual(self.told_to_move(), [RequestCode.RESET_CONSUMER_CLIENT_OFFSET])
        self.who.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})
        self.passes(0.1)
        self.who.heard()
        self.joins()
        self.assertEqual(self.told_to_move(), [RequestCode.RESET_CONSUMER_CLIENT_OFFSET])

    def joins(self) -> None:
        """A consumer of the group is online."""
        member = ConsumerData(group_name="G", consume_type="CONSUME_PASSIVELY")
        beat = write(HeartbeatData(client_id="c", consumer_data_set=(member,)))
        self.who.send(Command(code=RequestCode.HEART_BEAT, body=beat))
        self.assertTrue(self.who.heard())

    def told_to_move(self) -> list[int]:
        """What consumers hear when an administrator moves the group."""
        told = {"topic": "T", "group": "G", "timestamp": str(NOW), "isForce": "true"}
        self.client().ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, told)
        return [command.code for command in self.who.heard()]

    def resets(self, moment: int) -> None:
        """An administrator moves the group to a time."""
        told = {"topic": "T", "group": "G", "timestamp": moment, "isForce": "true"}
        answer = self.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **told)
        self.assertEqual(answer.code, 0, answer.remark)

    def test_group_gone(self) -> None:
        """What a group had that is gone does not come again."""
        self.put(b"a")
        self.pop()
        self.serving.groups.delete("G")
        self.skips(11)
        self.assertIsNone(self.serving.topics.get("%RETRY%G_T"))

    def test_group_gone_meanwhile(self) -> None:
        """A group that is deleted while its check point is stored keeps no position by it."""
        self.put(b"a")
        self.writer.outcome = waiting = Deferred()
        self.assertIsNone(self.who.ask(RequestCode.POP_MESSAGE, self.popping()))
        self.writer.outcome = PutStatus.PUT_OK
        gone = {"groupName": "G", "cleanOffset": "true"}
        self.client().ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone)
        waiting.callback(PutStatus.PUT_OK)
        self.passes(0.1)
        self.assertIsNone(self.serving.offsets.get("G", "T", 0))


class RestartTests(ServedTestCase):
    """What the log says counts."""

    def killed(self, **settings: Any) -> None:
        """Stop without a word, and serve again."""
        self.kill()
        self.serve(**settings)

    def test_group_not_told(self) -> None:
        """A slave that takes over may not have heard of a group yet that was handed messages: its
        position, and what it is not done with, are as the log says.
        """
        group = ("subscriptionGroup.json*",)
        for lost in (group, (*group, "consumerOffset.json*", "offsets/*")):
            self.root = self.folder() / "store"
            self.serve()
            self.put(b"a", b"b", b"c")
            self.assertEqual(self.popped(maxMsgNums=1), [b"a"])
            self.passes(0.2)
            self.assertEqual(bodies(self.pop(maxMsgNums=1)), [b"b"])
            self.kill()
            for file in [each for name in lost for each in self.root.rglob(name)]:
                file.unlink()
            journal = EpochJournal().raised(self.serving.store.log.end)
            self.patch(
                broker, "MasterEpochs", lambda *args, known=journal: MasterEpochs(*args, known)
            )
            self.serve()
            self.passes(0.05)
            self.assertEqual(self.popped(), [b"c"], lost)
            self.skips(12)
            self.assertEqual(self.popped(), [b"b"], lost)

    def test_open(self) -> None:
        """What was handed out is not handed out again; what is not done with comes again, and an
        ack of before the restart counts.
        """
        self.put(*(b"%d" % number for number in range(4)))
        answer = self.pop(maxMsgNums=3)
        first, second, third = handles(answer)
        self.assertEqual(self.ack(first), 0)
        self.passes(0.05)
        self.killed()
        self.assertEqual(len(self.serving.revival.points), 1)
        self.assertEqual(self.ack(second), 0)
        self.assertEqual(self.popped(), [b"3"])
        self.skips(11)
        self.assertEqual(self.popped(), [b"2"])
        self.assertEqual(self.ack(third), 0, "and leaves no trace")

    def test_in_order(self) -> None:
        """What was handed out in order is nobody else's after a kill, until its time is over."""
        self.put(b"a", b"b", b"c")
        in_order = {"order": "true", "maxMsgNums": 2}
        first, _ = handles(self.pop(**in_order, attemptId="x"))
        self.assertEqual(self.ack(first), 0)
        self.passes(0.3)
        self.killed()
        blocked = self.pop(**in_order, attemptId="y")
        self.assertEqual(blocked.code, ResponseCode.POLLING_TIMEOUT)
        self.skips(11)
        self.assertEqual(bodies(self.pop(**in_order, attemptId="y")), [b"b", b"c"])

    def test_old_offsets(self) -> None:
        """What was handed out is not handed out again, where its time was over before the offsets
        were written.
        """
        self.put(b"a", b"b", b"c")
        self.serving.offsets.journal.in_thread = lambda *_: Deferred()
        for _ in range(2):
            for named in handles(self.pop(maxMsgNums=1, invisibleTime=1000)):
                self.assertEqual(self.ack(named), 0)
        self.skips(3)
        self.killed()
        self.assertEqual(self.popped(), [b"c"])

    def test_killed_while_reading(self) -> None:
        """Nor where starts were killed before they had read all, and messages were stored meanwhile
        for longer than the check points of before are read.  A start that has read all says so at
        once: the next one has less to read.
        """
        self.put(b"a", b"b")
        write = self.patch(OffsetJournal, "_write", lambda journal: Deferred())
        for named in handles(self.pop(invisibleTime=1000)):
            self.assertEqual(self.ack(named), 0)
        self.skips(2)

        def killed(revival: Revival) -> Iterator[None]:
            self.serving.timers._running = False
            yield

        read = self.patch(Revival, "read_copied", killed)
        for later in range(1, 4):
            self.killed()
            self.jump = later * 6000
            self.put(b"%d" % later)
        read.restore()
        write.restore()
        self.killed()
        self.assertEqual(self.popped(), [b"1", b"2", b"3"])
        table = json.loads((self.root / "config" / "delayOffset.json").read_bytes())
        self.assertGreater(table["timers"]["low"], 1)

    def test_stock_broker_killed_in_a_change(self) -> None:
        """So does one of a stock broker, which does not say that it was changed."""
        body = CheckPoint.body
        self.patch(CheckPoint, "body", lambda point: body(evolve(point, behind=point.start)))
        self.test_killed_in_a_change()

    def test_killed_in_a_change(self) -> None:
        """A message whose time was changed comes again once, though the ack of its first time did
        not reach the log.
        """
        self.put(b"a", b"b")
        (first, _) = handles(self.pop(invisibleTime=2000))
        acks = self.patch(AckRequests, "_done", lambda *_: Deferred())
        code, ext = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, first | {"invisibleTime": 1000}
        ext = {name: str(value) for name, value in ext.items()}
        self.who.send(Command(code=code, opaque=1, version=407, ext=ext))
        self.passes(0.05)
        acks.restore()
        self.killed()
        self.skips(1.5)
        self.assertEqual(self.popped(), [b"a"])
        self.skips(20)
        self.assertEqual(self.popped(), [b"b"])

    def test_killed_again(self) -> None:
        """Nor where the next start was killed before it wrote them, and long after."""
        self.put(b"a", b"b")
        self.patch(OffsetJournal, "_write", lambda journal: Deferred())
        for named in handles(self.pop(invisibleTime=1000)):
            self.assertEqual(self.ack(named), 0)
        self.passes(0.05)
        self.killed()
        self.jump = 60_000
        self.put(b"c")
        self.killed()
        self.assertEqual(self.popped(), [b"c"])

    def test_reset(self) -> None:
        """A group that was set back stays so, whatever it was handed before."""
        self.joins()
        self.put(b"a", b"b")
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.commits(0)
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.commits(0)
        self.successResultOf(self.serving.offsets.save())
        self.killed()
        self.assertEqual(self.popped(), [b"a", b"b"])

    def test_reset_to_between(self) -> None:
        """The same where it goes on between two of what it was handed, right after a start; what it
        is handed then counts again.
        """
        self.joins()
        self.put(b"a", b"b", b"c")
        for body in (b"a", b"b", b"c"):
            self.assertEqual(self.popped(maxMsgNums=1), [body])
        self.successResultOf(self.serving.offsets.save())
        self.killed()
        self.commits(1)
        self.successResultOf(self.serving.offsets.save())
        self.killed()
        self.assertEqual(self.popped(maxMsgNums=1), [b"b"])
        self.killed()
        self.assertEqual(self.popped(), [b"c"])
        self.skips(11)
        self.assertEqual(self.serving.revival.lost, 0)

    def test_reset_without_a_table(self) -> None:
        """The log says so to whom the offsets are lost."""
        self.joins()
        self.put(b"a", b"b", b"c")
        self.assertEqual(self.popped(), [b"a", b"b", b"c"])
        self.commits(1)
        self.passes(0.05)
        self.assertEqual(next_pop_offsets(self.serving.lookup), {("T@G", 0): 1})

    def test_reset_not_recorded(self) -> None:
        """Where the log takes no writes the group is set back all the same, and a warning says that
        a start may undo that.
        """
        self.sets_back(NotWritable("test", "no room"), "no room")

    def test_reset_not_flushed(self) -> None:
        """The same where it is not on the disk."""
        self.sets_back(fail(FlushFailed("commitlog", "I/O error")), "I/O error")

    def sets_back(self, outcome: object, reason: str) -> None:
        """A group goes back, which the log does not take."""
        self.put(b"a", b"b")
        self.assertEqual(self.popped(), [b"a", b"b"])
        said_by = "rmqha.broker.pop.service.PopService"
        lines = log_lines(self, least=LogLevel.warn, namespace=said_by)
        self.writer.outcome = outcome
        self.commits(0)
        self.writer.outcome = PutStatus.PUT_OK
        self.assertEqual(self.serving.offsets.get("G", "T", 0), 0)
        (line,) = lines
        self.assertIn("Group G goes on at 0 in queue 0 of T, but a restart", line)
        self.assertIn(reason, line)

    def test_number_of_messages(self) -> None:
        """A check point of more messages than there can be, or of fewer than none, is none."""
        for count in (-1, 33, 1 << 40):
            with self.assertRaises(ValueError):
                CheckPoint.read(b'{"t":"T","q":0,"c":"G","so":5,"pt":1,"it":2,"n":%d}' % count, "b")

    def joins(self) -> None:
        """The group is known."""
        self.serving.groups.put(GroupConfig(group_name="G"))

    def commits(self, offset: int) -> None:
        """A consumer says where it goes on."""
        answer = self.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="G",
            topic="T",
            queueId=0,
            commitOffset=offset,
        )
        self.assertEqual(answer.code, 0, answer.remark)

    def test_topic_made_anew(self) -> None:
        """What was handed out of a topic before it was deleted says nothing of one of its name."""
        self.put(b"a", b"b", b"c")
        self.assertEqual(len(bodies(self.pop())), 3)
        gone = self.who.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        self.passes(0.1)
        for answer in [gone] if gone else self.who.heard():
            self.assertEqual(answer.code, 0, answer.remark)
        self.serving.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.put(b"d")
        self.killed()
        self.assertEqual(self.popped(), [b"d"])

    def test_not_twice(self) -> None:
        """What came again before the restart, and is done with, does not come a second time."""
        self.put(b"a", b"b")
        self.pop()
        self.skips(10)
        self.passes(0.1)
        self.assertEqual(self.popped(), [b"a", b"b"])
        self.passes(0.05)
        self.killed()
        self.skips(2)
        self.assertEqual(self.popped(), [])
        self.skips(15)
        self.assertEqual(self.popped(), [])

    def test_not_twice_by_the_other(self) -> None:
        """Nor by the one retry topic what came by the other, as the key was set meanwhile."""
        self.put(b"a")
        self.pop()
        self.skips(10)
        self.passes(0.1)
        self.assertEqual(self.popped(), [b"a"])
        self.killed(pop=PopSettings(retry_v2=True))
        self.skips(15)
        self.assertEqual(self.popped(), [])

    def test_not_twice_close_together(self) -> None:
        """Nor where many came again within milliseconds."""
        for number in range(6):
            self.put(b"%d" % number)
            self.pop()
            self.passes(0.003)
        self.skips(10.3)
        self.assertEqual(len(self.popped()), 6)
        self.passes(0.05)
        self.killed()
        self.skips(15)
        self.assertEqual(self.popped(), [])

    def taken_over(self, *copied: tuple[bytes, dict[str, str], str, int]) -> None:
        """Have been a stock broker that put these into the revive topic, and was killed.

        @param copied: Body, properties, topic and queue of each.
        """
        state = self.serving
        assert state.writer is not None
        (like, *_) = self.waiting()
        for body, told, topic, queue_id in copied:
            state.topics.ensure(topic, 8)
            state.writer.put(
                state.messages.from_record(
                    like, topic=topic, queue_id=queue_id, properties=encode(told), body=body
                )
            )
        self.passes(0.05)
        for path in (self.root / "config").glob("delayOffset.json*"):
            path.unlink()
        self.killed()

    def test_copied_before_its_acks(self) -> None:
        """A check point that a stock broker has copied to the revive topic has the acks that wait
        for their time yet.
        """
        self.put(b"a", b"b", b"c")
        for named in handles(self.pop(maxMsgNums=1)):
            self.assertEqual(self.ack(named), 0)
        answer = self.pop()
        self.assertEqual(self.ack(handles(answer)[0]), 0)
        self.skips(9.5)
        told = [record for record in self.waiting() if record.properties["TAGS"] == "ck"]
        self.taken_over(
            *(
                (
                    record.body,
                    dict(record.properties),
                    record.properties["REAL_TOPIC"],
                    int(record.properties["REAL_QID"]),
                )
                for record in told
            )
        )
        self.skips(2)
        self.assertEqual(self.popped(), [b"c"])
        self.skips(12)
        self.assertEqual(self.popped(), [])

    def test_put_at_once(self) -> None:
        """One that was due when it was made lies in the revive topic alone, and does not say where
        it was to go.  It is finished when what came again is on the disk.
        """
        self.put(b"a", b"b")
        for named in handles(self.pop()):
            self.assertEqual(self.ack(named), 0)
        self.passes(0.05)
        point, *_ = self.waiting()
        body = json.dumps(json.loads(point.body) | {"so": 1, "it": 500}).encode()
        self.taken_over((body, {"TAGS": "ck"}, point.properties["REAL_TOPIC"], 3))
        self.assertEqual(self.popped(), [], "b is somebody's")
        place = REVIVE_GROUP, point.properties["REAL_TOPIC"], 3
        written: Deferred[None] = Deferred()
        flush = self.patch(Flusher, "flush", lambda _: written)
        self.skips(1)
        self.assertIsNone(self.serving.offsets.get(*place))
        flush.restore()
        written.callback(None)
        self.assertEqual(self.serving.offsets.get(*place), 0)
        self.assertEqual(self.popped(), [b"b"])

    def late(self, **told: object) -> tuple[bytes, dict[str, str], str, int]:
        """Another check point of a stock broker like the first, that was due when it was made."""
        point, *_ = self.waiting()
        body = json.loads(point.body) | {"it": 500} | told
        del body["behind"]
        return json.dumps(body).encode(), {"TAGS": "ck"}, point.properties["REAL_TOPIC"], 3

    def test_handed_out_late(self) -> None:
        """What its check point says there is not handed out again, though the offsets of before are
        older, and that of messages which were handed out later lies before it.
        """
        self.put(*(b"%d" % number for number in range(6)))
        self.pop(maxMsgNums=2)
        self.passes(0.05)
        self.taken_over(self.late(so=4, d=[0], n=1), self.late(so=2))
        self.assertEqual(self.popped(), [b"5"])
        self.skips(1)
        self.assertEqual(sorted(self.popped()), [b"2", b"3", b"4"])

    def test_changed_late(self) -> None:
        """A message whose time was changed to what is over comes again once, though the ack of its
        first time did not reach the log.
        """
        self.put(b"a", b"b")
        self.pop()
        self.passes(0.05)
        self.taken_over(self.late(pt=self.now(), d=[0], n=1))
        self.skips(1)
        self.assertEqual(self.popped(), [b"a"])
        self.skips(12)
        self.assertEqual(self.popped(), [b"b"])

    def test_not_read(self) -> None:
        """A start that could not read what is open begins anew, and what it read before counts
        once; acks are refused until then.
        """
        self.put(b"a", b"b", b"c")
        answer = self.pop(maxMsgNums=2)
        self.assertEqual(self.ack(handles(answer)[0]), 0)
        self.passes(0.05)

        def fails(*_: object) -> None:
            raise OSError("no descriptor")

        patch = self.patch(Revival, "_look_for_copies", fails)
        self.taken_over(self.late(so=2, d=[0], n=1))
        self.skips(5)
        self.assertEqual(self.ack(handles(answer)[1]), ResponseCode.SYSTEM_BUSY)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        patch.restore()
        self.skips(10)
        self.assertEqual(sorted(self.popped()), [b"b", b"c"])
        self.skips(25)
        self.assertEqual(self.popped(), [])

    def test_stopped(self) -> None:
        """The same where it stopped cleanly."""
        self.put(b"a", b"b")
        answer = self.pop()
        self.assertEqual(self.ack(handles(answer)[1]), 0)
        self.passes(0.05)
        self.stop()
        self.serve()
        self.assertEqual(self.popped(), [])
        self.skips(11)
        self.assertEqual(self.popped(), [b"a"])


class WaitingTests(ServedTestCase):
    def waits(self, **more: object) -> None:
        """Send a pop that is not answered yet."""
        fields = self.popping(pollTime=5000, bornTime=self.now()) | more
        ext = {name: str(value) for name, value in fields.items()}
        self.assertIsNone(self.who.ask(RequestCode.POP_MESSAGE, ext))

    def test_message(self) -> None:
        """What comes wakes who waits."""
        self.waits(queueId=-1)
        self.put(b"a", queue_id=1)
        (answer,) = self.who.heard()
        self.assertEqual(bodies(answer), [b"a"])
        self.assertEqual(self.serving.pop.polling.count, 0)

    def test_check_point_does_not_hurry(self) -> None:
        """The check point of what woke somebody is dispatched with what comes next, and not before
        his next request.
        """
        self.waits()
        self.waits(queueId=1)
        self.put(b"a")
        self.who.heard()
        self.passes(0.02)
        self.waits()
        tell = sending("T", queue_id=0, properties={"UNIQ_KEY": "V", "TAGS": "A"})
        self.client().ask(SEND_V2, tell, b"b")
        self.clock.advance(0)
        (answer,) = self.who.heard()
        self.assertEqual(bodies(answer), [b"b"])
        self.clock.advance(0)
        store = self.serving.store
        self.assertLess(store.dispatcher.position, store.log.end)
        self.passes(0.004)
        self.assertEqual(store.dispatcher.position, store.log.end)

    def test_nothing(self) -> None:
        """It ends shortly before its time."""
        self.waits()
        self.skips(4.9)
        (answer,) = [*self.who.heard(), *(self.passes(0.1) or self.who.heard())]
        self.assertEqual(answer.code, ResponseCode.POLLING_TIMEOUT)
        self.assertEqual(answer.ext["popTime"], str(NOW + 4970))

    def test_other_tag(self) -> None:
        """What is not wanted wakes nobody."""
        self.waits(exp="X", expType="TAG")
        self.put(b"a")
        self.assertEqual(self.who.heard(), [])
        self.put(b"x", tags="X")
        (answer,) = self.who.heard()
        self.assertEqual(bodies(answer), [b"x"])

    def test_comes_again(self) -> None:
        """A message that comes again wakes who waits for the topic."""
        self.put(b"a")
        self.pop()
        self.waits(pollTime=20_000)
        self.skips(11)
        (answer,) = self.who.heard()
        self.assertEqual(bodies(answer), [b"a"])

    def test_comes_again_by_v2(self) -> None:
        """The same by the other retry topic."""
        self.again(pop=PopSettings(retry_v2=True))
        self.who = self.client()
        self.put(b"a")
        self.pop()
        self.waits(pollTime=20_000)
        self.skips(11)
        (answer,) = self.who.heard()
        self.assertEqual(answer.ext["msgOffsetInfo"], "2 0 0")

    def test_sql(self) -> None:
        """An expression over properties chooses, for who waits too."""
        self.again(pull=PullSettings(property_filter=True))
        self.who = self.client()
        wanted = {"exp": "TAGS = 'X'", "expType": "SQL92"}
        self.put(b"a")
        self.put(b"x", tags="X")
        self.assertEqual(self.popped(**wanted), [b"x"])
        self.waits(**wanted)
        self.put(b"b")
        self.assertEqual(self.who.heard(), [])
        self.put(b"y", tags="X")
        (answer,) = self.who.heard()
        self.assertEqual(bodies(answer), [b"y"])

    def test_one_each(self) -> None:
        """Of several that wait each gets what the others leave."""
        self.waits(maxMsgNums=1)
        self.waits(maxMsgNums=1)
        self.put(b"a")
        self.assertEqual([bodies(answer) for answer in self.who.heard()], [[b"a"]])
        self.put(b"b")
        self.assertEqual([bodies(answer) for answer in self.who.heard()], [[b"b"]])

    def test_gone(self) -> None:
        """A client that goes gives its place up."""
        self.waits()
        self.who.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.serving.pop.polling.count, 0)

    def test_full(self) -> None:
        """There is room for so many."""
        for _ in range(1024):
            self.waits()
        answer = self.pop(pollTime=5000)
        self.assertEqual(answer.code, ResponseCode.POLLING_FULL)
        told = self.ask(RequestCode.POLLING_INFO, consumerGroup="G", topic="T", queueId=0)
        self.assertEqual(told.ext["pollingNum"], "1024")

    def test_notification(self) -> None:
        """Who only wants to know is told, and gets nothing."""
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "pollTime": "2000"}
        fields["bornTime"] = str(self.now())
        self.assertIsNone(self.who.ask(RequestCode.NOTIFICATION, fields))
        self.put(b"a")
        (answer,) = self.who.heard()
        self.assertEqual(answer.ext, {"hasMsg": "true", "pollingFull": "false"})
        self.assertEqual(bodies(self.pop()), [b"a"])

    def test_peek(self) -> None:
        """A look moves nothing."""
        self.put(b"a", b"b")
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": 1}
        answer = self.ask(RequestCode.PEEK_MESSAGE, **fields)
        self.assertEqual((bodies(answer), answer.ext["restNum"]), ([b"a"], "2"))
        self.assertEqual(bodies(self.pop()), [b"a", b"b"])


class MetricsTests(ServedTestCase):
    """What monitors are told."""

    def test_told(self) -> None:
        """Of what was handed out: how many by group, of how many check points, and when the first
        is due; what came again, and who waits.  Of timer messages: how many wait by topic.
        """
        self.put(b"a", b"b", b"c")
        first, *_ = handles(self.pop())
        self.assertEqual(self.ack(first), 0)
        self.later(b"x", 60_000)
        self.passes(0.05)
        found = self.told()
        self.assertEqual(found["rmqha_pop_check_points",], 1)
        self.assertEqual(found["rmqha_pop_unacked_messages", "G"], 2)
        due = found["rmqha_pop_first_due_timestamp_seconds",]
        self.assertLess(abs(due - NOW / 1000 - 10), 1.5)
        self.assertEqual(found["rmqha_pop_revived_total",], 0)
        self.assertEqual(found["rmqha_timer_messages", "T"], 1)
        self.skips(11)
        asked = self.popping(consumerGroup="H", queueId=1, pollTime=90_000, bornTime=self.now())
        asked = {name: str(value) for name, value in asked.items()}
        self.assertEqual(len(bodies(self.pop())), 2)
        self.assertIsNone(self.who.ask(RequestCode.POP_MESSAGE, asked))
        self.skips(52)
        found = self.told()
        self.assertEqual(found["rmqha_pop_revived_total",], 4)
        self.assertEqual(found["rmqha_pop_waiting",], 1)
        self.assertNotIn(("rmqha_timer_messages", "T"), found)
        self.assertLess(found["rmqha_timer_late_p99_seconds",], 0.1)

    def told(self) -> dict[tuple[str, ...], float]:
        """The samples, by name and labels."""
        return {
            (family.name, *labels): value
            for family, labels, value in of_status({"remoting": self.serving.status()})
            if isinstance(value, float)
        }


class SlaveTests(PopTestCase):
    """A slave keeps no account."""

    def test_refusal(self) -> None:
        """So it hands nothing out, and takes nothing back."""
        self.serve()
        self.put(b"a")
        (named,) = handles(self.pop())
        self.stop()
        self.serve(slave=True)
        self.assertEqual(self.pop().code, ResponseCode.NO_PERMISSION)
        self.assertEqual(self.ack(named), ResponseCode.NO_PERMISSION)
        change = self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **named, invisibleTime=1000)
        self.assertEqual(change.code, ResponseCode.NO_PERMISSION)
