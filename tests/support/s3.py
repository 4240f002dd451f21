"""
Tests beside a real S3 server: one for each process that runs tests.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import SkipTest

from lab.stock.jars import Missing
from lab.stock.s3_server import S3Server
from tests.support.tiers import TierCase


@cache
def server() -> S3Server:
    """
    The server, started when it is first needed.

    @raise SkipTest: If it was not fetched.
    """
    folder = Path(tempfile.mkdtemp(prefix="s3-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        found = S3Server(folder)
    except Missing as missing:
        raise SkipTest(str(missing)) from missing
    atexit.register(found.stop)
    found.start()
    return found


class S3Case(TierCase):
    """
    A store, and a tier in a folder of its own in the server's bucket.
    """

    def setUp(self) -> None:
        self.server = server()
        for name, value in self.server.environment.items():
            self.patch_environment(name, value)
        super().setUp()
        name = self.id().rpartition(".")[2]
        self.place = self.server.folder / "archive" / name
        shutil.rmtree(self.place, ignore_errors=True)
        self.url = self.server.url(name)

    def patch_environment(self, name: str, value: str) -> None:
        """
        Set a variable for the time of a test.
        """
        before = os.environ.get(name)
        os.environ[name] = value
        if before is None:
            self.addCleanup(os.environ.pop, name, None)
        else:
            self.addCleanup(os.environ.__setitem__, name, before)
