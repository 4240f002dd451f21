"""C{rmqha doctor}: where what a client was told of is now."""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

from lab.bench.corpus import write_log
from rmqha.archive.manifest import ArchiveManifest
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.range_repair import fetched_path
from rmqha.store.log.recovery import cut
from rmqha.store.log.truncate import aside_of, quarantine
from rmqha.wire.log.encode import encode, place
from rmqha.wire.log.record import Record, decode
from rmqha.wire.names import UNIQUE_KEY
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.commands import rmqha
from tests.support.logs import message

SIZE = 1 << 16
BODY = 500


def log_records(path: Path) -> list[Record]:
    """What a log has."""
    raw, found = RawLog.open(path), []
    for event in follow(raw, raw.min_offset):
        if not isinstance(event, Corruption):
            view, block = event
            found += [decode(view, at - block.base, at) for at in block.start.tolist()]
    return found


def row_of(record: Record) -> dict[str, Any]:
    """What a client knows of a message."""
    return {
        "physicalOffset": record.offset,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": record.properties[UNIQUE_KEY],
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
    }


class DoctorTestCase(CommandTestCase):
    """Two stores with one log, and a ledger of all that is in it."""

    def setUp(self) -> None:
        self.place = Path(self.mktemp()).absolute()
        self.ours, self.other = self.place / "ours", self.place / "other"
        write_log(self.ours / "commitlog", 3 * SIZE, file_size=SIZE, bodies=(BODY,))
        shutil.copytree(self.ours, self.other)
        self.records = log_records(self.ours)
        self.assertGreater(len(self.records), 200)
        self.ledger = self.place / "ledger.jsonl"
        self.write([row_of(record) for record in self.records])

    def write(self, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.ledger.write_text(text, encoding="utf-8")

    def doctor(self, *stores: Path, code: int = 0) -> str:
        """What is said of stores: of both, if none is named."""
        stores = stores or (self.ours, self.other)
        result = self.run_command("doctor", "--ledger", self.ledger, *stores)
        self.assertEqual(result.exit_code, code, result.output)
        self.errors = result.stderr
        return result.stdout

    def said_of(self, record: Record, said: str) -> list[str]:
        """The lines about one message, which is missing somewhere."""
        lines = said.splitlines()
        (at,) = (n for n, line in enumerate(lines) if f"id {record.properties[UNIQUE_KEY]}" in line)
        self.assertTrue(lines[at].startswith("missing: "), lines[at])
        found = []
        for line in lines[at + 1 :]:
            if not line.startswith("  "):
                break
            found.append(line.strip())
        return found

    def cut(self, root: Path, at: int, *, keep: bool = True) -> Path:
        """Cut a log, keep what is cut as a slave does, and return where it is kept."""
        folder = LogFolder.load(root / "commitlog", SIZE)
        kept = root
        if keep:
            last = self.records[-1]
            kept = quarantine(root, folder, at, last.offset + last.size)
        cut(folder, at)
        folder.close()
        return kept


class DoctorTests(DoctorTestCase):
    """What is there, and where the rest is."""

    def test_all_there(self) -> None:
        """Where each store has each message at its byte, that is said, and nothing else."""
        count = len(self.records)
        said = self.doctor().splitlines()
        self.assertEqual(
            said,
            [
                f"{self.ours}: has {count} of {count} messages (store)",
                f"{self.other}: has {count} of {count} messages (store)",
                f"all {count} messages are in every store",
            ],
        )
        self.assertEqual(self.errors, "")

    def test_quarantine(self) -> None:
        """What was cut off is found in quarantine, and in the other store."""
        first = self.records[-5]
        kept = self.cut(self.ours, first.offset)
        said = self.doctor(code=1)
        lost, count = self.records[-5:], len(self.records)
        self.assertEqual(said.count("missing: "), 5)
        for record in lost:
            self.assertEqual(
                self.said_of(record, said),
                [
                    f"not in {self.ours}: nothing written",
                    f"log: {self.other / 'commitlog'}, at its byte",
                    f"quarantine: {kept}, at its byte",
                ],
            )
        self.assertIn(f"{self.ours}: has {count - 5} of {count} messages (store)\n", said)
        self.assertIn("5 messages are missing from a store; each of them was found elsewhere", said)

    def test_nowhere(self) -> None:
        """What is nowhere is said to be."""
        for root in (self.ours, self.other):
            self.cut(root, self.records[-2].offset, keep=False)
        said = self.doctor(code=1)
        self.assertEqual(
            self.said_of(self.records[-1], said),
            [
                f"not in {self.ours}: nothing written",
                f"not in {self.other}: nothing written",
                "found nowhere",
            ],
        )
        self.assertIn("2 messages are missing from a store; 2 of them were found nowhere", said)

    def test_aside(self) -> None:
        """A log that was put aside for a new copy is looked in."""
        aside = aside_of(self.ours / "commitlog")
        (self.ours / "commitlog").rename(aside)
        (self.ours / "commitlog").mkdir()
        said = self.doctor(self.ours, code=1)
        self.assertIn(f"has 0 of {len(self.records)} messages", said)
        self.assertEqual(
            self.said_of(self.records[7], said),
            [
                f"not in {self.ours}: no file that can be read holds this byte",
                f"aside: {aside}, at its byte",
            ],
        )

    def test_fetched(self) -> None:
        """So are a replica's bytes that a repair has not written yet."""
        record = self.records[3]
        path = fetched_path(self.ours, record.offset, record.offset + record.size)
        raw = RawLog.open(self.ours)
        path.write_bytes(raw.read(record.offset, record.size))
        damage.flip(self.ours / "commitlog" / f"{0:020d}", record.offset + 100)
        said = self.doctor(self.ours, code=1)
        self.assertEqual(
            self.said_of(record, said),
            [f"not in {self.ours}: body crc", f"fetched: {path}, at its byte"],
        )

    def test_another_there(self) -> None:
        """Another message at the byte is told from the acknowledged one, found where it is."""
        second = self.place / "second"
        write_log(second / "commitlog", 3 * SIZE, file_size=SIZE, bodies=(BODY + 1,))
        moved = {r.properties[UNIQUE_KEY]: r for r in log_records(second)}
        self.write([row_of(self.records[0]), row_of(self.records[1])])
        said = self.doctor(self.ours, second, code=1)
        self.assertEqual(
            self.said_of(self.records[0], said)[0], f"not in {second}: its body is another"
        )
        there = moved[self.records[1].properties[UNIQUE_KEY]]
        lines = self.said_of(self.records[1], said)
        self.assertIn(f"not in {second}: ", lines[0])
        where = f"{there.topic}/{there.queue_id}@{there.queue_offset}"
        self.assertIn(
            f"log: {second / 'commitlog'}, at byte {there.offset}, {where}: its body is another",
            lines,
        )

    def test_damaged_elsewhere(self) -> None:
        """Bytes that nothing can be told of are named, as a message may be in them."""
        damage.flip(self.ours / "commitlog" / f"{0:020d}", self.records[3].offset + 100)
        self.write([row_of(self.records[3])])
        self.doctor(code=1)
        self.assertIn(f"at {self.records[3].offset}: body crc", self.errors)

    def test_removed_by_age(self) -> None:
        """What lies before the first byte of a log is told to be before it."""
        (self.ours / "commitlog" / f"{0:020d}").unlink()
        said = self.doctor(code=1)
        self.assertEqual(
            self.said_of(self.records[0], said),
            [
                f"not in {self.ours}: the log begins at byte {SIZE}",
                f"log: {self.other / 'commitlog'}, at its byte",
            ],
        )

    def test_archive(self) -> None:
        """An archive is told to be one."""
        (self.other / "rmqha").mkdir()
        ArchiveManifest(source="h:1", file_size=SIZE, start=0, end=0, begun=1, updated=1).write(
            self.other
        )
        self.cut(self.ours, self.records[-1].offset, keep=False)
        said = self.doctor(code=1)
        self.assertIn("messages (archive)\n", said)
        self.assertEqual(
            self.said_of(self.records[-1], said)[1],
            f"archive: {self.other / 'commitlog'}, at its byte",
        )

    def test_quarantine_file(self) -> None:
        """A quarantine file of another machine is only looked in; it is no store."""
        kept = self.cut(self.ours, self.records[-1].offset)
        away = self.place / kept.name
        kept.rename(away)
        said = self.doctor(self.ours, away, code=1)
        self.assertEqual(said.count(" has "), 1)
        self.assertEqual(
            self.said_of(self.records[-1], said)[1], f"quarantine: {away}, at its byte"
        )
        self.assertIn("quarantine", self.fails(2, "doctor", "--ledger", self.ledger, away))

    def test_named_otherwise(self) -> None:
        """What lies in quarantine and is no quarantine file is named, as it was not looked in."""
        kept = self.cut(self.ours, self.records[-1].offset)
        strange = kept.with_name("copy.log")
        kept.rename(strange)
        self.assertNotIn("quarantine: ", self.doctor(code=1))
        self.assertIn(f"{strange} at 0: not named like a quarantine file", self.errors)

    def test_short_quarantine(self) -> None:
        """A quarantine file that lacks bytes is named."""
        kept = self.cut(self.ours, self.records[-2].offset)
        kept.write_bytes(kept.read_bytes()[:-100])
        self.doctor(code=1)
        self.assertIn("its name says", self.errors)

    def test_unreadable_file(self) -> None:
        """A log file that cannot be read is an error, also if no message is missing."""
        path = self.ours / "commitlog" / f"{2 * SIZE:020d}"
        damage.deny(self, path)
        self.write([row_of(self.records[0])])
        self.doctor(code=1)
        self.assertIn(f"{path} at {2 * SIZE}: unreadable", self.errors)

    def test_json(self) -> None:
        """The same as one JSON object."""
        said = self.answer("doctor", "--ledger", self.ledger, self.ours, self.other)
        self.assertEqual((said["ok"], said["missing"]), (True, []))
        kept = self.cut(self.ours, self.records[-1].offset)
        said = self.answer("doctor", "--ledger", self.ledger, self.ours, self.other, code=1)
        count = len(self.records)
        self.assertEqual(said["ok"], False)
        self.assertEqual([one["has"] for one in said["stores"]], [count - 1, count])
        (lost,) = said["missing"]
        self.assertEqual(lost["message"], row_of(self.records[-1]))
        self.assertEqual(lost["notIn"], {str(self.ours): "nothing written"})
        found = [(one["place"], one["path"], one["offset"]) for one in lost["found"]]
        self.assertEqual(
            found,
            [
                ("log", str(self.other / "commitlog"), self.records[-1].offset),
                ("quarantine", str(kept), self.records[-1].offset),
            ],
        )


class LedgerFileTests(DoctorTestCase):
    def test_dump(self) -> None:
        """C{rmqha dump --json} of one store is a ledger for another; useless keys are said."""
        self.ledger.write_text(self.succeed("dump", "--json", self.ours), encoding="utf-8")
        self.assertIn("all ", self.doctor(self.other))
        self.assertIn("not compared: bodyLength, bornHost, ", self.errors)

    def test_offset_msg_id(self) -> None:
        """C{offsetMsgId} of a send answer tells the byte."""
        row = row_of(self.records[9])
        del row["physicalOffset"]
        self.write([{**row, "offsetMsgId": self.records[9].offset_msg_id}])
        self.doctor()
        self.write([{**row, "offsetMsgId": self.records[8].offset_msg_id}])
        self.assertIn("another message is there, id ", self.doctor(code=1))

    def test_each_way_to_tell(self) -> None:
        """Id, body, checksums or place each tell a message from others; what is wrong is said."""
        record = self.records[9]
        whole = row_of(record)
        for keys, wrong, reason in (
            ({"msgId": whole["msgId"]}, {"msgId": "0" * 31 + "X"}, "another message is there"),
            ({"bodySha256": whole["bodySha256"][:32]}, {"bodySha256": "0" * 64}, "its body"),
            ({"bodyCRC": record.body_crc}, {"bodyCRC": record.body_crc ^ 1}, "its body"),
            (
                {name: whole[name] for name in ("topic", "queueId", "queueOffset")},
                {"topic": whole["topic"], "queueId": 77, "queueOffset": 1},
                f"it is in {record.topic}/",
            ),
        ):
            self.write([{"physicalOffset": record.offset, **keys}])
            self.doctor()
            self.write([{"physicalOffset": record.offset, **wrong}])
            said = self.doctor(code=1)
            self.assertIn(reason, said)
            self.assertIn("found nowhere", said)

    def test_without_byte(self) -> None:
        """A message whose byte is not known may be anywhere in a log."""
        row = row_of(self.records[9])
        del row["physicalOffset"]
        self.write([row])
        self.assertIn("all 1 messages", self.doctor())
        self.cut(self.ours, self.records[5].offset)
        said = self.doctor(code=1)
        lines = self.said_of(self.records[9], said)
        self.assertEqual(lines[0], f"not in {self.ours}: nowhere in its log")
        self.assertTrue(lines[2].startswith("quarantine: "), lines)
        for line in lines[1:]:
            self.assertIn(f", at byte {self.records[9].offset}, ", line)

    def test_compressed(self) -> None:
        """A body that the client compressed is the one that its producer sent."""
        body = b"much the same " * 100
        packed = zlib.compress(body)
        for name, told in (("packed", packed), ("bad", packed[:-9])):
            record = encode(message(0, body=told, sys_flag=1), max_message_size=4 << 20)
            place(record, offset=0, queue_offset=0, store_timestamp=1)
            folder = self.place / name / "commitlog"
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(bytes(record).ljust(SIZE, b"\0"))
        self.write([{"physicalOffset": 0, "body": body.decode()}])
        self.doctor(self.place / "packed")
        self.assertIn("its body is another", self.doctor(self.place / "bad", code=1))

    def test_not_understood(self) -> None:
        """A ledger that says nothing, or what cannot be, is refused with its line."""
        good = row_of(self.records[0])
        for bad, reason in (
            ("not JSON", "not JSON"),
            ("[]", "not an object"),
            (json.dumps({"physicalOffset": 5}), "tells no message from another"),
            (json.dumps({"topic": "A", "queueId": 1, "queueOffset": 2}), "physicalOffset"),
            (json.dumps({**good, "physicalOffset": -1}), "physicalOffset"),
            (json.dumps({**good, "queueId": True}), "queueId"),
            (json.dumps({**good, "msgId": 5}), "msgId"),
            (json.dumps({**good, "bodySha256": "abc"}), "bodySha256"),
            (json.dumps({**good, "offsetMsgId": "xyz"}), "offsetMsgId"),
            (json.dumps({**good, "offsetMsgId": "0" * 15 + "F" + "F" * 16}), "offsetMsgId"),
            ("\udcff", "UTF-8"),
        ):
            text = json.dumps(good) + "\n" + bad + "\n"
            self.ledger.write_bytes(text.encode("utf-8", "surrogateescape"))
            line = self.fails(1, "doctor", "--ledger", self.ledger, self.ours)
            self.assertIn(f"{self.ledger}, line 2: ", line)
            self.assertIn(reason, line)
        self.write([])
        line = self.fails(1, "doctor", "--ledger", self.ledger, self.ours)
        self.assertIn("no message", line)

    def test_no_store(self) -> None:
        """What is no store is refused, as by every command."""
        empty = self.place / "empty"
        empty.mkdir()
        self.fails(1, "doctor", "--ledger", self.ledger, empty)
        self.fails(2, "doctor", "--ledger", self.ledger, self.place / "nothing")
        self.fails(2, "doctor", "--ledger", self.ledger)
        strange = self.place / quarantine_name(5, 3).replace("log", "txt")
        strange.touch()
        self.fails(1, "doctor", "--ledger", self.ledger, strange)


class NodeTests(CommandTestCase):
    """A node that is asked how it is; L{tests.faults.test_runbooks} asks one that runs."""

    def test_no_answer(self) -> None:
        """Exit code 3, and where to look next."""
        # A process of its own, as a reactor runs but once.
        done = rmqha("doctor", "127.0.0.1:1")
        self.assertEqual(3, done.returncode, done.stderr)
        self.assertIn("127.0.0.1:1", done.stdout)
        self.assertIn("next: systemctl status rmqha@broker", done.stdout)

    def test_usage(self) -> None:
        """One node, or a ledger and its stores."""
        self.assertEqual(2, self.run_command("doctor", "a", "b").exit_code)
        self.assertEqual(2, self.run_command("doctor", "a:b:c").exit_code)
