"""Requests that were sent to a stock 5.3.3 broker, and what it answered, beside what we answer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from rmqha.broker.pop import pop
from rmqha.config.broker_settings import BrokerSettings, PopSettings, PullSettings
from rmqha.wire.remoting.bodies.tables import WRITE, GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.pop.support import PopTestCase, bodies
from tests.broker.support import NOW, SEND_V2, sending

FOLDER = Path(__file__).resolve().parents[2] / "data" / "pop"

SAME = ("restNum", "startOffsetInfo", "msgOffsetInfo", "orderCountInfo", "hasMsg", "pollingNum")
"""Fields whose values do not tell the time."""

UNSET = "not set any response code"
"""What a stock broker remarks where nothing is to be said; we say nothing."""


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
