"""Tests for L{rmqha.tier.hdfs}: what can be told of HDFS without one."""

from __future__ import annotations

import sys
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import ExtraMissing
from rmqha.tier import objects
from rmqha.tier.errors import TierPlaceInvalid, TierUnreachable
from rmqha.tier.objects import ObjectFolder, words_of

try:
    import rmqha.tier.hdfs  # noqa: F401
except ImportError as missing:  # without the extra
    skip = f"the extra delta is not installed: {missing}"


class PlaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        objects._file_system.cache_clear()
        self.addCleanup(objects._file_system.cache_clear)

    def test_no_place(self) -> None:
        """A portless name node that no configuration has, and a URL sans folder, are refused."""
        for url, word in (
            ("hdfs://nobody/tier", "No NameNode hosts"),
            ("hdfs://127.0.0.1:8020", "names no folder"),
            ("hdfs://127.0.0.1:8020/", "names no folder"),
        ):
            self.assertIn(word, str(self.assertRaises(TierPlaceInvalid, ObjectFolder.at, url)))

    def test_away(self) -> None:
        """A mute name node is told on one line, with the file that was asked for."""
        folder = ObjectFolder.at("hdfs://127.0.0.1:9/tier")
        error = self.assertRaises(TierUnreachable, folder.size, "commitlog/a")
        self.assertEqual("hdfs://127.0.0.1:9/tier/commitlog/a", error.object)
        self.assertIn(": Connection refused", error.reason)
        self.assertTrue(error.reason.isprintable(), error.reason)

    def test_without_the_extra(self) -> None:
        """Without what goes there the extra is named."""
        with patch.dict(sys.modules, {"deltalake.fs": None}):
            del sys.modules["rmqha.tier.hdfs"]
            error = self.assertRaises(ExtraMissing, ObjectFolder.at, "hdfs://127.0.0.1:9/tier")
        self.assertIn("HDFS needs", str(error))
        self.assertIn("install rmqha[delta]", str(error))


class WordsTests(SynchronousTestCase):
    def test_plain(self) -> None:
        """Neither colours nor the places in Java's code are passed on."""
        said = "Generic error\n  \x1b[31m↳\x1b[0m java.io.IOException gone.\n\tat a.B.c(B.java:6)\n"
        self.assertEqual(
            "Generic error: java.io.IOException gone.", words_of(OSError(f"{said}\tat a.B.d\n"))
        )
