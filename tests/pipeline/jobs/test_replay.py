"""Tests for L{rmqha.pipeline.jobs.replay}: messages of a log are sent to a stand-in of a broker."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import OptionInvalid, OptionMissing
from tests.cli.command import CommandTestCase
from tests.support.fake_broker import StandIn
from tests.support.rows import expected
from tests.support.spark_needs import need_java

try:
    import pyarrow as pa

    from rmqha.pipeline.jobs.replay import DUPLICATE, RETRY, kept, marked, replay, resent, shared
    from rmqha.pipeline.producing.settings import SendOptions
    from rmqha.wire.names import is_system_topic
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def row(**changes: Any) -> dict[str, Any]:
    """A row as the job reads it."""
    found = {
        "topic": "T",
        "broker_name": "a",
        "queue_id": 0,
        "physical_offset": 0,
        "flag": 5,
        "sys_flag": 0,
        "body": b"x",
        "raw_properties": "UNIQ_KEY\x01u\x02",
        "skip": None,
    }
    return {**found, **changes}


class ResendTests(SynchronousTestCase):
    """What a task does with its rows."""

    def setUp(self) -> None:
        self.broker = StandIn({"T": 2, "U": 3})
        self.addCleanup(self.broker.server.close)

    def resend(self, *rows: dict[str, Any], to: str | None = None) -> dict[tuple[str, str], Any]:
        """Send rows, and return messages and bytes by topic and outcome."""
        batches = [pa.RecordBatch.from_pylist([each]) for each in rows]
        (told,) = resent(SendOptions(name_server=(self.broker.address,)), to, batches)
        return {
            (each["topic"], each["outcome"]): (each["messages"], each["bytes"])
            for each in told.to_pylist()
        }

    def test_stripped(self) -> None:
        """What a first sending meant for itself is gone, the rest stays."""
        gone = dict.fromkeys(
            ("DELAY", "WAIT", "TRAN_MSG", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "CLUSTER"),
            "1",
        )
        stays = {"UNIQ_KEY": "u", "KEYS": "k", "TAGS": "A", "mine": "1", "DELAYED": "1"}
        self.assertEqual(stays, kept({**gone, **stays}))
        properties = "".join(f"{name}\x01{value}\x02" for name, value in {**gone, **stays}.items())
        self.resend(row(raw_properties=properties, sys_flag=0x30D))
        (message,) = self.broker.stored
        self.assertEqual(stays, message.properties)
        self.assertEqual((0x301, 5), (message.sys_flag, message.flag))

    def test_outcomes(self) -> None:
        """What is sent, what is not and what could not be is counted by topic."""
        self.broker.codes = [0, 10]
        found = self.resend(
            row(),
            row(body=b"yy"),
            row(skip=DUPLICATE),
            row(topic="V", raw_properties="a\nb\x01c\x02"),
            to="U",
        )
        self.assertEqual(
            {
                ("T", "sent"): (1, 1),
                ("T", "sent, answered with code 10"): (1, 2),
                ("T", DUPLICATE): (1, 1),
                ("V", "property 'a\\nb' has control characters"): (1, 1),
            },
            found,
        )
        self.assertEqual([b"x", b"yy"], self.broker.bodies("U", 0))

    def test_queues(self) -> None:
        """A queue's number is kept, or folded onto those there are."""
        self.resend(row(queue_id=1), row(queue_id=5, body=b"y"))
        self.assertEqual([b"x", b"y"], self.broker.bodies("T", 1))


class SharedTests(SynchronousTestCase):
    """Tasks have equal parts of a limit."""

    def test_shared(self) -> None:
        """All together they never send faster than they may, even if fewer can do so."""
        for rows, size, tasks, wanted in (
            (None, None, 4, (None, None, 4)),
            (100, None, 4, (25, None, 4)),
            (3, None, 4, (1, None, 3)),
            (100, 1 << 20, 3, (33, 349525, 3)),
        ):
            options = SendOptions(
                name_server=("h:1",), max_rows_per_second=rows, max_bytes_per_second=size
            )
            share, most = shared(options, tasks)
            found = (share.max_rows_per_second, share.max_bytes_per_second, most)
            self.assertEqual(wanted, found)


