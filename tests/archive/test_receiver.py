"""A receiver of archives behind the real master, over transports in memory."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import nullcontext
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.logger import capturedLogs

from rmqha.archive.archive import Archive
from rmqha.archive.errors import ReceiveStopped
from rmqha.archive.manifest import ArchiveManifest
from rmqha.archive.receiver import Receiver, receiver
from rmqha.archive.restore import restore, settings_for
from rmqha.archive.source import RestoreSource
from rmqha.archive.target import RestoreTarget
from rmqha.config.ha_settings import BadRecordPolicy, HASettings
from rmqha.errors import FlushFailed, Refused, StoreLocked, TableUnreadable
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.ha.slave import probe
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds, MasterClientPort
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import read_copied_damage
from rmqha.store.files.allocate import InThread
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.mapped import BrokenSequence
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.log.log_identity import LogIdentity
from tests.ha.test_pair import SIZES, Pair
from tests.support.effort import tries
from tests.support.logs import FILE_SIZE, STORED, Disk, Held, content, encoded, now

NOW = 1_800_000_000_000

#: As the command has it.
DELAY = 30.0


class ReceiverCase(Pair):
    """A master of some files, and an archive."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(os, "fdatasync", lambda fd: None)
        self.root = self.folder() / "archive"
        self.receiver: Receiver | None = None
        self.shown: list[tuple[int, int]] = []
        self.addCleanup(self.end)

    def manifest(self, file_size: int = FILE_SIZE) -> ArchiveManifest:
        return ArchiveManifest(
            source="10.0.0.1:10912",
            log=LogIdentity(broker="broker-a"),
            file_size=file_size,
            start=0,
            end=0,
            begun=NOW,
            updated=NOW,
        )

    def opened(self, trusted: str = "") -> Archive:
        return Archive.open(self.root, self.manifest(), now, trusted)

    def receive(
        self, *, in_flush_thread: InThread = now, trusted: str = "", **more: Any
    ) -> Receiver:
        settings = {"batch": 1000, "backoff_max": 1.0} | more.pop("settings", {})
        given: dict[str, Any] = {"report_delay": DELAY, "fsync_interval": 0.5}
        self.archive = self.opened(trusted)
        self.receiver = receiver(
            archive=self.archive,
            port=MasterClientPort(
                more.pop("bounds", None), self.clock, "10.0.0.1:10912", self.wire
            ),
            settings=HASettings(**settings),
            in_thread=now,
            fsync=FsyncInThread(in_flush_thread, os.fdatasync),
            log_interval=60.0,
            shown=lambda done, total: self.shown.append((done, total)),
            now_ms=lambda: NOW,
            **given | more,
        )
        self.receiver.startService()
        self.settle()
        return self.receiver

    def received(self, *, end: bool = True) -> None:
        """Receive all there is, and stop."""
        self.serve()
        self.receive()
        self.passes(1)
        if end:
            self.end()

    def end(self) -> None:
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            stopped = receiver.stopService()
            self.settle()
            self.successResultOf(stopped)
            receiver.ended.addErrback(lambda _: None)

    def kill(self) -> None:
        """Leave the archive as it is at this moment, and go on with that."""
        copy = self.folder() / "archive"
        shutil.copytree(self.root, copy)
        self.end()
        self.root = copy

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "commitlog").iterdir())

    def named(self, *partial: int, first: int = 0, count: int = 5) -> list[str]:
        """Names of log files, of which those of some numbers are not finished."""
        numbers = range(first, first + count)
        return [f"{n * FILE_SIZE:020d}" + ".partial" * (n in partial) for n in numbers]

    def assertArchived(self) -> None:
        """The archive has the master's log, byte for byte, as its readers see it."""
        log = OfflineLog(self.root)
        self.addCleanup(log.close)
        self.assertEqual(log.end, self.theirs.end)
        self.assertEqual(content(log), content(self.theirs, log.min_offset))
        self.assertEqual(log.findings, [])

    def stopped(self) -> ReceiveStopped:
        assert self.receiver is not None, "it was started"
        return self.failureResultOf(self.receiver.ended, ReceiveStopped).value

    def grow(self, size: int = 300) -> Deferred[PutStatus]:
        begin = self.theirs.put([encoded(size)], [0], STORED)
        return self.transfer.wait(begin, self.theirs.end)


