"""HDFS on loopback: a name node and a data node of Apache Hadoop's in one process, as Hadoop's own
tests start them.

Its second door, WebHDFS, is for what stands behind a reader's back: there a test looks at files,
and cuts or replaces them, by none of the code that it is about.

Run it as C{python -m lab.stock.hdfs_cluster} to fetch it; C{make hdfs} does.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from attrs import evolve, frozen

from lab.harness.ports import free_port
from lab.stock.object_server import ObjectServer

USER = "owner"
"""Who may write everywhere, as the one who has started it."""

BLOCK = 64 << 10
"""Bytes of a block: files of tests have several."""


class HdfsCluster(ObjectServer):
    """One of them."""

    title, jars, target = "Hadoop's mini cluster", "hdfs", "hdfs"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port, self._web = free_port(), free_port()
        self.environment = {"HADOOP_USER_NAME": USER}

    def url(self, folder: str) -> str:
        return f"hdfs://127.0.0.1:{self._port}/{folder}"

    def arguments(self) -> list[str]:
        self._told.unlink(missing_ok=True)
        settings = {
            "hdfs.minidfs.basedir": self.own / "dfs",
            "dfs.blocksize": BLOCK,
            "dfs.namenode.fs-limits.min-block-size": 0,
            "dfs.replication": 1,
        }
        more = [] if (self.own / "dfs").exists() else ["-format"]
        for key, value in settings.items():
            more += ["-D", f"{key}={value}"]
        more += ["-nnport", str(self._port), "-httpport", str(self._web)]
        # The file is written when its data node serves too.
        more += ["-writeDetails", str(self._told)]
        return [f"-DHADOOP_USER_NAME={USER}", "org.apache.hadoop.test.MiniDFSClusterManager", *more]

    @property
    def _told(self) -> Path:
        return self.own / "details.json"

    def serves(self) -> bool:
        try:
            return bool(json.loads(self._told.read_bytes()))
        except (FileNotFoundError, ValueError):
            return False

    def file(self, path: str) -> HdfsFile:
        """A file or a folder, from its root."""
        return HdfsFile(f"127.0.0.1:{self._web}", path)


@frozen
class HdfsFile:
    """A file or a folder, as WebHDFS has it; what is asked for is called as C{Path} calls it."""

    _door: str
    _path: str

    def read_bytes(self) -> bytes:
        return self._ask("GET", "OPEN")

    def write_bytes(self, data: bytes) -> None:
        self._ask("PUT", "CREATE", data, overwrite="true")

    def exists(self) -> bool:
        try:
            self._ask("GET", "GETFILESTATUS")
        except FileNotFoundError:
            return False
        return True

    def unlink(self) -> None:
        """Remove it, with all that is in it."""
        self._ask("DELETE", "DELETE", recursive="true")

    def chmod(self, mode: int) -> None:
        """Say who may do what with it."""
        self._ask("PUT", "SETPERMISSION", permission=f"{mode:o}")

    def __truediv__(self, name: str) -> HdfsFile:
        return evolve(self, path=f"{self._path}/{name}")

    def _ask(self, method: str, operation: str, data: bytes = b"", **more: str) -> bytes:
        """C{FileNotFoundError} if there is none, C{OSError} if it is not possible."""
        query = urlencode({"op": operation, "user.name": USER, **more})
        door, place = self._door, f"/webhdfs/v1/{quote(self._path)}?{query}"
        body = b""
        while place:
            connection = HTTPConnection(door, timeout=30)
            try:
                connection.request(method, place, body)
                answer = connection.getresponse()
                status, told, found = answer.status, answer.headers["Location"], answer.read()
            finally:
                connection.close()
            if status == 404:
                raise FileNotFoundError(self._path)
            if status >= 400:
                raise OSError(f"{operation} of {self._path}: {status} {found!r}")
            place = ""
            if status == 307:  # the data node has, or takes, what is in it
                parts = urlsplit(told)
                door, place, body = parts.netloc, f"{parts.path}?{parts.query}", data
        return found


if __name__ == "__main__":
    sys.exit(HdfsCluster.fetch())
