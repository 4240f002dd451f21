"""Which member of its set a store belongs to.

The controller gives each member an id once.  It belongs to the log: a store without the file is a
new member, and gets a new id.  While an id is applied for, a second file holds it with a check
code, so that whoever comes again after a crash asks for the same.

Source: docs/protocol/controller.rst, Identity.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from attrs import frozen

from rmqha.errors import StoreError
from rmqha.logfiles.json_table import fsync_folder
from rmqha.wire.store_layout import BROKER_IDENTITY, NEW_SUFFIX

APPLIED_SUFFIX = "-temp"
"""What the name of the second file ends with."""

_MARK = "#"
_MOST_DIGITS = 19


class IdentityInvalid(StoreError):
    """The file that says which member of its set a store belongs to cannot be read, or speaks of
    another set.
    """

    sentence = "{path}: {reason}"
    path: str
    reason: str


@frozen(kw_only=True)
class Identity:
    """A member, or who wants to be one.

    @ivar id: Its controller id, at least 1.
    @ivar check_code: With which the id is applied for; empty once it is given.
    """

    cluster: str
    name: str
    id: int
    check_code: str = ""

    @classmethod
    def parse(cls, text: str, *, applied: bool = False) -> Self:
        """Read a file's text.

        @param applied: Whether a check code belongs to it.
        @raise ValueError: Saying what is wrong.
        """
        parts = text.split(_MARK)
        if len(parts) != (4 if applied else 3):
            raise ValueError(f"{text[:64]!r} has {len(parts)} parts")
        cluster, name, number, *code = parts
        if not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
            raise ValueError(f"{number[:32]!r} is no id")
        if int(number) < 1:
            raise ValueError(f"id {number} is less than 1")
        if not all((cluster, name, *code)):
            raise ValueError(f"{text[:64]!r} has an empty part")
        return cls(cluster=cluster, name=name, id=int(number), check_code="".join(code))

    def render(self) -> str:
        """The file's text.

        @raise ValueError: If a part has what stands between them.
        """
        parts = [self.cluster, self.name, str(self.id)]
        if self.check_code:
            parts.append(self.check_code)
        for part in parts:
            if _MARK in part:
                raise ValueError(f"{part[:64]!r} has {_MARK!r} in it")
        return _MARK.join(parts)


@frozen(kw_only=True)
class IdentityFiles:
    """The two files of one store.

    @ivar path: That of the identity; the other one is beside it.
    @ivar cluster: The member's cluster, as configured.
    @ivar name: The name of its set, as configured.
    """

    path: Path
    cluster: str
    name: str

    @classmethod
    def of(cls, root: Path, cluster: str, name: str) -> Self:
        """Those of a store.

        @param root: The store's root.
        """
        return cls(path=root / BROKER_IDENTITY, cluster=cluster, name=name)

    @property
    def applied_path(self) -> Path:
        """The file of an id that is applied for."""
        return self.path.with_name(self.path.name + APPLIED_SUFFIX)

    def read(self) -> Identity | None:
        """The identity; C{None} without a file.

        @raise IdentityInvalid: If it cannot be read, or is one of another set.
        """
        return self._read(self.path, applied=False)

    def applied(self) -> Identity | None:
        """What is applied for; C{None} without a file.

        @raise IdentityInvalid: If it cannot be read, or is one of another set.
        """
        return self._read(self.applied_path, applied=True)

    def apply(self, number: int, check_code: str) -> Identity:
        """Note what is applied for; durable on return.

        @raise IdentityInvalid: If it cannot be written.
        """
        applied = Identity(cluster=self.cluster, name=self.name, id=number, check_code=check_code)
        self._write(self.applied_path, applied)
        return applied

    def given(self, applied: Identity) -> Identity:
        """The controller has given the id: it is the store's from now on; durable on return.

        @raise IdentityInvalid: If it cannot be written.
        """
        identity = Identity(cluster=applied.cluster, name=applied.name, id=applied.id)
        self._write(self.path, identity)
        self.withdraw()
        return identity

    def withdraw(self) -> None:
        """Nothing is applied for any more."""
        self.applied_path.unlink(missing_ok=True)
        fsync_folder(self.path.parent)

    def _read(self, path: Path, *, applied: bool) -> Identity | None:
        try:
            found = Identity.parse(path.read_text(encoding="utf-8"), applied=applied)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise IdentityInvalid(str(path), str(error)) from None
        if (found.cluster, found.name) != (self.cluster, self.name):
            raise IdentityInvalid(
                str(path),
                f"it is of set {found.name} in cluster {found.cluster}, and the configuration says "
                f"{self.name} in {self.cluster}",
            )
        return found

    def _write(self, path: Path, identity: Identity) -> None:
        try:
            text = identity.render()
        except ValueError as error:
            raise IdentityInvalid(str(path), str(error)) from None
        new = path.with_name(path.name + NEW_SUFFIX)
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        fsync_folder(path.parent)
