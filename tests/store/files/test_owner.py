"""Tests for L{rmqha.store.files.owner}, and of the commands that work as a store's owner.

Only root can be somebody else; without it most are skipped.
"""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import skipUnless

from twisted.internet.defer import fail
from twisted.logger import formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from rmqha.ha.promotion import promote
from rmqha.roles.host.exit_codes import FOR_A_PERSON, exit_code
from rmqha.store.files.owner import ForeignFile, NotTheOwner, Owner, as_owner
from tests.cli.command import CommandTestCase
from tests.ha.test_promotion import SIZES, PromotionTestCase
from tests.support.derived import settings

NOBODY = 65534
NAME = Owner(NOBODY, NOBODY).name

needs_root = skipUnless(os.geteuid() == 0, "only root can give files away")


def give(root: Path, uid: int = NOBODY, gid: int = NOBODY) -> None:
    """Give a folder away, with all that is in it."""
    for path in (root, *root.rglob("*")):
        os.chown(path, uid, gid)


def foreign(root: Path, uid: int = NOBODY, gid: int = NOBODY) -> list[str]:
    """What in a folder is not somebody's."""
    found = [path for path in (root, *root.rglob("*")) if path.exists()]
    return [
        str(path.relative_to(root))
        for path in found
        if (path.stat().st_uid, path.stat().st_gid) != (uid, gid)
    ]


@contextmanager
def as_user() -> Iterator[None]:
    """Be the owner, and nobody else: root's right to read is gone too."""
    codecs.lookup("utf-8-sig")  # or it is read when that is not allowed any more
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@needs_root
class OwnerTests(PromotionTestCase, CommandTestCase):
    def setUp(self) -> None:
        """Give it away, in a folder that everybody can reach."""
        super().setUp()
        self.root.parent.chmod(0o755)
        give(self.root)
        self.addCleanup(self.assertEqual, (0, 0), (os.geteuid(), os.getegid()))

    def test_as_owner(self) -> None:
        """What is made belongs to the owner at once, and we are root again in the end."""
        groups = os.getgroups()
        secret = self.folder() / "of-root"
        secret.write_text("x", encoding="ascii")
        with as_owner(self.root, self.root / "commitlog"):
            (self.root / "made").mkdir()
            (self.root / "made" / "file").write_text("x", encoding="ascii")
            self.assertEqual(foreign(self.root), [])
            self.assertEqual(secret.read_text(encoding="ascii"), "x")
            self.assertRaises(PermissionError, secret.write_text, "y", encoding="ascii")
        self.assertEqual(groups, os.getgroups())
        secret.write_text("z", encoding="ascii")
        with self.assertRaises(ZeroDivisionError), as_owner(self.root, self.root / "commitlog"):
            raise ZeroDivisionError
        self.assertEqual(os.geteuid(), 0)

    def test_promote(self) -> None:
        """At no step of a promotion by root is anything in the store not its owner's."""
        self.tear()
        (self.root / "abort").write_text("1", encoding="ascii")
        give(self.root)
        (self.root / "lock").unlink()
        shutil.rmtree(self.root / "rmqha")
        seen: list[str] = []

        def step(name: str) -> None:
            seen.append(name)
            self.assertEqual(foreign(self.root), [], name)

        self.assertTrue(promote(settings(self.root, **SIZES), step=step).quarantine)
        self.assertGreater(len(seen), 5)
        self.assertEqual(foreign(self.root), [])

    def test_commands(self) -> None:
        """Both commands leave a store that its owner can open."""
        for command in ("rebuild", "promote"):
            self.succeed(command, self.root)
            self.assertEqual(foreign(self.root), [], command)
        with as_owner(self.root, self.root / "commitlog"):
            self.close_store(self.opened(self.root, settings=SIZES))

    def test_node(self) -> None:
        """A node of the owner's names the file that root made, whatever it is, and the next start
        is for a person; one of root's warns that it makes such files.
        """
        for name in ("lock", "commitlog", "commitlog/" + "0" * 20):
            os.chown(self.root / name, 0, 0)
            (self.root / name).chmod(0o600)
            service = self.service(self.root, settings=SIZES)
            with as_user():
                ready = service.ready
                try:
                    service.startService()
                except ForeignFile:
                    ready = fail(Failure())
            error = self.failureResultOf(ready, ForeignFile).value
            self.assertEqual((error.owner, error.wanted), ("root", NAME), name)
            self.assertIn(name, error.path)
            self.assertEqual(exit_code(error), FOR_A_PERSON)
            (self.root / name).chmod(0o700)
            give(self.root)
        warned: list[str] = []
        globalLogPublisher.addObserver(lambda event: warned.append(formatEvent(event)))
        self.close_store(self.opened(self.root, settings=SIZES))
        self.assertIn(
            f"and this node runs as root: what it makes keeps a node of {NAME}", str(warned)
        )

    def test_foreign_file(self) -> None:
        """What the owner cannot write is named before anything is changed."""
        for name in ("lock", "commitlog", "consumequeue/TopicA/0/" + "0" * 20):
            os.chown(self.root / name, 0, 0)
            before = {path: path.stat().st_mtime_ns for path in self.root.rglob("*")}
            with self.assertRaises(ForeignFile) as caught:
                promote(self.settings)
            self.assertEqual(
                (caught.exception.path, caught.exception.owner, caught.exception.wanted),
                (str(self.root / name), "root", NAME),
            )
            said = self.fails(1, "rebuild", self.root)
            self.assertIn(f"belongs to root, the store to {NAME}", said)
            after = {path: path.stat().st_mtime_ns for path in self.root.rglob("*")}
            self.assertEqual(before, after)
            give(self.root)

    def test_mount_point(self) -> None:
        """The root's own folder, on which a volume is mounted, does not make it root's."""
        os.chown(self.root, 0, 0)
        self.root.chmod(0o777)
        self.assertEqual(Owner.of(self.root, self.root / "commitlog"), Owner(NOBODY, NOBODY))
        promote(self.settings)
        self.assertEqual(foreign(self.root), ["."])

    def test_another_user(self) -> None:
        """Whoever is neither root nor the owner is told whom the store belongs to."""
        give(self.root, 12345)
        os.seteuid(NOBODY)
        try:
            with self.assertRaises(NotTheOwner) as caught:
                promote(self.settings)
        finally:
            os.seteuid(0)
        said = str(caught.exception)
        self.assertIn(f"belongs to 12345, and {NAME} cannot act as that user", said)
        self.assertEqual(foreign(self.root, 12345), [])

    def test_not_permitted(self) -> None:
        """So is a root that may not become somebody else, as in some containers."""

        def refuse(uid: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        self.patch(os, "seteuid", refuse)
        with self.assertRaises(NotTheOwner):
            promote(self.settings)
        self.assertEqual((os.geteuid(), foreign(self.root)), (0, []))


class OwnStoreTests(PromotionTestCase):
    def test_own(self) -> None:
        """Nothing is different, whoever we are."""
        uid, gid = os.geteuid(), os.getegid()
        with as_owner(self.root, self.root / "commitlog"):
            self.assertEqual((os.geteuid(), os.getegid()), (uid, gid))
        promote(self.settings)
        self.assertEqual(foreign(self.root, uid, gid), [])
