"""What real producers sent to a real broker, sent to ours: the same answers, the same ends."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.config.broker_settings import TransactionSettings
from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.broker.support import BrokerTestCase, Client
from tests.support.frames import RECORDINGS, CapturedFrame, frames

SENDS = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)

#: What only 5.3.3 adds; of the last a stock proxy needs that of half messages, whoever asks.
NEWER = frozenset({"batchUniqId", "recallHandle", "transactionId"})


def sends(recording: str) -> Iterator[tuple[CapturedFrame, CapturedFrame | None]]:
    """Messages sent to the master, each with its answer; a one-way message has none."""
    answers = {
        (frame.note["conn"], frame.note["opaque"]): frame
        for frame in frames(recording)
        if frame.is_answer
    }
    for frame in frames(recording):
        if not frame.is_answer and frame.request_code in SENDS and frame.note["to"] == "master":
            yield frame, answers.get((frame.note["conn"], frame.note["opaque"]))


def decoded(frame: CapturedFrame) -> Command:
    """What a frame says."""
    (command,) = FrameDecoder().receive(frame.raw)
    return command


class CaptureTests(BrokerTestCase):
    def test_sends(self) -> None:
        """Every message is answered as the Java broker answered it: code, fields, queue, region,
        and how many ids.  Only timer messages wait, which 4.9.7 delivers at once.
        """
        self.broker(name="rem-a", cluster="RemCluster", topic_queues=8)
        client = self.client()
        count = 0
        for recording in RECORDINGS:
            for request, expected in sends(recording):
                ours = self.replayed(client, request)
                if expected is None:
                    self.assertEqual(ours is None, decoded(request).is_oneway)
                    continue
                count += 1
                assert ours is not None, "an answer"
                where = f"{recording} t={request.note['t']}"
                properties = request.ext.get("i") or request.ext.get("properties") or ""
                if "TRAN_MSG\1true" in properties:
                    unique = ours.ext.pop("transactionId")
                    self.assertIn(f"UNIQ_KEY\1{unique}\2", f"{properties}\2")
                    self.assertEqual(
                        unique, decoded(expected).ext.get("transactionId", unique), where
                    )
                if "TIMER_DELAY_MS" in properties:
                    self.assertIn("recallHandle", ours.ext)
                else:
                    self.compare(ours, expected, where)
        self.assertGreater(count, 150)

    def replayed(self, client: Client, request: CapturedFrame) -> Command | None:
        """Our answer to a recorded request."""
        client.connection.dataReceived(request.raw)
        answers = client.heard()
        return answers[0] if answers else None

    def compare(self, ours: Command, expected: CapturedFrame, where: str) -> None:
        """Two answers differ in nothing but places and times."""
        theirs = decoded(expected)
        self.assertEqual((ours.code, ours.opaque), (theirs.code, theirs.opaque), where)
        self.assertEqual(set(ours.ext), set(theirs.ext) - NEWER, where)
        self.assertTrue(ours.ext["queueOffset"].isdigit())
        for name in ("queueId", "MSG_REGION", "TRACE_ON"):
            self.assertEqual(ours.ext[name], theirs.ext[name], where)
        self.assertEqual(
            [len(one) for one in ours.ext["msgId"].split(",")],
            [len(one) for one in theirs.ext["msgId"].split(",")],
            where,
        )


class TransactionTests(BrokerTestCase):
    """Four transactions: committed, rolled back, and two settled only when they are asked about."""

    def replay(self, version: str) -> None:
        """Send what was sent, and compare what comes."""
        recording = [
            frame for frame in frames(f"client-transaction-{version}") if frame.request_code != 105
        ]
        self.broker(
            name="rem-a", cluster="RemCluster", transactions=TransactionSettings(check_interval=7.0)
        )
        self.serving.transactions.start()
        client = self.client()
        asked = [
            frame for frame in recording if not frame.is_answer and frame.note["from"] == "client"
        ]
        for frame in asked:
            if frame.request_code in (Code.UPDATE_AND_CREATE_TOPIC, Code.HEART_BEAT):
                client.connection.dataReceived(frame.raw)
        client.heard()
        places = self.halves(client, recording)
        for frame in asked:
            if frame.ext.get("fromTransactionCheck") == "false":
                self.end(client, frame, places)
        self.clock.advance(7.0)
        questions = {question.ext["msgId"]: question for question in client.heard()}
        self.compare(questions, recording)
        for frame in asked:
            if frame.ext.get("fromTransactionCheck") == "true":
                self.end(client, frame, places)
        self.clock.advance(7.0)
        self.assertEqual(client.heard(), [])
        lookup = self.serving.lookup
        stored = [
            record.properties["KEYS"]
            for queue in lookup.queues
            if queue.topic == "TxTopic"
            for offset in range(queue.max_offset)
            if (record := lookup.by_queue_offset("TxTopic", queue.queue_id, offset)) is not None
        ]
        self.assertEqual(sorted(stored), ["commit", "unknown-then-commit"])

    def halves(self, client: Client, recording: list[CapturedFrame]) -> dict[str, tuple[str, str]]:
        """Send half messages: by their unique keys, offsets in the queue and in the log."""
        answers = {
            frame.note["opaque"]: frame
            for frame in recording
            if frame.is_answer and frame.request_code == Code.SEND_MESSAGE_V2
        }
        places = {}
        for frame in recording:
            if frame.is_answer or frame.request_code != Code.SEND_MESSAGE_V2:
                continue
            client.connection.dataReceived(frame.raw)
            (ours,) = client.heard()
            stock = answers[frame.note["opaque"]].ext
            self.assertEqual(ours.code, 0)
            # 4.9.7 does not tell it, and its clients take it as those of 5.x do.
            self.assertLessEqual(ours.ext.keys(), {*stock, "transactionId"})
            for name in ("queueId", "queueOffset"):
                self.assertEqual(ours.ext[name], stock[name])
            key = parse(frame.ext["i"].encode())["UNIQ_KEY"]
            self.assertEqual(key, ours.ext["transactionId"])
            places[key] = ours.ext["queueOffset"], str(int(ours.ext["msgId"][-16:], 16))
            self.clock.advance(0.01)
        return places

    def end(self, client: Client, frame: CapturedFrame, places: dict[str, tuple[str, str]]) -> None:
        """Say what the producer said, of the places here."""
        command: Command = FrameDecoder().receive(frame.raw)[0]
        table, log = places[command.ext["msgId"]]
        command.ext |= {"tranStateTableOffset": table, "commitLogOffset": log}
        client.send(command)
        self.assertEqual(client.heard(), [], "a one-way request is answered")
        self.clock.advance(0.01)

    def compare(self, questions: dict[str, Command], recording: list[CapturedFrame]) -> None:
        """Hold the questions against those that were asked."""
        stock = {
            frame.ext["msgId"]: frame
            for frame in recording
            if frame.request_code == Code.CHECK_TRANSACTION_STATE
        }
        # A stock 5.3.3 asks about ended ones too.
        self.assertEqual(len(questions), 2)
        self.assertLessEqual(questions.keys(), stock.keys())
        for key, ours in questions.items():
            theirs = stock[key]
            self.assertLessEqual(ours.ext.keys(), theirs.ext.keys())
            mine, other = decode(bytes(ours.body), 0, 0), decode(theirs.body, 0, 0)
            self.assertEqual(
                (mine.topic, mine.queue_id, mine.body, mine.born_timestamp),
                (other.topic, other.queue_id, other.body, other.born_timestamp),
            )
            optional = {"WAIT", "MSG_REGION", "TRACE_ON", "__transactionId__"}
            self.assertEqual(mine.properties.keys() - optional, other.properties.keys() - optional)

    def test_4(self) -> None:
        """Java 4.9.7."""
        self.replay("4.9.7")

    def test_5(self) -> None:
        """Java 5.3.3."""
        self.replay("5.3.3")
