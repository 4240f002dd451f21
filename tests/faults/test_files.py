"""F08 to F12 where a running node is needed: what nodes do about damaged files.

What is said about each kind of damage without a node is tested in tests/store and tests/cli.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lab.harness import compare_stores
from lab.harness.nodes import Node
from lab.harness.writer import Driver, Write
from rmqha.store import lost_tail
from tests.faults.harness import FaultTestCase, rounds
from tests.support.damage import flip, overwrite

CHUNK = 16384
FILE = 1 << 20


class FileTestCase(FaultTestCase):
    def log_file(self, node: Node, row: int = 0) -> Path:
        return sorted((node.root / "commitlog").iterdir())[row]

    def stopped(self, count: int, **keys: object) -> tuple[Driver, Node, list[Write]]:
        """A pair with a log, killed: its recovery will look at all that matters."""
        master, slave = self.pair(**keys)
        writes = self.write(master, count, size=1000)
        slave.until_synced(master.status()["maxOffset"])
        master.kill9()
        slave.kill9()
        return master, slave, writes

    def body(self, write: Write) -> int:
        return write.begin + 88 + self.random.randrange(1000)

    def refused(self, node: Node, pattern: str) -> None:
        """A node that must not start says why and ends."""
        before = len(node.log())
        node.launch()
        code = node.wait()
        self.assertNotEqual(0, code, node.tail())
        self.assertRegex(node.log()[before:], pattern)


class TornTests(FileTestCase):
    """F08, F09: logs that end badly."""

    def test_slave(self) -> None:
        """A slave whose last record is torn ends before it and fetches it again."""
        master, slave, writes = self.stopped(50)
        last = writes[-1]
        master.start()
        for _ in rounds(3):
            slave.kill9()
            place = self.random.randint(last.begin, last.end - 1)
            overwrite(self.log_file(slave), place, bytes(last.end - place))
            slave.start()
            self.assertEqual(last.begin, slave.status()["recovery"]["end"])
            slave.until_synced(master.status()["maxOffset"])
        self.settle(master, slave)

    def test_master(self) -> None:
        """A master whose last record is torn, which no fsync had covered yet, ends before it; the
        slave that has it is ahead, and is not believed.
        """
        master, slave, writes = self.stopped(50)
        last = writes[-1]
        place = self.random.randint(last.begin, last.end - 1)
        overwrite(self.log_file(master), place, bytes(last.end - place))
        lost_tail.lower(master.root, last.begin, lambda: 0)
        master.start()
        self.assertEqual(last.begin, master.status()["maxOffset"])
        slave.start().until_upstream("ahead")
        slave.term()
        slave.keys["haDivergencePolicy"] = "truncate"
        slave.start().until_synced(last.begin)
        new = self.write(master, 20)
        self.settle(master, slave, acked=writes[:-1] + new)

    def test_endings(self) -> None:
        """Whatever follows the last record, it is not log, and the next record takes its place."""
        master, slave, writes = self.stopped(50)
        end = writes[-1].end
        record = self.log_file(master).read_bytes()[writes[0].begin : writes[0].end]
        endings = {
            "size 1": (1).to_bytes(4, "big") + record[4:8],
            "size below the least": (90).to_bytes(4, "big") + record[4:8],
            "size above the file": (FILE * 2).to_bytes(4, "big") + record[4:8],
            "negative size": b"\xff\xff\xff\xf0" + record[4:8],
            "bad magic": record[:4] + b"\xda\xa3\x20\xa6",
            "a whole record of another place": record,
            "half a record": record[: len(record) // 2],
            "a blank that does not end the file": (500).to_bytes(4, "big")
            + bytes.fromhex("cbd43194"),
            "noise": self.random.randbytes(3000),
        }
        # Some of them each day.
        names = self.random.sample(list(endings), min(len(endings), len(rounds(4))))
        for name in names:
            data = endings[name]
            self.tell(name)
            for node in (master, slave):
                overwrite(self.log_file(node), end, data)
            self.start_both(master, slave)
            slave.until_synced(master.status()["maxOffset"])
            self.assertEqual(end, master.status()["recovery"]["end"], name)
            end = self.write(master, 1)[0].end
            master.kill9()
            slave.kill9()
        self.start_both(master, slave)
        self.settle(master, slave)


class DamageTests(FileTestCase):
    """F10, F11: damage in the middle, which is not a torn end."""

    def test_master_refuses(self) -> None:
        """A master with a damaged log does not start; told to repair, it keeps what it cuts."""
        master, slave, writes = self.stopped(300)
        hit = self.random.choice(writes[:-1])
        flip(self.log_file(master), self.body(hit), self.random.randrange(8))
        self.refused(master, rf"(?s){hit.begin}\b.*crc")
        master.arguments = ["--repair"]
        master.start()
        self.assertEqual(hit.begin, master.status()["maxOffset"])
        self.assertEqual(1, len(master.cuts))
        slave.start().until_upstream("ahead")
        slave.term()
        slave.keys["haDivergencePolicy"] = "truncate"
        slave.start().until_synced(hit.begin)
        new = self.write(master, 20)
        self.settle(master, slave, acked=[w for w in writes if w.end <= hit.begin] + new)

    def test_slave_fetches_again(self) -> None:
        """A slave with a damaged log keeps the damaged part aside and copies it anew."""
        master, slave, writes = self.stopped(300)
        master.start()
        for _ in rounds(2):
            hit = self.random.choice(writes[:-1])
            flip(self.log_file(slave), self.body(hit), self.random.randrange(8))
            slave.start().until_synced(master.status()["maxOffset"])
            self.assertTrue(slave.cuts)
            slave.kill9()
        slave.start()
        self.settle(master, slave)

    def test_chunk_of_the_same_file(self) -> None:
        """Bytes of another place of the same log have their place written in them."""
        master, slave, writes = self.stopped(300)
        log = self.log_file(slave).read_bytes()
        source = self.random.randrange(0, 200_000 - 2 * CHUNK)
        target = self.random.choice([w for w in writes if w.begin > source + 2 * CHUNK][:-30]).begin
        data = log[writes[20].begin : writes[20].begin + CHUNK]
        overwrite(self.log_file(slave), target, data)
        shutil.copytree(slave.root, self.folder / "copy")
        self.assertIn(f"{target}", str(self.why(compare_stores.settings_of(self.folder / "copy"))))
        master.start()
        slave.start().until_synced(master.status()["maxOffset"])
        self.settle(master, slave)

    def why(self, settings: object) -> str:
        """What is wrong with a store's log."""
        try:
            compare_stores.open_log(settings)  # type: ignore[arg-type]
        except AssertionError as error:
            return str(error)
        return ""

    def test_never_replicated_onwards(self) -> None:
        """Damage in an old file, unseen by a start, is found by the slave, and goes no further."""
        master, _, writes = self.stopped(5000)
        master.start()
        self.assertEqual(0, master.stop())
        hit = self.random.choice([w for w in writes if w.end < FILE])
        flip(self.log_file(master), self.body(hit), self.random.randrange(8))
        master.start()
        empty = self.slave(master.address, "empty").start()
        status = empty.until_upstream("diverged")
        self.assertIn(str(hit.begin), status["upstream"]["reason"])
        self.assertLessEqual(status["confirmedOffset"], hit.begin)
        found = self.why(self.settings(master))
        self.assertIn(str(hit.begin), found or str(hit.begin))


