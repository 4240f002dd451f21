"""The file of accounts: read at the start, again when somebody has changed it, and written where an
administrator asks for it.

A file that cannot be used any more changes nothing: the accounts that were read last stay in force,
and the node says so until it is mended.  So it does while a read does not return, from a file
system that is gone: no stop waits for that.

A stock broker also reads each file in a folder C{acl} beside it, and in the folders below.  Here
an account stands in one place; files that are there are refused like a file that cannot be used, as
whoever put them there relies on what they say.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.access.accounts import AccessTable
from rmqha.broker.access.errors import AclInvalid
from rmqha.health import HealthReason
from rmqha.logfiles.json_table import fsync_folder
from rmqha.net.key_file import KeyFileInvalid, read_regular, texts_in, understood
from rmqha.periodic import Watch

LOOK_EVERY = 1.0
"""Seconds between two looks whether the file was changed; stock brokers' are half of it."""

LONGEST_READ = 10.0
"""Seconds after which a read that is not over is told."""

FOLDER = "acl"
"""The folder of more files, beside the file."""

NEW_FILE = 0o600
"""The permissions of a file that lacked them: there are secrets in it."""

Change = Callable[[AccessTable], AccessTable]
"""Makes another table of one; raises L{AclInvalid} if that is impossible."""


@define(eq=False, kw_only=True)
class AclFile(Watch):
    """C{plain_acl.yml}, and what it says.

    @ivar in_thread: Runs what blocks, one thing at a time, in a thread that nobody waits for.
    @ivar table: What is in force.  A thread replaces it, so whoever looks twice keeps it.
    @ivar fault: Why the file cannot be used as it is now; empty if it can.
    """

    path: Path
    clock: IReactorTime
    in_thread: Callable[..., Deferred[Any]]
    table: AccessTable = field(factory=AccessTable, init=False)
    fault: str = field(default="", init=False)
    _raw: bytes = field(default=b"", init=False, repr=False)
    _begun: float | None = field(default=None, init=False)

    job = "reading changed accounts"
    every = LOOK_EVERY
    _log = Logger()

    def start(self) -> None:
        """Read it now, and again whenever it has changed.

        @raise KeyFileInvalid: If it cannot be used.
        """
        self._read()
        if self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            self._log.warn(
                "Others than its owner may read the secret keys in {path}: chmod 600 it",
                path=self.path,
            )
        self._log.info(
            "Access control is on: {count} accounts in {path}",
            count=len(self.table.accounts),
            path=self.path,
        )
        super().start()

    def change(self, change: Change) -> Deferred[None]:
        """Change it, on the disk and in force.

        @return: Fires when that is done.  Fails with L{KeyFileInvalid}, or C{OSError} if it cannot
            be written.
        """
        if self._hangs:
            return fail(AclInvalid(str(self.path), self._hangs))
        return self.in_thread(self._change, change)

    def health(self) -> Iterator[HealthReason]:
        """A file that cannot be used as it is, or that a thread does not come back from."""
        fault = f"{self.path}: {self._hangs}" if self._hangs else self.fault
        if fault:
            yield HealthReason("accounts", f"{fault}; those read before are in force")

    @property
    def _hangs(self) -> str:
        """That the file is being read for too long; empty if it is not."""
        took = 0.0 if self._begun is None else self.clock.seconds() - self._begun
        return f"this has not been read for {took:.0f} s" if took >= LONGEST_READ else ""

    # --- in a thread, but for the first time ------------------------------------------

    def look(self) -> Deferred[None]:
        before, fault = self.table, self.fault
        self._begun = self.clock.seconds()

        def looked(_: None) -> None:
            if self.table is not before:
                self._log.info(
                    "Read {count} accounts from {path}, which has changed",
                    count=len(self.table.accounts),
                    path=self.path,
                )
            if self.fault and self.fault != fault:
                self._log.error(
                    "{fault}; the accounts that were read before stay in force", fault=self.fault
                )

        return self.in_thread(self._tried).addBoth(self._over).addCallback(looked)

    def _over(self, result: Any) -> Any:
        self._begun = None
        if isinstance(result, Failure):
            # There was no thread for it, or what was not foreseen.
            self.fault = f"{self.path}: this was not read: {result.getErrorMessage()}"
        return result

    def _tried(self) -> None:
        """Read it, if it has changed; what is wrong with it is kept in L{fault}."""
        with suppress(KeyFileInvalid):
            self._read()

    def _read(self) -> None:
        """@raise KeyFileInvalid: If it cannot be used."""
        try:
            _refuse_others(self.path)
            raw = read_regular(self.path)
            if raw != self._raw or self.fault:
                self.table = _table(raw, self.path)
        except KeyFileInvalid as error:
            self.fault = str(error)
            raise
        self._raw, self.fault = raw, ""

    def _change(self, change: Change) -> None:
        self._read()
        table = change(self.table)
        raw = yaml.safe_dump(table.content(), sort_keys=False).encode()
        _replace(self.path, raw)
        self.table, self._raw = table, raw


def read_accounts(path: Path) -> AccessTable:
    """What such a file says now.

    @raise KeyFileInvalid: If it cannot be used.
    """
    _refuse_others(path)
    return _table(read_regular(path), path)


def _refuse_others(path: Path) -> None:
    """@raise AclInvalid: If there are more files of accounts, or if that cannot be seen."""
    folder = path.parent / FOLDER
    with understood(folder):
        found = sorted(str(each.relative_to(folder)) for each in _accounts_below(folder))
    if found:
        reason = f"{', '.join(found)} would not be read: one file has all accounts, {path}"
        raise AclInvalid(str(folder), reason)


def _accounts_below(folder: Path) -> Iterator[Path]:
    """@raise AclInvalid: If a folder cannot be listed."""
    seen: set[str] = set()
    for where, folders, names in os.walk(folder, onerror=_not_listed, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()  # a link to a folder that it is in
            continue
        seen.add(real)
        yield from (Path(where, name) for name in names if name.endswith((".yml", ".yaml")))


def _not_listed(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise AclInvalid(str(error.filename), error.strerror or str(error)) from error


def _table(raw: bytes, path: Path) -> AccessTable:
    """@raise KeyFileInvalid: If that is no file of accounts."""
    with understood(path):
        try:
            return AccessTable.read(texts_in(raw, path))
        except AclInvalid as error:
            raise AclInvalid(str(path), str(error)) from None


def _replace(path: Path, data: bytes) -> None:
    """Write a file anew, with the permissions and the owner that it had; durable on return."""
    before = path.stat()
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, NEW_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        os.fsync(file.fileno())
    os.replace(new, path)
    fsync_folder(path.parent)
