"""The file of accounts, on the disk."""

from __future__ import annotations

import os
import stat

from twisted.internet.defer import fail
from twisted.internet.task import Clock

from rmqha.broker.access.acl_file import LONGEST_READ, LOOK_EVERY, AclFile, read_accounts
from rmqha.net.key_file import KeyFileInvalid
from rmqha.store.files.one_thread import ThreadNotStarted
from tests.support.access_table import PLAIN_ACL
from tests.support.log_lines import log_events
from tests.support.logs import Held, LogTestCase, now


class AclFileTests(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.path = self.folder() / "plain_acl.yml"
        self.path.write_bytes(PLAIN_ACL.read_bytes())
        self.path.chmod(0o600)
        self.file = AclFile(path=self.path, clock=self.clock, in_thread=now)

    def write(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")

    def edit(self, old: str, new: str) -> None:
        text = self.path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        self.write(text.replace(old, new))

    def wait(self) -> None:
        self.clock.advance(LOOK_EVERY)

    def faults(self) -> list[str]:
        """Why the node is not well."""
        return [reason.text for reason in self.file.health()]

    def test_reload(self) -> None:
        """What is changed in the file is in force a second later."""
        self.file.start()
        self.assertIn("producer", self.file.table.accounts)
        self.edit("accessKey: producer", "accessKey: newcomer")
        self.wait()
        self.assertNotIn("producer", self.file.table.accounts)
        self.assertIn("newcomer", self.file.table.accounts)

    def test_broken(self) -> None:
        """A file that cannot be used changes nothing, and is told, without its secret line."""
        self.file.start()
        good = self.path.read_text(encoding="utf-8")
        for broken in (good.replace("secretKey: 12345678", "secretKey: [12345678"), "", "a: 1\n"):
            self.write(broken + "accounts: 5\n" if broken == "a: 1\n" else broken)
            self.wait()
            self.wait()
            self.assertIn("producer", self.file.table.accounts)
            (fault,) = self.faults()
            self.assertIn(str(self.path), fault)
            self.assertNotIn("12345678", fault)
        self.write(good)
        self.wait()
        self.assertEqual([], self.faults())
        self.path.unlink()
        self.wait()
        self.assertIn("No such file", *self.faults())
        self.assertIn("producer", self.file.table.accounts)

    def test_unforeseen(self) -> None:
        """So does one that cannot be read in a way that nobody thought of: an account that is not
        in it any more is not taken for one that is, in silence.
        """
        self.file.start()
        for value in ("!!float 'x'", "!!timestamp '2026-13-45'", "!!int 'x'", "[" * 3000):
            self.write(f"accounts:\n- accessKey: newcomer\n  secretKey: {value}\n")
            self.wait()
            (fault,) = self.faults()
            self.assertIn(str(self.path), fault)
            self.assertIn("those read before are in force", fault)
        self.write("accounts: []\n")
        self.wait()
        self.assertEqual([], self.faults())
        self.assertNotIn("producer", self.file.table.accounts)

    def test_as_written(self) -> None:
        """A secret is what stands there, whatever else YAML would take it for."""
        secrets = ("2026-13-45", "0123456789", "1_000_000", "12:30:45", "0x1234567", "9" * 5000)
        rows = "".join(
            f"- accessKey: account-{number}\n  secretKey: {secret}\n  admin: yes\n"
            for number, secret in enumerate(secrets)
        )
        self.write(f"accounts:\n{rows}dataVersion:\n- counter: 7\n  timestamp: 8\n")
        self.file.start()
        accounts = self.file.table.accounts.values()
        self.assertEqual(secrets, tuple(account.secret_key for account in accounts))
        self.assertTrue(all(account.admin for account in accounts))
        self.successResultOf(self.file.change(lambda table: table.with_white(("10.0.0.1",), 9)))
        written = read_accounts(self.path)
        self.assertEqual(written, self.file.table)
        self.assertEqual((written.version.counter, written.version.timestamp), (8, 9))

    def test_no_file(self) -> None:
        """What is no file of a disk, such as a pipe that nobody writes to, is not waited for."""
        self.file.start()
        good = self.path.read_bytes()
        self.path.unlink()
        os.mkfifo(self.path)
        self.wait()
        self.assertIn("no regular file", *self.faults())
        self.path.unlink()
        self.path.mkdir()
        self.wait()
        self.assertIn("no regular file", *self.faults())
        again = AclFile(path=self.path, clock=self.clock, in_thread=now)
        self.assertRaises(KeyFileInvalid, again.start)
        self.path.rmdir()
        self.path.write_bytes(good)
        self.wait()
        self.assertEqual([], self.faults())

    def test_read_that_hangs(self) -> None:
        """A read that does not return makes the node unhealthy after ten seconds, and changes are
        refused; a stop does not wait for it.
        """
        held = Held()
        self.file = AclFile(path=self.path, clock=self.clock, in_thread=held)
        self.file.start()
        self.wait()
        self.clock.advance(LONGEST_READ - 0.1)
        self.assertEqual([], self.faults())
        self.clock.advance(0.1)
        self.assertIn("has not been read for 10 s", *self.faults())
        self.failureResultOf(self.file.change(lambda table: table), KeyFileInvalid)
        self.file.stop()
        held.work()
        self.assertEqual([], self.faults())

    def test_no_thread(self) -> None:
        """A look for which there is no thread is a fault too, until there is one again."""
        self.file.start()
        self.file.in_thread = lambda look: fail(ThreadNotStarted("accounts", "no room"))
        self.wait()
        self.assertIn("no room", *self.faults())
        self.file.in_thread = now
        self.wait()
        self.assertEqual([], self.faults())
        self.flushLoggedErrors(ThreadNotStarted)

    def test_mended(self) -> None:
        """A file that is put back as it was is well again."""
        self.file.start()
        aside = self.path.with_suffix(".aside")
        os.rename(self.path, aside)
        self.wait()
        os.rename(aside, self.path)
        self.wait()
        self.assertEqual([], self.faults())

    def test_folder(self) -> None:
        """More files in a folder C{acl}, which a stock broker reads, keep a node from its start,
        and one that runs as it was; a folder without any is none.
        """
        folder = self.path.parent / "acl"
        folder.mkdir()
        (folder / "README").touch()
        self.file.start()
        more = [folder / name for name in ("more.yml", "others.yaml")]
        for path in more:
            path.write_bytes(PLAIN_ACL.read_bytes())
        self.wait()
        (fault,) = self.faults()
        for text in (str(folder), "more.yml, others.yaml", str(self.path)):
            self.assertIn(text, fault)
        self.assertIn("producer", self.file.table.accounts)
        self.failureResultOf(self.file.change(lambda table: table), KeyFileInvalid)
        again = AclFile(path=self.path, clock=self.clock, in_thread=now)
        self.assertRaises(KeyFileInvalid, again.start)
        for path in more:
            path.unlink()
        self.wait()
        self.assertEqual([], self.faults())
        self.flushLoggedErrors()

    def test_folders_below(self) -> None:
        """So do files in folders below it, and behind a link; a link back is not endless."""
        folder, elsewhere = self.path.parent / "acl", self.folder()
        (folder / "team" / "one").mkdir(parents=True)
        (folder / "team" / "again").symlink_to(folder)
        self.file.start()
        path = folder / "team" / "one" / "x.yml"
        path.touch()
        self.wait()
        self.assertIn("team/one/x.yml would not be read", *self.faults())
        path.rename(elsewhere / "x.yml")
        (folder / "linked").symlink_to(elsewhere)
        self.wait()
        self.assertIn("linked/x.yml would not be read", *self.faults())
        self.flushLoggedErrors()

    def test_folder_not_listed(self) -> None:
        """A folder that cannot be listed is not taken for an empty one."""
        folder = self.path.parent / "acl"
        folder.symlink_to(folder)
        error = self.assertRaises(KeyFileInvalid, self.file.start)
        self.assertIn(f"{folder}: Too many levels", str(error))

    def test_start(self) -> None:
        """Without a file that can be used there is no start."""
        self.path.unlink()
        self.assertRaises(KeyFileInvalid, self.file.start)
        self.write("accounts: [{}]")
        error = self.assertRaises(KeyFileInvalid, self.file.start)
        self.assertIn(str(self.path), str(error))

    def test_change(self) -> None:
        """A change is on the disk and in force, with the file's permissions, over what is there."""
        self.file.start()
        self.path.chmod(0o640)
        self.edit("accessKey: producer", "accessKey: newcomer")
        self.successResultOf(
            self.file.change(lambda table: table.without_account("consumer", 1000))
        )
        self.assertEqual(0o640, stat.S_IMODE(self.path.stat().st_mode))
        written = read_accounts(self.path)
        self.assertEqual(written, self.file.table)
        self.assertIn("newcomer", written.accounts)
        self.assertNotIn("consumer", written.accounts)
        self.assertEqual([self.path], list(self.path.parent.iterdir()))
        self.wait()
        self.assertEqual(written, self.file.table)

    def test_impossible(self) -> None:
        """A change that cannot be made leaves the file as it is."""
        self.file.start()
        before = self.path.read_bytes()
        failed = self.file.change(lambda table: table.without_account("nobody", 1))
        self.failureResultOf(failed, KeyFileInvalid)
        self.assertEqual(before, self.path.read_bytes())

    def test_readable(self) -> None:
        """A file that others may read is warned of."""
        events = log_events(self)
        self.path.chmod(0o644)
        self.file.start()
        self.assertTrue(any("chmod 600" in str(event["log_format"]) for event in events))
