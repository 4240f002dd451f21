"""JSON tables: fastjson's text, generations, and what a crash leaves."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import DiskFull, FileUnreadable, TableUnreadable
from rmqha.logfiles import json_table

OLDER = {"offsetTable": {"T@g": {0: 1}}}
OLD = {"offsetTable": {"T@g": {0: 120, 1: 98}}}
NEW = {"offsetTable": {"T@g": {0: 121, 1: 99}, "Ü@g": {}}}

keys = st.text() | st.integers() | st.sampled_from(["1", '{2:"', "a:1,2:3", "\\", '"'])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    # A pair of halves would come back as one character.
    | st.text() | st.text(st.characters(categories=["Cs"]), max_size=1),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


class TextTests(SynchronousTestCase):
    """What is written and what is understood."""

    @given(st.dictionaries(keys, values))
    def test_round_trip(self, table: json_table.Table) -> None:
        """Whatever is rendered reads back the same, types of keys included."""
        self.assertEqual(json_table.parse(json_table.render(table)), table)

    def test_golden(self) -> None:
        """Every table of stock brokers reads, and what was pretty is rendered byte for byte."""
        count = 0
        for version, name in golden.ARCHIVES:
            config = golden.store(version, name) / "config"
            for path in sorted([*config.glob("*.json"), *config.glob("*.json.bak")]):
                raw = path.read_bytes()
                table = json_table.parse(raw)
                assert table is not None, path
                self.assertIsNotNone(json_table.read(path), path)
                self.assertEqual(json_table.parse(json_table.render(table)), table, path)
                if b"\n" in raw:
                    self.assertEqual(json_table.render(table), raw, path)
                count += 1
            shutil.rmtree(config.parent)
        self.assertGreater(count, 50)

    def test_unquoted_keys(self) -> None:
        """Unquoted keys are integers, quoted ones strings, and strings are left alone."""
        text = b'\xef\xbb\xbf{ 1:{-2 :"{3:4,5:6}"},"7":[8,{9:\n0}], "a\\"{1:":"\\\\"}'
        self.assertEqual(
            json_table.parse(text), {1: {-2: "{3:4,5:6}"}, "7": [8, {9: 0}], 'a"{1:': "\\"}
        )

    def test_no_table(self) -> None:
        """What is no object is refused with C{ValueError}, whatever it is."""
        deep = b'{"a":' * 100_000
        bad = [b"[1]", b"{", b"\0" * 100, b'{"a":\xff}', b"{1.5:2}", b"{'a':1}", deep, b"1:2"]
        for text in bad:
            with self.assertRaises(ValueError, msg=text[:20]):
                json_table.parse(text)
        self.assertIsNone(json_table.parse(b" \n"))

    def test_no_place_in_json(self) -> None:
        """Keys and values JSON has no place for are refused, not written as something else."""
        for wrong in ({True: 1}, {None: 1}, {1.0: 1}, {"a": object()}, {"a": b""}):
            with self.assertRaises(TypeError):
                json_table.render(wrong)  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            json_table.render({"a": float("nan")})


class _Crash(BaseException):
    """The process dies here."""


class FileTests(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "consumerOffset.json"
        self.bak = self.path.with_name(self.path.name + ".bak")

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir())

    def test_nothing(self) -> None:
        """No file, or empty ones, are no table and no error."""
        self.assertIsNone(json_table.read(self.path))
        self.path.touch()
        self.assertIsNone(json_table.read(self.path))
        self.bak.touch()
        self.assertIsNone(json_table.read(self.path))

    def test_previous_generation(self) -> None:
        """A table that is missing, empty, zero-filled or cut off is read from its C{.bak}."""
        json_table.replace(self.path, OLD)
        json_table.replace(self.path, NEW)
        whole = self.path.read_bytes()
        self.assertEqual(json_table.read(self.path), NEW)
        for damaged in (b"", b"\0" * len(whole), whole[:-3]):
            self.path.write_bytes(damaged)
            self.assertEqual(json_table.read(self.path), OLD)
        self.path.unlink()
        self.assertEqual(json_table.read(self.path), OLD)

    def test_unreadable(self) -> None:
        """Something that cannot be read, with nothing to fall back on, is never an empty table."""
        for main, bak in ((b"{", None), (None, b"{"), (b"", b"{"), (b"{", b""), (b"\0", b"[]")):
            for path, raw in ((self.path, main), (self.bak, bak)):
                path.unlink(missing_ok=True)
                if raw is not None:
                    path.write_bytes(raw)
            with self.assertRaises(TableUnreadable) as caught:
                json_table.read(self.path)
            self.assertIn("consumerOffset.json", str(caught.exception))

    def test_folder_in_place(self) -> None:
        """What cannot even be opened is not known, so nothing older is taken for it."""
        self.path.mkdir()
        self.bak.write_bytes(json_table.render(OLD))
        error = self.assertRaises(FileUnreadable, json_table.read, self.path)
        self.assertEqual((error.path, error.errno), (str(self.path), errno.EISDIR))

    def test_nothing_left_over(self) -> None:
        """After a replace there are two generations and nothing else."""
        for table in (OLDER, OLD, NEW):
            json_table.replace(self.path, table)
        self.assertEqual(self.names(), ["consumerOffset.json", "consumerOffset.json.bak"])
        self.assertEqual(json_table.parse(self.bak.read_bytes()), OLD)

    def test_damaged_is_not_kept(self) -> None:
        """A damaged table does not push out a good C{.bak}."""
        json_table.replace(self.path, OLDER)
        json_table.replace(self.path, OLD)
        for damaged in (b"", b"\0" * 200, b'{"offsetTable":{"T@'):
            self.path.write_bytes(damaged)
            json_table.replace(self.path, NEW)
            self.assertEqual(json_table.read(self.path), NEW)
            self.assertEqual(json_table.parse(self.bak.read_bytes()), OLDER)

    def test_killed(self) -> None:
        """Killed between any two steps, the table reads as the old or the new generation, there is
        a whole generation behind it, and the next replace works.
        """
        steps: list[str] = []
        json_table.replace(self.path, OLDER)
        json_table.replace(self.path, OLD, steps.append)
        self.assertEqual(steps, ["write", "keep", "replace", "backup", "sync"])
        for last in steps:

            def die(step: str, last: str = last) -> None:
                if step == last:
                    raise _Crash

            self._start_over()
            with self.assertRaises(_Crash):
                json_table.replace(self.path, NEW, die)
            done = steps.index(last) > steps.index("replace")
            self.assertEqual(json_table.read(self.path), NEW if done else OLD, last)
            self.assertIn(json_table.parse(self.bak.read_bytes()), (OLDER, OLD), last)
            json_table.replace(self.path, OLD)
            self.assertEqual((json_table.read(self.path), len(self.names())), (OLD, 2))

    def test_torn_write(self) -> None:
        """However much was written before the crash, the old generation stands; rests go."""
        whole = json_table.render(NEW)
        for size in range(0, len(whole), 7):
            self._start_over()
            self.path.with_name(self.path.name + ".tmp").write_bytes(whole[:size])
            self.assertEqual(json_table.read(self.path), OLD)
        json_table.replace(self.path, NEW)
        self.assertEqual(json_table.read(self.path), NEW)

    def test_own_inode(self) -> None:
        """The C{.bak} is a file of its own: a stock 5.x broker writes the table in place."""
        self._start_over()
        json_table.replace(self.path, NEW)
        self.path.write_bytes(b"torn")
        self.assertEqual(json_table.read(self.path), OLD)

    def test_no_hard_links(self) -> None:
        """Without hard links the generation is copied."""
        self._start_over()
        with patch.object(os, "link", side_effect=OSError(errno.EPERM, "no links")):
            json_table.replace(self.path, NEW)
        self.assertEqual(json_table.read(self.path), NEW)
        self.assertEqual(json_table.parse(self.bak.read_bytes()), OLD)

    def test_disk_full(self) -> None:
        """A full disk is a typed error that leaves the old generation and no litter."""
        self._start_over()
        with (
            patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, "full")),
            self.assertRaises(DiskFull),
        ):
            json_table.replace(self.path, NEW)
        self.assertEqual((json_table.read(self.path), len(self.names())), (OLD, 2))

    def _start_over(self) -> None:
        for path in self.path.parent.iterdir():
            path.unlink()
        json_table.replace(self.path, OLDER)
        json_table.replace(self.path, OLD)
