"""What a stock 5.3.3 broker answered, beside what we answer, and acks read as a run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import skipUnless

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rmqha.broker.pop import pop
from rmqha.config.broker_settings import (
    BrokerSettings,
    PopSettings,
    PullSettings,
    TimerSettings,
)
from rmqha.errors import NotWritable
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.bodies.tables import WRITE, GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from tests.broker.pop.support import PopTestCase, bodies, handles
from tests.broker.support import NOW, SEND_V2, Client, sending
from tests.support.effort import tries

FOLDER = Path(__file__).resolve().parents[2] / "data" / "pop"

SAME = ("restNum", "startOffsetInfo", "msgOffsetInfo", "orderCountInfo", "hasMsg", "pollingNum")
"""Fields whose values do not tell the time."""

UNSET = "not set any response code"
"""What a stock broker remarks where nothing is to be said; we say nothing."""


COMPARED = {310, 351, 352, 370, 400, 401, 402, 200050, 200051, 200053}
"""Requests of clients that pop; what they ask besides, all clients do."""


def exchanges(name: str) -> list[dict[str, Any]]:
    """Those of one file."""
    data = gzip.decompress((FOLDER / f"frames-{name}.jsonl.gz").read_bytes())
    return [json.loads(line) for line in data.splitlines()]


class FrameTests(PopTestCase):
    """Code, names of fields and remark are a stock broker's, but where it loses something."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="127.0.0.1", ip2="127.0.0.1")

    def topic(self, name: str, queues: int, *messages: int, **more: Any) -> None:
        """Make one, with messages in these queues."""
        self.serving.topics.put(
            TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more)
        )
        for number, queue_id in enumerate(messages):
            told = {"UNIQ_KEY": f"U{number}", "TAGS": "A"}
            self.client().ask(
                SEND_V2, sending(name, queue_id=queue_id, properties=told), b"body-%d" % number
            )
        self.passes(0.02)

    def ask_at(self, asked: dict[str, Any]) -> Command:
        """Send one at the time at which it was sent."""
        ext = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in asked["ext"].items()
        }
        answer = self.who.ask(asked["code"], ext, (asked.get("reqBody") or "").encode())
        if answer is None:
            self.skips(asked["ms"] / 1000 + 0.2)
            (answer,) = self.who.heard()
        return answer

    def assert_alike(self, asked: dict[str, Any], answer: Command) -> None:
        """Compare with a stock broker's."""
        stock, name = asked["respHeader"], asked["name"]
        self.assertEqual(answer.code, stock["code"], (name, answer.remark))
        told = stock.get("extFields", {})
        if asked["code"] > 100_000:
            self.assertEqual(answer.ext.keys(), told.keys(), name)
        for field in SAME:
            self.assertEqual(answer.ext.get(field), told.get(field), (name, field))
        if stock.get("remark") not in (None, UNSET):
            said = str(stock["remark"]).partition(" \nSee")[0].partition(", /")[0]
            said = said.rpartition("consumer:")
            self.assertTrue((answer.remark or "").startswith(said[0] or said[2]), answer.remark)

    def test_errors(self) -> None:
        """Every refusal.  Not so: an ack that names a revive queue which is none is lost there, and
        a change of what is done with brings it back.
        """
        frames = exchanges("errors")
        self.jump = frames[0]["ext"]["bornTime"] - NOW
        self.serve(pull=PullSettings(property_filter=True))
        self.topic("E", 2, 0, 0, 0)
        self.topic("WO", 1, perm=WRITE)
        self.serving.groups.put(GroupConfig(group_name="GOFF", consume_enable=False))
        ours = {
            "ack revive queue 8 of 8": 13,
            "change after ack (accepted)": 208,
            "change invisible 0": 208,
        }
        handle: dict[str, str] = {}
        for asked in frames:
            if asked["code"] == 200056:
                continue
            ext = asked["ext"]
            if "extraInfo" in ext and handle:
                ext["extraInfo"] = ext["extraInfo"].replace("1795579067022", handle["popTime"])
            answer = self.ask_at(asked)
            if asked["name"] == "pop 3":
                handle = answer.ext
            if asked["name"] in ours:
                self.assertEqual(answer.code, ours[asked["name"]], asked["name"])
            elif asked["name"] == "ack with 3-field extraInfo":
                self.assertEqual((answer.code, answer.ext), (1, {}))
            else:
                self.assert_alike(asked, answer)

    def test_pull_beside(self) -> None:
        """One group that pulls and pops: both go on where the other was, and a commit moves both,
        forwards and back.
        """
        frames = exchanges("and-pull")
        self.jump = frames[3]["ext"]["bornTime"] - NOW
        self.serve()
        self.topic("MX", 1, 0, 0, 0, 0, 0, 0)
        self.pop(topic="MX", consumerGroup="GMX", queueId=-1, maxMsgNums=2)
        for asked in frames[1:]:
            self.assert_alike(asked, self.ask_at(asked))

    def test_peek_and_notification(self) -> None:
        """A look, and waiting for something to look at."""
        frames = exchanges("peek-notify")
        self.jump = frames[2]["ext"]["bornTime"] - NOW
        self.serve()
        self.topic("N", 2, 0, 0, 0)
        for asked in frames[:6]:
            self.jump += max(0, asked["ext"].get("bornTime", 0) - self.now())
            self.assert_alike(asked, self.ask_at(asked))

    def test_waiting(self) -> None:
        """A message wakes a pop that waits, a notification, and of those with tags who wants it;
        and a group begins at the end.  Here who waits is past what it does not want already.
        """
        frames = {asked["n"]: asked for asked in exchanges("peek-notify")}
        frames[10]["respHeader"]["extFields"]["startOffsetInfo"] = "0 1 3"
        self.jump = frames[8]["ext"]["bornTime"] - NOW
        self.serve()
        self.topic("N", 2, 0, 0, 0)
        for number, tags in ((8, "A"), (9, "A"), (10, "YX")):
            asked = frames[number]
            self.jump += max(0, asked["ext"]["bornTime"] - self.now())
            ext = {name: str(value) for name, value in asked["ext"].items()}
            self.assertIsNone(self.who.ask(asked["code"], ext | {"order": "false"}))
            if number == 8:
                info = frames[7]
                ext = {name: str(value) for name, value in info["ext"].items()}
                told = self.client().ask(info["code"], ext)
                assert told is not None
                self.assert_alike(info, told)
            for tag in tags:
                self.assertEqual(self.who.heard(), [])
                told = {"UNIQ_KEY": f"W{number}", "TAGS": tag}
                self.client().ask(SEND_V2, sending("N", queue_id=1, properties=told), b"w")
                self.passes(0.02)
            (answer,) = self.who.heard()
            self.assert_alike(asked, answer)
        for number in (11, 12):
            self.jump += max(0, frames[number]["ext"].get("bornTime", 0) - self.now())
            self.assert_alike(frames[number], self.ask_at(frames[number]))

    def test_basic(self) -> None:
        """Pops of all queues, of one and by tags, acks of one and of several, another time, waiting
        for nothing, and what comes again.
        """
        frames = exchanges("basic")
        # The stock broker looked at this queue first.
        self.patch(pop, "randrange", lambda _: 1)
        self.jump = frames[1]["ext"]["bornTime"] - NOW - 100
        self.serve()
        self.put(b"1", b"3", b"5", queue_id=1)
        self.put(b"0", b"2")
        self.put(b"4", tags="B")
        times: dict[str, str] = {}
        for asked in frames[1:]:
            ext, body = asked["ext"], asked["reqBody"] or ""
            self.skips((ext.get("bornTime", 0) - self.now()) / 1000)
            for stock, ours in times.items():
                body = body.replace(stock, ours)
                ext |= {"extraInfo": ext.get("extraInfo", "").replace(stock, ours)}
            answer = self.ask_at(asked | {"reqBody": body})
            self.assert_alike(asked, answer)
            if "popTime" in answer.ext:
                times[asked["respHeader"]["extFields"]["popTime"]] = answer.ext["popTime"]

    def test_retry_v2(self) -> None:
        """What comes again by a topic whose name cannot be another group's."""
        frames = exchanges("retry-v2")
        self.jump = frames[0]["ext"]["bornTime"] - NOW
        self.serve(pop=PopSettings(retry_v2=True))
        self.put(b"0", b"1")
        self.assertEqual(len(bodies(self.pop(invisibleTime=1000))), 2)
        times = "", ""
        for asked in frames:
            ext = asked["ext"] | {"extraInfo": asked["ext"].get("extraInfo", "").replace(*times)}
            answer = self.ask_at(asked | {"ext": ext})
            self.assert_alike(asked, answer)
            if "popTime" in answer.ext:
                times = asked["respHeader"]["extFields"]["popTime"], answer.ext["popTime"]
        self.skips(3)
        self.assertEqual(self.pop().code, ResponseCode.POLLING_TIMEOUT, "both are done with")

    def test_reset(self) -> None:
        """An administrator moves a group that pops: it goes on there."""
        frames = exchanges("reset")
        self.jump = frames[2]["ext"]["bornTime"] - NOW
        self.serve()
        self.topic("RS", 1, 0, 0, 0, 0, 0)
        self.pop(topic="RS", consumerGroup="GRS", queueId=-1)
        for asked in frames:
            answer = self.ask_at(asked)
            self.assert_alike(asked, answer)
            if asked["code"] == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                self.assertEqual(answer.body.decode(), asked["respBody"])

    def replays(
        self, name: str, *sooner: int, done: Callable[[Command], None] | None = None
    ) -> set[int]:
        """Send what clients sent, when they did: each answer has a stock broker's code and fields.

        @param sooner: Pops for which nothing came again in time there, and something does here.
        @param done: Is given the answer to a pop.
        @return: Of what requests answers were compared.
        """
        rows, times = exchanges(name), dict[str, str]()
        clients: dict[int, Client] = {}
        sent: dict[int, int] = {}
        heard: dict[int, Command] = {}
        compared: set[int] = set()
        for row in rows:
            self.skips(max(0, row["t"] - self.now()) / 1000)
            client = clients.setdefault(row["conn"], self.client())
            opaque, theirs = row["header"]["opaque"], row["header"].get("extFields", {})
            if row["way"] == "client->broker":
                (command,) = FrameDecoder().receive(bytes.fromhex(row["frame"]))
                handle = command.ext.get("extraInfo", "")
                for stock, ours in times.items():
                    handle = handle.replace(stock, ours)
                if handle:
                    command.ext["extraInfo"] = handle
                sent[opaque] = command.code
                client.send(command)
            heard |= {answer.opaque: answer for answer in client.heard()}
            code = sent.get(opaque)
            if row["way"] == "client->broker" or code not in COMPARED:
                continue
            if opaque not in heard:
                self.skips(1)
                heard |= {answer.opaque: answer for answer in client.heard()}
            answer, wanted = heard[opaque], row["header"]["code"]
            if opaque not in sooner:
                self.assertEqual(answer.code, wanted, (opaque, answer.remark))
            # Of a send stock brokers repeat the message's name besides.
            self.assertEqual(answer.ext.keys(), theirs.keys() - {"transactionId"}, opaque)
            compared.add(code)
            if code == RequestCode.POP_MESSAGE and not wanted:
                times[theirs["popTime"]] = answer.ext["popTime"]
                if done is not None:
                    done(answer)
        return compared

    def test_java_consumer(self) -> None:
        """A Java push consumer that pops, and fails with two messages."""
        rows = exchanges("java-push")
        self.jump = rows[0]["t"] - NOW
        told = {row["header"].get("extFields", {}).get("extraInfo") for row in rows} - {None}
        kept = {handle.split(" ", 4)[4] for handle in told}

        def done(answer: Command | None) -> None:
            """Acknowledge what the frames leave out, and what comes again by itself here."""
            while answer is not None and not answer.code:
                for named in handles(answer):
                    named["extraInfo"] = named["extraInfo"].replace("broker-a", "BN")
                    if named["extraInfo"].split(" ", 4)[4] not in kept:
                        self.assertEqual(self.ack(named), 0)
                answer = self.pop(queueId=-1)

        self.serve()
        self.topic("T", 4, *range(4), *range(4), *range(4), *range(4), *range(4))
        self.assertEqual(
            self.replays("java-push", done=done), {400, 401, 402, 200050, 200051, 200053}
        )

    def test_proxy(self) -> None:
        """A proxy whose clients send, delay, recall, receive and acknowledge, also in order."""
        self.jump = exchanges("proxy")[0]["t"] - NOW
        self.serve(timers=TimerSettings(recalls=True))
        # One send is not among the frames.
        topics: dict[str, tuple[str, tuple[int, ...]]] = {
            "PX": ("NORMAL", ()),
            "PXD": ("DELAY", ()),
            "PXF": ("FIFO", (0,)),
        }
        for name, (kind, messages) in topics.items():
            self.topic(name, 2, *messages, attributes={"message.type": kind})
        for name in ("GPX", "GPXD", "GPXF"):
            orderly = name == "GPXF"
            self.serving.groups.put(GroupConfig(group_name=name, consume_message_orderly=orderly))
        self.assertEqual(self.replays("proxy", 77), COMPARED - {400, 401, 402})

    def woken(self, asked: dict[str, Any]) -> Command:
        """Let a pop wait for an ack of what another one was handed."""
        place = {"consumerGroup": "GO", "topic": "O"}
        before = self.pop(**place, maxMsgNums=1, order="true", attemptId="b1")
        ext = {name: str(value) for name, value in asked["ext"].items()} | {"order": "true"}
        self.assertIsNone(self.who.ask(asked["code"], ext))
        handle = f"4 {before.ext['popTime']} 4000 999 0 BN 0 4"
        self.client().ask(
            RequestCode.ACK_MESSAGE, {**place, "queueId": "0", "extraInfo": handle, "offset": "4"}
        )
        self.passes(0.01)
        (answer,) = self.who.heard()
        return answer

    def test_order(self) -> None:
        """In order: blocked, asked again, a gap, another time, a stale ack, one of another
        message, and waiting for an ack and for the time to be over.
        """
        frames = exchanges("order")
        self.jump = frames[0]["ext"]["bornTime"] - NOW
        self.serve()
        self.topic("O", 1, 0, 0, 0, 0, 0)
        times: dict[str, str] = {}
        for asked in frames:
            ext, body = asked["ext"], asked.get("reqBody") or ""
            born = ext.get("bornTime", 0)
            if asked["n"] == 8:
                self.skips((born - self.now()) / 1000)
            for stock, ours in times.items():
                body = body.replace(stock, ours)
                ext["extraInfo"] = ext.get("extraInfo", "").replace(stock, ours)
            if born:
                ext["bornTime"] = self.now()
            asked["reqBody"] = body
            if asked["n"] == 13:
                self.topic("O", 1, 0, 0, 0)
                answer = self.woken(asked)
            else:
                answer = self.ask_at(asked)
            self.assert_alike(asked, answer)
            told = asked["respHeader"].get("extFields") or {}
            if asked["code"] == 200050 and told.get("startOffsetInfo"):
                times[told["popTime"]] = answer.ext["popTime"]


