"""The packaging, the tools and the test data, held by tests."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import twisted
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from tests.support.commands import ended
from tests.support.effort import slow

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the environment's programs to its end."""
    program = Path(sys.executable).parent / arguments[0]
    # The environment's activation must not be what makes it work.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return ended(program, *arguments[1:], cwd=cwd, env=environment)


class PluginTests(SynchronousTestCase):
    """twistd finds rmqha, and Twisted stays Twisted."""

    def test_no_package_below_twisted(self) -> None:
        """An C{__init__.py} there would hide Twisted, or our plugin."""
        self.assertEqual([], sorted((ROOT / "twisted").rglob("__init__.py")))

    def test_twisted_is_the_installed_one(self) -> None:
        """Our folder of the same name does not shadow the library."""
        self.assertNotIn(ROOT / "twisted", Path(str(twisted.__file__)).resolve().parents)

    def test_twistd_knows_us(self) -> None:
        """C{rmqha} is one of twistd's commands."""
        self.assertIn("rmqha", {plugin.tapname for plugin in getPlugins(IServiceMaker)})

    @slow
    def test_found_from_anywhere(self) -> None:
        """The console script finds the plugin outside the project's root too."""
        folder = Path(self.mktemp())
        folder.mkdir()
        for cwd in (ROOT, folder):
            done = run("twistd", "--help", cwd=cwd)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertRegex(done.stdout, r"(?m)^    rmqha  +\w")

    def test_plugin_is_light(self) -> None:
        """twistd imports every plugin to list them, so ours brings nothing heavy."""
        heavy = ("numpy", "rich", "treq", "twisted.web", "twisted.internet.reactor")
        program = (
            "import sys, twisted.plugins.rmqha_plugin; "
            f"print([name for name in {heavy!r} if name in sys.modules])"
        )
        done = run(Path(sys.executable).name, "-c", program, cwd=ROOT)
        self.assertEqual(("[]\n", ""), (done.stdout, done.stderr))


class ToolsTests(SynchronousTestCase):
    """The suite runs under both runners, and its data is whole."""

    @slow
    def test_console_trial(self) -> None:
        """The console script C{trial} runs our tests from the root."""
        done = run(
            "trial",
            f"--temp-directory={Path(self.mktemp()).absolute()}",
            "tests.test_house.ImportTests.test_imports_are_absolute",
            cwd=ROOT,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("PASSED (successes=1)", done.stdout)

    @slow
    def test_command_is_installed(self) -> None:
        """The C{rmqha} command starts."""
        done = run("rmqha", "--help", cwd=ROOT)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("Usage: rmqha", done.stdout)

    def test_test_folders_are_packages(self) -> None:
        """Every folder with tests has its C{__init__.py}, without which trial passes it by."""
        folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
        self.assertEqual([], [path for path in folders if not (path / "__init__.py").exists()])


class SecondTryTests(SynchronousTestCase):
    """C{tests/flaky.md}: what failed once and passed then."""

    def test_each_has_a_cause(self) -> None:
        """Each row names a test that there is, the day it was seen, and why it failed."""
        page = (ROOT / "tests" / "flaky.md").read_text(encoding="utf-8")
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in page.splitlines()
            if line.startswith("| `")
        ]
        self.assertTrue(rows)
        for test, day, cause in rows:
            path, group, name = test.strip("`").split("::")
            found = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            self.assertTrue(callable(getattr(getattr(found, group), name)), test)
            self.assertLessEqual(date.fromisoformat(day), date.today())
            self.assertGreater(len(cause.split()), 5, f"{test}: {cause}")


class MutantTests(SynchronousTestCase):
    """C{tests/mutants.md}: what C{make mutants} changes, and why that is nothing."""

    def test_each_is_there(self) -> None:
        """Each row names a line that its module still has, and a reason follows."""
        rows = (ROOT / "tests" / "mutants.md").read_text(encoding="utf-8").splitlines()
        found = [re.fullmatch(r"- (\S+): `(.+)`: \w+", row) for row in rows]
        self.assertTrue(any(found))
        for row, match, after in zip(rows, found, [*rows[1:], ""], strict=True):
            self.assertEqual(match is None, not row.startswith("- "), row)
            if match is not None:
                module = (ROOT / "rmqha" / f"{match[1]}.py").read_text(encoding="utf-8")
                self.assertIn(match[2], [line.strip() for line in module.splitlines()], row)
                self.assertTrue(after.startswith(("- ", "  ")), f"no reason: {row}")


class GoldenTests(SynchronousTestCase):
    """The stores and streams of stock brokers are there and readable."""

    def test_every_archive_unpacks(self) -> None:
        """Each store holds a commit log in whole files and the truth about it."""
        self.assertEqual(("4.9.7", "5.3.3"), golden.VERSIONS)
        self.assertEqual(14, len(golden.ARCHIVES))
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name, into=Path(self.mktemp()))
            self.assertEqual("store", store.name)
            sizes = {path.stat().st_size for path in (store / "commitlog").iterdir()}
            self.assertEqual({golden.LOG_FILE_SIZE}, sizes, f"{version} {name}")
            lines = list(golden.jsonl(version, golden.truth(name, "expected.jsonl")))
            self.assertGreater(len(lines), 40, f"{version} {name}")

    def test_copies_are_fresh(self) -> None:
        """Two copies of one store share nothing."""
        one, other = golden.store("4.9.7", "ipv6"), golden.store("4.9.7", "ipv6")
        self.assertNotEqual(one, other)
        (one / "checkpoint").unlink()
        self.assertTrue((other / "checkpoint").exists())

    def test_every_capture_is_whole(self) -> None:
        """The connections of a capture, one after the other, are all of its bytes."""
        self.assertEqual(8, len(golden.CAPTURES))
        for name in golden.CAPTURES:
            capture = golden.capture(name)
            pairs = list(capture.connections())
            self.assertEqual(capture.m2s, b"".join(m2s for m2s, _ in pairs), name)
            self.assertEqual(capture.s2m, b"".join(s2m for _, s2m in pairs), name)
            self.assertEqual(0, len(capture.s2m) % 8, name)
