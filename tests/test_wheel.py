"""What is in the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from email import message_from_bytes
from email.message import Message
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from zipfile import ZipFile

from twisted.trial.unittest import SynchronousTestCase

from tests.support.effort import slow

ROOT = Path(__file__).resolve().parent.parent

#: What a wheel is built from.
SOURCES = ("rmqha", "pyspark_rmqha", "twisted", "conf")


@cache
def wheel(*, plain: bool = False) -> tuple[Message, frozenset[str], str]:
    """Build it, in a copy and with a compiler that can do nothing, once: its metadata, the names of
    its
    files, and its own.
    """
    folder = Path(mkdtemp(prefix="wheel-"))
    try:
        for name in SOURCES:
            skipped = shutil.ignore_patterns("__pycache__", "*.so", "dropin.cache")
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
            shutil.copy(ROOT / name, folder)
        subprocess.run(
            [sys.executable, "setup.py", "--quiet", "bdist_wheel"],
            check=True,
            cwd=folder,
            env=dict(os.environ, CC="false", RMQHA_PLAIN_WHEEL=str(int(plain))),
            capture_output=True,
            timeout=300,
        )
        (path,) = (folder / "dist").glob("*.whl")
        with ZipFile(path) as archive:
            names = archive.namelist()
            (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            return message_from_bytes(archive.read(metadata)), frozenset(names), path.name
    finally:
        shutil.rmtree(folder)


class WheelTests(SynchronousTestCase):
    """Who installs rmqha from a wheel has all but the checkout."""

    @slow
    def test_files(self) -> None:
        """The package, what browsers get of it, its plugin, and each example of C{conf}."""
        _, names, _ = wheel()
        for name in ("rmqha/py.typed", "rmqha/cli/main.py", "twisted/plugins/rmqha_plugin.py"):
            self.assertIn(name, names)
        pages = {str(path.relative_to(ROOT)) for path in (ROOT / "rmqha/page/static").iterdir()}
        self.assertGreater(len(pages), 2)
        self.assertEqual(set(), pages - names)
        self.assertEqual([], [name for name in names if name.startswith(("tests/", "lab/"))])
        shared = {name.partition("/share/rmqha/")[2] for name in names if "/share/rmqha/" in name}
        wanted = {str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.*")}
        wanted |= {"conf/container/Containerfile"}
        self.assertEqual({name for name in wanted if (ROOT / name).is_file()}, shared)

    @slow
    def test_plain(self) -> None:
        """The one for every machine has the same files, and is called so."""
        _, names, name = wheel(plain=True)
        self.assertTrue(name.endswith("-py3-none-any.whl"), name)
        stripped = {each.partition(".dist-info/")[2] or each for each in names}
        others = {each.partition(".dist-info/")[2] or each for each in wheel()[1]}
        self.assertEqual(
            {each.rpartition("/share/")[2] for each in stripped},
            {each.rpartition("/share/")[2] for each in others},
        )

    @slow
    def test_metadata(self) -> None:
        """A package index has something to show."""
        metadata, _, _ = wheel()
        self.assertEqual("rmqha", metadata["Name"])
        self.assertEqual("rmqha contributors", metadata["Author"])
        self.assertEqual("Apache-2.0", metadata["License"] or metadata["License-Expression"])
        self.assertEqual("text/markdown", metadata["Description-Content-Type"])
        self.assertIn("# rmqha", str(metadata.get_payload()))
        self.assertEqual(">=3.11", metadata["Requires-Python"])
        classifiers = metadata.get_all("Classifier") or []
        self.assertIn("Framework :: Twisted", classifiers)
        extras = set(metadata.get_all("Provides-Extra") or [])
        self.assertLessEqual({"pipeline", "java", "delta", "iceberg"}, extras)
