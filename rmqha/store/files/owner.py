"""Whose a store is, for commands that change it while no node runs.

A node runs as a user of its own, and whoever repairs or promotes its store is root as often as
not.  A lock, a table or a queue of root's is a store that the node cannot open, in the middle of
a failover.  So such a command does not give away what it made: while it works it I{is} the owner,
as far as the kernel is concerned.  Then everything is the owner's from its first moment, a kill
at any place leaves nothing else, and what the owner may not write is found before anything is
changed.  Only to read it stays root: this Python, or tables that were copied here, may lie where
nobody else can look.

Source: docs/operations.rst, The owner of a store.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from rmqha.errors import StoreError

ROOT = 0
"""The user who may everything."""

CAP_DAC_READ_SEARCH = 1 << 2
"""The right to read any file and to look into any folder (capabilities(7))."""

_CAPABILITIES = struct.Struct("=6I")
"""Of one process: effective, permitted, inheritable, and the same for those above 31
(C{struct __user_cap_data_struct}, twice)."""

_VERSION_3 = struct.pack("=Ii", 0x20080522, 0)
"""C{struct __user_cap_header_struct}: that form, and the thread that asks."""


class ForeignFile(StoreError):
    """The owner of a store cannot write a part of it."""

    sentence = (
        "{path} belongs to {owner}, the store to {wanted}, who cannot write "
        "it: give the whole store to {wanted} with chown -R"
    )
    path: str
    owner: str
    wanted: str


class NotTheOwner(StoreError):
    """A command is to change a store of another user's."""

    sentence = (
        "{path} belongs to {owner}, and {user} cannot act as that user: what "
        "is made here would keep the node from starting; use sudo -u {owner}"
    )
    path: str
    owner: str
    user: str


@frozen
class Owner:
    """A user and a group."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        """The user's name; the number, where nobody has given it one."""
        return _name(self.uid)

    @classmethod
    def of(cls, root: Path, commitlog: Path) -> Owner:
        """Whom a store belongs to: the owner of its folder.  Where that is root's, as the mount
        point of a volume is, the owner of the folder with the log, which a node makes.
        """
        found = cls(ROOT, ROOT)
        for folder in (root, commitlog):
            if found.uid == ROOT and folder.exists():
                at = folder.stat()
                found = cls(at.st_uid, at.st_gid)
        return found


@contextmanager
def as_owner(root: Path, commitlog: Path) -> Iterator[None]:
    """Do what the block does as the owner of a store.  The whole process does: nothing else may be
    under way.

    @param root: The store's root.
    @param commitlog: The folder with its log, wherever that is.
    @raise NotTheOwner: If this process is not the owner and cannot become it.
    @raise ForeignFile: If the owner cannot write what is there already.
    """
    owner, before = Owner.of(root, commitlog), Owner(os.geteuid(), os.getegid())
    if owner.uid == before.uid:
        _refuse_foreign((root, commitlog), owner)
        yield
        return
    if before.uid != ROOT:
        raise NotTheOwner(str(root), owner.name, before.name)
    groups = os.getgroups()
    try:
        os.setgroups(os.getgrouplist(owner.name, owner.gid) if _known(owner.uid) else [owner.gid])
        os.setegid(owner.gid)
        os.seteuid(owner.uid)
    except PermissionError as error:
        _become(before, groups)
        raise NotTheOwner(str(root), owner.name, before.name) from error
    try:
        _keep_reading()
        _refuse_foreign((root, commitlog), owner)
        yield
    finally:
        _become(before, groups)


def access_error(error: PermissionError, root: Path, commitlog: Path) -> StoreError:
    """What keeps a node out of its store, with whose it is and what helps."""
    owner, user = Owner.of(root, commitlog), os.geteuid()
    path = str(error.filename or root)
    if owner.uid not in (ROOT, user):
        return NotTheOwner(str(root), owner.name, _name(user))
    try:
        theirs = _name(os.stat(path).st_uid)
    except OSError:
        theirs = "another user"
    return ForeignFile(path, theirs, _name(user))


def doubt(root: Path, commitlog: Path) -> str:
    """Why what this process makes may keep the next node from its store; empty if it does not."""
    owner, user = Owner.of(root, commitlog), os.geteuid()
    if owner.uid in (ROOT, user):
        return ""
    return (
        f"{root} belongs to {owner.name}, and this node runs as {_name(user)}: what it makes keeps "
        f"a node of {owner.name} from starting; stop it and chown -R {owner.name} {root}"
    )


def _keep_reading() -> None:
    """Take the right to read everything back, which root gave up with its effective user.  Where
    that is impossible, what the owner cannot read cannot be read.
    """
    libc = ctypes.CDLL(None)
    data = ctypes.create_string_buffer(_CAPABILITIES.size)
    if libc.capget(ctypes.create_string_buffer(_VERSION_3), data) != 0:
        return
    effective, permitted, *others = _CAPABILITIES.unpack(data.raw)
    effective |= permitted & CAP_DAC_READ_SEARCH
    data.raw = _CAPABILITIES.pack(effective, permitted, *others)
    libc.capset(ctypes.create_string_buffer(_VERSION_3), data)


def _become(user: Owner, groups: list[int]) -> None:
    """Be root again, whatever was changed."""
    if os.geteuid() != user.uid:
        os.seteuid(user.uid)
    if os.getegid() != user.gid:
        os.setegid(user.gid)
    if os.getgroups() != groups:
        os.setgroups(groups)


def _refuse_foreign(folders: Iterable[Path], owner: Owner) -> None:
    """Refuse the first file or folder of another's that this process may not write."""
    if owner.uid == ROOT:
        return
    for folder in folders:
        if folder.exists():
            _look_through(str(folder), owner)


def _look_through(folder: str, owner: Owner) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_uid != owner.uid and not os.access(
                    entry.path, os.R_OK | os.W_OK, effective_ids=True
                ):
                    raise ForeignFile(entry.path, _name(found.st_uid), owner.name)
                if entry.is_dir(follow_symlinks=False):
                    _look_through(entry.path, owner)
    except PermissionError as error:
        raise ForeignFile(folder, _name(os.stat(folder).st_uid), owner.name) from error
    except FileNotFoundError:
        # A node is running on it, and has deleted something: the lock will tell.
        return


def _known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name if _known(uid) else str(uid)
