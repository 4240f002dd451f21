"""A folder of objects: in S3, in HDFS, in whatever else pyarrow knows, or on a mounted file system.

An object store puts an object there as a whole; on a file system it is written aside and renamed.
So who reads sees none that is being written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, urlsplit

from attrs import field, frozen

from rmqha.errors import ExtraMissing
from rmqha.tier.errors import TierObjectSize, TierPlaceInvalid, TierRefused, TierUnreachable
from rmqha.wire.store_layout import NEW_SUFFIX

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_log = getLogger(__name__)

_S3 = "s3://"

PATIENCE = 10.0
"""Seconds after which it is told that a request is not answered."""

_TOLD_AGAIN = 30.0
"""Most seconds between two such lines."""

ANSWER_MOST = 25.0
"""Seconds that S3 may take for an answer: pyarrow's own 3 are too few for a busy server, which
then never answers anything."""

_TRIES = 5
"""How often a request of S3 is made that is not answered, or put off (C{SlowDown}): in some four
seconds if it says so at once, in two minutes if it never does."""

_AT_ONCE = 8 << 20
"""Bytes of a file that are in memory while it is sent."""

WITH_FOLDERS = ("local", "py::hdfs")
"""Kinds of file systems, in pyarrow's words, on which a file is renamed as a whole."""

_NOISE = re.compile(r"\x1b\[[0-9;]*m|^\s*at .*", re.MULTILINE)
"""Colours, and the lines of a Java stack."""

_KEYS = "correct the keys, what they may do there, or this host's clock"

_MENDS = {
    "NoSuchBucket": "make the bucket, or correct the URL",
    "AccessDenied": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "PermanentRedirect": "say the bucket's own region",
}
"""What S3 calls what only a person mends, and how."""

_HINTS = {
    "RequestTimeTooSkewed": "this host's clock differs too much from the server's: set it",
    "ExpiredToken": "renew the token",
}
"""The same of what may be mended by itself, as a clock is by NTP."""

_PUT_OFF_SMALL = "Failed to flush response stream"
"""What pyarrow says of an answer that is longer than the object: C{SlowDown}, for a small one."""


def shown_url(url: str) -> str:
    """A URL without what may be secret: its user, its password, its options."""
    parts = urlsplit(url)
    if not parts.scheme:
        return parts.path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def words_of(error: Exception) -> str:
    """What a library says of an error, on one line."""
    return " ".join(_NOISE.sub("", str(error)).split()).replace(" ↳", ":")


def unreachable(shown: str, error: Exception) -> TierUnreachable:
    """The error of an object store that did not do what it was asked for.

    @param shown: What was asked for, for people.
    @param error: What a library made of its answer.
    """
    words = words_of(error)
    said = words.replace("_", "").lower()  # pyarrow says NO_SUCH_BUCKET
    for name, mend in _MENDS.items():
        if name.lower() in said:
            return TierRefused(shown, words, mend)
    if isinstance(error, PermissionError):
        return TierRefused(shown, words, "let this account read and write there")
    hints = "".join(f"; {hint}" for name, hint in _HINTS.items() if name.lower() in said)
    return TierUnreachable(shown, words + hints)


@contextmanager
def told_if_slow(shown: str) -> Iterator[None]:
    """Say of a request that takes long that it does: a wait is not to look like the end."""
    answered = Event()

    def tell() -> None:
        waited = step = PATIENCE
        while not answered.wait(step):
            _log.warning("%s: no answer for %.0f s, still waiting", shown, waited)
            step = min(2 * step, _TOLD_AGAIN)
            waited += step

    Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        answered.set()


