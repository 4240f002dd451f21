"""Stores whose full files are in a tier."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from unittest import SkipTest

from lab.harness import golden
from rmqha.logfiles.listing import file_name
from rmqha.tier import joined_log, manifest, tiered_file, upload
from rmqha.tier.objects import ObjectFolder
from rmqha.tier.upload import TierUpload, Uploader
from tests.support.logs import LogTestCase
from tests.support.rows import publish

SIZE = golden.LOG_FILE_SIZE
END = 2652010
"""Where the golden store's log ends."""

FULL = END // SIZE
"""How many files of it are full."""


class TierCase(LogTestCase):
    """A golden store of ten full files and an active one, with a published point, and a tier."""

    BLOCK = 16 << 10

    def setUp(self) -> None:
        if find_spec("pyarrow") is None:
            raise SkipTest("the extra pipeline is not installed: a tier needs pyarrow")
        self.store = golden.store(golden.VERSIONS[0], into=self.folder())
        publish(self.store, END)
        self.place = self.folder() / "tier"
        self.url = f"file://{self.place}"
        self.patch(upload, "BLOCK", self.BLOCK)
        self.patch(upload, "STEP", 64 << 10)
        self.forget()

    def forget(self) -> None:
        """Be a process that has not looked at any tier yet."""
        joined_log._listings.clear()
        joined_log._same.clear()
        tiered_file.forget_manifests()

    def upload(self) -> TierUpload:
        return Uploader(root=self.store, folder=ObjectFolder.at(self.url)).run()

    def file(self, number: int) -> Path:
        return self.store / "commitlog" / file_name(number * SIZE)

    def object(self, number: int) -> Path:
        """The object of a log file, where the tier is a folder."""
        return self.place / manifest.object_name(number * SIZE)

    def manifest(self, number: int) -> Path:
        return self.place / manifest.manifest_name(number * SIZE, (number + 1) * SIZE)

    def retention(self, count: int) -> None:
        """Delete the first files of the store, as its broker would."""
        for number in range(count):
            self.file(number).unlink(missing_ok=True)
        self.forget()
