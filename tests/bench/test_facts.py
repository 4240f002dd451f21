"""Tests for L{lab.bench.facts} and for the options of L{lab.bench.beside}."""

from __future__ import annotations

import io
import signal
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import beside, clients, facts, java
from lab.bench.beside import Bench, Field
from lab.bench.report import Row
from lab.bench.stock import Peer
from lab.stock import jars


class DiskTests(SynchronousTestCase):
    """Where a file that is flushed goes to a disk."""

    def test_file_system(self) -> None:
        """The longest mount that a path is below counts, not one whose name only begins so."""
        with TemporaryDirectory() as folder:
            base = Path(folder).resolve()
            inner = base / "a b"
            inner.mkdir()
            escaped = str(inner).replace(" ", "\\040")
            mounts = (
                "/dev/vda / ext4 rw 0 0\n"
                f"tmpfs {escaped} tmpfs rw 0 0\n"
                f"ramfs {base}/a ramfs rw 0 0\n"
            )
            self.assertEqual(facts.file_system(base, mounts), "ext4")
            self.assertEqual(facts.file_system(inner, mounts), "tmpfs")
            self.assertEqual(facts.file_system(inner / "deeper", mounts), "tmpfs")

    def test_later_mount(self) -> None:
        """Of two file systems at one place, the one that was mounted last is there."""
        mounts = "tmpfs / tmpfs rw 0 0\noverlay / overlay rw 0 0\n"
        self.assertEqual(facts.file_system(Path("/"), mounts), "overlay")

    def test_no_room(self) -> None:
        """A disk without enough room is none."""
        self.assertIsNone(facts.disk_folder(1 << 80))


class OptionTests(SynchronousTestCase):
    """L{Bench.main}"""

    def run_parts(self, *arguments: str) -> list[str]:
        """Which parts are measured when a bench of three is started so."""
        ran: list[str] = []

        def part(name: str) -> beside.Part:
            def run(field: Field) -> list[Row]:
                ran.append(f"{name} quick" if field.quick else name)
                return []

            return run

        names = ("one", "two", "three")
        bench = Bench(
            name="bench-none",
            parts={name: part(name) for name in names},
            needed=0,
            limit=60.0,
            size=str,
            notes="",
        )
        self.patch(jars, "resolve", lambda version: None)
        self.patch(signal, "signal", lambda number, call: None)
        self.patch(signal, "setitimer", lambda which, seconds: None)
        self.patch(beside, "warm_memory", lambda size: 0)
        self.patch(Peer, "start", lambda tool: tool)
        self.patch(beside, "java_version", lambda: "a JVM")
        self.patch(Bench, "kept", lambda bench, version: self.fail("nothing is kept"))
        self.assertEqual(bench.main(arguments), 0)
        return ran

    def test_only(self) -> None:
        """Some parts are measured by their names, in the bench's order."""
        self.assertEqual(self.run_parts("--only", "three", "one"), ["one", "three"])

    def test_quick(self) -> None:
        """A quick run measures all parts, less of each."""
        self.assertEqual(self.run_parts("--quick"), ["one quick", "two quick", "three quick"])

    def test_unknown(self) -> None:
        """A part that is not there is told at once."""
        with redirect_stderr(io.StringIO()) as said:
            self.assertRaises(SystemExit, self.run_parts, "--only", "four")
        self.assertIn("four", said.getvalue())

    def test_parts(self) -> None:
        """The two benches beside stock RocketMQ have the parts that the goals name."""
        wanted = {"sync", "async", "flush", "topics", "consume", "idle", "slave-reads"}
        self.assertLessEqual(wanted, set(clients.BENCH.parts))
        self.assertLessEqual({"catchup", "sync"}, set(java.BENCH.parts))
