"""Tests for what is kept when a demo or a test finds a message missing."""

from __future__ import annotations

import shutil
import sys
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.corpus import write_log
from lab.harness import evidence
from lab.harness.evidence import DOCTOR, LEDGER, keep_evidence
from lab.harness.nodes import Node, Process
from lab.harness.writer import Write
from lab.stock.brokers import Sent
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from rmqha.store.log.truncate import quarantine
from rmqha.store.offline.client_ledger import Acknowledged, ClientLedger

SIZE = 1 << 16


class EvidenceTests(SynchronousTestCase):
    """A pair, of which one has cut off its log's end."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.master = Node(self.folder, "master")
        elsewhere = Path(self.mktemp()).absolute() / "store"
        self.slave = Node(self.folder, "slave", root=elsewhere)
        end = write_log(self.master.root / "commitlog", SIZE, file_size=SIZE, bodies=(500,))
        shutil.copytree(self.master.root, self.slave.root)
        folder = LogFolder.load(self.slave.root / "commitlog", SIZE)
        quarantine(self.slave.root, folder, 0, end)
        cut(folder, 0)
        folder.close()
        self.shown = StringIO()

    def keep(self, *messages: Acknowledged, processes: tuple[Process, ...] = ()) -> Path:
        """What is kept of the pair."""
        self.patch(sys, "stdout", self.shown)
        given = processes or (Process("names", self.folder / "names.log"), self.master, self.slave)
        kept = keep_evidence(self.folder, given, messages)
        self.addCleanup(shutil.rmtree, kept)
        return kept

    def test_kept(self) -> None:
        """Both stores, quarantine and ledger are kept, and the doctor says where the message is."""
        first = Acknowledged(offset=0, topic="BenchTopic", msg_id="0" * 32)
        kept = self.keep(first)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.slave.root)
        master, slave = kept / "master" / "store", kept / "elsewhere" / "1"
        self.assertEqual(ClientLedger.read(kept / LEDGER).messages, (first,))
        said = (kept / DOCTOR).read_text(encoding="utf-8")
        self.assertIn(f"  not in {slave}: nothing written\n", said)
        self.assertIn(f"  log: {master / 'commitlog'}, at its byte\n", said)
        (cut_off,) = (slave / "rmqha" / "quarantine").iterdir()
        self.assertIn(f"  quarantine: {cut_off}, at its byte\n", said)
        self.assertIn("exit code 1", said)
        self.assertIn(f"kept {kept}\n{said}", self.shown.getvalue())

    def test_block(self) -> None:
        """A block that fails has it kept, and still fails; one that does not leaves nothing."""
        kept = list[object]()
        self.patch(evidence, "keep_evidence", lambda *given: kept.append(given))
        with evidence.evidence(self.folder, [self.master], []):
            pass
        self.assertEqual(kept, [])
        given: tuple[Path, list[Process], list[Acknowledged]] = self.folder, [self.master], []
        with self.assertRaises(ZeroDivisionError), evidence.evidence(*given):
            raise ZeroDivisionError
        self.assertEqual(kept, [(*given, ())])

    def test_much(self) -> None:
        """Of much that is missing the beginning is printed, and where the rest is."""
        self.patch(evidence, "SHOWN", 3)
        kept = self.keep(*(Acknowledged(msg_id=f"{n:032X}") for n in range(5)))
        said = (kept / DOCTOR).read_text(encoding="utf-8").splitlines()
        shown = self.shown.getvalue().splitlines()
        more = f"{len(said) - 3} lines more are in {DOCTOR}"
        self.assertEqual(shown, [f"kept {kept}", *said[:3], more])

    def test_no_store(self) -> None:
        """A test that has not come so far is told of too."""
        self.keep(processes=(Process("names", self.folder / "names.log"),))
        self.assertIn("no node had a store", self.shown.getvalue())

    def test_named_stores(self) -> None:
        """Stores whose nodes are not at hand are named."""
        self.patch(sys, "stdout", self.shown)
        kept = keep_evidence(self.folder, (), (Acknowledged(msg_id="X"),), [self.master.root])
        self.addCleanup(shutil.rmtree, kept)
        self.assertIn(
            f"not in {kept / 'master' / 'store'}: nowhere in its log", self.shown.getvalue()
        )

    def test_nothing_acknowledged(self) -> None:
        """So is one whose clients were told of nothing."""
        self.keep()
        self.assertIn("there is no message in it", self.shown.getvalue())


class ToldTests(SynchronousTestCase):
    """What the lab's own clients were told."""

    def test_write(self) -> None:
        """A write of our master's."""
        write = Write(
            n=1, key="K", topic="T", queue=2, status="PUT_OK", waited=True, begin=50, queue_offset=7
        )
        wanted = Acknowledged(offset=50, topic="T", queue_id=2, queue_offset=7, msg_id="K")
        self.assertEqual(write.acknowledged, wanted)

    def test_sent(self) -> None:
        """A send of a stock client's; of a batch, each message."""
        digest = "a" * 32
        one = Sent(
            n=1, status="SEND_OK", topic="T", queue=2, queueOffset=7, places=[50], bodies=[digest]
        )
        self.assertEqual(one.acknowledged, [Acknowledged(offset=50, body_sha256=digest)])
        one.bodies.append("b" * 32)
        self.assertEqual([each.offset for each in one.acknowledged], [None, None])
        one.places.append(90)
        self.assertEqual([each.offset for each in one.acknowledged], [50, 90])