class ArchiveTests(ReceiverCase):
    def test_whole(self) -> None:
        """It has everything that the master has; what is not finished has a name that says so."""
        self.received(end=False)
        self.assertEqual(self.names(), self.named(4))
        self.assertArchived()

    def test_grows(self) -> None:
        """It grows with the master's log, and a file is finished once the next one is begun."""
        self.serve()
        self.receive()
        for _ in range(40):
            self.grow()
            self.passes(0.1)
        self.passes(1)
        self.assertEqual(self.names(), self.named(7, count=8))
        self.assertArchived()

    def test_finished_when_durable(self) -> None:
        """A file has its name only when it is on the disk."""
        held = Held()
        self.serve()
        self.receive(in_flush_thread=held)
        self.passes(1)
        self.assertEqual(self.names(), self.named(0, 1, 2, 3, 4))
        while held.calls:
            held.work()
        self.assertEqual(self.names(), self.named(4))
        self.receiver, receiver = None, self.receiver
        assert receiver is not None, "it runs"
        receiver.stopService()

    def test_manifest(self) -> None:
        """It says whose log it is and how far it goes, as of the last file and of the end."""
        self.received(end=False)
        known = ArchiveManifest.read(self.root)
        assert known is not None, "it was written"
        self.assertEqual((known.source, known.log.broker), ("10.0.0.1:10912", "broker-a"))
        self.assertEqual((known.start, known.end), (0, self.theirs.end))
        self.grow()
        self.passes(1)
        self.end()
        self.assertEqual(ArchiveManifest.read(self.root).end, self.theirs.end)

    def told(self, number: int) -> MasterBounds:
        """What the client port of a master with a master epoch says."""
        starts = (EpochStart(number, 100),) if number else ()
        return MasterBounds(0, self.theirs.end, 1, BrokerIdentity(epoch=number, starts=starts))

    def test_master_epoch(self) -> None:
        """It has the master epochs that its master tells, and does not follow a lower one."""
        for number, wanted in ((3, 3), (0, 3), (4, 4)):
            self.serve()
            self.receive(bounds=lambda number=number: succeed(self.told(number)))
            self.passes(2)
            if number < wanted:
                error = self.stopped()
                self.assertEqual(error.state, "lower-epoch")
                self.assertIn(f"has master epoch {number}, this log follows {wanted}", str(error))
            self.end()
            self.unserve()
            journal = EpochJournal.read(self.root)
            self.assertEqual((journal.number, journal.starts), (wanted, (EpochStart(wanted, 100),)))

    def test_trusted(self) -> None:
        """A lower one is followed if the operator says so."""
        for number, trusted in ((3, ""), (1, "10.0.0.1:10912")):
            self.serve()
            self.receive(bounds=lambda number=number: succeed(self.told(number)), trusted=trusted)
            self.passes(2)
            self.end()
            self.unserve()
            self.assertEqual(EpochJournal.read(self.root).number, number)

    def test_begins_above_zero(self) -> None:
        """A master that deleted its first files is archived from the first byte it has."""
        self.theirs.drop_first().remove()
        self.theirs.drop_first().remove()
        self.serve()
        self.receive()
        self.passes(2)
        self.assertEqual(self.names(), self.named(4, first=2, count=3))
        self.assertArchived()

    def test_progress(self) -> None:
        """It shows what it has of what there is."""
        bounds = MasterBounds(0, self.theirs.end, 1)
        self.serve()
        self.receive(bounds=lambda: succeed(bounds))
        self.passes(1.5)
        self.assertEqual(self.shown[-1], (self.theirs.end, self.theirs.end))

    def test_stop_leaves_nothing(self) -> None:
        """A stop flushes, finishes what is full, and gives the folder back."""
        self.serve()
        self.receive(fsync_interval=1000.0)
        self.passes(1)
        self.assertEqual(self.names(), self.named(0, 1, 2, 3, 4))
        self.end()
        self.assertEqual(self.names(), self.named(4))
        self.unserve()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.opened().close()