FIELDS: tuple[Mapping[str, object], ...] = (
    {"consumerGroup": "H"},
    {"topic": "X"},
    {"topic": "%RETRY%G_T"},
    {"queueId": 7},
    {"queueId": -1},
    {"queueId": "0x"},
    {"offset": -1},
    {"offset": 6},
    {"offset": 7},
    {"offset": 1 << 40},
    {"offset": "1e3"},
    {"extraInfo": ""},
    {"extraInfo": "0 1 2 3 0"},
    {"extraInfo": "0 1 2 3 0 broker-a"},
    {"extraInfo": "a 1 2 3 0 broker-a 0 0"},
    {"extraInfo": "0 1 2 9 0 broker-a 0 0"},
    {"extraInfo": "0 1 2 999 0 broker-a 0 0"},
    {"extraInfo": f"{'9' * 5000} 1 2 3 0 broker-a 0 0"},
    {"extraInfo": None},
    {"topic": None},
    {"consumerGroup": None},
    {"bname": "broker-a"},
    {"lo": "x"},
    {"consumerGroup": "ä"},
)
"""What a usual ack has instead; a field that is C{None} it lacks."""

GOOD = st.tuples(st.integers(0, 8), st.just(0), st.just(0))
ODD = st.tuples(st.integers(0, 8), st.integers(0, len(FIELDS)), st.integers(0, 7))
STEPS = st.lists(
    st.tuples(
        st.lists(st.one_of(GOOD, GOOD, GOOD, ODD), min_size=1, max_size=12), st.integers(0, 7)
    ),
    min_size=1,
    max_size=6,
)

