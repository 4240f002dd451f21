"""A slave that repairs its own log from its master while it serves."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from lab.harness import golden
from rmqha.ha import live_repair
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.live_repair import AGAIN, LOOK, LiveRepair
from rmqha.ha.slave.master_bounds import MasterBounds, MasterClientPort
from rmqha.logfiles.follow import Corruption, Run, follow
from rmqha.logfiles.raw_log import RawLog
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.store.log import range_repair
from rmqha.store.scrub.slices import KeptFinding
from rmqha.wire.log.copied_damage import CopiedRecord, crc_of
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.record import body_range
from tests.support import damage
from tests.support.effort import tries
from tests.support.logs import Held, LogTestCase, now
from tests.support.memorylog import MemoryLog
from tests.support.scripted_master import Connection, PuppetEndpoint

SIZE = golden.LOG_FILE_SIZE
END = 2652010

#: A record in the last file, and a byte of its body; and one in the second file.
START, LENGTH, PLACE = 10 * SIZE + 9856, 362, 9856 + 90
FAR, FAR_LENGTH, FAR_PLACE = SIZE, 102611, 50_000


def runs(raw: RawLog, start: int) -> Iterator[Run]:
    """The records from a place on."""
    return (event for event in follow(raw, start) if not isinstance(event, Corruption))


class LiveRepairTests(LogTestCase):
    """A golden store that is open, and a master played by hand that has the same log."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = PuppetEndpoint(self.clock)
        self.root = golden.store(golden.VERSIONS[0])
        self.theirs = MemoryLog.of_store(golden.store(golden.VERSIONS[0]), END, SIZE)
        self.whole = self.files()
        self.store = self.opened(self.root, master=False)
        self.known = True
        self.differing: list[KeptFinding] = []

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.root / "commitlog").iterdir()}

    def begin(self, threads: Callable[..., Deferred[Any]] | None = None) -> LiveRepair:
        self.patch(os, "fsync", lambda fd: None)
        self.repair = LiveRepair(
            store=self.store,
            master=lambda: self.master() if self.known else None,
            differs=self.differing.append,
            clock=self.clock,
            in_thread=self.store.environment.in_thread if threads is None else threads,
        )
        self.repair.start()
        self.addCleanup(self.ended)
        return self.repair

    def ended(self) -> None:
        stopped = self.repair.stop()
        self.clock.advance(0)
        self.successResultOf(stopped)
        self.assertEqual((self.endpoint.waiting, self.clock.getDelayedCalls()), ([], []))

    def master(self) -> MasterReplica:
        return MasterReplica(
            port=MasterClientPort(None, self.clock, "10.0.0.1:10912", self.endpoint),
            file_size=SIZE,
        )

    def harm(self, start: int, length: int, place: int) -> None:
        """A body is lost on the disk, and the scrubber finds it."""
        path = self.root / damage.name(start // SIZE)
        damage.flip(path, place)
        self.found(start, length)

    def found(self, start: int, length: int) -> None:
        path = str(self.root / damage.name(start // SIZE))
        fault = KeptFinding(offset=start, end=start + length, path=path, reason="body crc")
        self.store.scrubber.faults[start] = fault

    def answered(self) -> Connection:
        """The master sends what is asked for."""
        connection = self.endpoint.accept()
        connection.feed(self.theirs, connection.reports()[-1], batch=32768)
        self.clock.advance(0)
        return connection

    def test_repaired(self) -> None:
        """The record is the master's again, on disk and in the map; fault gone, old bytes kept."""
        before = bytes(self.store.log.read(START, LENGTH))
        self.harm(START, LENGTH, PLACE)
        self.assertNotEqual(bytes(self.store.log.read(START, LENGTH)), before)
        self.begin()
        self.clock.advance(LOOK)
        self.assertFalse(self.answered().open)
        self.assertTrue(self.files() == self.whole)
        self.assertEqual(bytes(self.store.log.read(START, LENGTH)), before)
        self.assertEqual(self.store.scrubber.faults, {})
        self.assertEqual(self.repair.status(), {"ranges": 1, "records": 1, "trouble": ""})
        own = self.root / "rmqha"
        (kept,) = (own / "quarantine").iterdir()
        self.assertEqual(kept.stat().st_size, LENGTH)
        self.assertFalse((own / "repair.json").exists() or (own / "repair").exists())

    def test_the_master_has_other_properties(self) -> None:
        """A body comes from the master; properties that differ stay, and that is told."""
        self.harm(START, LENGTH, PLACE)
        self.theirs.data[START + LENGTH - 4] ^= 1
        self.begin()
        self.clock.advance(LOOK)
        self.answered()
        self.assertTrue(self.files() == self.whole)
        self.assertEqual(self.store.scrubber.faults, {})
        (other,) = self.differing
        self.assertEqual(other.offset, START + LENGTH - 4)
        self.assertIn("no checksum tells who is right", other.reason)

    def test_the_master_has_another_record(self) -> None:
        """Where even the body is not the one that our record speaks of nothing is written."""
        self.harm(START, LENGTH, PLACE)
        body, behind = body_range(bytes(self.theirs.data[START : START + LENGTH]), 0)
        self.theirs.data[START + body] ^= 1
        changed = bytes(self.theirs.data[START + body : START + behind])
        self.theirs.data[START + 8 : START + 12] = body_crc(changed).to_bytes(4, "big")
        self.theirs.data[START + LENGTH - 4] ^= 1
        before = self.files()
        self.begin()
        self.clock.advance(LOOK)
        self.answered()
        self.assertTrue(self.files() == before)
        self.assertIn("differs outside the body too", self.repair.trouble)

    def test_one_after_the_other(self) -> None:
        """A range at a time; the others are not compared meanwhile."""
        self.harm(START, LENGTH, PLACE)
        self.harm(FAR, FAR_LENGTH, FAR_PLACE)
        self.begin()
        for left in (1, 0):
            self.clock.advance(LOOK)
            self.answered()
            self.assertEqual(len(self.store.scrubber.faults), left)
        self.assertTrue(self.files() == self.whole)

    def test_only_from_a_proven_master(self) -> None:
        """Nobody is asked while the log is not known to be the master's; then at the next look."""
        self.known = False
        self.harm(START, LENGTH, PLACE)
        self.begin()
        self.clock.advance(LOOK)
        self.assertEqual(self.endpoint.waiting, [])
        self.known = True
        self.clock.advance(LOOK)
        self.answered()
        self.assertTrue(self.files() == self.whole)

    def test_master_is_damaged_too(self) -> None:
        """Nothing is written, the reason is told once, and it is tried again in an hour."""
        self.harm(START, LENGTH, PLACE)
        self.theirs.data[START + 95] ^= 1
        before = self.files()
        self.begin()
        self.clock.advance(LOOK)
        self.answered()
        self.assertIn("the replica's bytes are bad too: body crc", self.repair.trouble)
        self.assertTrue(self.files() == before)
        for _ in range(10):
            self.clock.advance(LOOK)
        self.assertEqual(self.endpoint.waiting, [])
        self.theirs.data[START + 95] ^= 1
        self.clock.advance(AGAIN)
        self.answered()
        self.assertTrue(self.files() == self.whole)
        self.assertEqual(self.repair.trouble, "")

    def test_master_cannot_be_reached(self) -> None:
        """A refused connection and one that breaks are no failure of the job."""
        self.harm(START, LENGTH, PLACE)
        self.begin()
        self.clock.advance(LOOK)
        self.endpoint.refuse()
        self.assertIn("refused", self.repair.trouble)
        self.clock.advance(AGAIN)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, connection.reports()[-1], START)
        connection.close()
        self.assertIn("disconnected at byte", self.repair.trouble)
        self.assertEqual(self.repair.looking.failures, 0)

    def test_stock_master_with_tls(self) -> None:
        """A stock broker at the master's place hears no TLS, and is no failure of the job."""
        identity = TlsIdentity("replication", "of replication", TlsFiles())
        identity.load()
        endpoint = OutgoingTls(identity=identity).wrap("10.0.0.1", self.endpoint)
        stock = MasterReplica(
            port=MasterClientPort(
                lambda: succeed(MasterBounds(0, END, 1)), self.clock, "10.0.0.1:10912", endpoint
            ),
            file_size=SIZE,
        )
        self.patch(self, "master", lambda: stock)
        self.harm(START, LENGTH, PLACE)
        self.begin()
        self.clock.advance(LOOK)
        self.assertEqual(self.endpoint.waiting, [])
        self.assertIn("it is a stock broker", self.repair.trouble)
        self.assertEqual(self.repair.looking.failures, 0)

    def test_copied_from_a_damaged_master(self) -> None:
        """What came damaged from the master is fetched once the master has been repaired."""
        damage.flip(self.root / damage.name(10), PLACE)
        data = self.store.log.read(START, LENGTH)
        self.store.log.copied.add(
            CopiedRecord(
                offset=START, size=LENGTH, crc=crc_of(data), reason="body crc", master="m:1"
            )
        )
        self.begin()
        self.clock.advance(LOOK)
        self.answered()
        self.assertTrue(self.files() == self.whole)
        self.assertEqual(self.store.faults_from_master()["count"], 0)

    def test_what_is_not_flushed_yet(self) -> None:
        """Behind what is dispatched and on the disk nothing is touched; nor where the scrubber
        still searches for the next record, nor files that retention has deleted.
        """
        self.found(START, LENGTH)
        self.begin()
        self.store.log.flushed = START
        self.assertEqual(self.repair.damaged_ranges(), [])
        self.store.log.flushed = END
        self.assertEqual(len(self.repair.damaged_ranges()), 1)
        self.store.scrubber._lost = self.store.scrubber.faults[START]
        self.assertEqual(self.repair.damaged_ranges(), [])
        self.store.scrubber._lost = None
        del self.store.scrubber.faults[START]

    def test_too_long(self) -> None:
        """What would take long is left to the command."""
        self.patch(live_repair, "MOST", 100)
        self.found(START, LENGTH)
        self.begin()
        self.clock.advance(LOOK)
        self.assertEqual(self.endpoint.waiting, [])
        self.assertIn("362 bytes are for `rmqha repair`", self.repair.trouble)
        self.store.scrubber.faults.clear()

    def test_stopped_while_it_fetches(self) -> None:
        """A stop leaves the master, and nothing was written."""
        for answered in (False, True):
            with self.subTest(answered=answered):
                self.setUp()
                self.harm(START, LENGTH, PLACE)
                before = self.files()
                self.begin()
                self.clock.advance(LOOK)
                if answered:
                    connection = self.endpoint.accept()
                    connection.feed(self.theirs, connection.reports()[-1], START)
                self.successResultOf(self.repair.stop())
                self.assertTrue(self.files() == before)
                self.assertEqual([*(self.root / "rmqha").glob("repair*")], [])
                self.store.scrubber.faults.clear()

    def test_stop_waits_for_a_write(self) -> None:
        """Who closes the store, or cuts it, waits until a thread that writes has ended."""
        threads = Held()

        def in_thread(function: Callable[..., object], *args: object) -> Deferred[Any]:
            run = threads if function.__name__ == "_write" else now
            return run(function, *args)

        self.harm(START, LENGTH, PLACE)
        self.begin(in_thread)
        self.clock.advance(LOOK)
        self.answered()
        self.assertEqual(len(threads.calls), 1, "it writes next")
        stopped: Deferred[None] = self.repair.stop()
        self.assertNoResult(stopped)
        threads.work()
        self.successResultOf(stopped)
        self.assertTrue(self.files() == self.whole)

    def test_disk_full_on_the_way(self) -> None:
        """A disk that has no room in the middle: the next look goes on with what was certain."""
        self.harm(START, LENGTH, PLACE)
        self.begin()
        real = range_repair._write_file

        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.patch(range_repair, "_write_file", full)
        self.clock.advance(LOOK)
        self.answered()
        self.assertIn("No space left", self.repair.trouble)
        self.assertTrue((self.root / "rmqha" / "repair.json").exists())
        self.patch(range_repair, "_write_file", real)
        self.clock.advance(AGAIN)
        self.answered()
        self.assertTrue(self.files() == self.whole)
        self.assertFalse((self.root / "rmqha" / "repair.json").exists())

    def test_a_file_that_is_gone(self) -> None:
        """Retention may delete a file at any moment: it is not made again."""
        self.harm(FAR, FAR_LENGTH, FAR_PLACE)
        self.begin()
        self.clock.advance(LOOK)
        real = range_repair.intend_repair

        def deleting(root: Path, *args: object) -> object:
            made = real(root, *args)  # type: ignore[arg-type]
            (self.root / damage.name(1)).unlink()
            return made

        self.patch(live_repair, "intend_repair", deleting)
        self.answered()
        self.assertFalse((self.root / damage.name(1)).exists())
        shutil.copy(golden.store(golden.VERSIONS[0]) / damage.name(1), self.root / "commitlog")
        self.store.scrubber.faults.clear()

    def test_a_file_that_goes_as_it_is_opened(self) -> None:
        """The same between a look for the file and its opening."""
        self.harm(FAR, FAR_LENGTH, FAR_PLACE)
        self.begin()
        self.clock.advance(LOOK)
        path, real = self.root / damage.name(1), os.open

        def deleting(name: Any, flags: int, *more: Any, **rest: Any) -> int:
            if name == path and flags & os.O_RDWR:
                path.unlink()
            return real(name, flags, *more, **rest)

        self.patch(os, "open", deleting)
        self.answered()
        self.assertFalse(path.exists())
        shutil.copy(golden.store(golden.VERSIONS[0]) / damage.name(1), self.root / "commitlog")
        self.store.scrubber.faults.clear()

    def test_records_behind_what_is_gone(self) -> None:
        """Records are followed from a missing file to the next one there is, from its start."""
        (self.root / damage.name(1)).unlink()
        raw = RawLog.open(self.root / "commitlog", SIZE)
        self.addCleanup(raw.close)
        behind = next(block.end for _, block in runs(raw, 2 * SIZE))
        for start in (FAR, FAR + FAR_LENGTH, 2 * SIZE - 1):
            self.assertEqual(next(block.end for _, block in runs(raw, start)), behind)

    def test_deleted_at_any_call(self) -> None:
        """Retention deletes at any call: no file comes back, nothing is left, all is as it was."""
        number, happened = 0, True
        while happened:
            number += 5 * tries(5)
            self.setUp()
            self.store.scrubber.faults.clear()
            self.harm(FAR, FAR_LENGTH, FAR_PLACE)
            self.begin()
            happened = self.deleted_at(number)
            left = self.files()
            wanted = {name: data for name, data in self.whole.items() if name in left}
            gone = sorted(self.whole)[:2] if happened else []
            self.assertEqual(sorted(self.whole.keys() - left.keys()), gone, number)
            self.assertEqual([n for n in left if left[n] != wanted.get(n)], [], number)
            own = self.root / "rmqha"
            self.assertFalse((own / "repair.json").exists() or (own / "repair").exists(), number)
            self.assertEqual(self.flushLoggedErrors(), [], number)
            self.assertEqual(self.repair.looking.failures, 0)
            self.ended()
        self.assertGreater(number, 100)

    def deleted_at(self, number: int) -> bool:
        """Repair, while retention deletes two files before a call; whether there was such one."""
        left = iter(range(number))

        def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                if next(left, None) == number - 1:
                    for _ in range(2):
                        self.store.log.drop_first().remove()
                return real(*args, **more)

            return call

        names = ("open", "fstat", "fsync", "replace", "unlink", "utime", "pwrite", "stat")
        patches = [self.patch(os, name, wrap(getattr(os, name))) for name in names]
        try:
            self.clock.advance(LOOK)
            if self.endpoint.waiting:
                self.answered()
        finally:
            for patched in patches:
                patched.restore()
        return next(left, None) is None