class ResumeTests(ReceiverCase):
    """A receiver that was killed or stopped goes on where the archive ends."""

    def test_random_kills(self) -> None:
        """Whenever it is killed, in the middle of a frame too, its archive is the master's log."""
        for seed in range(tries(10)):
            dice = random.Random(seed)
            self.root = self.folder() / "archive"
            self.theirs = self.filled(*SIZES)
            self.serve()
            for _ in range(6):
                self.receive(settings={"max_receive_rate": dice.choice([0, 3000, 20_000])})
                for _ in range(dice.randrange(6)):
                    self.grow(dice.choice([200, 300, 900]))
                    self.passes(dice.choice([0.05, 0.3]))
                self.kill()
            self.receive()
            self.passes(2)
            self.assertArchived()
            self.end()
            self.assertArchived()
            self.unserve()

    def test_torn(self) -> None:
        """What a power cut left behind the last whole record is received again."""
        self.received()
        path = self.root / "commitlog" / self.named(4)[-1]
        position = self.theirs.end - 4 * FILE_SIZE - 100
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(bytes(100))
        self.receive()
        self.passes(2)
        self.assertArchived()
        self.assertFalse((self.root / "rmqha" / "quarantine").exists())

    def test_damaged(self) -> None:
        """Where valid records follow a damaged one they go to quarantine before the new copy."""
        self.received()
        path = self.root / "commitlog" / self.named(4)[-1]
        data = bytearray(path.read_bytes())
        data[200] ^= 0xFF
        path.write_bytes(data)
        self.receive()
        (kept,) = (self.root / "rmqha" / "quarantine").iterdir()
        size = self.theirs.end - 4 * FILE_SIZE
        self.assertEqual(kept.read_bytes(), bytes(data[:size]))
        self.passes(2)
        self.assertArchived()

    def test_only_finished_files(self) -> None:
        """An archive of which only the finished files were kept goes on behind them."""
        self.received()
        (self.root / "commitlog" / self.named(4)[-1]).unlink()
        self.receive()
        self.assertIn(self.named(3)[3], self.names())
        self.passes(2)
        self.assertEqual(self.names(), self.named(4))
        self.assertArchived()

    def test_old_files_taken_away(self) -> None:
        """Its first files may be taken away: it goes on."""
        self.received()
        for name in self.named()[:2]:
            (self.root / "commitlog" / name).unlink()
        self.receive()
        self.grow()
        self.passes(2)
        self.assertEqual(self.names(), self.named(4, first=2, count=3))
        self.assertArchived()

    def test_tells_the_master(self) -> None:
        """Each time that a master lets it in, its owner is told."""
        told: list[float] = []
        self.serve()
        self.receive(connected=lambda: told.append(self.clock.seconds()))
        self.assertEqual(len(told), 1)
        self.wire.cut()
        self.passes(3)
        self.assertEqual(len(told), 2)

    def test_master_away(self) -> None:
        """It connects again by itself when the master is back."""
        self.receive()
        self.passes(5)
        self.serve()
        self.passes(3)
        self.wire.cut()
        self.passes(0.1)
        self.grow()
        self.passes(3)
        self.assertArchived()