OUTCOMES = (
    PutStatus.PUT_OK,
    PutStatus.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SERVICE_NOT_AVAILABLE,
    NotWritable("test", "no room"),
)


def written(fields: dict[str, Any], number: int, odd: int) -> bytes:
    """The frame of an ack, or of something like it."""
    told = {name: value for name, value in fields.items() if value is not None}
    command = PopTestCase.acking(told, number)
    if odd == 1:
        command.flag = ONEWAY
    elif odd == 2:
        command.body = b"{}"
    elif odd == 3:
        command.code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        command.ext["invisibleTime"] = "20000"
    elif odd == 4:
        command.version = 9999
    elif odd == 5:
        command.code = RequestCode.GET_MAX_OFFSET
    frame = encode(command)
    if odd == 6:
        frame = frame.replace(b'"T"', b'"\\u0054"')
        frame = (
            (len(frame) - 4).to_bytes(4, "big") + (len(frame) - 8).to_bytes(4, "big") + frame[8:]
        )
    elif odd == 7:
        frame = frame.replace(b"9 ", b"8 ")
    return frame


@skipUnless(COMPILED, "the lane is not compiled here")
class BothWaysTests(PopTestCase):
    """Two brokers: one reads runs, one does not."""

    taken = 0

    def counted(self, connection: RemotingProtocol, run: Any) -> int:
        """Take acks of a run, and count them."""
        count = self.serving.pop.acks.take(connection, run)
        self.taken += count
        return count

    def outcome(self, steps: list[Any], *, lane: bool, outcome: Any) -> tuple[list[bytes], bytes]:
        """What is answered, in some order, and the log."""
        self.clock, self.number = Clock(), 0
        self.root = self.folder() / "store"
        self.serve()
        if lane:
            assert self.serving.lane is not None, "a lane"
            self.serving.lane.acked = self.counted
        else:
            self.serving.registry.lanes.clear()
        self.put(*(b"%d" % number for number in range(6)))
        self.put(*(b"%d" % number for number in range(3)), queue_id=1)
        named = [*handles(self.pop(maxMsgNums=4)), *handles(self.pop())]
        named += handles(self.pop(queueId=1))
        answers: list[bytes] = []
        number = 0
        for requests, gap in steps:
            data = b""
            for which, change, odd in requests:
                number += 1
                fields = named[which] | (FIELDS[change - 1] if change else {})
                data += written(fields, number, odd)
            if gap == 7:
                self.writer.outcome = outcome
            with self.serving.registry.together():
                self.who.connection.dataReceived(data)
            self.passes(gap / 1000)
            answers += map(encode, self.who.heard())
        self.passes(0.1)
        answers += map(encode, self.who.heard())
        self.assertEqual(self.who.connection.in_runs, 0)
        log = self.serving.store.log
        self.stop()
        return sorted(answers), bytes(log.read(0, log.end))

    def same(self, steps: list[Any], *, outcome: Any = PutStatus.PUT_OK) -> list[bytes]:
        """Both say and store the same."""
        answers, log = self.outcome(steps, lane=True, outcome=outcome)
        plainly, plain = self.outcome(steps, lane=False, outcome=outcome)
        self.assertEqual(answers, plainly)
        self.assertEqual(log, plain)
        return answers

    @settings(max_examples=tries(60))
    @given(steps=STEPS, outcome=st.sampled_from(OUTCOMES))
    def test_acks(self, steps: list[Any], outcome: Any) -> None:
        """Usual ones, unusual ones, and what stands between them."""
        self.same(steps, outcome=outcome)

    def test_done_already(self) -> None:
        """One that is done with does not bring its check point's acks before others."""
        self.same([([(1, 0, 0)], 0), ([(1, 0, 0), (4, 0, 0), (0, 0, 0)], 0)])

    def test_each_oddity(self) -> None:
        """Each of them between usual ones."""
        for change in range(len(FIELDS) + 1):
            self.same([([(0, 0, 0), (1, change, 0), (2, 0, 0)], 6)])
        for odd in range(8):
            self.same([([(0, 0, 0), (0, 0, 0), (1, 0, odd), (2, 0, 0)], 6)])
        self.assertGreater(self.taken, len(FIELDS) + 2 * 8)
