"""A log with a record that was damaged on the master already when it was copied."""

from __future__ import annotations

import os
from pathlib import Path

from lab.harness import golden
from rmqha.errors import LogCorrupt
from rmqha.ha.promotion import plan, promote
from rmqha.logfiles.log_end import find_end_in_last_file
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import read_copied_damage
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log import copied_damage_file, range_repair
from rmqha.store.log.range_repair import RepairIntent, finish_repair
from rmqha.store.offline.rebuild_in_place import remake
from rmqha.store.offline.verify import LogCheck
from rmqha.wire.log.copied_damage import CopiedDamage, CopiedRecord, crc_of
from tests.support import damage
from tests.support.derived import settings
from tests.support.logs import LogTestCase

END = 2652010
SIZE = golden.LOG_FILE_SIZE

#: A record in the last file, and a byte of its body.
START, LENGTH = 10 * SIZE + 9856, 362
PLACE = 9856 + 90


class CopiedDamageTests(LogTestCase):
    """The golden store, one body of which is not what its CRC says."""

    def setUp(self) -> None:
        self.patch(os, "fsync", lambda fd: None)
        self.store = golden.store(golden.VERSIONS[0])
        damage.flip(self.store / damage.name(10), PLACE)

    def known(self, store: Path | None = None) -> CopiedDamage:
        """Write down that it was copied so."""
        raw = RawLog.open(self.store)
        data = raw.read(START, LENGTH)
        raw.close()
        copied = read_copied_damage(self.store if store is None else store)
        copied.add(
            CopiedRecord(
                offset=START, size=LENGTH, crc=crc_of(data), reason="body crc", master="m:1"
            )
        )
        copied_damage_file.save(self.store, copied)
        return copied

    def test_without_it(self) -> None:
        """It is damage: a master does not start, a slave cuts."""
        service = self.service(self.store)
        service.startService()
        self.failureResultOf(service.ready, LogCorrupt)
        self.assertEqual(self.opened(self.store, master=False, repair=True).log.end, START)

    def test_a_node_starts(self) -> None:
        """Neither role cuts, all records are dispatched, and status and health tell of it."""
        self.known()
        for master in (False, True):
            store = self.opened(self.store, master=master, repair=not master)
            self.assertEqual((store.log.end, store.log.confirmed), (END, END))
            self.assertEqual(store.dispatcher.position, END)
            said = store.faults_from_master()
            self.assertEqual((said["count"], said["records"][0]["offset"]), (1, START))
            (reason,) = [one for one in store.health() if one.name == "faults-from-master"]
            text = f"the master had them: 1, the first at byte {START}: body crc"
            self.assertIn(text, reason.text)
            self.close_store(store)
        self.assertEqual(len(read_copied_damage(self.store)), 1)

    def test_after_a_crash(self) -> None:
        """Nor does a start after a crash, which checks more."""
        self.known()
        root = self.crash(self.opened(self.store, master=False))
        self.assertEqual(self.opened(root, master=False, repair=True).log.end, END)

    def test_other_bytes(self) -> None:
        """Only those very bytes pass: what the disk loses later is damage."""
        self.known()
        damage.flip(self.store / damage.name(10), PLACE + 1)
        service = self.service(self.store)
        service.startService()
        self.failureResultOf(service.ready, LogCorrupt)

    def test_offline(self) -> None:
        """All get one answer of the log's end, C{rebuild} too; C{verify} still names the damage."""
        self.known()
        self.assertEqual(OfflineLog(self.store).end, END)
        self.assertEqual(find_end_in_last_file(LogFiles.find(self.store)).end, END)
        self.assertEqual(remake(OfflineLog(self.store), settings(self.store)).records, 1289)
        (finding,) = LogCheck(RawLog.open(self.store)).findings()
        self.assertIn("it was copied so from the master", finding.reason)

    def test_promoted(self) -> None:
        """A slave's store with it becomes a master's."""
        self.known()
        self.assertEqual(plan(settings(self.store)).end, END)
        self.assertEqual(promote(settings(self.store)).end, END)

    def test_repaired(self) -> None:
        """Once a replica's bytes stand there it is forgotten."""
        self.known()
        intent = RepairIntent(peer="p", file_size=SIZE, patches=())
        finish_repair(self.store, intent)
        self.assertEqual(len(read_copied_damage(self.store)), 1)
        patch = range_repair.Patch(fetched="", crc=0, ranges=[(START, START + LENGTH)], equal=())
        finish_repair(self.store, RepairIntent(peer="p", file_size=SIZE, patches=(patch,)))
        self.assertEqual(len(read_copied_damage(self.store)), 0)

    def test_cut(self) -> None:
        """What is no longer in the log is not told."""
        copied = self.known()
        damage.flip(self.store / damage.name(10), PLACE)
        copied.add(CopiedRecord(offset=END + 100, size=10, crc=1, reason="body crc", master="m:1"))
        copied_damage_file.save(self.store, copied)
        self.assertEqual(self.opened(self.store).faults_from_master()["count"], 1)
        self.assertEqual(len(read_copied_damage(self.store)), 1)