class AcknowledgeTests(ReceiverCase):
    def test_nothing_is_acknowledged(self) -> None:
        """No SYNC write is ever acknowledged by an archive, however often it starts anew."""
        self.patch(probe, "PROBE_WINDOW", 500)
        for seed in range(tries(6)):
            dice = random.Random(seed)
            self.root = self.folder() / "archive"
            self.theirs = self.filled(*SIZES)
            self.serve()
            self.receive()
            waiting = []
            for _ in range(60):
                waiting.append(self.grow())
                self.passes(dice.choice([0.05, 0.3, 1.0]))
                what = dice.randrange(8)
                if what == 0:
                    self.wire.cut()
                elif what == 1:
                    self.kill()
                    self.receive()
            self.passes(4)
            answers = {self.successResultOf(answer) for answer in waiting}
            self.assertNotIn(PutStatus.PUT_OK, answers, f"seed {seed}")
            self.passes(2)
            self.assertArchived()
            self.end()
            self.unserve()

    def test_reported_late(self) -> None:
        """What it has is reported when no write waits for it: the master may delete its files."""
        factory = self.serve()
        self.receive()
        self.passes(DELAY - 5)
        self.assertEqual(factory.ledger.held_from(), 0)
        self.passes(15)
        self.assertEqual(factory.ledger.held_from(), self.theirs.end)
        end = self.theirs.end
        self.grow()
        self.passes(DELAY - 5)
        self.assertEqual(factory.ledger.held_from(), end)
        self.passes(15)
        self.assertEqual(factory.ledger.held_from(), self.theirs.end)

    def test_synchronous(self) -> None:
        """When it is asked to, it acknowledges what is on its disk, and nothing else."""
        held = Held()
        self.serve()
        self.receive(synchronous=True, in_flush_thread=held)
        while held.calls:
            held.work()
            self.settle()
        waiting = self.grow()
        self.passes(0.5)
        self.assertNoResult(waiting)
        held.work()
        self.settle()
        self.assertEqual(self.successResultOf(waiting), PutStatus.PUT_OK)
        self.receiver, receiver = None, self.receiver
        assert receiver is not None, "it runs"
        receiver.stopService()

    def test_settled(self) -> None:
        """After a restart it reports no file whose first record may still be waited for."""
        self.theirs = self.log()
        starts = {}
        for number in range(40):
            self.theirs.put([encoded(900)], [number], STORED + number * 5000)
            starts.setdefault(self.theirs.last_record // FILE_SIZE, number * 5)
        self.received()
        archive = self.opened()
        self.addCleanup(archive.close)
        last = 39 * 5
        for delay in (0.0, 1.0, 30.0, 60.0, 1000.0):
            good = [row for row, stored in starts.items() if stored <= last - delay]
            wanted = max(good) * FILE_SIZE if good else 0
            self.assertEqual(archive.settled(delay), wanted, delay)


class EndTests(ReceiverCase):
    """Where the master's log does not continue the archive."""

    def archived(self) -> CommitLog:
        """Receive all there is, stop, and return the master's log."""
        self.received()
        self.unserve()
        return self.theirs

    def before(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.root / "commitlog").iterdir())]

    def test_gap(self) -> None:
        """A master that deleted what comes next: the gap is told, and never filled."""
        end = self.archived().end
        for _ in range(60):
            self.theirs.put([encoded(900)], [0], STORED)
        for _ in range(9):
            self.theirs.drop_first().remove()
        before, least = self.before(), self.theirs.min_offset
        self.assertGreater(least, end)
        for bounds in (MasterBounds(least, self.theirs.end, 1), None):
            ask = None if bounds is None else (lambda bounds=bounds: succeed(bounds))
            self.serve()
            self.receive(bounds=ask)
            self.passes(30)
            error = self.stopped()
            self.assertEqual((error.state, error.start, error.end), ("below-min", 0, end))
            self.assertEqual(error.master_min, None if bounds is None else least)
            self.assertIn(str(least), str(error))
            self.assertIn(f"the archive has bytes 0 to {end}", str(error))
            self.end()
            self.unserve()
        self.assertEqual(self.before(), before)

    def test_diverged(self) -> None:
        """Other bytes at the same offsets: both are told, nothing is cut."""
        end = self.archived().end
        before = self.before()
        self.theirs = self.part(700, 700, end=3 * FILE_SIZE)
        self.serve()
        self.receive()
        self.passes(3)
        error = self.stopped()
        self.assertEqual((error.state, error.at, error.end), ("diverged", 3 * FILE_SIZE + 27, end))
        self.assertEqual(self.before(), before)
        self.assertIdle()

    def assertIdle(self) -> None:
        made = self.wire.made
        self.passes(30)
        self.assertEqual(self.wire.made, made)

    def test_ahead(self) -> None:
        """A master that lost its end: told when that has not passed."""
        end = self.archived().end
        self.theirs = self.part(end=3 * FILE_SIZE)
        self.serve()
        self.receive()
        self.passes(0.5)
        assert self.receiver is not None, "it runs"
        self.assertNoResult(self.receiver.ended)
        self.passes(10)
        error = self.stopped()
        self.assertEqual((error.state, error.at, error.end), ("ahead", 3 * FILE_SIZE, end))
        self.assertIdle()

    def test_ahead_for_a_moment(self) -> None:
        """What it lacked comes back before that is concluded: it goes on."""
        whole = self.archived()
        self.theirs = self.part(end=3 * FILE_SIZE)
        self.serve()
        self.receive()
        self.passes(0.5)
        self.unserve()
        self.theirs = whole
        self.serve()
        self.passes(10)
        assert self.receiver is not None, "it runs"
        self.assertNoResult(self.receiver.ended)
        self.grow()
        self.passes(1)
        self.assertArchived()

    def damage(self, position: int, row: int = 2) -> int:
        """A byte changes from the begin of a file's second record on; where that record begins."""
        file = self.theirs.folder.files[row]
        size = int.from_bytes(file.view[:4], "big")
        file.view[size + position] ^= 0xFF
        return file.start + size

    def test_damaged_record(self) -> None:
        """An old record damaged at the master: fetched again, copied as it is, said, not ours."""
        for row in (2, 4):
            self.theirs, self.root = self.filled(*SIZES), self.folder() / "archive"
            self.copied_damage(row)
            self.unserve()

    def copied_damage(self, row: int) -> None:
        """Of a file that is finished, or of the last."""
        at = self.damage(150, row)
        self.serve()
        self.receive()
        self.passes(0.5)
        self.assertEqual(self.archive.log.confirmed, at)
        for _ in range(2):
            self.passes(30)
            assert self.receiver is not None, "it runs"
            self.assertNoResult(self.receiver.ended)
            self.assertArchived()
            self.assertEqual([record.offset for record in read_copied_damage(self.root)], [at])
            self.kill()
            self.receive()
        self.end()
        self.flushLoggedErrors()
        self.assertFalse((self.root / "rmqha" / "quarantine").exists())
        source = RestoreSource.look(self.root)
        dest = self.folder() / "store"
        done = restore(
            source, RestoreTarget(), settings_for(source, dest), None, lambda name: nullcontext()
        )
        self.assertEqual((done.copied.end, done.damaged), (self.theirs.end, 1))
        self.assertEqual([record.offset for record in read_copied_damage(dest)], [at])
        log = OfflineLog(dest)
        self.addCleanup(log.close)
        self.assertEqual(content(log), content(self.theirs))

    def bad_record(self, position: int, **settings: object) -> ReceiveStopped:
        """A record that is damaged and cannot pass: fetched again, then told with its place."""
        at = self.damage(position)
        self.serve()
        self.receive(settings=settings)
        self.passes(0.5)
        assert self.receiver is not None, "it runs"
        self.assertNoResult(self.receiver.ended)
        self.passes(20)
        error = self.stopped()
        self.assertEqual((error.state, error.end), ("diverged", at))
        self.assertIn("the master sent a bad record", error.reason)
        return error

    def test_stops_before_it(self) -> None:
        """With that policy a damaged record is the end."""
        error = self.bad_record(150, bad_record=BadRecordPolicy.STOP)
        self.assertIn("haBadRecordPolicy=stop", error.reason)

    def test_no_record(self) -> None:
        """What cannot be followed is the end in any case."""
        self.bad_record(4)

    def test_disk_full(self) -> None:
        """It waits for room."""
        disk = Disk(full=True).install(self)
        self.serve()
        self.receive()
        self.passes(12)
        assert self.receiver is not None, "it runs"
        self.assertNoResult(self.receiver.ended)
        self.assertEqual(self.receiver.follower.sync.state.value, "disk-full")
        disk.full = False
        self.passes(12)
        self.assertArchived()

    def test_fsync_fails(self) -> None:
        """What is not surely on the disk ends it at once."""

        def sync(fd: int) -> None:
            raise OSError(5, "Input/output error")

        self.patch(os, "fdatasync", sync)
        self.received(end=False)
        assert self.receiver is not None, "it runs"
        error = self.failureResultOf(self.receiver.ended, FlushFailed).value
        self.assertIn("Input/output error", str(error))
        self.assertIdle()


