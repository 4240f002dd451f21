"""A start that finds a file which is there, and which the system does not let it read: the disk
fails, a descriptor is missing, a permission is.

What is in such a file is not known.  So it is neither taken for damaged, where the generation
before it would do, nor for missing: the start fails, and leaves all as it is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import succeed
from twisted.internet.task import Clock

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.errors import FileUnreadable
from rmqha.ha.epoch import Epoch
from rmqha.ha.known_replicas import KnownReplicas
from rmqha.ha.master.slots import RetentionSlots
from rmqha.ha.master_epoch import EpochJournal
from rmqha.ha.slave.followed import FollowedMaster
from rmqha.logfiles.published import read_copied_damage, read_deleted_topics
from rmqha.store import lost_tail
from rmqha.store.log import range_repair, truncate
from rmqha.store.tables import epoch_file
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.growth_file import Growth
from rmqha.store.tables.held_file import Held
from rmqha.switchover.journal import SwitchoverJournal
from tests.support.logs import LogTestCase, now
from tests.support.unreadable import make_unreadable

Read = Callable[[Path], object]


def offsets(root: Path) -> ConsumerOffsetTable:
    """The consumer offsets of a broker that starts."""
    table = ConsumerOffsetTable(CheckedTables(root), Clock(), now)
    table.load()
    return table


def slots(root: Path) -> None:
    """The retention slots of a master that starts."""
    made: Any = RetentionSlots(
        clock=Clock(), wall=lambda: 0.0, grace=1.0, most_bytes=1, save=lambda table: succeed(None)
    )
    made.read(root / "rmqha" / "slots.json")


class UnreadableFileTests(LogTestCase):
    """Each file by which a start decides."""

    def setUp(self) -> None:
        self.root = self.folder()
        self.records = self.log()

    def readers(self) -> dict[str, Read]:
        """Who reads which file at a start."""
        log = self.records
        return {
            "config/topics.json": lambda root: CheckedTables(root).load(
                root / "config" / "topics.json"
            ),
            "config/consumerOffset.json": offsets,
            "rmqha/tables.json": CheckedTables,
            "rmqha/offsets/00000000000000000007.journal": offsets,
            "epochFileCheckpoint": lambda root: epoch_file.read(root / "epochFileCheckpoint"),
            "rmqha/epochs.json": EpochJournal.read,
            "rmqha/epoch.json": lambda root: Epoch.begin(root, log),
            "rmqha/truncate.json": truncate.pending,
            "rmqha/repair.json": lambda root: range_repair.pending_repair(root, root / "commitlog"),
            "rmqha/dispatched.json": lambda root: lost_tail.find(root, 0),
            "rmqha/lost-tail.json": lambda root: lost_tail.find(root, 0),
            "rmqha/slots.json": slots,
            "rmqha/replicas.json": lambda root: KnownReplicas.load(root, now),
            "rmqha/followed.json": FollowedMaster.read,
            "rmqha/held.json": Held.read,
            "rmqha/growth.json": Growth.read,
            "rmqha/deleted.json": lambda root: read_deleted_topics(root, log, 0),
            "rmqha/copied-damage.json": read_copied_damage,
            "switchover.json": lambda root: SwitchoverJournal(root / "switchover.json").read(),
        }

    def content(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    def write(self, *names: str) -> None:
        """Make files with nothing of use in them."""
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")

    def assert_refused(self, name: str, read: Read, number: int) -> None:
        """Reading ends with an error that has all there is to say, and changes nothing."""
        before = self.content()
        patched = make_unreadable(self, self.root / name, number)
        error = self.assertRaises(FileUnreadable, read, self.root)
        self.assertEqual((error.path, error.errno), (str(self.root / name), number), name)
        self.assertIn(f"{self.root / name}: ", str(error))
        self.assertIn(errno.errorcode[number], str(error))
        patched.restore()
        self.assertEqual(before, self.content())

    def test_own_file(self) -> None:
        """Its C{.bak} is no reason to go on."""
        for name, read in self.readers().items():
            self.write(name, f"{name}.bak")
            for number in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.EACCES):
                self.assert_refused(name, read, number)
            (self.root / name).unlink()

    def test_backup(self) -> None:
        """Where the file is gone or damaged, and so its C{.bak}, nothing is known either."""
        without = ("rmqha/tables.json", "rmqha/offsets/", "rmqha/growth.json")
        for name, read in self.readers().items():
            if name.startswith(without):
                continue
            self.write(f"{name}.bak")
            self.assert_refused(f"{name}.bak", read, errno.EIO)
            (self.root / name).write_bytes(b"[")
            self.assert_refused(f"{name}.bak", read, errno.EIO)
            (self.root / name).unlink()
            (self.root / f"{name}.bak").unlink()

    def test_folder_of_the_journal(self) -> None:
        """A journal of offsets whose files cannot be listed is not one without files."""
        self.write("rmqha/offsets/00000000000000000007.journal")
        self.assert_refused("rmqha/offsets", offsets, errno.EIO)
