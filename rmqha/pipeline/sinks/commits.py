"""The commits of a folder of Parquet files: a small object each, by number.  The last one says what
is in the folder, and how far it is.

Of two jobs only one may add a number.  On a file system a lock keeps others away as long as the
folder is open.  An object store has no locks that end with the process that held them; there a
commit is written only where there is none of its number, and who comes second is told.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from abc import ABC, abstractmethod
from typing import Any

from attrs import define, field

from rmqha.errors import ExtraMissing
from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.parquet import OURS, Shape
from rmqha.tier.objects import ObjectFolder, told_if_slow, unreachable

COMMITS = f"{OURS}/commits"
"""Folder of the commits, below the table's."""

_LOCK = "lock"
"""File below L{OURS} that one job holds."""

_KEPT = 100
"""Commits that stay: what they say of files, the folder itself says too."""

_NUMBER = re.compile(r"(\d{20})(?:\.json)?", re.ASCII)


@define
class Commits(ABC):
    """Those of one folder.

    @ivar alone: Whether no other job can have the folder open.
    """

    _shape: Shape
    alone: bool = field(default=False, init=False)

    @staticmethod
    def of(shape: Shape) -> Commits:
        """Those of a folder, to be looked at; they are opened before one is added."""
        return _FirstCommits(shape) if shape.url else _LockedCommits(shape)

    def last(self) -> tuple[int, dict[str, Any]]:
        """The last commit and its number; 0 if there is none."""
        number = max(self.numbers(), default=0)
        return number, json.loads(self.read(number)) if number else {}

    def add(self, number: int, content: dict[str, Any]) -> None:
        """Add the next one, and drop those that nothing needs.

        @raise TableRefused: If another job has added one of that number.
        """
        self.write(number, json.dumps(content, indent=1))
        numbers = self.numbers()
        if number <= max(numbers) - _KEPT:  # where another one's was, and was dropped since
            self.remove(number)
            raise self.overtaken(number)
        for each in numbers:
            if each <= number - _KEPT:
                self.remove(each)

    def overtaken(self, number: int) -> TableRefused:
        """The error of a job that was not the first."""
        return TableRefused(
            self._shape.place,
            f"another job has committed to it meanwhile (commit {number}); nothing of this batch "
            "was added",
        )

    def numbers(self) -> list[int]:
        """Numbers of those that are kept, ascending."""
        found = map(_NUMBER.fullmatch, self.folder.names(COMMITS))
        return [int(each[1]) for each in found if each is not None]

    @property
    def folder(self) -> ObjectFolder:
        return self._shape.folder

    @abstractmethod
    def open(self) -> None:
        """Keep other jobs away, if that is possible.

        @raise TableRefused: If another job has them open.
        @raise ExtraMissing: If what writes them is not installed.
        """

    @abstractmethod
    def read(self, number: int) -> str:
        """The text of one."""

    @abstractmethod
    def write(self, number: int, text: str) -> None:
        """Write one, as a whole.

        @raise TableRefused: If another job was faster.
        """

    @abstractmethod
    def remove(self, number: int) -> None:
        """Drop one."""

    @abstractmethod
    def close(self) -> None:
        """Let others have the folder."""


@define
class _LockedCommits(Commits):
    """Files, and a lock."""

    _lock: int = field(default=-1, init=False)

    def open(self) -> None:
        shape = self._shape
        (shape.root / COMMITS).mkdir(parents=True, exist_ok=True)
        path = shape.root / OURS / _LOCK
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise TableRefused(shape.place, "another job writes to it") from error
        self.alone = True

    def read(self, number: int) -> str:
        return self.folder.read(_file(number)).decode()

    def write(self, number: int, text: str) -> None:
        self.folder.write(_file(number), [f"{text}\n".encode()])

    def remove(self, number: int) -> None:
        self.folder.remove(_file(number))

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _file(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"


_SAID = "rmqha.commit"
"""What the entry of a Delta log calls our text."""


@define
class _FirstCommits(Commits):
    """Objects that are written only where there is none.

    Each is the first entry of a Delta log of its own, which has no other and no rows.
    """

    def open(self) -> None:
        try:
            import deltalake  # noqa: F401
        except ModuleNotFoundError as error:
            wanted = "a folder of Parquet files in an object store"
            raise ExtraMissing(wanted, "delta", error.name or "") from error

    def read(self, number: int) -> str:
        lines = self.folder.read(_entry(number)).decode().splitlines()
        said = [json.loads(line).get("commitInfo", {}) for line in lines]
        return next(str(each[_SAID]) for each in said if _SAID in each)

    def write(self, number: int, text: str) -> None:
        from deltalake.exceptions import DeltaError

        try:
            with told_if_slow(self.folder.shown(_entry(number))):
                begin_log(f"{self._shape.place}/{_log(number)}", text)
        except (DeltaError, OSError) as error:
            # An answer may be lost: what was written tells who was first.
            try:
                mine = self.read(number) == text
            except FileNotFoundError:
                shown = self.folder.shown(_entry(number))
                raise unreachable(shown, error) from error
            if not mine:
                raise self.overtaken(number) from error

    def remove(self, number: int) -> None:
        self.folder.remove_folder(_log(number))

    def close(self) -> None:
        pass


def begin_log(url: str, text: str) -> None:
    """Write the first entry of a Delta log, unless there is one.  pyarrow cannot write so, and
    deltalake can.

    @param text: What it says.
    """
    from deltalake import CommitProperties, DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    properties = CommitProperties(custom_metadata={_SAID: text}, max_commit_retries=0)
    columns = Schema([Field("none", PrimitiveType("long"))])  # it has to have one
    DeltaTable.create(url, columns, mode="error", commit_properties=properties)


def _log(number: int) -> str:
    return f"{COMMITS}/{number:020d}"


def _entry(number: int) -> str:
    return f"{_log(number)}/_delta_log/{0:020d}.json"
