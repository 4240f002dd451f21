"""A master that hands messages out, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

from rmqha.wire.log.record import Record, decode
from rmqha.wire.names import POP_HANDLE
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.broker.support import SEND_V2, sending
from tests.broker.timer.support import TimerTestCase


def records(answer: Command) -> list[Record]:
    """The records of an answer."""
    found, at = [], 0
    while at < len(answer.body):
        found.append(decode(answer.body, at, 0))
        at += found[-1].size
    return found


def bodies(answer: Command) -> list[bytes]:
    """What was handed out."""
    return [record.body for record in records(answer)]


def handles(answer: Command) -> list[dict[str, Any]]:
    """What a consumer sends to acknowledge each message of an answer, in the order of records."""
    told, found = answer.ext, []
    starts = {
        tuple(part.split(" ")[:2]): part.split(" ")[2]
        for part in told["startOffsetInfo"].split(";")
    }
    kinds = {"0": "T", "1": "%RETRY%G_T", "2": "%RETRY%G+T"}
    for part in told["msgOffsetInfo"].split(";"):
        kind, queue, offsets = part.split(" ")
        for offset in offsets.split(","):
            handle = (
                f"{starts[kind, queue]} {told['popTime']} {told['invisibleTime']} "
                f"{told['reviveQid']} {kind} broker-a {queue} {offset}"
            )
            found.append(
                {
                    "consumerGroup": "G",
                    "topic": kinds[kind],
                    "queueId": queue,
                    "extraInfo": handle,
                    "offset": offset,
                }
            )
    return found


class PopTestCase(TimerTestCase):
    """A topic T with two queues, and a group G."""

    def serve(self, **settings: Any) -> None:
        """Open the store, and serve."""
        self.begin(**settings)
        if self.serving.topics.get("T") is None and self.serving.writer is not None:
            self.serving.topics.put(
                TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
            )
        self.who = self.client()

    def put(self, *all_bodies: bytes, queue_id: int = 0, tags: str = "A") -> None:
        for body in all_bodies:
            self.number += 1
            told = {"UNIQ_KEY": f"U{self.number}", "TAGS": tags}
            answer = self.client().ask(
                SEND_V2, sending("T", queue_id=queue_id, properties=told), body
            )
            assert answer is not None
            self.assertEqual(answer.code, 0, answer.remark)
        self.passes(0.02)

    def ask(self, code: int, body: bytes = b"", **ext: Any) -> Command:
        """One request, which is answered at once."""
        answer = self.who.ask(code, {name: str(value) for name, value in ext.items()}, body)
        assert answer is not None, "it is not answered yet"
        return answer

    def pop(self, **more: Any) -> Command:
        return self.ask(RequestCode.POP_MESSAGE, **(self.popping() | more))

    @staticmethod
    def popping(**more: Any) -> dict[str, Any]:
        """The fields of a pop."""
        return {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": 0,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
        } | more

    def ack(self, named: dict[str, Any]) -> int:
        """Say that a message is done with; the answer's code, which may take its time."""
        self.who.send(self.acking(named))
        answers = self.who.heard()
        if not answers:
            self.passes(0.006)
            answers = self.who.heard()
        (answer,) = answers
        return answer.code

    @staticmethod
    def acking(fields: dict[str, Any], opaque: int = 0) -> Command:
        ext = {name: str(value) for name, value in fields.items()}
        return Command(code=RequestCode.ACK_MESSAGE, opaque=opaque, version=407, ext=ext)

    def popped(self, **more: Any) -> list[bytes]:
        """Pop, acknowledge, and tell what that was."""
        answer = self.pop(**more)
        if answer.code:
            return []
        for named in handles(answer):
            self.assertEqual(self.ack(named), 0)
        return bodies(answer)

    @staticmethod
    def handle(record: Record) -> str:
        """What a message that came again says itself."""
        return record.properties[POP_HANDLE]
