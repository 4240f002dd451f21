"""Small JSON files: what each may hold, and that nothing else is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.archive.manifest import ArchiveManifest
from rmqha.controller.etcd.etcd_membership import read_entry
from rmqha.controller.identity import IdentityInvalid
from rmqha.errors import TableUnreadable
from rmqha.ha import known_replicas
from rmqha.ha.known_replicas import KnownReplicas
from rmqha.ha.master.slots import RetentionSlots
from rmqha.ha.master_epoch import EpochJournal, path_of
from rmqha.ha.promotion import replaced
from rmqha.ha.slave import followed
from rmqha.ha.slave.followed import FollowedMaster
from rmqha.logfiles import json_table
from rmqha.logfiles.log_writer import read_epoch
from rmqha.logfiles.published import read_copied_damage
from rmqha.store.derived import dispatch_mark
from rmqha.store.scrub import scrub_mark
from rmqha.store.tables.growth_file import Growth
from rmqha.store.tables.held_file import Held
from rmqha.switchover.journal import Phase, SwitchoverJournal, UnderWay
from rmqha.wire.store_layout import (
    ARCHIVE,
    COPIED_DAMAGE,
    EPOCH,
    GROWTH,
    HELD,
    MASTER_EPOCHS,
    OWN_FOLDER,
    PROMOTION,
    REGISTERED,
    REPLICAS,
)

Row = dict[str, Any]


@frozen(kw_only=True)
class SmallFile:
    """A file of a store, what reads it, and what a whole one holds.

    @ivar ignored: What is read where it makes no sense, of a file that may be lost.
    @ivar strict: Whether a key that is not known is refused.
    """

    row: Row
    name: str
    read: Callable[[Path], object]
    ignored: object = None
    strict: bool = True


@contextmanager
def folder() -> Iterator[Path]:
    """A store's root."""
    with TemporaryDirectory() as name:
        yield Path(name)


def journal(root: Path) -> SwitchoverJournal:
    """That of a store's."""
    return SwitchoverJournal(root / "switchover.json")


def slots(root: Path) -> json_table.Table:
    """Whom a master keeps files for."""
    found = RetentionSlots(clock=Clock())
    found.read(root / "slots.json")
    return found.table()


def promotion(root: Path) -> object:
    """Which master a store is to replace: its start as a master refuses what this does."""
    return replaced(root) or None


FILES = (
    SmallFile(
        row={
            "master": "127.0.0.1:10911",
            "slave": "127.0.0.1:10921",
            "phase": 3,
            "permission": 6,
            "closed": 1_700_000_000_000,
            "epoch": 4,
            "refuses": True,
            "end": 4096,
            "offsets": {"Orders@Readers": {0: 5}},
        },
        name="switchover.json",
        read=lambda root: journal(root).read(),
    ),
    SmallFile(
        row={
            "address": "127.0.0.1:10912",
            "client": "127.0.0.1:10911",
            "epoch": 4,
            "boot": 1_700_000_000_000,
            "held": 4096,
            "following": True,
        },
        name=f"{OWN_FOLDER}/{followed.FOLLOWED}",
        read=FollowedMaster.read,
    ),
    SmallFile(
        row={"id": 2, "epoch": 4, "offset": 4096}, name=f"{OWN_FOLDER}/{HELD}", read=Held.read
    ),
    SmallFile(
        row={"replicas": {"127.0.0.1": [10912, 0]}},
        name=f"{OWN_FOLDER}/{REPLICAS}",
        read=known_replicas.read,
    ),
    SmallFile(
        row={
            "position": 4096,
            "crc": 7,
            "running": {"began": 1, "start": 0, "stop": 4096, "ended": 0},
            "last": None,
            "faults": [{"offset": 5, "end": 9, "path": "0", "reason": "crc", "found": 1}],
        },
        name="scrub.json",
        read=lambda root: scrub_mark.read(root / "scrub.json"),
    ),
    SmallFile(
        row={"offset": 4096, "crc": 7, "durable": 4096, "entries": 3, "queues": [["Orders", 0, 3]]},
        name="dispatched.json",
        read=lambda root: dispatch_mark.read(root / "dispatched.json"),
    ),
    SmallFile(
        row={
            "version": 1,
            "from": "127.0.0.1:10912",
            "brokerName": "broker-a",
            "identity": {"broker": "broker-a", "cluster": "c", "first": 0, "sum": "5a"},
            "fileSize": 4096,
            "firstOffset": 0,
            "lastOffset": 4096,
            "begun": 1,
            "updated": 2,
        },
        name=f"{OWN_FOLDER}/{ARCHIVE}",
        read=ArchiveManifest.read,
        strict=False,
    ),
    SmallFile(
        row={"token": "5a", "run": 3},
        name=f"{OWN_FOLDER}/{REGISTERED}",
        read=read_entry,
        strict=False,
    ),
    SmallFile(
        row={
            "number": 4,
            "starts": [{"epoch": 4, "start": 0, "writer": 2, "label": 5}],
            "higher": {"epoch": 5, "address": "127.0.0.1:10911", "toldBy": "a slave"},
            "reset": 2,
        },
        name=f"{OWN_FOLDER}/{MASTER_EPOCHS}",
        read=lambda root: EpochJournal.read(root) if path_of(root).exists() else None,
        strict=False,
    ),
    SmallFile(
        row={"masterEpoch": 4, "setEpoch": 5, "sets": [[1, 2]]},
        name=f"{OWN_FOLDER}/{GROWTH}",
        read=lambda root: Growth.read(root) if (root / OWN_FOLDER / GROWTH).exists() else None,
        strict=False,
    ),
    SmallFile(
        row={"epoch": 4, "master": "127.0.0.1:10911"},
        name=f"{OWN_FOLDER}/{PROMOTION}",
        read=promotion,
    ),
    SmallFile(
        row={
            "id": "5a",
            "master": True,
            "start": 0,
            "closed": True,
            "end": 4096,
            "crc": 7,
            "marks": {"127.0.0.1": 4096},
        },
        name=f"{OWN_FOLDER}/{EPOCH}",
        read=read_epoch,
    ),
    SmallFile(
        row={"slots": [{"address": "127.0.0.1", "offset": 5, "sent": 9, "since": 1000}]},
        name="slots.json",
        read=slots,
        ignored={"slots": []},
        strict=False,
    ),
    SmallFile(
        row={"records": [{"offset": 0, "size": 91, "crc": 5, "reason": "crc", "master": "a:1"}]},
        name=f"{OWN_FOLDER}/{COPIED_DAMAGE}",
        read=lambda root: [*read_copied_damage(root)],
        ignored=[],
        strict=False,
    ),
)