@frozen
class ObjectFolder:
    """A folder of objects, with names that may have slashes."""

    url: str
    _files: FileSystem = field(repr=False, eq=False)
    _base: str = field(repr=False)

    @classmethod
    def at(cls, url: str) -> Self:
        """The folder at a URL; it need not exist.

        @raise TierPlaceInvalid: If pyarrow knows no such place.
        @raise TierUnreachable: If it cannot find out.
        @raise ExtraMissing: If there is no pyarrow, or not what goes there.
        """
        # A process that was forked needs connections of its own.
        return cls(url, *_file_system(url, os.getpid()))

    def shown(self, name: str = "") -> str:
        """The URL of an object, for people."""
        return f"{shown_url(self.url)}/{name}".rstrip("/")

    def names(self, folder: str) -> list[str]:
        """What is in a folder below this one, sorted; nothing, if it does not exist.

        @raise TierUnreachable: If that cannot be found out.
        """
        return sorted(each.base_name for each in self._found(folder, recursive=False))

    def has(self, name: str) -> bool:
        """Whether an object is there, or a folder with any.

        @raise TierUnreachable: If that cannot be found out.
        """
        from pyarrow.fs import FileType

        with self._asked(name):
            kind = self._files.get_file_info(f"{self._base}/{name}").type
        return bool(kind != FileType.NotFound)

    def walk(self, folder: str = "") -> dict[str, int]:
        """All objects of a folder and of those below it: their names, and their sizes in bytes.

        @raise TierUnreachable: If that cannot be found out.
        """
        every = self._found(folder, recursive=True)
        return {each.path[len(self._base) + 1 :]: each.size for each in every if each.is_file}

    def _found(self, folder: str, *, recursive: bool) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        place = f"{self._base}/{folder}".rstrip("/")
        # Where nothing has to be there, S3 does not say either that there is no bucket.
        selector = FileSelector(place, allow_not_found=not self._in_s3, recursive=recursive)
        with suppress(FileNotFoundError), self._asked(folder):
            return list(self._files.get_file_info(selector))
        return []

    def size(self, name: str) -> int:
        """Bytes of an object, -1 if it is not there.

        @raise TierUnreachable: If that cannot be found out.
        """
        with self._asked(name):
            found = self._files.get_file_info(f"{self._base}/{name}")
        return int(found.size) if found.is_file else -1

    def open(self, name: str) -> Any:
        """Open an object to be read from anywhere in it.

        @return: One of C{pyarrow.NativeFile}.
        @raise FileNotFoundError: If it is not there.
        @raise TierUnreachable: If it cannot be opened.
        """
        with self._asked(name):
            return self._files.open_input_file(f"{self._base}/{name}")

    def read(self, name: str) -> bytes:
        """All of an object.

        @raise FileNotFoundError: If it is not there.
        @raise TierUnreachable: If it cannot be read.
        """
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self._asked(name), self._files.open_input_file(f"{self._base}/{name}") as file:
                    data: bytes = file.read()
                break
            except TierUnreachable as error:
                if not left or _PUT_OFF_SMALL not in error.reason:
                    raise
                sleep(1.0)
        return data

    def read_at(self, name: str, file: Any, place: int, size: int) -> memoryview:
        """Bytes of an object that is open, fewer only where it ends.

        @raise TierUnreachable: If they cannot be had.
        """
        with self._asked(name):
            return memoryview(file.read_at(size, place))

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Put an object there, in the place of one that is.

        Should it end half way, there may be an object with what was written so far: pyarrow
        cannot take that back.  So who writes more than one part says elsewhere that it is whole.

        @raise TierUnreachable: If that is not possible.
        """
        final = f"{self._base}/{name}"
        place = final + NEW_SUFFIX if self._renames else final
        with self._asked(name):
            if self._renames:
                self._files.create_dir(final.rpartition("/")[0], recursive=True)
            file = self._files.open_output_stream(place)
        try:
            for part in parts:
                with self._asked(name):
                    file.write(part)
        finally:
            with self._asked(name):
                file.close()
        if self._renames:
            with self._asked(name):
                self._files.move(place, final)

    def show(self, waiting: str, name: str) -> None:
        """Let an object be seen under another name, as a whole: it is renamed or, in an object
        store, copied by the store itself.

        @raise FileNotFoundError: If it is not there.
        @raise TierUnreachable: If that is not possible.
        """
        place, final = f"{self._base}/{waiting}", f"{self._base}/{name}"
        with self._asked(name):
            try:
                if self._renames:
                    self._files.create_dir(final.rpartition("/")[0], recursive=True)
                    self._files.move(place, final)
                else:
                    self._files.copy_file(place, final)
            except OSError as error:  # of whatever kind
                if self.size(waiting) < 0:
                    raise FileNotFoundError(self.shown(waiting)) from error
                raise

    def remove(self, name: str) -> None:
        """Remove an object, if it is there.

        @raise TierUnreachable: If that is not possible.
        """
        with suppress(FileNotFoundError), self._asked(name):
            self._files.delete_file(f"{self._base}/{name}")

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it, if it is there.

        @raise TierUnreachable: If that is not possible.
        """
        with suppress(FileNotFoundError), self._asked(name):
            self._files.delete_dir(f"{self._base}/{name}")

    @property
    def _renames(self) -> bool:
        return self._files.type_name in WITH_FOLDERS

    @contextmanager
    def _asked(self, name: str) -> Iterator[None]:
        try:
            with told_if_slow(self.shown(name)):
                yield
        except FileNotFoundError as error:
            self._require_bucket(error)
            raise
        except OSError as error:
            raise unreachable(self.shown(name), error) from error

    @property
    def _in_s3(self) -> bool:
        return self.url.startswith(_S3)

    def _require_bucket(self, missing: FileNotFoundError) -> None:
        """Tell an object that is not there from a bucket that is not.

        @raise TierRefused: If there is no bucket.
        """
        from pyarrow.fs import FileType

        bucket = self._base.partition("/")[0]
        with suppress(OSError):  # not everybody may ask that
            if self._in_s3 and self._files.get_file_info(bucket).type == FileType.NotFound:
                words = f"there is no bucket {bucket}"
                raise TierRefused(self.shown(), words, _MENDS["NoSuchBucket"]) from missing