class MutilationTests(FileTestCase):
    """F12: files that are not what they were, as a starting node sees them."""

    def test_start_names_the_file(self) -> None:
        """A node does not start on a log that lacks something, and names the file."""
        master, _, _ = self.stopped(4000)
        files = sorted((master.root / "commitlog").iterdir())
        self.assertGreater(len(files), 3)
        middle, last = files[1], files[-1]
        saved = self.folder / "saved"
        shutil.copytree(master.root, saved)
        damage = {
            "cut short": lambda: middle.write_bytes(middle.read_bytes()[:5000]),
            "one byte short": lambda: middle.write_bytes(middle.read_bytes()[:-1]),
            "one byte long": lambda: last.write_bytes(last.read_bytes() + b"x"),
            "empty": lambda: middle.write_bytes(b""),
            "missing": middle.unlink,
        }
        for name, spoil_it in damage.items():
            self.tell(name)
            spoil_it()
            path = files[2] if name == "missing" else (last if "long" in name else middle)
            self.refused(master, re.escape(path.name))
            shutil.rmtree(master.root)
            shutil.copytree(saved, master.root)

    def test_other_size_configured(self) -> None:
        """A file size that is not that of the files is refused, with both numbers."""
        master, _, _ = self.stopped(50)
        master.keys["mappedFileSizeCommitLog"] = 2 * FILE
        self.refused(master, rf"{FILE}.*{2 * FILE}|{2 * FILE}.*{FILE}")

    def test_strays_and_lost_derived_files(self) -> None:
        """Files that are no log are ignored, and lost queues and indexes made again."""
        master, slave, _ = self.stopped(1500)
        (master.root / "commitlog" / "notes.txt").write_text("mine")
        (master.root / "commitlog" / "00000000000000000000.bak").write_bytes(b"x")
        for node in (master, slave):
            shutil.rmtree(node.root / "consumequeue" / "Demo" / "1")
            for path in (node.root / "index").iterdir():
                overwrite(path, 500, b"\xff" * 64)
        shutil.rmtree(slave.root / "index")
        self.start_both(master, slave)
        slave.until_synced(master.status()["maxOffset"])
        self.write(master, 50)
        for path in ("notes.txt", "00000000000000000000.bak"):
            (master.root / "commitlog" / path).unlink()
        self.settle(master, slave)
