"""The guide and the code hold on to each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

from pydoctor.epydoc.markup import ParseError
from pydoctor.epydoc.markup.epytext import parse
from twisted.trial.unittest import SkipTest, SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
CITED = re.compile(r"docs/[a-z][a-z/_-]*(?:\.rst|\.md)?")
#: By the ending of a page's name, what a title looks like there.
HEADINGS = {
    ".rst": re.compile(r"^(\S.*)\n([=\-~^])\2+$", re.MULTILINE),
    ".md": re.compile(r"^#+ (.+)$", re.MULTILINE),
}


@cache
def titles(path: Path) -> tuple[str, ...]:
    """The titles in a file, longest first."""
    heading = HEADINGS[path.suffix]
    found = [match[1] for match in heading.finditer(path.read_text(encoding="utf-8"))]
    return tuple(sorted(found, key=len, reverse=True))


def texts(path: Path) -> Iterator[str]:
    """All docstrings of a module, those of its constants too, each on one line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield " ".join(str(node.value.value).split())


def citations() -> Iterator[tuple[str, str, str]]:
    """Where, which file of the guide, and the text that follows its name."""
    for path in sorted((ROOT / "rmqha").rglob("*.py")):
        for text in texts(path):
            for match in CITED.finditer(text):
                yield str(path.relative_to(ROOT)), match[0], text[match.end() :]


def page(name: str) -> Path | None:
    """The file of the guide that has this name, with or without its ending."""
    found = (ROOT / f"{name}{ending}" for ending in ("", *HEADINGS))
    return next((path for path in found if path.is_file()), None)


def section(guide: Path, text: str) -> str | None:
    """The title that C{text} begins with."""
    for title in titles(guide):
        if re.match(re.escape(title) + r"(?!\w)", text):
            return title
    return None


class CitationTests(SynchronousTestCase):
    def test_sections_exist(self) -> None:
        """Every file and section of the guide that a docstring names is there."""
        wrong, seen = [], 0
        for where, name, rest in citations():
            guide = page(name)
            if guide is None:
                wrong.append(f"{where}: there is no {name}")
                continue
            mark = ", "
            while rest.startswith(mark) and rest.removeprefix(mark)[:1].isupper():
                rest = rest.removeprefix(mark)
                title = section(guide, rest)
                if title is None:
                    wrong.append(f"{where}: {name} has no section {rest[:40]!r}")
                    break
                seen += 1
                rest, mark = rest[len(title) :], " and "
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 30)


class TreeTests(SynchronousTestCase):
    def test_pictures_exist(self) -> None:
        """Every picture that is shown is there, and every picture there is shown."""
        shown = set[Path]()
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.rst")]:
            if "_build" not in path.parts:
                text = path.read_text(encoding="utf-8")
                for name in re.findall(r"[\w./-]*_static/[\w.-]+", text):
                    shown.add((path.parent / name).resolve())
        there = {path.resolve() for path in (ROOT / "docs" / "_static").iterdir()}
        self.assertEqual(shown, there)