class ReplayTests(CommandTestCase):
    def setUp(self) -> None:
        need_java()
        self.store = golden.store("5.3.3")
        self.visible = [
            each
            for each in expected("5.3.3", "store")
            if not is_system_topic(each["topic"]) and each["sysFlag"] & 12 in (0, 8)
        ]
        topics = {each["topic"] for each in self.visible}
        self.broker = StandIn(dict.fromkeys([*topics, "Again"], 4))
        self.addCleanup(self.broker.server.close)
        self.sending = SendOptions(name_server=(self.broker.address,))

    def replay(self, **options: Any) -> Any:
        options = {"same_topic": True, "tasks": 2, **options}
        return replay(session(), str(self.store), self.sending, **options)

    def test_all(self) -> None:
        """Every visible message but retries and dead letters is sent, in the order of its queue;
        those of a batch whose key is the same are no duplicates.
        """
        done = self.replay()
        wanted = defaultdict(list)
        for each in self.visible:
            if not each["topic"].startswith("%"):
                wanted[each["topic"], each["queueId"]].append(each["bodySha256"])
        found = defaultdict(list)
        for message in self.broker.stored:
            found[message.topic, message.queue_id].append(sha256(message.body).hexdigest())
        unsent = {each.topic for each in done.outcomes if not each.sent}
        for (topic, queue_id), bodies in wanted.items():
            if topic not in unsent and queue_id < 4:
                self.assertEqual(bodies, found[topic, queue_id], topic)
        sent, _ = done.count(sent=True)
        skipped, _ = done.count(sent=False)
        self.assertEqual(len(self.visible), sent + skipped)
        self.assertEqual(len(self.broker.stored), sent)
        reasons = {each.outcome for each in done.outcomes if not each.sent}
        self.assertIn(RETRY, reasons)
        self.assertNotIn("GoldenBatch", unsent)

    def test_marked(self) -> None:
        """The first of several with the same keys is sent; keyless ones all; retries if wanted."""
        rows = [
            ("T", "a", 0, "UNIQ_KEY\x01u\x02KEYS\x01k\x02"),
            ("T", "a", 1, "KEYS\x01k\x02UNIQ_KEY\x01u\x02"),
            ("T", "b", 0, "UNIQ_KEY\x01u"),
            ("U", "b", 1, "UNIQ_KEY\x01u\x02"),
            ("T", "a", 2, "UNIQ_KEY\x01v1\x02UNIQ_KEY\x01u\x02"),
            ("T", "a", 3, "UNIQ_KEY\x01v2\x02UNIQ_KEY\x01u\x02"),
            ("T", "a", 4, ""),
            ("T", "a", 5, "MY_UNIQ_KEY\x01u\x02"),
            ("%RETRY%g", "a", 6, "UNIQ_KEY\x01u\x02"),
        ]
        columns = "topic string, broker_name string, physical_offset long, raw_properties string"
        frame = session().createDataFrame(rows, columns)
        for named, dedupe, wanted in (
            (False, True, {("a", 1): DUPLICATE, ("b", 0): DUPLICATE, ("a", 6): RETRY}),
            (True, False, {}),
        ):
            found = {
                (each["broker_name"], each["physical_offset"]): each["skip"]
                for each in marked(frame, named, dedupe).collect()
                if each["skip"] is not None
            }
            self.assertEqual(wanted, found)

    def test_refused(self) -> None:
        """Nothing goes to a broker's own topics, or comes from them, and where to is said once."""
        for error, options in (
            (OptionMissing, {"same_topic": False}),
            (OptionMissing, {"to_topic": "T"}),
            (OptionInvalid, {"to_topic": "SCHEDULE_TOPIC_XXXX", "same_topic": False}),
            (OptionInvalid, {"topic": "GoldenA,RMQ_SYS_TRANS_HALF_TOPIC"}),
            (OptionInvalid, {"visibility": "log"}),
        ):
            self.assertRaises(error, self.replay, **options)

    def test_command(self) -> None:
        """A dry run sends nothing and says what would be; what is wrong is one line."""
        place = [str(self.store), "--name-server", self.broker.address, "--topic", "GoldenA"]
        arguments = ["spark", "replay", *place, "--to-topic", "New", "--rate", "9"]
        told = self.answer(*arguments, "--dry-run")
        wanted = sum(each["topic"] == "GoldenA" for each in self.visible)
        self.assertEqual((True, {"New": 0}), (told["dryRun"], told["queues"]))
        self.assertEqual(wanted, told["sent"]["messages"])
        self.assertEqual(wanted / 9, told["seconds"])
        self.assertEqual([], self.broker.stored)
        said = self.fails(1, *arguments)
        self.assertIn("no route for topic New", said)

    def test_options(self) -> None:
        """A choice is not passed over for want of an argument; one of nothing is refused."""
        arguments = ["spark", "replay", str(self.store), "--name-server", self.broker.address]
        arguments += ["--to-topic", "New", "--dry-run", "--option"]
        told = self.answer(*arguments, "topic=GoldenA")
        wanted = sum(each["topic"] == "GoldenA" for each in self.visible)
        self.assertEqual(wanted, told["sent"]["messages"])
        self.assertIn("tasks=3 is not allowed", self.fails(1, *arguments, "tasks=3"))
