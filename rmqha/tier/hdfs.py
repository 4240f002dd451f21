"""HDFS as pyarrow sees it, by the client that C{deltalake} has: pyarrow's own needs a library of
Hadoop's, and Java in each process.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult

import pyarrow as pa
from attrs import frozen
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, FileType, PyFileSystem

SCHEME = "hdfs"


@frozen
class _Bytes:
    """A file that is being written, for who gives it more than the bytes that it takes."""

    _file: Any

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def write(self, data: pa.Buffer) -> int:
        return int(self._file.write(bytes(data)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Hdfs(DeltaStorageHandler):
    """What pyarrow asks for, where C{deltalake} takes HDFS for an object store."""

    def get_type_name(self) -> str:
        return SCHEME

    def open_output_stream(
        self, path: str, metadata: dict[str, str] | None = None
    ) -> pa.PythonFile:
        return pa.PythonFile(_Bytes(self._handler.open_output_stream(path, metadata)), mode="w")

    def delete_dir(self, path: str) -> None:
        """Remove a folder, and the folders in it too."""
        super().delete_dir(path)
        below = self.get_file_info_selector(FileSelector(path, recursive=True))
        folders = [each.path for each in below if each.type == FileType.Directory]
        for each in sorted([path, *folders], key=len, reverse=True):
            with suppress(OSError):  # somebody else has put something into it
                self.delete_file(each)


def hdfs_at(url: SplitResult) -> tuple[FileSystem, str]:
    """A cluster's files, and where a URL is among them.

    @param url: Of a name node, C{hdfs://host:port/folder}, or of a service that is told in the
        folder C{HADOOP_CONF_DIR}.
    @raise ValueError: If it is neither.
    """
    try:
        return PyFileSystem(_Hdfs(f"{SCHEME}://{url.netloc}/")), url.path.strip("/")
    except OSError as error:  # nobody was asked yet
        raise ValueError(str(error)) from error