#: The pages that people read: all that is said about files and functions in them is checked.
PAGES = [
    ROOT / "README.md",
    *(
        path
        for ending in HEADINGS
        for path in sorted((ROOT / "docs").rglob(f"*{ending}"))
        if "_build" not in path.parts
    ),
]
WAY = ROOT / "docs" / "way-of-a-sync-write.rst"
GLOSSARY = ROOT / "docs" / "glossary.rst"
DEVELOPMENT = ROOT / "docs" / "development.rst"
ARCHITECTURE = ROOT / "docs" / "architecture.rst"
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@cache
def defined(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes, constants, and C{Class.member}."""
    found = set[str]()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.add(prefix + node.name)
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.add(prefix + node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(prefix + node.target.id)
            elif isinstance(node, ast.Assign):
                found.update(
                    prefix + each.id for each in node.targets if isinstance(each, ast.Name)
                )

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the product."""
    return tuple(sorted((ROOT / "rmqha").rglob("*.py")))


@cache
def members() -> frozenset[str]:
    """Every C{Class.member} of the product."""
    return frozenset(name for path in modules() for name in defined(path) if "." in name)


@cache
def constants() -> frozenset[str]:
    """Every text that the product's code holds, but for its docstrings."""
    found = set[str]()
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in said:
                found.add(str(node.value))
    return frozenset(found)


def literals(text: str) -> list[str]:
    """What a page sets in type: names of files, functions, keys."""
    return re.findall(r"``([^`\n]+)``", text) + re.findall(r"(?<![`:])`([^`\n]+)`(?!`)", text)


@cache
def stored() -> tuple[str, ...]:
    """What the architecture lists below C{rmqha/} in a store's folder."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    text = text[text.index("Files of our own\n---") : text.index("The broker\n---")]
    rows = re.findall(r"^   \* - (``.+)$", text, re.MULTILINE)
    return tuple(name.partition("/")[0] for row in rows for name in literals(row))


class PathTests(SynchronousTestCase):
    def test_modules_exist(self) -> None:
        """Every module, folder and file of the project that a page names is there."""
        wrong, seen = [], 0
        for page in PAGES:
            for name in literals(page.read_text(encoding="utf-8")):
                match = re.match(r"((?:[a-z_]+/)+[a-z_]*(?:\.(?:py|md|txt))?)(?![\w<*])", name)
                if match is None or not (
                    name.endswith(".py") or name.startswith(("rmqha/", "lab/", "tests/"))
                ):
                    continue
                if name.split("/")[1] in stored():
                    continue
                seen += 1
                places = (ROOT / match[1], ROOT / "rmqha" / match[1])
                if not any(path.exists() for path in places):
                    wrong.append(f"{page.relative_to(ROOT)}: there is no {name}")
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 60)

    def test_folders_exist(self) -> None:
        """Every package that the plan of the house names is there."""
        names = [
            name
            for name in literals(DEVELOPMENT.read_text(encoding="utf-8"))
            if re.fullmatch(r"[a-z]+(/[a-z_]+)+", name)
        ]
        self.assertGreater(len(names), 20)
        wrong = [n for n in names if not ((ROOT / n).is_dir() or (ROOT / "rmqha" / n).is_dir())]
        self.assertEqual(wrong, [])

    def test_functions_exist(self) -> None:
        """Functions beside modules, in pages about the code, are defined there."""
        wrong, seen = [], 0
        for page in (WAY, GLOSSARY, DEVELOPMENT):
            text = page.read_text(encoding="utf-8")
            pairs = [
                (path, name)
                for path, names in re.findall(r"\| ``(rmqha/\S+\.py)``\n\s+\| (.+)", text)
                for name in literals(names)
            ]
            pairs += re.findall(r"``(rmqha/\S+\.py)``,\s+``(\w[\w.]*)``", text)
            pairs += [
                (path, name)
                for name, path in re.findall(
                    r"``(\w[\w.]*)``\s+(?:in\s+|\()``(rmqha/\S+\.py)``", text
                )
            ]
            for path, name in pairs:
                seen += 1
                if name not in defined(ROOT / path):
                    wrong.append(f"{page.name}: {path} defines no {name}")
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 45)

    def test_members_exist(self) -> None:
        """Every C{Class.member} that a page about the code names belongs to a class of ours."""
        wrong, seen = [], 0
        for page in (WAY, GLOSSARY, DEVELOPMENT, ARCHITECTURE):
            for name in literals(page.read_text(encoding="utf-8")):
                if re.fullmatch(r"[A-Z]\w*[a-z]\w*\.\w+", name):
                    seen += 1
                    if name not in members():
                        wrong.append(f"{page.name}: there is no {name}")
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 40)

    def test_numbers(self) -> None:
        """A size that names its constant is that constant's."""
        found = [
            (page, match)
            for page in PAGES
            for match in re.finditer(
                r"([\d,]+)\s+(bytes|KiB|MiB|GiB)\s+\(``([A-Z_]+)``\s+in\s+``(rmqha/\S+)\.py``\)",
                page.read_text(encoding="utf-8"),
            )
        ]
        self.assertNotEqual(found, [])
        for page, (number, unit, name, module) in ((page, match.groups()) for page, match in found):
            value = getattr(import_module(module.replace("/", ".")), name)
            self.assertEqual(int(number.replace(",", "")) * UNITS[unit], value, f"{page}: {name}")

    def test_mapped_files(self) -> None:
        """How pages are made present is told as it is done."""
        text = ARCHITECTURE.read_text(encoding="utf-8")
        text = text[text.index("Mapped files\n---") : text.index("Flushing\n---")]
        pages = (ROOT / "rmqha/store/files/pages.py").read_text(encoding="utf-8")
        for word in ("MADV_POPULATE_WRITE", "ctypes", "pages.py", "allocate.py"):
            self.assertIn(word, text)
        for word in ("MADV_POPULATE_WRITE", "ctypes.CDLL", "POPULATE_WRITE = 23"):
            self.assertIn(word, pages)
        mapped = (ROOT / "rmqha/store/files/mapped.py").read_text(encoding="utf-8")
        self.assertIn("posix_fallocate", text)
        self.assertIn("posix_fallocate", mapped)

    def test_files_of_our_own(self) -> None:
        """The files that the architecture lists below C{rmqha/} are files that the code knows."""
        self.assertGreater(len(stored()), 9)
        self.assertEqual(set(), set(stored()) - constants())


class GlossaryTests(SynchronousTestCase):
    def test_terms(self) -> None:
        """What a stranger cannot look up elsewhere is explained."""
        text = GLOSSARY.read_text(encoding="utf-8")
        terms = {
            term
            for line in re.findall(r"^   (\S.*)$", text, re.MULTILINE)
            for term in line.split(", ")
        }
        wanted = {
            "claim", "confirmed", "dispatch", "durable", "epoch", "generation", "half message",
            "ledger", "mark", "observer", "owed", "probe", "published point", "quarantine", "range",
            "split index", "staged", "standing", "unit",
        }  # fmt: skip
        self.assertEqual(set(), wanted - terms)


class FaultMatrixTests(SynchronousTestCase):
    """The page of faults names tests that are there."""

    text = (ROOT / "docs" / "fault-matrix.rst").read_text(encoding="utf-8")

    def test_complete(self) -> None:
        """Each of the faults has a row, in their order."""
        rows = re.findall(r"^   \* - (F\d\d)$", self.text, re.MULTILINE)
        self.assertEqual([f"F{number:02}" for number in range(1, 54)], rows)

    def test_tests_exist(self) -> None:
        """Each file is there, with the class that is named behind it."""
        for path, name in re.findall(r"``(tests/[\w/]+\.py)``(?: ``(\w+)``)?", self.text):
            code = (ROOT / path).read_text(encoding="utf-8")
            self.assertTrue(not name or f"class {name}(" in code, f"{path} has no {name}")

    def test_all_named(self) -> None:
        """Each file of fault tests is on the page."""
        for path in sorted((ROOT / "tests" / "faults").glob("test_*.py")):
            self.assertIn(f"``tests/faults/{path.name}``", self.text)


class SetScenarioTests(SynchronousTestCase):
    """The page of sets' scenarios names the tests that there are."""

    text = (ROOT / "docs" / "set-scenarios.rst").read_text(encoding="utf-8")
    modules = (
        "set_cases",
        "test_elected_master",
        "test_learner",
        "test_mqadmin_sets",
        "test_reset",
    )

    def classes(self) -> Iterator[ast.ClassDef]:
        """Those of the tests that the page is about."""
        folder = ROOT / "tests" / "interop"
        named = [folder / f"{name}.py" for name in self.modules]
        faults = ROOT / "tests" / "faults"
        with_etcd = (*faults.glob("test_etcd*.py"), folder / "test_coordinators.py")
        for path in (*named, *with_etcd, *sorted(folder.glob("test_member_*.py"))):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    yield node

    def test_complete(self) -> None:
        """Each scenario has a row."""
        rows = re.findall(r"^   \* - ([SE]\d\db?)$", self.text, re.MULTILINE)
        numbers = [f"S{number:02}" for number in range(1, 34)]
        with_etcd = [f"E{number:02}" for number in range(1, 27)]
        self.assertEqual([*sorted([*numbers, "S08b"]), *with_etcd], rows)

    def test_tests(self) -> None:
        """All tests are named, and no other."""
        found = {
            f"{each.name}.{node.name}"
            for each in self.classes()
            for node in each.body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
        self.assertEqual(found, set(re.findall(r"``(\w+\.test_\w+)``", self.text)))

    def test_sets(self) -> None:
        """Each class that goes through all of it is told with its letters."""
        found = {
            (node.value.value, each.name)
            for each in self.classes()
            for node in each.body
            if isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "letters"
            and isinstance(node.value, ast.Constant)
            and node.value.value
        }
        told = re.findall(r"^   \* - ([OJ]+)\n     - ``(\w+)``$", self.text, re.MULTILINE)
        self.assertEqual(found, set(told))

    def test_files(self) -> None:
        """Other tests that are named are there."""
        for path in re.findall(r"``(tests/[\w/.]+)``", self.text):
            self.assertTrue((ROOT / path).exists(), path)


class PipelineTests(SynchronousTestCase):
    def test_public_names(self) -> None:
        """Every name that the page lists can be imported from its module."""
        text = (ROOT / "docs" / "guide" / "pipeline-api.rst").read_text(encoding="utf-8")
        rows = re.findall(r"^   \* - ``(rmqha[\w.]+)``\n     - (.+)$", text, re.MULTILINE)
        self.assertGreater(len(rows), 20)
        try:
            import_module("pyspark")
        except ImportError:
            raise SkipTest("the extra pipeline is not installed") from None
        for module, names in rows:
            for name in literals(names):
                self.assertTrue(hasattr(import_module(module), name), f"{module}.{name}")

    def test_what_pages_import(self) -> None:
        """What the guide imports from the pipeline is among them."""
        text = (ROOT / "docs" / "guide" / "pipeline-api.rst").read_text(encoding="utf-8")
        rows = re.findall(r"^   \* - ``(rmqha[\w.]+)``\n     - (.+)$", text, re.MULTILINE)
        public = {(module, name) for module, names in rows for name in literals(names)}
        used = {
            (module, name.strip())
            for page in PAGES
            for module, names in re.findall(
                r"from (rmqha\.pipeline[\w.]*) import ([\w, ]+)", page.read_text(encoding="utf-8")
            )
            for name in names.split(",")
        }
        self.assertGreater(len(used), 4)
        self.assertEqual(set(), used - public)


class DocstringTests(SynchronousTestCase):
    def test_markup(self) -> None:
        """Each docstring is such that the reference can be made, which takes minutes."""
        wrong, seen = [], 0
        for path in modules():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    errors: list[ParseError] = []
                    try:
                        parse(cleandoc(str(node.value.value)), errors)
                    except ParseError as error:
                        errors.append(error)
                    seen += 1
                    wrong += [f"{path}:{node.lineno}: {error.descr()}" for error in errors]
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 3000)