WRONG: tuple[Any, ...] = ("six", "6", -1, 1.0, 2**63, [1], {"a": 1}, [[1]])
"""Values that no key of these files has; texts and lists where there are some are left out."""


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value in a table, but to the table."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (key,)
        if isinstance(item, (dict, list)):
            yield from ((key, *rest) for rest in places(item))


def value_at(row: Row, place: tuple[Any, ...]) -> Any:
    """What stands at a place."""
    inner: Any = row
    for key in place:
        inner = inner[key]
    return inner


def with_value(row: Row, place: tuple[Any, ...], value: Any) -> Row:
    """A table with another value at a place."""
    found = deepcopy(row)
    value_at(found, place[:-1])[place[-1]] = value
    return found


def wrong_values(row: Row, place: tuple[Any, ...]) -> list[Any]:
    """What cannot stand at a place, of L{WRONG} and C{True}."""
    right = value_at(row, place)
    wrong = [value for value in WRONG if type(value) is not type(right) or right != value]
    if place[0] == "offsets":
        # A broker may have said any number.
        wrong.remove(-1)
    if place in (("replicas", "127.0.0.1"), ("sets", 0)):
        # A replica's one port; a set of one.
        wrong.remove([1])
    if place == ("sets",):
        wrong.remove([[1]])
    if place == ("marks",):
        wrong.remove({"a": 1})
    if place[-1] in ("first", "writer"):
        # Where nobody told.
        wrong.remove(-1)
    if place[-1] == "first":
        wrong.remove(2**63)
    if isinstance(right, str):
        wrong = [value for value in wrong if not isinstance(value, str)]
    return wrong if isinstance(right, bool) else [*wrong, True]


def write(root: Path, file: SmallFile, row: Row) -> None:
    """Put a file there."""
    path = root / file.name
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(row).replace('"0":', "0:")
    path.write_text(text, encoding="utf-8")


class TypedTableTests(SynchronousTestCase):
    """Files that a node, a tool or a stranger has left."""

    def test_whole(self) -> None:
        """Each is read as it stands."""
        for file in FILES:
            with folder() as root:
                write(root, file, file.row)
                self.assertIsNotNone(file.read(root), file.name)

    def test_none(self) -> None:
        """Without a file there is nothing."""
        for file in FILES:
            with folder() as root:
                self.assertEqual(file.ignored, file.read(root), file.name)

    def test_wrong_value(self) -> None:
        """A value of another type is refused by file and key, wherever it is."""
        for file in FILES:
            for place in places(file.row):
                for wrong in wrong_values(file.row, place):
                    with folder() as root:
                        write(root, file, with_value(file.row, place, wrong))
                        if file.ignored is not None:
                            self.assertEqual(file.ignored, file.read(root), (place, wrong))
                            continue
                        refused = (TableUnreadable, IdentityInvalid)
                        try:
                            self.fail(f"{file.name}, {place}: {wrong} is {file.read(root)}")
                        except refused as refusal:
                            error = refusal
                    self.assertIn(file.name, str(error))
                    self.assertIn(str(place[0]), str(error))

    @given(st.sampled_from(FILES), st.text(min_size=1, max_size=5))
    def test_strange_key(self, file: SmallFile, key: str) -> None:
        """A key that nobody knows may change what the others mean."""
        if key in file.row or not file.strict:
            return
        with folder() as root:
            write(root, file, {**file.row, key: 1})
            self.assertRaises(TableUnreadable, file.read, root)


class ReaderTests(SynchronousTestCase):
    def test_switchover(self) -> None:
        """S-G: a permission in words is none to give back to a broker."""
        with folder() as root:
            write(root, FILES[0], {**FILES[0].row, "permission": "six"})
            error = self.assertRaises(TableUnreadable, journal(root).read)
        self.assertIn("permission is 'six'", str(error))

    def test_switchover_kept(self) -> None:
        """What is written is what is read."""
        under_way = UnderWay(
            master="a:1",
            slave="b:2",
            phase=Phase.PROMOTING,
            permission=6,
            closed=1,
            epoch=0,
            offsets={"Orders@Readers": {0: 5}},
        )
        with folder() as root:
            journal(root).write(under_way)
            self.assertEqual(under_way, journal(root).read())

    def test_replicas(self) -> None:
        """S-G: a port that no replica listens on is not asked for a lost tail."""
        with folder() as root:
            write(root, FILES[3], {"replicas": {"127.0.0.1": [99_999_999]}})
            known = KnownReplicas.load(root, lambda *_: self.fail("nothing is written"))
        self.assertEqual({}, known.ports)
