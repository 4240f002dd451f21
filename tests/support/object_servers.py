"""Tests beside real servers of objects: one of each kind for a process that runs tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TypeVar
from unittest import SkipTest

from lab.stock.hdfs_cluster import HdfsCluster
from lab.stock.jars import Missing
from lab.stock.object_server import ObjectServer
from lab.stock.s3_server import BUCKET, S3Server
from rmqha.tier import objects
from tests.support.tiers import TierCase

_Kind = TypeVar("_Kind", bound=ObjectServer)


@cache
def server(kind: type[_Kind]) -> _Kind:
    """The server of a kind, started when it is first needed."""
    folder = Path(tempfile.mkdtemp(prefix="objects-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        found = kind(folder)
    except Missing as missing:
        raise SkipTest(str(missing)) from missing
    atexit.register(found.kill9)
    found.start()
    return found


class ServerCase(TierCase):
    """A store, and a tier in a folder of its own in a server."""

    kind: type[ObjectServer]

    def setUp(self) -> None:
        self.server = server(self.kind)
        for name, value in self.server.environment.items():
            self.patch_environment(name, value)
        super().setUp()
        self.name = self.id().rpartition(".")[2]
        self.url = self.server.url(self.name)

    def patch_environment(self, name: str, value: str) -> None:
        """Set a variable for the time of a test."""
        before = os.environ.get(name)
        os.environ[name] = value
        if before is None:
            self.addCleanup(os.environ.pop, name, None)
        else:
            self.addCleanup(os.environ.__setitem__, name, before)

    def as_somebody_else(self) -> None:
        """Be one who may not read or write there, from now on."""
        self.addCleanup(objects._file_system.cache_clear)
        objects._file_system.cache_clear()

    def as_before(self) -> None:
        for name, value in self.server.environment.items():
            self.patch_environment(name, value)
        objects._file_system.cache_clear()


class S3Case(ServerCase):
    kind = S3Server
    server: S3Server

    def setUp(self) -> None:
        super().setUp()
        self.place = self.server.folder / BUCKET / self.name
        shutil.rmtree(self.place, ignore_errors=True)

    def as_somebody_else(self) -> None:
        self.server.renew()
        super().as_somebody_else()


class HdfsCase(ServerCase):
    kind = HdfsCluster
    server: HdfsCluster

    def setUp(self) -> None:
        super().setUp()
        self.place = self.server.file(self.name)
        self.place.unlink()

    def as_somebody_else(self) -> None:
        self.place.chmod(0o700)
        self.patch_environment("HADOOP_USER_NAME", "somebody")
        super().as_somebody_else()
