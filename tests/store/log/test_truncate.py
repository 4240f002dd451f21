"""Tests for L{rmqha.store.log.truncate}, and for the openings that finish a cut."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define
from twisted.logger import capturedLogs, formatEvent

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull, LogCorrupt
from rmqha.logfiles.listing import file_name
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log import truncate
from rmqha.store.log.truncate import (
    TruncationInvalid,
    finish,
    intend,
    pending,
    pending_cut,
    set_log_aside,
)
from rmqha.store.store import Store
from rmqha.wire.store_layout import OWN_FOLDER, TRUNCATION
from tests.support.derived import DerivedTestCase
from tests.support.effort import slow
from tests.support.logs import LogTestCase, content, files_of, message

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
CALLS = ("fsync", "fdatasync", "unlink", "rename", "replace", "pwrite", "link", "ftruncate")


class Killed(BaseException):
    """Nobody catches this to go on."""


@define
class Mortal:
    """Counts calls and dies at one; nothing works after that."""

    number: int
    count: int = 0

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.count += 1
            if self.count >= self.number:
                raise Killed
            return real(*args, **more)

        return call


class CutTestCase(LogTestCase, DerivedTestCase):
    """Tests with a store of several small files."""

    def made(self, count: int = 30) -> tuple[Path, list[int], bytes]:
        """A store that was stopped cleanly: its folder, where its records start, and its log."""
        root = self.folder() / "store"
        store = self.opened(root, settings=SIZES)
        starts = [store.put(message(500)).begin for _ in range(count)]
        data = content(store.log)
        self.close_store(store)
        return root, starts, data

    def cutting(self, at: int) -> Callable[[StoreSettings], None]:
        """What a slave does before it opens a store whose tail is not its master's."""

        def before(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            end = max(start + 500 for start in self.starts)
            intend(settings.root, folder, at, end)
            folder.close()

        return before

    def assert_sound(self, store: Store, data: bytes) -> None:
        """A store holds just these bytes of log, and queues and index follow from them."""
        self.assertEqual((store.state, content(store.log)), ("", data))
        self.assertEqual(files_of(store.settings.commitlog)[len(data) :].strip(b"\0"), b"")
        self.assertIsNone(pending(store.settings.root))
        self.successResultOf(store._flush_derived())
        self.assert_like_rebuild(store.log, store.settings.root, **SIZES)


class QuarantineTests(CutTestCase):
    def test_bytes_and_name(self) -> None:
        """The file holds just the bytes, over file ends, and tells where they were."""
        log = self.filled(3000, 3000, 3000)
        root = self.folder()
        path = truncate.quarantine(root, log.folder, 1000, log.end)
        self.assertEqual(path.read_bytes(), content(log, 1000))
        self.assertEqual(path.name, f"{1000:020d}-{log.end:020d}.log")
        again = truncate.quarantine(root, log.folder, 1000, log.end)
        self.assertEqual(again.name, f"{1000:020d}-{log.end:020d}.2.log")

    def test_no_room(self) -> None:
        """Without room nothing is cut, no half stays, and it is told how much is wanted."""
        log, root = self.filled(3000), self.folder()
        (root / OWN_FOLDER / "quarantine").mkdir(parents=True)

        def nothing(*args: Any) -> None:
            raise OSError(errno.ENOSPC, "full")

        # Nor is a byte copied where there is no room for all.
        for where, name in ((os, "fsync"), (builtins, "open"), (os, "posix_fallocate")):
            patched = self.patch(where, name, nothing)
            error = self.assertRaises(DiskFull, intend, root, log.folder, 1000, 3000)
            patched.restore()
            self.assertEqual(error.wanted, 2000)
            self.assertEqual(list((root / OWN_FOLDER / "quarantine").iterdir()), [])
            self.assertIsNone(pending(root))

    def test_no_room_for_its_folder(self) -> None:
        """Nor without room for the folder."""
        log, root = self.filled(3000), self.folder()

        def mkdir(path: Path, **how: Any) -> None:
            raise OSError(errno.ENOSPC, "full")

        self.patch(Path, "mkdir", mkdir)
        error = self.assertRaises(DiskFull, intend, root, log.folder, 1000, 3000)
        self.assertEqual(error.wanted, 2000)

    def test_aside(self) -> None:
        """One whole log is put aside, not two."""
        path = self.filled(3000, folder=self.folder() / "commitlog").folder.path
        data = files_of(path)
        self.assertEqual((files_of(set_log_aside(path)), path.exists()), (data, False))
        path.mkdir()
        self.assertRaises(FileExistsError, set_log_aside, path)


class IntentTests(CutTestCase):
    def test_steps(self) -> None:
        """The tail is kept before the cut is certain."""
        log, root, steps = self.filled(3000), self.folder(), []
        intent = intend(root, log.folder, 1000, 3000, steps.append)
        self.assertEqual((steps, pending(root)), (["quarantined", "intended"], intent))
        self.assertEqual((intent.at, intent.end), (1000, 3000))
        self.assertTrue((root / intent.quarantine).is_file())
        truncate.finish(root, steps.append)
        self.assertEqual((pending(root), steps[2:]), (None, ["done"]))
        truncate.finish(self.folder(), steps.append)

    def test_older_one_never_comes_back(self) -> None:
        """Wherever a finish is killed, the intent before this one is not taken for it."""
        log = self.filled(3000)
        for killed_at in range(6):
            root = self.folder()
            intend(root, log.folder, 500, 3000)
            newer = intend(root, log.folder, 1000, 3000)
            self.assertTrue((root / OWN_FOLDER / (TRUNCATION + ".bak")).exists())
            mortal = Mortal(killed_at + 1)
            patched = self.patch(os, "unlink", mortal.wrap(os.unlink))
            try:
                truncate.finish(root)
            except Killed:
                pass
            patched.restore()
            self.assertIn(pending(root), (newer, None))


class BelievedTests(CutTestCase):
    """An intent is obeyed only when it speaks of this log."""

    def decided(self) -> tuple[Path, int, bytes]:
        """A store whose log is to be cut at its eleventh record."""
        root, starts, data = self.made()
        folder = LogFolder.load(root / "commitlog", 4096)
        intend(root, folder, starts[10], len(data))
        folder.close()
        return root, starts[10], data

    def assert_not_believed(self, root: Path, data: bytes, reason: str) -> None:
        """A master refuses and touches nothing; a slave, and C{--repair}, keep the log as it is."""
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        refused = self.service(root, settings=SIZES)
        refused.startService()
        error = self.failureResultOf(refused.ready, TruncationInvalid).value
        self.assertEqual(error.path, str(root / "rmqha" / "truncate.json"))
        self.assertIn(reason, str(error))
        after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.assertEqual(before, after)
        for how in ({"master": False, "repair": True}, {"repair": True}):
            copy = self.folder() / "store"
            shutil.copytree(root, copy)
            with capturedLogs() as told:
                store = self.opened(copy, settings=SIZES, **how)
            self.assert_sound(store, data)
            lines = [event for event in told if event["log_level"].name == "critical"]
            self.assertIn("ignored, and kept as", formatEvent(lines[0]))
            self.assertTrue((copy / "rmqha" / "truncate.json.ignored").exists())
            self.close_store(store)

    def test_flipped_digit(self) -> None:
        """Another offset than was decided has another checksum."""
        root, at, data = self.decided()
        path = root / "rmqha" / "truncate.json"
        text = path.read_text()
        path.write_text(text.replace(str(at), str(at - 500)))
        self.assert_not_believed(root, data, "its checksum is")

    def test_not_a_table(self) -> None:
        """Nor is a file believed that is none of ours."""
        root, _, data = self.decided()
        for text in ("garbage", "[1]", '{"at": 500, "end": 900, "quarantine": "x"}'):
            (root / "rmqha" / "truncate.json").write_text(text)
            self.assert_not_believed(root, data, "truncate.json")

    def test_restored(self) -> None:
        """An intent carried out, back with a backup, cuts nothing written since."""
        root, at, data = self.decided()
        kept = (root / "rmqha" / "truncate.json").read_bytes()
        store = self.opened(root, settings=SIZES)
        self.assertEqual(store.log.end, at)
        for _ in range(20):
            store.put(message(400))
        grown = content(store.log)
        self.close_store(store)
        (root / "rmqha" / "truncate.json").write_bytes(kept)
        other = next(i for i in range(at, len(data)) if grown[i] not in (0, data[i]))
        self.assert_not_believed(root, grown, f"byte {other} was written after it")
        self.assertGreater(len(data), at)

    def test_longer(self) -> None:
        """Nor does it cut a log that has what it was to cut, and more."""
        root, starts, data = self.made()
        folder = LogFolder.load(root / "commitlog", 4096)
        intend(root, folder, starts[10], starts[20])
        folder.close()
        self.assert_not_believed(root, data, f"the log goes on to byte {len(data)}")

    def test_another_log(self) -> None:
        """Nor one whose bytes before the cut are others."""
        root, at, data = self.decided()
        file = root / "commitlog" / file_name(at - at % 4096)
        raw = bytearray(file.read_bytes())
        raw[at % 4096 - 1] ^= 1
        file.write_bytes(raw)
        folder = LogFolder.load(root / "commitlog", 4096)
        self.addCleanup(folder.close)
        error = self.assertRaises(TruncationInvalid, pending_cut, root, folder)
        self.assertIn(f"the bytes before byte {at}", str(error))
        self.assertGreater(len(data), at)

    def test_shorter(self) -> None:
        """Nor one that ends before the cut."""
        root, at, _ = self.decided()
        for path in (root / "commitlog").iterdir():
            path.unlink()
        folder = LogFolder.load(root / "commitlog", 4096)
        error = self.assertRaises(TruncationInvalid, pending_cut, root, folder)
        self.assertIn(f"it cuts at byte {at}, the log's files hold [0, 0)", str(error))

    def test_without_its_copy(self) -> None:
        """What has no copy in quarantine is not cut."""
        for change, reason in (
            (lambda path: path.unlink(), "is missing"),
            (lambda path: path.write_bytes(b"short"), "has 5 bytes"),
            (lambda path: path.write_bytes(b""), "has 0 bytes"),
        ):
            root, at, data = self.decided()
            (kept,) = (root / "rmqha" / "quarantine").iterdir()
            change(kept)
            said = f"it cuts {len(data) - at} bytes, and their copy {kept} {reason}"
            self.assert_not_believed(root, data, said)

    def test_half_done(self) -> None:
        """However much of the cut is zero already, it is believed, and ends."""
        root, at, data = self.decided()
        file = root / "commitlog" / file_name(at - at % 4096)
        raw = bytearray(file.read_bytes())
        raw[at % 4096 + 100 : at % 4096 + 1200] = bytes(1100)
        file.write_bytes(raw)
        self.assert_sound(self.opened(root, settings=SIZES), data[:at])
        finish(root)

    def test_intent_behind_the_end(self) -> None:
        """An intent that is done already, or speaks of more than there is, cuts nothing."""
        root, self.starts, data = self.made()
        folder = LogFolder.load(root / "commitlog", 4096)
        intend(root, folder, len(data), len(data))
        folder.close()
        self.assert_sound(self.opened(root, settings=SIZES), data)

    def test_from_the_first_byte(self) -> None:
        """A log of which no byte is the master's is cut to nothing."""
        root, _, data = self.made()
        folder = LogFolder.load(root / "commitlog", 4096)
        intend(root, folder, 0, len(data))
        folder.close()
        self.assert_sound(self.opened(root, settings=SIZES, master=False), b"")

    def test_last_file_is_gone(self) -> None:
        """A cut at a file's first byte is believed of a log that has lost that file by now."""
        log, root = self.filled(3000, 3000, 3000), self.folder()
        intent = intend(root, log.folder, 4096, log.end)
        log.folder.drop_behind(4095)
        self.assertEqual(pending_cut(root, log.folder), intent)


@slow
class KilledTests(CutTestCase):
    """A crash at every step, and at every call that changes the disk."""

    def killed_at(self, number: int, root: Path, **how: Any) -> bool:
        """Open a store and die at one call; whether it died; if not, all was done before."""
        mortal = Mortal(number)
        patches = [self.patch(os, name, mortal.wrap(getattr(os, name))) for name in CALLS]
        service = self.service(root, settings=SIZES, **how)
        try:
            service.startService()
            result: list[Any] = []
            service.ready.addBoth(result.append)
        except Killed:
            result = [Killed]
        finally:
            for patched in patches:
                patched.restore()
        service._lock.release()
        if isinstance(result[0], Store):
            self.successResultOf(service.stopService())
            return False
        self.flushLoggedErrors()
        return True

    def test_repair_of_a_slave(self) -> None:
        """However far it came, the next start ends or begins the cut; the tail stays away."""
        root, self.starts, data = self.made()
        at = self.starts[10]
        number, done = 0, False
        while not done:
            number += 1
            copy = self.folder() / "store"
            shutil.copytree(root, copy)
            done = not self.killed_at(number, copy, master=False, before=self.cutting(at))
            decided = done or pending(copy) is not None
            store = self.opened(copy, settings=SIZES, master=False)
            cut = store.log.end == at
            self.assertTrue(cut or not decided, number)
            self.assert_sound(store, data[:at] if cut else data)
            if cut:
                kept = [p.read_bytes() for p in (copy / "rmqha/quarantine").iterdir()]
                self.assertIn(data[at:], kept)
                self.assertEqual(store.put(message(500)).begin, at)
                crashed = self.opened(self.crash(store), settings=SIZES, master=False)
                self.assertEqual(crashed.log.end, at + 500)
            self.close_store(store)
        self.assertGreater(number, 20)

    def test_each_named_step(self) -> None:
        """The steps that are told of come in this order, and dying in any is made good."""
        root, self.starts, data = self.made()
        at, steps = self.starts[17], []
        store = self.opened(
            self.copy(root),
            settings=SIZES,
            master=False,
            before=self.cutting(at),
            step=steps.append,
        )
        self.assert_sound(store, data[:at])
        self.assertEqual(steps, ["cut", "derived", "done"])
        for wanted in steps:
            copy = self.copy(root)

            def step(name: str, wanted: str = wanted) -> None:
                if name == wanted:
                    raise Killed

            dying = self.service(
                copy, settings=SIZES, master=False, before=self.cutting(at), step=step
            )
            dying.startService()
            self.failureResultOf(dying.ready, Killed)
            self.assert_sound(self.opened(copy, settings=SIZES, master=False), data[:at])

    def copy(self, root: Path) -> Path:
        copy = self.folder() / "store"
        shutil.copytree(root, copy)
        return copy

    def test_power_cut_in_a_cut(self) -> None:
        """A log without later files, or with its tail not zeroed, is cut to the same bytes."""
        root, self.starts, data = self.made()
        at = self.starts[10]
        for change in (self.without_later_files, self.without_tail):
            copy = self.copy(root)
            folder = LogFolder.load(copy / "commitlog", 4096)
            intend(copy, folder, at, len(data))
            folder.close()
            change(copy / "commitlog", at)
            self.assert_sound(self.opened(copy, settings=SIZES, master=False), data[:at])

    def without_later_files(self, path: Path, at: int) -> None:
        """Only the files behind the cut are gone."""
        for file in sorted(path.iterdir()):
            if int(file.name) > at:
                file.unlink()

    def without_tail(self, path: Path, at: int) -> None:
        """Only the rest of the file is zero."""
        with open(path / file_name(at - at % 4096), "rb+") as file:
            file.seek(at % 4096)
            file.write(bytes(4096 - at % 4096))


class DamageTests(CutTestCase):
    """A log with a hole in it."""

    def damaged(self) -> tuple[Path, int, bytes]:
        """A store with one flipped bit in its third file from the end."""
        root, starts, data = self.made()
        at = starts[-10]
        with open(root / "commitlog" / file_name(at - at % 4096), "rb+") as file:
            file.seek(at % 4096 + 200)
            byte = file.read(1)[0]
            file.seek(at % 4096 + 200)
            file.write(bytes([byte ^ 1]))
        return root, at, data

    def test_master_refuses(self) -> None:
        """A master does not start, and touches nothing."""
        root, at, _ = self.damaged()
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for _ in range(2):
            service = self.service(root, settings=SIZES)
            service.startService()
            error = self.failureResultOf(service.ready, LogCorrupt).value
            self.assertEqual((error.offset, error.reason), (at, "body crc"))
            self.assertEqual(service.state, "failed")
            self.assertIn("damage, not a torn tail", service.reason)
            self.successResultOf(service.stopService())
        after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.assertEqual(before, after)

    def test_repair(self) -> None:
        """With C{--repair}, and on a slave, what follows is kept aside and cut."""
        for how in ({"master": True, "repair": True}, {"master": False, "repair": True}):
            root, at, data = self.damaged()
            steps: list[str] = []
            store = self.opened(root, settings=SIZES, step=steps.append, **how)
            self.assertEqual(steps, ["quarantined", "intended", "cut", "derived", "done"])
            self.assert_sound(store, data[:at])
            (kept,) = (root / "rmqha" / "quarantine").iterdir()
            self.assertEqual(len(kept.read_bytes()), len(data) - at)
            self.assertEqual(kept.read_bytes()[201:], data[at + 201 :])
            self.assert_sound(self.reopened(store, settings=SIZES, **how), data[:at])

    def test_repair_killed(self) -> None:
        """A repair that dies is decided once its intent is there."""
        root, at, data = self.damaged()
        for wanted in ("quarantined", "intended", "cut", "derived", "done"):
            copy = self.folder() / "store"
            shutil.copytree(root, copy)

            def step(name: str, wanted: str = wanted) -> None:
                if name == wanted:
                    raise Killed

            dying = self.service(copy, settings=SIZES, repair=True, step=step)
            dying.startService()
            self.failureResultOf(dying.ready, Killed)
            if wanted == "quarantined":
                refused = self.service(copy, settings=SIZES)
                refused.startService()
                self.failureResultOf(refused.ready, LogCorrupt)
            else:
                self.assert_sound(self.opened(copy, settings=SIZES), data[:at])
