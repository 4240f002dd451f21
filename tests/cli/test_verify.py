"""C{rmqha verify}."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.harness import golden
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from rmqha.store.log.truncate import quarantine
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.effort import slow
from tests.support.rows import TORN

VERSION = golden.VERSIONS[0]


class VerifyTests(CommandTestCase):
    def test_clean(self) -> None:
        """Clean stores are called clean, derived files included."""
        for version in golden.VERSIONS:
            for name in ("store", "ipv6"):
                store = golden.store(version, name)
                self.assertEqual(self.succeed("verify", store).splitlines()[-1], "clean")
                said = self.answer("verify", store, "--deep")
                self.assertEqual((said["ok"], said["faults"], said["notes"]), (True, [], []))

    def test_every_archive(self) -> None:
        """The log of every archive is without fault, and where it ends is told with the reason:
        where RocketMQ ends it, but for a record whose properties are torn.
        """
        for version, name in golden.ARCHIVES:
            said = self.answer("verify", golden.store(version, name))
            self.assertTrue(said["ok"])
            (log,) = said["logs"]
            if golden.has(version, golden.truth(name, "recovery.json")):
                wanted = golden.document(version, golden.truth(name, "recovery.json"))
                torn = name == TORN
                last = list(golden.jsonl(version, golden.truth(name, "expected.jsonl")))[-1]
                self.assertEqual(
                    log["end"], last["physicalOffset"] if torn else wanted["decodedEnd"]
                )
                self.assertEqual(log["records"], wanted["records"] - torn)
            self.assertTrue(log["endedBy"])

    def test_beside_a_program(self) -> None:
        """A log copied to where a file has the name of our folder has nothing from there."""
        store = golden.store(VERSION, "store")
        (store / "rmqha").write_text("#!/bin/sh", encoding="ascii")
        self.assertEqual(self.succeed("verify", store / "commitlog").splitlines()[-1], "clean")

    def test_torn_tail(self) -> None:
        """A torn tail is a note, with what it is."""
        result = self.run_command("verify", golden.store(VERSION, "slave-killed"))
        self.assertEqual(result.exit_code, 0)
        self.assertIn("torn tail at byte 1418751: stored offset is another", result.stderr)
        self.assertIn("clean", result.stdout)

    @slow
    def test_harms(self) -> None:
        """Each harm ends in exit code 1, the exact path and the reason."""
        for harm in damage.HARMS:
            store = golden.store(VERSION)
            harm.apply(store)
            if harm.name == "unreadable":
                damage.deny(self, store / harm.path)  # root reads everything
            for options in ((), ("--deep",)):
                said = self.answer("verify", store, *options, code=1)
                named = [
                    fault
                    for fault in said["faults"]
                    if fault["path"] == str(store / harm.path) and harm.reason in fault["reason"]
                ]
                self.assertTrue(named, (harm.name, said))
                self.assertEqual(said["faultCount"], len(said["faults"]))
            result = self.run_command("verify", store)
            self.assertEqual(result.exit_code, 1)
            self.assertIn(f"fault: {store / harm.path} at ", result.stdout)

    def test_bit_flip(self) -> None:
        """A flipped bit in the middle is named with its file and offset."""
        store = golden.store(VERSION, "killed")
        rows = [r for r in golden.jsonl(VERSION, "killed-expected.jsonl") if "blank" not in r]
        offset = rows[2000]["physicalOffset"]
        path = damage.log_file(store, offset // damage.SIZE)
        damage.flip(path, offset % damage.SIZE + 90, 3)
        said = self.answer("verify", store, code=1)
        self.assertEqual(len(said["faults"]), 1)
        self.assertEqual(
            (said["faults"][0]["path"], said["faults"][0]["offset"]), (str(path), offset)
        )
        self.assertIn("body crc", said["faults"][0]["reason"])
        self.assertEqual(said["logs"][0]["records"], len(rows) - 1)

    def test_copied_chunk(self) -> None:
        """A chunk copied inside a file is named with its file."""
        store = golden.store(VERSION, "killed")
        path = damage.log_file(store, 3)
        damage.copy_chunk(path, 0, 64 << 10)
        said = self.answer("verify", store, code=1)
        self.assertEqual({fault["path"] for fault in said["faults"]}, {str(path)})

    def test_against(self) -> None:
        """Copies are equal; a copy that is behind is still equal as far as it goes."""
        store, other = golden.store(VERSION), golden.store(VERSION)
        said = self.answer("verify", store, "--against", other)
        self.assertIn("equal from byte 0 to 2652010", said["notes"])
        self.assertEqual(len(said["logs"]), 2)
        self.assertTrue(self.answer("verify", store, "--against", other, "--deep")["ok"])
        cut(LogFolder.load(other / "commitlog", damage.SIZE), 532)
        (other / "abort").touch()
        said = self.answer("verify", store, "--against", other)
        self.assertIn("equal from byte 0 to 532", said["notes"])
        self.assertIn(f"{store / 'commitlog'} is {2652010 - 532} bytes ahead", said["notes"])

    def test_first_difference(self) -> None:
        """The first byte that differs is named, in a place no CRC covers too."""
        store, other = golden.store(VERSION), golden.store(VERSION)
        path = damage.log_file(other, 0)
        damage.flip(path, 208 + 48)  # the born host of the second record
        (fault,) = self.answer("verify", store, "--against", other, code=1)["faults"]
        self.assertEqual(fault["path"], str(damage.log_file(store, 0)))
        self.assertEqual(fault["offset"], 256)
        self.assertIn(f"in {path}; the record begins at byte 208", fault["reason"])

    def test_nothing_in_common(self) -> None:
        """Logs without a common byte are not equal."""
        store, other = golden.store(VERSION), golden.store(VERSION)
        for number in range(4, 11):
            (other / damage.name(number)).unlink()
        for number in range(6):
            (store / damage.name(number)).unlink()
        (other / "checkpoint").unlink()
        said = self.answer("verify", store, "--against", other, code=1)
        self.assertIn("no byte in common", said["faults"][0]["reason"])

    def test_deep_faults(self) -> None:
        """A queue that disagrees is named; how to mend it is said."""
        store = golden.store(VERSION)
        queue = store / "consumequeue" / "GoldenBulk" / "1"
        damage.flip(sorted(queue.iterdir())[0], 39)
        said = self.answer("verify", store, "--deep", code=1)
        self.assertEqual([fault["path"] for fault in said["faults"]], [str(queue)])
        self.assertEqual(said["faults"][0]["offset"], 1)
        self.assertIn("rmqha rebuild", said["notes"][-1])
        self.succeed("verify", store)

    def test_deep_after_crash(self) -> None:
        """What a crash left undispatched is a fault, and why is said."""
        result = self.run_command("verify", golden.store(VERSION, "lag"), "--deep")
        self.assertEqual(result.exit_code, 1)
        self.assertIn("not stopped cleanly", result.stderr)

    def test_limit(self) -> None:
        """Only so many faults are told; all of them are counted."""
        store = golden.store(VERSION, "lag")
        said = self.answer("verify", store, "--deep", "--limit", "3", code=1)
        self.assertEqual(len(said["faults"]), 3)
        self.assertGreater(said["faultCount"], 3)
        text = self.run_command("verify", store, "--deep", "--limit", "3").stdout
        self.assertIn(f"and {said['faultCount'] - 3} more", text)

    def test_deep_needs_a_root(self) -> None:
        """A log alone has no queues."""
        store = golden.store(VERSION)
        folder = Path(self.mktemp())
        shutil.copytree(store / "commitlog", folder)
        self.succeed("verify", folder)
        result = self.run_command("verify", folder, "--deep")
        self.assertEqual(result.exit_code, 2)
        self.assertIn("needs a store's root", result.stderr)

    def test_conf(self) -> None:
        """Sizes can come from a configuration, that of the store that this one is a copy of too;
        its limit on messages says nothing of those that are there.
        """
        store = golden.store(VERSION)
        conf = store.parent / "broker.conf"
        sizes = (
            "mappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=6000\n"
            "maxHashSlotNum=200\nmaxIndexNum=800\nmaxMessageSize=1000\n"
        )
        conf.write_text(f"storePathRootDir={store}\n{sizes}")
        self.succeed("verify", store, "--deep", "--conf", conf)
        conf.write_text(f"storePathRootDir={store}x\n{sizes}")
        result = self.run_command("verify", store, "--deep", "--conf", conf)
        self.assertEqual(result.exit_code, 0)
        self.assertIn(f"is for the store {store}x; its sizes are taken for this one", result.stderr)
        conf.write_text("typo=1\nmaxIndexNum=-1\n")
        result = self.run_command("verify", store, "--deep", "--conf", conf)
        self.assertEqual(result.exit_code, 1)
        self.assertEqual(result.stderr.count("rmqha: "), 2, result.stderr)

    def test_locked(self) -> None:
        """A running node's store may be looked at, and it is said that it runs."""
        store = golden.store(VERSION)
        lock = StoreLock(store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        result = self.run_command("verify", store, "--deep")
        self.assertEqual(result.exit_code, 0)
        self.assertIn("a node is running", result.stderr)

    def test_quarantine(self) -> None:
        """A quarantine file can be checked."""
        store = golden.store(VERSION)
        path = quarantine(store, LogFolder.load(store / "commitlog", damage.SIZE), 532, 2652010)
        said = self.answer("verify", path)
        self.assertEqual((said["logs"][0]["minOffset"], said["logs"][0]["end"]), (532, 2652010))
