"""An object store in memory, as S3 is: an object is there as a whole or not at all, it is replaced
and copied but never renamed, and what was written is seen at once.

A test says what happens before, or after, each change: a job is killed there, or another one runs.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

from rmqha.pipeline.sinks import commits
from rmqha.tier import objects

SCHEME = "s3://"

TABLE = f"bucket-{os.getpid()}/table"
"""A folder for a table.  Its name is this process's alone: files that are not finished wait on the
host, in a folder that the URL decides, and a job clears what it takes for another's left-overs."""


class Killed(BaseException):
    """The process that does this is dead."""


class Objects(FileSystemHandler):  # type: ignore[misc]
    """All objects, by bucket and name; what is C{before} is called with each change's number."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.changes = 0
        self.before: Callable[[int], object] = lambda number: None

    def use(self, test: Any) -> None:
        """Be what all C{s3://} URLs are of, for the time of a test."""
        files, others = PyFileSystem(self), objects._file_system

        def file_system(url: str, process: int) -> tuple[FileSystem, str]:
            name = url.removeprefix(SCHEME)
            return others(url, process) if name == url else (files, name)

        test.patch(objects, "_file_system", file_system)
        test.patch(commits, "begin_log", self.begin_log)

    def begin_log(self, url: str, text: str) -> None:
        name = f"{url.removeprefix(SCHEME)}/_delta_log/{0:020d}.json"
        self.change()
        if name in self.kept:
            raise DeltaError("it exists")
        self.kept[name] = json.dumps({"commitInfo": {"rmqha.commit": text}}).encode()

    def change(self) -> None:
        """Count a change that is about to be made."""
        self.changes += 1
        self.before(self.changes)

    @contextmanager
    def killed(self, at: int) -> Iterator[None]:
        """Kill what runs here before change C{at}, if it comes so far, and let none follow."""

        def before(number: int) -> None:
            if number >= at:
                raise Killed

        self.changes, self.before = 0, before
        try:
            yield
        except Killed:
            pass
        finally:
            self.before = lambda number: None

    # --- what pyarrow asks for ----------------------------------------------

    def get_type_name(self) -> str:
        return "memory"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(path.rstrip("/")) for path in paths]

    def _info(self, path: str) -> FileInfo:
        if path in self.kept:
            return FileInfo(path, FileType.File, size=len(self.kept[path]))
        folder = any(name.startswith(f"{path}/") for name in self.kept)
        return FileInfo(path, FileType.Directory if folder else FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        base = selector.base_dir.rstrip("/") + "/"
        names = [name for name in list(self.kept) if name.startswith(base)]
        if not selector.recursive:
            names = [base + name[len(base) :].partition("/")[0] for name in names]
        return [self._info(name) for name in sorted(set(names))]

    def open_input_file(self, path: str) -> pa.NativeFile:
        if path not in self.kept:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.kept[path])

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(_Upload(self, path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError

    def copy_file(self, source: str, target: str) -> None:
        self.change()
        if source not in self.kept:
            raise OSError("AWS Error NO_SUCH_KEY during CopyObject operation")
        self.kept[target] = self.kept[source]

    def move(self, source: str, target: str) -> None:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.change()
        if self.kept.pop(path, None) is None:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        for name in [each for each in self.kept if each.startswith(f"{path}/")]:
            self.change()
            self.kept.pop(name, None)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError


class _Upload(io.BytesIO):
    """What becomes an object when it is closed."""

    def __init__(self, store: Objects, path: str) -> None:
        super().__init__()
        self._store, self._path = store, path

    def close(self) -> None:
        if not self.closed:
            self._store.change()
            self._store.kept[self._path] = self.getvalue()
        super().close()
