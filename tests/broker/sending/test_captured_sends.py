"""What real clients sent to a real broker, sent to ours: the answers are the same."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.wire.remoting.codes import RequestCode
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