class OpenTests(ReceiverCase):
    def test_a_store(self) -> None:
        """A node's store is not written into."""
        (self.root / "consumequeue").mkdir(parents=True)
        (self.root / "commitlog").mkdir()
        with self.assertRaises(Refused) as caught:
            self.opened()
        self.assertIn("it has commitlog, consumequeue", str(caught.exception))
        self.assertIn("no rmqha/archive.json", str(caught.exception))

    def test_another_size(self) -> None:
        """A size that its files do not have is refused with both."""
        self.opened().close()
        with self.assertRaises(Refused) as caught:
            Archive.open(self.root, self.manifest(8192), now)
        self.assertIn("files of 4096 bytes, not of 8192", str(caught.exception))

    def test_twice(self) -> None:
        """Two receivers cannot have one archive."""
        archive = self.opened()
        self.addCleanup(archive.close)
        with self.assertRaises(StoreLocked):
            self.opened()

    def test_a_file_is_missing(self) -> None:
        """A file missing in its middle is named; the folder is free again."""
        self.received()
        (self.root / "commitlog" / self.named()[1]).unlink()
        for _ in range(2):
            with self.assertRaises(BrokenSequence) as caught:
                self.opened()
        self.assertEqual(caught.exception.expected, FILE_SIZE)

    def test_bad_manifest(self) -> None:
        """What cannot be read is not taken for an archive that begins."""
        self.opened().close()
        path = self.root / "rmqha" / "archive.json"
        path.with_name("archive.json.bak").unlink(missing_ok=True)
        for text in ("{}", '{"version":2}', '{"version":1,"from":"a"}'):
            path.write_text(text, encoding="ascii")
            with self.assertRaises(TableUnreadable):
                ArchiveManifest.read(self.root)

    def test_other_files(self) -> None:
        """Files of another log are not gone on with or restored from; nameless older ones are."""
        self.received()
        known = ArchiveManifest.read(self.root)
        assert known is not None, "it was written"
        self.assertEqual((0, True), (known.log.first, bool(known.log.sum)))
        with open(self.root / "commitlog" / self.named()[0], "r+b") as file:
            file.seek(40)  # the first record's born time
            file.write(b"\1")
        for again in (self.opened, lambda: RestoreSource.look(self.root)):
            with self.assertRaises(Refused) as caught:
                again()
            self.assertIn(known.log.sum, str(caught.exception))
        evolve(known, log=LogIdentity(broker="broker-a")).write(self.root)
        self.opened().close()

    def test_ended_before_the_first_byte(self) -> None:
        """An archive whose first receiver did not live to write a byte is gone on with."""
        self.opened().close()
        self.assertFalse((self.root / "commitlog").exists())
        self.received(end=False)
        self.assertArchived()

    def test_its_files_are_gone(self) -> None:
        """An archive of which only its manifest is left says so, and is received again."""
        self.received()
        shutil.rmtree(self.root / "commitlog")
        with capturedLogs() as events:
            self.receive()
        self.assertTrue([e for e in events if "its end is lost" in e.get("log_format", "")])
        self.passes(2)
        self.assertArchived()

    def test_shortened(self) -> None:
        """An archive that lost what its manifest says is told, and received again."""
        self.received()
        (self.root / "commitlog" / self.named(4)[-1]).write_bytes(bytes(FILE_SIZE))
        self.receive()
        self.passes(2)
        self.assertArchived()