def put_file(path: Path, url: str, name: str) -> None:
    """Put a file into a folder of objects, and make sure that all of it is there.

    @param url: The folder's.
    @raise TierUnreachable: If that is not possible.
    @raise TierObjectSize: If the object has another size afterwards.
    """
    folder = ObjectFolder.at(url)
    with open(path, "rb") as file:
        folder.write(name, iter(lambda: file.read(_AT_ONCE), b""))
        expected = file.tell()
    if (size := folder.size(name)) != expected:
        raise TierObjectSize(folder.shown(name), size, expected)


@lru_cache(maxsize=256)
def _file_system(url: str, process: int) -> tuple[FileSystem, str]:
    """@param process: Whose connections they are."""
    try:
        from pyarrow.fs import FileSystem
    except ModuleNotFoundError as error:
        raise ExtraMissing("a tier", "pipeline", error.name or "") from error
    try:
        if "://" not in url:
            raise ValueError("it is no URL, like s3://bucket/folder or file:///folder")
        if "#" in url:
            raise ValueError("a # would cut off what is behind it: say %23")
        parts = urlsplit(url)
        with told_if_slow(shown_url(url)):
            files, base = _hdfs(parts) if parts.scheme == "hdfs" else FileSystem.from_uri(url)
        if not base.strip("/"):
            raise ValueError("it names no folder")
    except (ValueError, NotImplementedError) as error:
        raise TierPlaceInvalid(shown_url(url), words_of(error)) from error
    except OSError as error:
        # S3 is asked for a bucket's region.
        raise unreachable(shown_url(url), error) from error
    return _patient(files), base.rstrip("/")


def _patient(files: FileSystem) -> FileSystem:
    """A file system as a URL names it; in S3 one that waits for slow answers, which no URL can
    ask for.
    """
    if files.type_name != "s3":
        return files
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    (given,) = files.__reduce__()[1]
    retries = AwsStandardS3RetryStrategy(max_attempts=_TRIES)
    return S3FileSystem(**{**given, "request_timeout": ANSWER_MOST, "retry_strategy": retries})


def _hdfs(url: SplitResult) -> tuple[FileSystem, str]:
    try:
        from rmqha.tier.hdfs import hdfs_at
    except ModuleNotFoundError as error:
        raise ExtraMissing("HDFS", "delta", error.name or "") from error
    return hdfs_at(url)
