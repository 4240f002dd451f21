"""The transactions of recorded producers, sent again: each ends as its producer wanted, once."""

from __future__ import annotations

from rmqha.config.broker_settings import TransactionSettings
from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.broker.support import BrokerTestCase, Client
from tests.support.frames import CapturedFrame, frames


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
