"""Tests for C{make demo-failover}: what it checks at its end, and what coordinates."""

from __future__ import annotations

import hashlib
import shutil
from io import StringIO
from pathlib import Path

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

import lab.demo_failover.__main__ as demo
from lab.bench.corpus import write_log
from lab.demo_failover.pauses import AckTimes
from lab.demo_failover.report import Kill, Report
from lab.harness import compare_stores, etcd
from lab.stock import jars
from lab.stock.brokers import Sent
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.record import decode

SIZE = 1 << 18


def acked(number: int, place: int, body: bytes) -> Sent:
    """A message that was acknowledged."""
    told = hashlib.sha256(body).hexdigest()[:32]
    return Sent(n=number, status="SEND_OK", places=[place], bodies=[told])


class ReportTests(SynchronousTestCase):
    """Three stores with one log of a few hundred records."""

    def setUp(self) -> None:
        place = Path(self.mktemp()).absolute()
        names = ("java", "ours-1", "ours-2")
        self.roots = {name: place / name for name in names}
        first = self.roots["java"]
        write_log(first / "commitlog", SIZE, file_size=SIZE, bodies=(500,))
        for name in names[1:]:
            shutil.copytree(first, self.roots[name])
        log = OfflineLog(first, SIZE)
        self.sent = [Sent(n=0, status="FLUSH_SLAVE_TIMEOUT")]
        for view, block in scan(log, log.raw.min_offset, log.end):
            for offset in block.start.tolist():
                record = decode(view, offset - block.base, offset)
                self.sent.append(acked(len(self.sent), offset, bytes(record.body)))
        self.assertGreater(len(self.sent), 200)

    def report(self) -> Report:
        """What is said of the stores."""
        stores = {
            name: compare_stores.settings_of(root, file_size=SIZE)
            for name, root in self.roots.items()
        }
        return Report(stores, self.sent, [Kill(name="java", successor="ours-1", pause=1.25)])

    def shown(self, report: Report) -> str:
        """Its tables, with single spaces."""
        console = Console(width=120)
        with console.capture() as captured:
            for table in report.tables:
                console.print(table)
        text = "".join(letter if letter.isascii() else " " for letter in captured.get())
        return " ".join(text.split())

    def rows(self, report: Report) -> list[str]:
        """What is said of each log."""
        console = Console(width=120)
        with console.capture() as captured:
            console.print(report.tables[1])
        lines = captured.get().splitlines()
        return [line.strip("\u2502 ") for line in lines if line.startswith("\u2502")]

    def test_well(self) -> None:
        """Each message is counted by what became of it, and each kill is told."""
        report = self.report()
        self.assertEqual(report.wrong, [])
        text, count = self.shown(report), len(self.sent) - 1
        self.assertIn(f"sent {count + 1} acknowledged (SEND_OK) {count}", text)
        self.assertIn("not acknowledged: FLUSH_SLAVE_TIMEOUT 1", text)
        self.assertIn(f"in the log of ours-2 {count} lost 0", text)
        self.assertIn("java ours-1 1.2 s", text)

    def test_lost(self) -> None:
        """An acknowledged message that a log has not, or has otherwise, is lost."""
        self.sent.append(acked(9001, SIZE * 7, b"behind the end"))
        self.sent.append(acked(9002, self.sent[1].places[0], b"another body"))
        report = self.report()
        self.assertIn("ours-1 lacks 2, the first: 9001", report.wrong)
        self.assertIn("lost 2", self.shown(report))

    def test_differs(self) -> None:
        """A log that differs in one byte is told of, though each body is there."""
        path = next((self.roots["ours-2"] / "commitlog").iterdir())
        data = bytearray(path.read_bytes())
        data[self.sent[3].places[0] + 12] ^= 1  # the queue's id, which no checksum covers
        path.write_bytes(data)
        report = self.report()
        self.assertEqual(report.wrong, [f"{path.name} differs"])
        java, ours, other = (line.split()[-1] for line in self.rows(report))
        self.assertEqual(java, ours)
        self.assertNotEqual(java, other)

    def test_nothing(self) -> None:
        """Where nothing was acknowledged nothing is shown."""
        del self.sent[1:]
        self.assertEqual(self.report().wrong, ["nothing was acknowledged"])


class AckTimesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.sent: list[Sent] = []
        self.acks = AckTimes(self.sent, lambda: self.now)

    def told(self, at: float, *statuses: str) -> None:
        """Messages end so, and somebody looks."""
        self.now = at
        self.sent += [Sent(n=0, status=status) for status in statuses]
        self.acks.look()

    def test_pause(self) -> None:
        """The pause is from the last acknowledgement before to the first one after."""
        for at in (1.0, 5.0, 5.1):
            self.told(at, "SEND_OK", "SEND_OK")
        self.told(6.0, "SERVICE_NOT_AVAILABLE")
        self.told(7.5)
        self.told(8.1, "SEND_OK")
        self.told(8.2, "SEND_OK")
        self.assertEqual(self.acks.count, 8)
        self.assertAlmostEqual(self.acks.longest(5.2), 3.0)
        self.assertAlmostEqual(self.acks.longest(0.0), 4.0)

    def test_none(self) -> None:
        """Without an acknowledgement there is no end of a pause."""
        self.told(1.0, "REMOTING_ERROR")
        self.assertEqual(self.acks.longest(0.0), 0.0)


class CoordinatorTests(SynchronousTestCase):
    """Which one is taken, and what is said of it."""

    def said(self, program: str | None, *arguments: str) -> str:
        """What the demo says where nothing is fetched and no story is told."""
        said = Console(width=200, record=True, file=StringIO())
        self.patch(etcd, "PROGRAM", program)
        self.patch(demo, "demo_console", lambda width: said)
        self.patch(demo, "told", lambda console, story, good: type(story).__name__)

        def resolve(version: str) -> None:
            raise jars.Missing("no mvn")

        self.patch(jars, "resolve", resolve)
        ended = demo.main(list(arguments))
        return f"{ended}: {said.export_text()}"

    def test_etcd(self) -> None:
        """etcd, where it is installed."""
        self.assertIn("EtcdStory: Coordinated by etcd (/bin/etcd)", self.said("/bin/etcd"))

    def test_no_etcd(self) -> None:
        """The controllers where it is not, or where that is asked for; without Maven, neither."""
        said = self.said(None)
        self.assertIn("1: Coordinated by RocketMQ's own controllers: no etcd here", said)
        self.assertIn("no mvn", said)
        self.assertIn("controllers: as asked for", self.said("/bin/etcd", "java"))
